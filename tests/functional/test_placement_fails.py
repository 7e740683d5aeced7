# SPDX-License-Identifier: Apache-2.0
"""While Placement fails, every request is answered or refused, and refused requests
hold no allocations. The daemons of these tests do not wait for Placement to recover:
test_patience.py tests the waiting. The unit tests of claims cover concurrent writers
and failing deletions."""

import json
import re
import threading

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy, answer, dropped, every, hang, hang_after, lost

SMALL = Flavor()
TIMEOUT = 4
SOON = 60.0
CANDIDATES = '/allocation_candidates'


@pytest.fixture(scope='module')
def hosts(cloud):
    cloud.reset()
    for number in range(3):
        cloud.add_host(f'host-{number}')
    return cloud


@pytest.fixture(scope='module')
def faulty(cloud):
    """The proxy between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


def behind(proxy):
    """Options of a daemon that reaches Placement through the proxy, for each request."""
    return {
        'placement': {'endpoint': proxy.url, 'timeout': TIMEOUT},
        'novasched': {'placement_patience': 0, 'candidates_max_age': 0},
    }


@pytest.fixture(scope='module')
def scheduler(hosts, faulty):
    with Daemon(hosts, behind(faulty)) as daemon:
        yield daemon


@pytest.fixture
def proxy(scheduler, faulty, hosts, client):
    """The proxy for a test. After the test the proxy works again and no allocation
    remains."""
    faulty.asked.clear()
    yield faulty
    faulty.faults = None
    faulty.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    for server in hosts.placement.all_allocations():
        hosts.placement.release(server)


def placed(client, *servers):
    """The hosts of servers; none if the request is refused with NoValidHost."""
    try:
        return client.chosen(*servers)
    except Refused as refused:
        if not refused.no_valid_host:
            raise
        return []


def held_by(hosts, servers):
    """The allocations of servers on their hosts.

    :param hosts: the hosts of the servers, empty if the servers were refused.
    """
    if not hosts:
        return {}

    allocations = {}
    for server, host in zip(servers, hosts, strict=True):
        allocations[server] = {host: SMALL.resources()}
    return allocations


def count_puts(proxy):
    """Number of claims that the proxy has seen."""
    return sum(line.startswith('PUT') for line in proxy.asked)


def count_queries(proxy):
    """Number of queries for allocation candidates that the proxy has seen."""
    return proxy.count(CANDIDATES)


def first(method, path, *faults):
    """A rule for the proxy: the first requests of a method for a path meet the faults,
    one fault for a request."""
    remaining = list(faults)
    lock = threading.Lock()

    def rule(request_method, request_path, body):
        if request_method != method or not request_path.startswith(path):
            return None
        with lock:
            if remaining:
                return remaining.pop(0)
            return None

    return rule


@pytest.mark.parametrize(
    ('method', 'servers', 'fault', 'is_placed'),
    [
        ('PUT', 1, lost(), True),
        ('PUT', 1, dropped(), False),
        ('PUT', 1, answer(500, work=True), True),
        ('POST', 2, lost(), True),
        ('POST', 2, answer(500), False),
    ],
    ids=['lost', 'dropped', '500 after the work', 'lost for two', '500 for two'],
)
def test_allocations_match_the_answer_after_a_failed_claim(
    proxy, hosts, client, method, servers, fault, is_placed
):
    """The servers hold exactly the allocations of the answer, if the answer has hosts,
    and nothing otherwise. The unit tests have a table of further outcomes."""
    uuids = new_uuids(servers)
    proxy.faults = first(method, '/allocations', fault)

    chosen = placed(client, *uuids)

    assert bool(chosen) is is_placed
    assert hosts.all_allocations() == held_by(chosen, uuids)


def test_allocations_of_a_hanging_claim_are_deleted(proxy, hosts, client):
    """The request is refused in time. The scheduler deletes the allocations of the
    claim when the claim succeeds late."""
    proxy.faults = first('PUT', '/allocations', hang())
    assert placed(client) == []

    proxy.wait_for_hanging()
    proxy.release()
    assert count_puts(proxy) == 1
    wait_until(
        lambda: count_puts(proxy) > 1 and not hosts.all_allocations(),
        SOON,
        'end of the allocation',
    )


def test_requests_fail_fast_while_placement_is_silent(proxy, client, scheduler):
    """The first request waits for Placement in vain. The next requests fail fast until
    a probe is answered."""
    proxy.faults = lambda method, path, body: hang()
    assert placed(client) == []
    queries = count_queries(proxy)

    for _ in range(3):
        assert placed(client) == []
    assert count_queries(proxy) == queries
    assert 'Placement circuit open, requests fail fast' in scheduler.text()

    proxy.faults = None
    proxy.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    assert 'Placement answers again' in scheduler.text()


def test_requests_are_refused_after_unusable_answers_of_placement(
    proxy, client, scheduler
):
    """Requests are refused if Placement's answer is no list of candidates, and the log
    describes the answer."""
    before = len(scheduler.text())
    not_a_list = answer(200, b'[' * 1_000_000)
    incomplete = answer(200, b'{"allocation_requests": [{"allocations": {"a": 5}}]}')
    for fault, message in (
        (not_a_list, 'Placement sends what cannot be read'),
        (incomplete, ''),
        (answer(500, b'\xff'), 'Placement answers 500'),
        (answer(403, b''), 'see the credentials'),
    ):
        proxy.faults = every('GET', CANDIDATES, fault)
        assert placed(client) == []
        assert message in scheduler.text()[before:]
    assert 'Traceback' not in scheduler.text()[before:]


def test_an_invalid_claim_is_logged_and_the_next_host_is_claimed(
    proxy, hosts, client, scheduler
):
    """A claim that Placement rejects as invalid is logged, and the next host is
    claimed."""
    [server] = new_uuids()
    error = {'status': 400, 'detail': 'no such class', 'code': ''}
    body = json.dumps({'errors': [error]}).encode()
    proxy.faults = first('PUT', '/allocations', *[answer(400, body)] * 2)

    chosen = placed(client, server)

    assert count_puts(proxy) == 3
    assert hosts.all_allocations() == held_by(chosen, [server])
    line = rf"WARNING nova.scheduler.client.report .*Claim refused for \['{server}'\]: 400 no such"
    assert re.search(line, scheduler.text())


def test_a_consumer_change_during_the_claim_fails_the_evacuation(
    proxy, hosts, client, scheduler
):
    """When another process changes the consumer during the claim, the answer is nova's
    exception AllocationUpdateFailed, on which a conductor ends the evacuation."""
    [server] = new_uuids()
    [source] = [
        compute.uuid for compute in hosts.computes.values() if compute.name == 'host-0'
    ]
    hosts.placement.allocate(server, source, SMALL.resources())
    claims = []

    def rule(method, path, body):
        """Change the consumer before the second claim; the first claim finds that the
        consumer exists."""
        if method != 'PUT':
            return
        claims.append(path)
        if len(claims) == 2:
            hosts.placement.keep(server, {source: SMALL.resources()})

    proxy.faults = rule
    with pytest.raises(Refused) as caught:
        client.select_destinations([server], SMALL, ignore_hosts=['host-0'])

    error = 'another process changed the consumer during the claim'
    text = f'Failed to update allocations for consumer {server}. Error: {error}'
    # oslo.messaging's client derives this class from nova's exception.
    raised = f'{caught.value.module}.{caught.value.name}'
    assert raised == 'nova.exception_Remote.AllocationUpdateFailed_Remote'
    assert caught.value.message.splitlines()[0] == text
    assert caught.value.kwargs == {'consumer_uuid': server, 'error': error, 'code': 500}
    assert claims == [f'/allocations/{server}'] * 2
    assert hosts.all_allocations() == {server: {'host-0': SMALL.resources()}}
    assert f'Cannot schedule: {text}' in scheduler.text()


def test_a_stopping_scheduler_deletes_allocations_of_failed_claims(
    hosts, proxy, caller
):
    """The process deletes the allocations of its failed claims before it ends."""
    with Daemon(hosts, behind(proxy)) as daemon:
        proxy.faults = every('PUT', '/allocations', hang_after())
        assert 'NoValidHost' in str(caller.place(server=daemon.host).error)
        assert hosts.all_allocations()

        proxy.faults = None
        proxy.release()
        assert daemon.stop() == 0
        assert hosts.all_allocations() == {}
