# SPDX-License-Identifier: Apache-2.0
"""Many requests at once to a scheduler with a slow filter that was written for nova. The
requests wait longer than a single decision may take, and still no request uses
capacity of another request."""

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
"""The number of hosts, the arguments of a call, and the maximum of instances per
host."""


@pytest.fixture(scope='module')
def scheduler(cloud, tmp_path_factory):
    """A scheduler that imports the slow filter from a directory in PYTHONPATH."""
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
def test_concurrent_requests_with_a_slow_filter_overfill_no_host(
    cloud, client, scheduler, kind
):
    """All instances are placed, and no host gets too many instances."""
    hosts, arguments, max_instances = KINDS[kind]
    cloud.reset()
    cloud.add_hosts([Compute(f'host-{number:03}', 'cell1') for number in range(hosts)])
    calls = [a_call(new_uuids(), Flavor(), **arguments) for _ in range(AT_ONCE)]

    answers = client.select_at_once(calls, AT_ONCE)

    instances = Counter()
    for answer in answers:
        assert not isinstance(answer, Refused), answer
        instances[answer[0][0]['service_host']] += 1
    print(f'{kind}: instances on a host: {Counter(instances.values())}')
    assert max(instances.values()) <= max_instances
