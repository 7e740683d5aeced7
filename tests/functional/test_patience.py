# SPDX-License-Identifier: Apache-2.0
"""A short outage refuses nobody: requests wait for what they cannot do without."""

import re
import statistics
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import broker
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.processes import wait_until
from tests.lab.proxy import (
    Proxy,
    Tunnel,
    answer,
    dropped,
    every,
    garbage,
    half,
    hang,
    hang_after,
)
from tests.lab.rpc_load import load

from .test_placement_fails import CANDIDATES, first, held_by, placed

SMALL = Flavor()
LARGE = Flavor(ram_mb=4096)
WANTED = f'MEMORY_MB%3A{LARGE.ram_mb}'
TIMEOUT = 2
PATIENCE = 60
SOON = 60.0
WAITS = ' wait, for '


@pytest.fixture(scope='module')
def hosts(cloud):
    """Two hosts without end."""
    cloud.reset()
    for number in range(2):
        cloud.add_host(
            f'host-{number}', vcpus=10_000, ram_mb=50_000_000, disk_gb=1_000_000
        )
    return cloud


@pytest.fixture(scope='module')
def between(cloud):
    """What stands between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


@pytest.fixture
def proxy(hosts, between):
    """The same for one test, at the end of which all is well again."""
    between.asked.clear()
    yield between
    between.faults = None
    between.release()


@pytest.fixture(scope='module')
def tunnels(hosts):
    """What stands between the daemon and the API database, and the cell of both
    hosts."""
    cell = hosts.cells['cell1'].url
    with Tunnel(hosts.api.url) as api, Tunnel(cell) as own:
        hosts.map_cell('cell1', database_connection=own.url)
        yield {'api': api, 'cell': own}
        hosts.restore_cells()


@pytest.fixture(scope='module')
def scheduler(hosts, between, tunnels):
    """It waits for longer than any of these outages takes, and has few threads for
    that."""
    config = {
        'DEFAULT': {'executor_thread_pool_size': 2, 'graceful_shutdown_timeout': 6},
        'oslo_messaging_rabbit': {'rabbit_qos_prefetch_count': 1},
        'placement': {'endpoint': between.url, 'timeout': TIMEOUT},
        'api_database': {'connection': tunnels['api'].url},
        'novasched': {
            'placement_patience': PATIENCE,
            'database_patience': PATIENCE,
            'cell_timeout': TIMEOUT,
            'candidates_max_age': 0,
        },
    }
    with Daemon(hosts, config) as daemon:
        yield daemon


# The library itself repeats a request at the first 401.
PASSING = [
    *[answer(500)] * 2,
    *[answer(401)] * 2,
    answer(503),
    garbage(work=False),
    hang(work=False),
    dropped(),
    half(),
]


def test_a_query(proxy, client, scheduler):
    """Whatever it is that passes, it is waited for. Credentials that are refused may be
    good again soon; the log has the refusal, and then the acceptance."""
    assert placed(client)  # the credentials are good
    proxy.asked.clear()
    before = len(scheduler.text())
    proxy.faults = first('GET', CANDIDATES, *PASSING)
    assert placed(client)
    asked = [each for each in proxy.asked if CANDIDATES in each]
    assert len(asked) == len(PASSING) + 1
    log = scheduler.text()[before:]
    said = re.findall(r'The credentials in \[placement\] are (refused|accepted)', log)
    assert said == ['refused', 'accepted']


@pytest.mark.usefixtures('scheduler')
@pytest.mark.parametrize(
    ('method', 'servers', 'fault'),
    [
        pytest.param('PUT', 1, answer(401), id='401'),
        pytest.param('PUT', 1, answer(500, work=True), id='500 after the work'),
        pytest.param('PUT', 1, hang_after(), id='silence after the work'),
        pytest.param(
            'POST', 2, answer(500, work=True), id='500 after the work for two'
        ),
    ],
)
def test_a_claim(proxy, hosts, client, method, servers, fault):
    """What it may have done is looked at before it is asked for once more."""
    uuids = new_uuids(servers)
    proxy.faults = first(method, '/allocations', *[fault] * 2)
    chosen = placed(client, *uuids)
    assert len(chosen) == servers
    found = hosts.all_allocations()
    assert {server: found.get(server) for server in uuids} == held_by(chosen, uuids)


@pytest.mark.usefixtures('scheduler')
def test_a_bad_query(proxy, client):
    """Nobody waits where the query itself is at fault."""
    proxy.faults = every('GET', CANDIDATES, answer(400))
    assert placed(client) == []
    assert len([each for each in proxy.asked if CANDIDATES in each]) == 1


def large_ones(fault):
    return lambda method, path, body: (
        fault if CANDIDATES in path and WANTED in path else None
    )


def test_one_slow_query(proxy, client, caller, scheduler):
    """It times out again and again, and nobody who asks for something else is
    refused."""
    proxy.faults = large_ones(hang())
    before = len(scheduler.text())
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.chosen, flavor=LARGE)
        proxy.wait_for_hanging()
        with load(caller, 4) as found:
            wait_until(
                lambda: (
                    slow.done() or sum(WANTED in each for each in [*proxy.asked]) > 1
                ),
                SOON,
                'second attempt',
            )
            count = len(found.answers) + 20
            wait_until(lambda: len(found.answers) > count, SOON, 'quick ones')
        assert found.failures() == []
        proxy.faults = None
        proxy.release()
        assert slow.result()
    taken = sorted(each.seconds for each in found.answers)
    print(
        f'{len(taken)} quick ones: median {statistics.median(taken):.3f} s, last {taken[-1]:.3f}'
    )
    assert 'circuit open' not in scheduler.text()[before:]


def test_those_who_find_no_thread(hosts, proxy, caller, scheduler):
    """They stay in the broker while others wait, and are answered as well."""
    before = scheduler.text().count(WAITS)
    proxy.faults = every('GET', CANDIDATES, answer(500))
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(caller.place) for _ in range(6)]
        wait_until(
            lambda: scheduler.text().count(WAITS) == before + 2, SOON, 'those who wait'
        )
        wait_until(
            lambda: broker.depth(hosts.amqp_url) == 3, SOON, 'those in the broker'
        )
        proxy.faults = None
        assert [each.result().error for each in asked] == [None] * 6


@pytest.mark.usefixtures('proxy')
@pytest.mark.parametrize(
    ('name', 'asked', 'silent'),
    [('api', {'force_hosts': ['host-1']}, False), ('cell', {}, True)],
    ids=['API refuses', 'cell is silent'],
)
def test_a_database(client, scheduler, tunnels, name, asked, silent):
    """A request that names a host waits for what knows its cell, and each request for
    the only cell with hosts."""
    tunnel = tunnels[name]
    before = scheduler.text().count(WAITS)
    if silent:
        begin, end = (tunnel.shut, tunnel.open)
    else:
        begin, end = (tunnel.refuse, tunnel.accept)
    with ThreadPoolExecutor(1) as pool:
        begin()
        placed = pool.submit(client.select_destinations, new_uuids(), SMALL, **asked)
        wait_until(lambda: scheduler.text().count(WAITS) > before, SOON, 'wait')
        end()
        [[found]] = placed.result()
    assert found['service_host'] in asked.get('force_hosts', ['host-0', 'host-1'])


def test_the_end_of_the_process(proxy, caller, scheduler):
    """Who waits is refused in time."""
    before = scheduler.text().count(WAITS)
    proxy.faults = every('GET', CANDIDATES, answer(500))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(caller.place) for _ in range(2)]
        wait_until(
            lambda: scheduler.text().count(WAITS) == before + 2, SOON, 'those who wait'
        )
        assert scheduler.stop() == 0
        assert all('NoValidHost' in str(each.result().error) for each in asked)
    assert scheduler.text().count('Cannot schedule, since Placement fails: ') == 2
