# SPDX-License-Identifier: Apache-2.0
"""Devices by alias."""

import json

import pytest

from novasched.conf.errors import ConfigError
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.requirements import pci_aliases
from tests.lab.builders import a_flavor

GPU = {'name': 'gpu', 'vendor_id': '10de', 'product_id': '1eb8', 'device_type': 'type-PCI'}
OTHER = {**GPU, 'product_id': '1db4', 'numa_policy': 'preferred'}
NIC = {'name': 'nic', 'resource_class': 'fast-nic', 'traits': 'custom_a, CUSTOM_B'}
SPEC = {'vendor_id': '10de', 'product_id': '1eb8', 'dev_type': 'type-PCI'}


def wanted(text, *aliases, image=None, **specs):
    flavor = a_flavor({'pci_passthrough:alias': text, **specs})
    return pci_aliases.pci_requests(flavor, image or {}, [json.dumps(each) for each in aliases])


def test_aliases():
    """Aliases of one name are alternatives."""
    assert pci_aliases.pci_requests(a_flavor(), {}, ['not looked at']) == ()
    found = wanted('gpu:2, nic:1', GPU, OTHER, NIC)
    assert found[0] == PciRequest(
        2, (SPEC, {**SPEC, 'product_id': '1db4'}), alias_name='gpu', request_id='pci-0'
    )
    assert found[1].spec == ({'resource_class': 'fast-nic', 'traits': 'custom_a, CUSTOM_B'},)


def test_numa_policy():
    """The flavor's comes before the image's, and that before the alias's."""
    image = {'hw_pci_numa_affinity_policy': 'socket'}
    (by_alias,) = wanted('gpu:1', OTHER)
    (by_image,) = wanted('gpu:1', OTHER, image=image)
    (by_flavor,) = wanted(
        'gpu:1', OTHER, image=image, **{'hw:pci_numa_affinity_policy': 'required'}
    )
    policies = [each.numa_policy for each in (by_alias, by_image, by_flavor)]
    assert policies == ['preferred', 'socket', 'required']


def test_groups():
    """Where Placement knows the devices there is a request group for each."""
    found = pci_aliases.request_groups(wanted('gpu:2,nic:1', GPU, NIC))
    asked = [(each.requester_id, dict(each.resources), set(each.required_traits)) for each in found]
    assert asked == [
        ('pci-0-0', {'CUSTOM_PCI_10DE_1EB8': 1}, set()),
        ('pci-0-1', {'CUSTOM_PCI_10DE_1EB8': 1}, set()),
        ('pci-1-0', {'CUSTOM_FAST_NIC': 1}, {'CUSTOM_A', 'CUSTOM_B'}),
    ]


@pytest.mark.parametrize(
    ('text', 'alias', 'error', 'why'),
    [
        ('tpu:1', json.dumps(GPU), BadRequest, 'tpu:1: no alias of that name'),
        ('gpu', json.dumps(GPU), BadRequest, 'gpu: NAME:COUNT is needed'),
        ('gpu:1', '{"name": 1}', ConfigError, r'\[pci\] alias = '),
        ('gpu:1', '[', ConfigError, 'no JSON object'),
    ],
)
def test_what_cannot_be(text, alias, error, why):
    """It is named."""
    with pytest.raises(error, match=why):
        pci_aliases.pci_requests(a_flavor({'pci_passthrough:alias': text}), {}, [alias])
