# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.request import Image
from novasched.placement.pinning import cpu_set, pinning, smt_trait
from tests.builders import a_flavor


@pytest.mark.parametrize(
    ('extra_specs', 'image', 'pins'),
    [
        ({}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {'hw_cpu_policy': 'dedicated'}, None),
        ({'hw:cpu_policy': 'nonsense'}, {}, None),
        ({'hw:cpu_policy': 'dedicated'}, {}, (8, 0)),
        ({}, {'hw_cpu_policy': 'dedicated'}, (8, 0)),
        ({'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'isolate'}, {}, (9, 0)),
        ({'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'share'}, {}, (8, 0)),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-2'}, {}, (3, 5)),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-2'}, {}, (5, 3)),
        (
            {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes', 'hw:cpu_realtime_mask': '^0'},
            {},
            (7, 1),
        ),
        (
            {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes'},
            {'hw_cpu_realtime_mask': '7'},
            (1, 7),
        ),
        ({'hw:cpu_policy': 'mixed'}, {}, (0, 8)),
    ],
)
def test_pinned_and_floating_cpus(extra_specs, image, pins):
    """Of 8 vCPUs, so many are PCPU in Placement and so many VCPU."""
    found = pinning(a_flavor(extra_specs, vcpus=8), Image(properties=image))
    assert (found and (found.pcpus, found.vcpus)) == pins


@pytest.mark.parametrize(
    ('flavor', 'image', 'trait'),
    [
        (None, None, None),
        ('prefer', None, None),
        ('isolate', None, 'forbidden'),
        ('require', None, 'required'),
        (None, 'require', 'required'),
        ('prefer', 'require', None),
    ],
)
def test_smt(flavor, image, trait):
    """Isolated threads want hosts without SMT, required ones want it."""
    specs = {'hw:cpu_thread_policy': flavor} if flavor else {}
    properties = {'hw_cpu_thread_policy': image} if image else {}
    assert smt_trait(a_flavor(specs), Image(properties=properties)) == trait


@pytest.mark.parametrize(
    ('text', 'cpus'),
    [
        ('0', {0}),
        ('0-3', {0, 1, 2, 3}),
        ('0-3,^1', {0, 2, 3}),
        ('^1,0-3', {0, 2, 3}),
        ('8, 10-11', {8, 10, 11}),
    ],
)
def test_cpu_set(text, cpus):
    """A list of CPUs has ranges, and exceptions in any order."""
    assert cpu_set(text) == cpus
