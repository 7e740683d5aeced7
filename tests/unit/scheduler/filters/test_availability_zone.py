# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.availability_zone import AvailabilityZoneFilter
from tests.lab.builders import a_host, a_request


@pytest.mark.parametrize(
    ('metadata', 'default', 'verdict'),
    [
        ([{'availability_zone': 'az1'}], 'nova', None),
        ([{'availability_zone': 'az2, az1'}], 'nova', None),
        ([{'availability_zone': 'az2'}, {'availability_zone': 'az1'}], 'nova', None),
        ([{'availability_zone': 'az2'}], 'nova', 'in az2, az1 wanted'),
        ([{'availability_zone': 'az2'}], 'az1', 'in az2, az1 wanted'),
        ([{'ssd': 'true'}], 'nova', 'in nova, az1 wanted'),
        ([], 'az1', None),
        ([], None, 'in no zone, az1 wanted'),
    ],
)
def test_host_is_in_the_zone(metadata, default, verdict):
    """A host is in the zones of its aggregates, or else in the default one."""
    settings = Settings(default_availability_zone=default)
    each, request = AvailabilityZoneFilter(settings), a_request(availability_zone='az1')
    assert each.applies(request)
    assert each.reject(a_host(metadata=metadata), request) == verdict


def test_any_zone_will_do():
    """A request may name no zone."""
    assert not AvailabilityZoneFilter(Settings()).applies(a_request())
