# SPDX-License-Identifier: Apache-2.0
"""Whatever Placement does, each request is answered or refused, and what is refused
holds nothing. Nobody waits here: test_patience.py is about that. Writers that collide,
and deletions that fail, are in the unit tests of claims."""

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
    """What stands between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


def behind(proxy):
    """Options of a daemon that knows Placement by the proxy."""
    return {
        'placement': {'endpoint': proxy.url, 'timeout': TIMEOUT},
        'novasched': {'placement_patience': 0},
    }


@pytest.fixture(scope='module')
def scheduler(hosts, faulty):
    with Daemon(hosts, behind(faulty)) as daemon:
        yield daemon


@pytest.fixture
def proxy(scheduler, faulty, hosts, client):
    """The proxy for one test, at the end of which all is well again and no host is
    taken."""
    faulty.asked.clear()
    yield faulty
    faulty.faults = None
    faulty.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    for server in hosts.placement.all_allocations():
        hosts.placement.release(server)


def placed(client, *servers):
    """The hosts of servers; none if they are refused, by what a conductor
    understands."""
    try:
        return client.chosen(*servers)
    except Refused as refused:
        if not refused.no_valid_host:
            raise
        return []


def held_by(hosts, servers):
    """What the servers hold if these are their hosts, or they were refused."""
    return {
        server: {host: SMALL.resources()}
        for server, host in zip(servers, hosts, strict=False)
    }


def first(method, path, *faults):
    """A rule: what happens to the first requests of that kind, in turn."""
    left = list(faults)
    lock = threading.Lock()

    def rule(asked, whole, body):
        if asked != method or not whole.startswith(path):
            return None
        with lock:
            if left:
                return left.pop(0)
            return None

    return rule


@pytest.mark.parametrize(
    ('method', 'servers', 'fault', 'answered'),
    [
        ('PUT', 1, lost(), True),
        ('PUT', 1, dropped(), False),
        ('PUT', 1, answer(500, work=True), True),
        ('POST', 2, lost(), True),
        ('POST', 2, answer(500), False),
    ],
    ids=['lost', 'dropped', '500 after the work', 'lost for two', '500 for two'],
)
def test_a_claim(proxy, hosts, client, method, servers, fault, answered):
    """Servers have what the answer says, whether it is a host or none. What else may
    come of a claim is in a table of the unit tests."""
    uuids = new_uuids(servers)
    proxy.faults = first(method, '/allocations', fault)
    chosen = placed(client, *uuids)
    assert bool(chosen) is answered
    assert hosts.all_allocations() == held_by(chosen, uuids)


def test_a_claim_that_hangs(proxy, hosts, client):
    """It is refused in time. What comes of it is given back, whenever that is."""
    proxy.faults = first('PUT', '/allocations', hang())
    assert placed(client) == []
    proxy.wait_for_hanging()
    proxy.release()
    seen = [each for each in proxy.asked if each.startswith('PUT')]
    assert len(seen) == 1
    wait_until(
        lambda: (
            len([each for each in proxy.asked if each.startswith('PUT')]) > 1
            and not hosts.all_allocations()
        ),
        SOON,
        'end of the allocation',
    )


def test_silence(proxy, client, scheduler):
    """One request waits in vain; the next do not wait, until a probe is answered."""
    proxy.faults = lambda method, path, body: hang()
    assert placed(client) == []
    asked = [each for each in proxy.asked if CANDIDATES in each]
    for _ in range(3):
        assert placed(client) == []
    assert [each for each in proxy.asked if CANDIDATES in each] == asked
    assert 'Placement circuit open, requests fail fast' in scheduler.text()
    proxy.faults = None
    proxy.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    assert 'Placement answers again' in scheduler.text()


def test_candidates(proxy, client, scheduler):
    """What is no list of candidates is refused, and the log says what it was."""
    before = len(scheduler.text())
    for fault, said in (
        (answer(200, b'[' * 1_000_000), 'Placement sent no allocation candidates'),
        (answer(200, b'{"allocation_requests": [{"allocations": {"a": 5}}]}'), ''),
        (answer(500, b'\xff'), 'Placement answers 500'),
        (answer(403, b''), 'see the credentials'),
    ):
        proxy.faults = every('GET', CANDIDATES, fault)
        assert placed(client) == []
        assert said in scheduler.text()[before:]
    assert 'Traceback' not in scheduler.text()[before:]


def test_a_claim_that_is_at_fault(proxy, hosts, client, scheduler):
    """It is logged, and the next host is taken."""
    [server] = new_uuids()
    body = json.dumps(
        {'errors': [{'status': 400, 'detail': 'no such class', 'code': ''}]}
    ).encode()
    proxy.faults = first('PUT', '/allocations', *[answer(400, body)] * 2)
    chosen = placed(client, server)
    assert len([each for each in proxy.asked if each.startswith('PUT')]) == 3
    assert hosts.all_allocations() == held_by(chosen, [server])
    said = rf"WARNING nova.scheduler.client.report .*Claim refused for \['{server}'\]: 400 no such"
    assert re.search(said, scheduler.text())


def test_an_evacuation_whose_consumer_changes(proxy, hosts, client, scheduler):
    """A claim that is lost to another process ends in the very exception of nova's on
    which a conductor ends the evacuation."""
    [server] = new_uuids()
    source = next(
        each.uuid for each in hosts.computes.values() if each.name == 'host-0'
    )
    hosts.placement.allocate(server, source, SMALL.resources())
    claims = []

    def rule(method, path, body):
        claims.extend([path] * (method == 'PUT'))
        # The first one finds that the consumer exists; before the second it is changed.
        if method == 'PUT' and len(claims) == 2:
            hosts.placement.keep(server, {source: SMALL.resources()})

    proxy.faults = rule
    with pytest.raises(Refused) as caught:
        client.select_destinations([server], SMALL, ignore_hosts=['host-0'])
    error = 'another process changed the consumer during the claim'
    text = f'Failed to update allocations for consumer {server}. Error: {error}'
    # oslo.messaging's client derives a class of that name from nova's own.
    raised = f'{caught.value.module}.{caught.value.name}'
    assert raised == 'nova.exception_Remote.AllocationUpdateFailed_Remote'
    assert caught.value.message.splitlines()[0] == text
    assert caught.value.kwargs == {'consumer_uuid': server, 'error': error, 'code': 500}
    assert claims == [f'/allocations/{server}'] * 2
    assert hosts.all_allocations() == {server: {'host-0': SMALL.resources()}}
    assert f'Cannot schedule: {text}' in scheduler.text()


def test_the_end_of_the_process(hosts, proxy, caller):
    """What is still to be given back is given back before."""
    with Daemon(hosts, behind(proxy)) as daemon:
        proxy.faults = every('PUT', '/allocations', hang_after())
        assert 'NoValidHost' in str(caller.place(server=daemon.host).error)
        assert hosts.all_allocations()
        proxy.faults = None
        proxy.release()
        assert daemon.stop() == 0
        assert hosts.all_allocations() == {}
