# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.aggregate_instance_extra_specs import (
    AggregateInstanceExtraSpecsFilter,
)
from tests.lab.builders import a_host, a_request

HOST = a_host(
    metadata=[{'ssd': 'true', 'racks': '3', 'color': 'red, blue'}, {'color': 'green', 'a:b': '1'}]
)
SCOPE = 'aggregate_instance_extra_specs'


@pytest.mark.parametrize(
    ('extra_specs', 'verdict'),
    [
        ({'ssd': 'true'}, None),
        ({f'{SCOPE}:ssd': 'true'}, None),
        ({f'{SCOPE}:ssd': 'false'}, "'ssd' is 'true', 'false' wanted"),
        ({f'{SCOPE}:a:b': '1'}, None),
        ({'color': 'blue'}, None),
        ({'color': 'black'}, "'color' is 'blue, green, red', 'black' wanted"),
        ({'color': '<or> black <or> green'}, None),
        ({'racks': '>= 3'}, None),
        ({'racks': '>= 4'}, "'racks' is '3', '>= 4' wanted"),
        ({'ssd': '<in> tr'}, None),
        ({'ssd': '>= 1'}, "'ssd' is 'true', '>= 1' wanted"),
        ({'racks': '>= few'}, "'racks' is '3', '>= few' wanted"),
        ({'unknown': '1'}, "no aggregate with 'unknown'"),
        ({'ssd': 'true', 'unknown': '1'}, "no aggregate with 'unknown'"),
        ({'hw:cpu_policy': 'dedicated', 'resources:VGPU': '1'}, None),
    ],
)
def test_metadata_meets_the_extra_specs(extra_specs, verdict):
    """Each extra spec is met by one of the values that the host's aggregates give."""
    request = a_request(extra_specs=extra_specs)
    assert AggregateInstanceExtraSpecsFilter(Settings()).reject(HOST, request) == verdict


@pytest.mark.parametrize(
    ('extra_specs', 'applies'),
    [
        ({}, False),
        ({'hw:cpu_policy': 'dedicated'}, False),
        ({'ssd': 'true'}, True),
        ({f'{SCOPE}:ssd': 'true'}, True),
    ],
)
def test_applies_to_its_scope_and_to_none(extra_specs, applies):
    """Keys in other scopes are none of its business."""
    request = a_request(extra_specs=extra_specs)
    assert AggregateInstanceExtraSpecsFilter(Settings()).applies(request) is applies
