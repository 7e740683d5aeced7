# SPDX-License-Identifier: Apache-2.0
"""No request is refused in a short outage: requests wait for Placement, the API
database and the cells."""

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
ANSWER_TIMEOUT = 2
PATIENCE = 60
SOON = 60.0
QUERY = f'{CANDIDATES}?limit='
"""The begin of a request's query. Queries without a limit refresh remembered answers in
the background."""
WAITS = ' wait, for '
"""Part of the log line of a waiting request."""


@pytest.fixture(scope='module')
def hosts(cloud):
    """Two hosts with practically endless resources."""
    cloud.reset()
    for number in range(2):
        cloud.add_host(
            f'host-{number}', vcpus=10_000, ram_mb=50_000_000, disk_gb=1_000_000
        )
    return cloud


@pytest.fixture(scope='module')
def between(cloud):
    """The proxy between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


@pytest.fixture
def proxy(hosts, between):
    """The proxy for a test, which works again after the test."""
    between.asked.clear()
    yield between
    between.faults = None
    between.release()


@pytest.fixture(scope='module')
def tunnels(hosts):
    """The tunnels from the daemon to the API database, and to the cell of both
    hosts."""
    cell_url = hosts.cells['cell1'].url
    with Tunnel(hosts.api.url) as api, Tunnel(cell_url) as cell:
        hosts.map_cell('cell1', database_connection=cell.url)
        yield {'api': api, 'cell': cell}
        hosts.restore_cells()


@pytest.fixture(scope='module')
def scheduler(hosts, between, tunnels):
    """A scheduler with few threads. The patience is longer than the outages of these
    tests."""
    config = {
        'DEFAULT': {'executor_thread_pool_size': 2, 'graceful_shutdown_timeout': 6},
        'oslo_messaging_rabbit': {'rabbit_qos_prefetch_count': 1},
        'placement': {'endpoint': between.url, 'timeout': ANSWER_TIMEOUT},
        'api_database': {'connection': tunnels['api'].url},
        'novasched': {
            'placement_patience': PATIENCE,
            'database_patience': PATIENCE,
            'cell_timeout': ANSWER_TIMEOUT,
            'candidates_max_age': 0,
        },
    }
    with Daemon(hosts, config) as daemon:
        yield daemon


# keystoneauth repeats a request after the first 401.
PASSING = [
    *[answer(500)] * 2,
    *[answer(401)] * 2,
    answer(503),
    garbage(work=False),
    hang(work=False),
    dropped(),
    half(),
]


def queries(proxy):
    """The queries of requests for allocation candidates that the proxy has seen."""
    return [line for line in proxy.asked if QUERY in line]


def test_a_request_waits_out_transient_failures_of_placement(proxy, client, scheduler):
    """A request waits out every kind of transient failure. The log tells of refused
    credentials, which may be accepted again soon, and of their acceptance."""
    assert placed(client)  # the credentials are accepted
    proxy.asked.clear()
    before = len(scheduler.text())

    proxy.faults = first('GET', QUERY, *PASSING)
    assert placed(client)

    assert len(queries(proxy)) == len(PASSING) + 1
    log = scheduler.text()[before:]
    lines = re.findall(r'The credentials in \[placement\] are (refused|accepted)', log)
    assert lines == ['refused', 'accepted']


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
def test_allocations_are_read_before_a_claim_is_repeated(
    proxy, hosts, client, method, servers, fault
):
    """Before a claim is repeated, the scheduler reads the allocations that the first
    attempt may have made."""
    uuids = new_uuids(servers)
    proxy.faults = first(method, '/allocations', *[fault] * 2)

    chosen = placed(client, *uuids)

    assert len(chosen) == servers
    allocations = hosts.all_allocations()
    of_servers = {server: allocations.get(server) for server in uuids}
    assert of_servers == held_by(chosen, uuids)


@pytest.mark.usefixtures('scheduler')
def test_a_request_does_not_wait_after_an_invalid_query(proxy, client):
    """A request does not wait if Placement rejects the query as invalid."""
    proxy.faults = every('GET', CANDIDATES, answer(400))
    assert placed(client) == []
    assert len(queries(proxy)) == 1


def large_ones(fault):
    """A rule for the proxy: queries for the large flavor meet a fault."""

    def rule(method, path, body):
        if CANDIDATES in path and WANTED in path:
            return fault
        return None

    return rule


def test_a_slow_query_causes_no_refusal_of_quick_requests(
    proxy, client, caller, scheduler
):
    """A query times out again and again, and no request for another flavor is
    refused."""
    proxy.faults = large_ones(hang())
    before = len(scheduler.text())
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.chosen, flavor=LARGE)
        proxy.wait_for_hanging()

        def is_repeated():
            large_queries = proxy.count(WANTED)
            return slow.done() or large_queries > 1

        with load(caller, 4) as quick:
            wait_until(is_repeated, SOON, 'second attempt')
            count = len(quick.answers) + 20
            wait_until(lambda: len(quick.answers) > count, SOON, 'quick ones')
        assert quick.failures() == []

        proxy.faults = None
        proxy.release()
        assert slow.result()

    taken = sorted(answer.seconds for answer in quick.answers)
    median = statistics.median(taken)
    print(f'{len(taken)} quick ones: median {median:.3f} s, last {taken[-1]:.3f}')
    assert 'circuit open' not in scheduler.text()[before:]


def test_requests_without_a_thread_wait_in_the_broker(hosts, proxy, caller, scheduler):
    """Requests stay in the broker while all threads have waiting requests, and are
    answered as well."""
    before = scheduler.text().count(WAITS)
    proxy.faults = every('GET', CANDIDATES, answer(500))
    with ThreadPoolExecutor(6) as pool:
        requests = [pool.submit(caller.place) for _ in range(6)]
        wait_until(
            lambda: scheduler.text().count(WAITS) == before + 2, SOON, 'those who wait'
        )
        wait_until(
            lambda: broker.depth(hosts.amqp_url) == 3, SOON, 'those in the broker'
        )

        proxy.faults = None
        for request in requests:
            assert request.result().error is None


@pytest.mark.usefixtures('proxy')
@pytest.mark.parametrize(
    ('name', 'options', 'is_silent'),
    [('api', {'force_hosts': ['host-1']}, False), ('cell', {}, True)],
    ids=['API refuses', 'cell is silent'],
)
def test_a_request_waits_for_a_failing_database(
    client, scheduler, tunnels, name, options, is_silent
):
    """A request that names a host waits for the API database, which knows the host's
    cell. Every request waits for the only cell with hosts."""
    tunnel = tunnels[name]
    if is_silent:
        begin = tunnel.shut
        end = tunnel.open
    else:
        begin = tunnel.refuse
        end = tunnel.accept
    before = scheduler.text().count(WAITS)

    with ThreadPoolExecutor(1) as pool:
        begin()
        answer = pool.submit(client.select_destinations, new_uuids(), SMALL, **options)
        wait_until(lambda: scheduler.text().count(WAITS) > before, SOON, 'wait')
        end()
        [[selection]] = answer.result()

    expected = options.get('force_hosts', ['host-0', 'host-1'])
    assert selection['service_host'] in expected


def test_waiting_requests_are_refused_when_the_process_stops(proxy, caller, scheduler):
    """Waiting requests are refused when the process stops."""
    before = scheduler.text().count(WAITS)
    proxy.faults = every('GET', CANDIDATES, answer(500))
    with ThreadPoolExecutor(2) as pool:
        requests = [pool.submit(caller.place) for _ in range(2)]
        wait_until(
            lambda: scheduler.text().count(WAITS) == before + 2, SOON, 'those who wait'
        )

        assert scheduler.stop() == 0
        for request in requests:
            assert 'NoValidHost' in str(request.result().error)
    assert scheduler.text().count('Cannot schedule, since Placement fails: ') == 2
