# SPDX-License-Identifier: Apache-2.0
"""Three schedulers that tell each other of their pending claims, while something
happens to one of them or to what they tell it by: pinned guests of which each host
holds two, though Placement would let a third onto it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.faults.site import hosts
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import NovaClient, Refused, a_call, new_uuids
from tests.lab.processes import wait_until
from tests.lab.reports import a_numa_cell, a_numa_topology

HOSTS = 40
EACH = 2
CLIENTS = 32
NAMES = [f'pinned-{i:02}' for i in range(HOSTS)]
PATIENCE = 20  # seconds
FIVE = Flavor(
    vcpus=5,
    ram_mb=64,
    disk_gb=1,
    extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'},
)
COLUMNS = {'numa_topology': a_numa_topology(a_numa_cell(0), a_numa_cell(1))}
OPTIONS = {
    'filter_scheduler': {'enabled_filters': 'ComputeFilter,NUMATopologyFilter'},
    'novasched': {'in_flight_timeout': 600},
}


def restart(site):
    site.rabbitmq.stop()
    site.rabbitmq.start()


def close_connections(site):
    site.rabbitmq.control('close_all_connections', 'a test')


def kill(site):
    site.daemons[0].kill()


def nothing(site):
    """The clocks are apart all the time."""


@pytest.fixture
def many_hosts(site):
    """Pinned guests' hosts alone, for a while."""
    site.cloud.reset()
    site.cloud.add_hosts(
        [
            Compute(x, f'cell{i % 2 + 1}', pcpus=16, columns=COLUMNS)
            for i, x in enumerate(NAMES)
        ]
    )
    yield
    site.cloud.reset()
    site.cloud.add_hosts(hosts())


@pytest.mark.long
@pytest.mark.parametrize('fault', [restart, close_connections, kill, nothing])
@pytest.mark.usefixtures('many_hosts')
def test_no_host_gets_more_than_it_holds(site, fault):
    """Nor is anybody refused for whom there is room. Requests whose scheduler, or whose
    answer, is lost are tried again, as users do; what they have claimed is theirs, and
    freed at the end."""
    config = site.cloud.config(
        'client', {'DEFAULT': {'rpc_response_timeout': PATIENCE}}
    )
    with (
        site.running(
            1, OPTIONS, site.clock.environment() if fault is nothing else None
        ),
        site.running(2, OPTIONS),
        closing(NovaClient(site.cloud.nova, config)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        site.clock.jump(3600 if fault is nothing else 0)
        servers = [uuid for [uuid] in (new_uuids() for _ in range(HOSTS * EACH))]
        asked = [a_call([uuid], FIVE) for uuid in servers]
        answers = pool.submit(client.select_at_once, asked, CLIENTS)
        wait_until(lambda: len(site.cloud.all_allocations()) > HOSTS / 2, 60, 'claims')
        fault(site)
        lost = []
        answers = answers.result()
        for uuid, answer in zip(servers, answers, strict=True):
            assert not (isinstance(answer, Refused) and answer.no_valid_host), answer
            lost += [uuid] if isinstance(answer, Refused) else []
        missing = [uuid for uuid in lost if uuid not in site.cloud.all_allocations()]
        for uuid in missing:
            client.select_destinations([uuid], FIVE)
        placed = Counter(
            host for each in site.cloud.all_allocations().values() for host in each
        )
        print(
            f'{len(lost)} answers lost; hosts by their number: {Counter(placed.values())}'
        )
        assert site.cloud.all_allocations().keys() == {*servers}
        assert placed == dict.fromkeys(NAMES, EACH)
