# SPDX-License-Identifier: Apache-2.0
"""Many requests at once to a scheduler with a slow filter that was written for nova:
the queue of decisions is longer than a single decision may take, and each request still
sees the others."""

from collections import Counter
from textwrap import dedent

import pytest

from tests.lab import fixtures
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, Refused, a_call, new_uuids

mariadb = fixtures.mariadb
rabbitmq = fixtures.rabbitmq
placement = fixtures.placement
cloud = fixtures.cloud
client = fixtures.client

AT_ONCE = 64
SLOW_FILTER = """
    import time

    from nova.scheduler import filters


    class SlowFilter(filters.BaseHostFilter):
        def filter_all(self, filter_obj_list, spec_obj):
            time.sleep(0.12)
            return [host for host in filter_obj_list if host.free_ram_mb > 0]
"""
MAX_INSTANCES = 8
KINDS = {
    'a hard group': (200, {'group': Group('anti-affinity')}, 1),
    'instances of a host': (AT_ONCE // MAX_INSTANCES, {}, MAX_INSTANCES),
    'plain': (200, {}, 1),
}
"""Hosts, what is asked for, and the instances that one host may get."""


@pytest.fixture(scope='module')
def scheduler(cloud, tmp_path_factory):
    """A scheduler that has the slow filter from a module on its path."""
    site = tmp_path_factory.mktemp('slow')
    (site / 'slow_filter.py').write_text(dedent(SLOW_FILTER))
    options = {
        'filter_scheduler': {
            'available_filters': [
                'nova.scheduler.filters.all_filters',
                'slow_filter.SlowFilter',
            ],
            'enabled_filters': 'SlowFilter,ServerGroupAntiAffinityFilter,NumInstancesFilter',
            'max_instances_per_host': str(MAX_INSTANCES),
        },
    }
    cloud.reset()
    with Daemon(cloud, options, environment={'PYTHONPATH': str(site)}) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize('kind', KINDS)
def test_each_request_sees_the_others(cloud, client, scheduler, kind):
    """All are placed, on no host more than may be there."""
    hosts, asked, most = KINDS[kind]
    cloud.reset()
    cloud.add_hosts([Compute(f'host-{number:03}', 'cell1') for number in range(hosts)])
    calls = [a_call(new_uuids(), Flavor(), **asked) for _ in range(AT_ONCE)]
    answers = client.select_at_once(calls, AT_ONCE)
    failed = [answer for answer in answers if isinstance(answer, Refused)]
    assert failed == []
    placed = Counter(answer[0][0]['service_host'] for answer in answers)
    print(f'{kind}: instances on a host: {Counter(placed.values())}')
    assert max(placed.values()) <= most
