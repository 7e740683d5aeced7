# SPDX-License-Identifier: Apache-2.0
"""A nova.conf of Mitaka's time, and one of today that means the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config

pytestmark = pytest.mark.skipif(is_reference(), reason='it knows these options no more')

FILTERS = 'RetryFilter,AvailabilityZoneFilter,RamFilter,ComputeFilter,NumInstancesFilter'
PATH = 'nova.scheduler.filters.all_filters'

MITAKA: Config = {
    'DEFAULT': {
        'scheduler_driver': 'nova.scheduler.filter_scheduler.FilterScheduler',
        'scheduler_default_filters': FILTERS,
        'scheduler_available_filters': PATH,
        'scheduler_weight_classes': 'nova.scheduler.weights.all_weighers',
        'scheduler_host_subset_size': 1,
        'scheduler_max_attempts': 2,
        'scheduler_driver_task_period': 30,
        'ram_weight_multiplier': -1.0,
        'max_instances_per_host': 2,
    }
}
TODAY: Config = {
    'scheduler': {
        'driver': 'filter_scheduler',
        'max_attempts': 2,
        'periodic_task_interval': 30,
        'workers': 1,
    },
    'filter_scheduler': {
        'enabled_filters': FILTERS,
        'available_filters': PATH,
        'weight_classes': 'nova.scheduler.weights.all_weighers',
        'host_subset_size': 1,
        'ram_weight_multiplier': -1.0,
        'max_instances_per_host': 2,
    },
}


@pytest.fixture(params=[MITAKA, TODAY], ids=['mitaka', 'today'])
def daemon(request: pytest.FixtureRequest, cloud: NovaCloud) -> Iterator[Daemon]:
    """A scheduler over three hosts that differ in memory alone."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192, 16384), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    with Daemon(cloud, request.param) as running:
        yield running


def test_both_mean_the_same(daemon: Daemon, cloud: NovaCloud, client: NovaClient) -> None:
    """Servers are stacked on the smallest host until it has two, then on the next; one
    alternate stands behind each; a filter that upstream removed does its work."""
    hosts = []
    for server in new_uuids(6):
        [[first, *alternates]] = client.select_destinations(
            [server], Flavor(), return_alternates=True
        )
        assert len(alternates) == (1 if len(hosts) < 4 else 0)
        hosts.append(first['service_host'])
        cloud.boot(server, first['service_host'], Flavor())
    assert hosts == ['host-1', 'host-1', 'host-2', 'host-2', 'host-3', 'host-3']
    with pytest.raises(Refused) as caught:
        client.select_destinations(new_uuids(), Flavor())
    assert caught.value.no_valid_host
    assert 'Filter NumInstancesFilter returned 0 hosts' in daemon.text()


def test_zones_are_left_to_the_filter(cloud: NovaCloud, client: NovaClient) -> None:
    """With query_placement_for_availability_zone off, AvailabilityZoneFilter decides."""
    cloud.reset()
    for name in ('host-1', 'host-2'):
        cloud.add_host(name)
    cloud.add_aggregate('zone', ['host-2'], zone='az2')
    config: Config = {
        **TODAY,
        'scheduler': {'query_placement_for_availability_zone': False},
    }
    with Daemon(cloud, config) as running:
        [[selection]] = client.select_destinations(new_uuids(), Flavor(), zone='az2')
        assert selection['service_host'] == 'host-2'
        assert 'Filter AvailabilityZoneFilter returned 1 host(s)' in running.text()
