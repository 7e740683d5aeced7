# SPDX-License-Identifier: Apache-2.0
"""Three schedulers that announce their pending claims to each other, while a fault
happens to a scheduler or to the broker. The guests are pinned: a host has CPUs for two
guests, and Placement would accept a third."""

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
GUESTS_PER_HOST = 2
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
    """Do nothing: the clocks differ all the time."""


@pytest.fixture
def many_hosts(site):
    """A cloud with the hosts for pinned guests alone."""
    computes = []
    for i, name in enumerate(NAMES):
        cell = f'cell{i % 2 + 1}'
        computes.append(Compute(name, cell, pcpus=16, columns=COLUMNS))

    site.cloud.reset()
    site.cloud.add_hosts(computes)
    yield
    site.cloud.reset()
    site.cloud.add_hosts(hosts())


@pytest.mark.long
@pytest.mark.parametrize('fault', [restart, close_connections, kill, nothing])
@pytest.mark.usefixtures('many_hosts')
def test_no_host_is_overfilled_while_a_scheduler_or_broker_fails(site, fault):
    """No request is refused for which there is room either. A request without an answer
    is repeated, as users do, unless the lost scheduler has made its claim."""
    options = {'DEFAULT': {'rpc_response_timeout': PATIENCE}}
    config = site.cloud.config('client', options)
    environment = None
    jump_s = 0
    if fault is nothing:
        environment = site.clock.environment()
        jump_s = 3600
    servers = new_uuids(HOSTS * GUESTS_PER_HOST)
    calls = [a_call([uuid], FIVE) for uuid in servers]

    with (
        site.running(1, OPTIONS, environment),
        site.running(2, OPTIONS),
        closing(NovaClient(site.cloud.nova, config)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        site.clock.jump(jump_s)
        selecting = pool.submit(client.select_at_once, calls, CLIENTS)
        wait_until(lambda: len(site.cloud.all_allocations()) > HOSTS / 2, 60, 'claims')
        fault(site)

        lost = []
        for uuid, answer in zip(servers, selecting.result(), strict=True):
            if isinstance(answer, Refused):
                assert not answer.no_valid_host, answer
                lost.append(uuid)
        missing = [uuid for uuid in lost if uuid not in site.cloud.all_allocations()]
        for uuid in missing:
            client.select_destinations([uuid], FIVE)

        guests = Counter()
        for hosts_of_guest in site.cloud.all_allocations().values():
            guests.update(hosts_of_guest.keys())
        numbers = Counter(guests.values())
        print(f'{len(lost)} answers lost; hosts by their number: {numbers}')
        assert site.cloud.all_allocations().keys() == {*servers}
        assert guests == dict.fromkeys(NAMES, GUESTS_PER_HOST)
