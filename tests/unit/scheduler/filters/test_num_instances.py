# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.num_instances import (
    AggregateNumInstancesFilter,
    NumInstancesFilter,
)
from tests.lab.builders import a_host, a_request

SETTINGS = Settings(max_instances_per_host=50)


@pytest.mark.parametrize(
    ('kind', 'metadata', 'servers', 'verdict'),
    [
        (NumInstancesFilter, {}, 49, None),
        (NumInstancesFilter, {}, 50, '50 servers, limit 50'),
        (NumInstancesFilter, {'max_instances_per_host': '60'}, 50, '50 servers, limit 50'),
        (AggregateNumInstancesFilter, {}, 50, '50 servers, limit 50'),
        (AggregateNumInstancesFilter, {'max_instances_per_host': '60'}, 50, None),
        (AggregateNumInstancesFilter, {'max_instances_per_host': '0'}, 0, '0 servers, limit 0'),
        (AggregateNumInstancesFilter, {'max_instances_per_host': '2.5'}, 49, None),
    ],
)
def test_limit(kind, metadata, servers, verdict):
    """A host takes no more servers than the option, or its aggregates, allow."""
    host = a_host(num_instances=servers, metadata=metadata)
    assert kind(SETTINGS).reject(host, a_request()) == verdict
