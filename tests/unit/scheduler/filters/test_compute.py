# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.compute import ComputeFilter
from tests.lab.builders import a_host, a_request


@pytest.mark.parametrize(
    ('service', 'verdict'),
    [
        ({}, None),
        ({'disabled': True, 'why': 'disk swap'}, 'disabled, reason: disk swap'),
        ({'up': False}, 'has not been heard from in a while'),
        ({'disabled': True, 'up': False}, 'disabled, reason: None'),
    ],
)
def test_service_must_be_enabled_and_heard_of(service, verdict):
    """Only an enabled service that reports can take servers."""
    assert ComputeFilter(Settings()).reject(a_host(**service), a_request()) == verdict
