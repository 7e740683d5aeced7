# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.flavor import Image, RequestGroup
from tests.lab.builders import a_flavor, a_request


@pytest.mark.parametrize(
    ('fields', 'traits'),
    [
        ({}, set()),
        ({'extra_specs': {'trait:A': 'required', 'trait1:B': 'required', 'trait:C': 'forbidden'}}, {'A', 'B'}),
        ({'image': {'traits_required': ['A'], 'os_secure_boot': 'required'}}, {'A', 'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({'requested_resources': (RequestGroup('p1', {'CUSTOM_X': 1}, frozenset({'A'})),)}, {'A'}),
        ({'extra_specs': {'hw:cpu_thread_policy': 'require'}}, {'HW_CPU_HYPERTHREADING'}),
        ({'root_required': frozenset({'A'})}, set()),
    ],
)  # fmt: skip
def test_required_traits_of_groups(fields, traits):
    """What flavor, image and ports require of any provider, other than of the root."""
    groups = a_request(**fields).request_groups().values()
    assert {trait for group in groups for trait in group.required_traits} == traits


def test_requirements_are_kept_as_long_as_flavor_and_image_are():
    """They are worked out once for a request, and anew for another flavor or image."""
    request = a_request(extra_specs={'hw:cpu_policy': 'dedicated'}, image={})
    moved = replace(request, ignore_hosts=('a',)).for_instance('uuid')
    assert moved.requirements is request.requirements
    resized = replace(request, flavor=a_flavor())
    assert request.requirements.cpu_pinning is not None
    assert resized.requirements.cpu_pinning is None
    rebuilt = replace(request, image=Image(properties={'hw_machine_type': 'q35'}))
    assert rebuilt.requirements.properties == {'hw_machine_type': 'q35'}


def test_only_what_is_read_is_worked_out():
    """A part that is nonsense refuses nothing until it is read, and then each time."""
    requirements = a_request(extra_specs={'hw:cpu_policy': 'odd'}).requirements
    assert requirements.feature_traits == set()
    assert not requirements.needs_threads
    for _ in range(2):
        with pytest.raises(NoValidHost):
            _ = requirements.cpu_pinning
