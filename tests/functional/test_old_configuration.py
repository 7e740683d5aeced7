# SPDX-License-Identifier: Apache-2.0
"""A nova.conf of Mitaka's time."""

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.nova_release import Config

FILTERS = 'RetryFilter,AvailabilityZoneFilter,RamFilter,ComputeFilter,NumInstancesFilter'
MITAKA: Config = {
    'DEFAULT': {
        'scheduler_driver': 'nova.scheduler.filter_scheduler.FilterScheduler',
        'scheduler_default_filters': FILTERS,
        'scheduler_available_filters': 'nova.scheduler.filters.all_filters',
        'scheduler_weight_classes': 'nova.scheduler.weights.all_weighers',
        'scheduler_host_subset_size': 1,
        'scheduler_max_attempts': 2,
        'scheduler_driver_task_period': 30,
        'ram_weight_multiplier': -1.0,
        'max_instances_per_host': 2,
    },
    # Of a later time: it leaves zones to their filter, as it was then.
    'scheduler': {'query_placement_for_availability_zone': False, 'workers': 1},
}


def test_it_means_what_it_meant(cloud, client):
    """Servers are stacked on the smallest host until it has two, then on the next; one
    alternate stands behind each; filters that upstream removed do their work."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192, 16384), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    cloud.add_aggregate('zone', ['host-2'], zone='az2')
    placed = []
    with Daemon(cloud, MITAKA) as daemon:
        for server, zone in zip(new_uuids(6), ('az2', *[None] * 5), strict=True):
            [[first, *alternates]] = client.select_destinations(
                [server], Flavor(), zone=zone, return_alternates=True
            )
            placed.append((first['service_host'], len(alternates)))
            cloud.boot(server, first['service_host'], Flavor())
        assert 'Filter AvailabilityZoneFilter returned 1 host(s)' in daemon.text()
        assert placed == [
            ('host-2', 0), ('host-1', 1), ('host-1', 1), ('host-2', 1), ('host-3', 0), ('host-3', 0),
        ]  # fmt: skip
        with pytest.raises(Refused) as caught:
            client.select_destinations(new_uuids(), Flavor())
        assert caught.value.no_valid_host
        assert 'Filter NumInstancesFilter returned 0 hosts' in daemon.text()
