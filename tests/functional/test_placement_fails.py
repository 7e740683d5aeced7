# SPDX-License-Identifier: Apache-2.0
"""Whatever Placement does, each request is answered or refused, and what is refused holds
nothing. Nobody waits here: test_patience.py is about that. Writers that collide, and deletions that
fail, are in the unit tests of claims."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import psutil
import pytest

from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon
from tests.lab.keystone import PASSWORD, Keystone
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config
from tests.lab.placement_api import Allocations
from tests.lab.processes import wait_until
from tests.lab.proxy import (
    Fault,
    Proxy,
    Rule,
    answer,
    dropped,
    every,
    half,
    hang,
    hang_after,
    huge,
    lost,
)
from tests.lab.steady import Caller

SMALL = Flavor()
TIMEOUT = 4
SOON = 60.0
CANDIDATES = '/allocation_candidates'


@pytest.fixture(scope='module')
def hosts(cloud: NovaCloud) -> NovaCloud:
    cloud.reset()
    for number in range(3):
        cloud.add_host(f'host-{number}')
    return cloud


@pytest.fixture(scope='module')
def faulty(cloud: NovaCloud) -> Iterator[Proxy]:
    """What stands between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


def behind(proxy: Proxy, patience: float = 0) -> Config:
    """Options of a daemon that knows Placement by the proxy, and waits so many seconds for it."""
    return {
        'placement': {'endpoint': proxy.url, 'timeout': TIMEOUT},
        'novasched': {'placement_patience': patience},
    }


@pytest.fixture(scope='module')
def scheduler(hosts: NovaCloud, faulty: Proxy) -> Iterator[Daemon]:
    """A daemon that knows Placement by the proxy."""
    with Daemon(hosts, behind(faulty)) as daemon:
        yield daemon


@pytest.fixture
def proxy(
    scheduler: Daemon, faulty: Proxy, hosts: NovaCloud, client: NovaClient
) -> Iterator[Proxy]:
    """The proxy for one test, at the end of which all is well again and no host is taken."""
    faulty.asked.clear()
    yield faulty
    faulty.faults = None
    faulty.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    for server in hosts.placement.all_allocations():
        hosts.placement.release(server)


def placed(client: NovaClient, *servers: str) -> list[str]:
    """The hosts of servers; none if they are refused, by what a conductor understands."""
    try:
        return client.chosen(*servers)
    except Refused as refused:
        if not refused.no_valid_host:
            raise
        return []


def held_by(hosts: list[str], servers: list[str]) -> Allocations:
    """What the servers hold if these are their hosts, or they were refused."""
    return {server: {host: SMALL.resources()} for server, host in zip(servers, hosts, strict=False)}


def first(method: str, path: str, *faults: Fault) -> Rule:
    """A rule: what happens to the first requests of that kind, in turn."""
    left, lock = list(faults), threading.Lock()

    def rule(asked: str, whole: str, body: bytes) -> Fault | None:
        if asked != method or not whole.startswith(path):
            return None
        with lock:
            return left.pop(0) if left else None

    return rule


@pytest.mark.parametrize(
    ('fault', 'answered'),
    [
        pytest.param(lost(), True, id='lost'),
        pytest.param(dropped(), False, id='dropped'),
        pytest.param(half(), True, id='half'),
        pytest.param(answer(500, work=True), True, id='500 after the work'),
        pytest.param(answer(500), False, id='500'),
        pytest.param(Fault(status=200, body=b'<html>'), True, id='a page after the work'),
        pytest.param(answer(403), False, id='403'),
    ],
)
@pytest.mark.parametrize(('method', 'servers'), [('PUT', 1), ('POST', 2)], ids=['PUT', 'POST'])
def test_a_claim(
    proxy: Proxy,
    hosts: NovaCloud,
    client: NovaClient,
    method: str,
    servers: int,
    fault: Fault,
    answered: bool,
) -> None:
    """Servers have what the answer says, whether it is a host or none. What else may come of a
    claim is in a table of the unit tests."""
    uuids = new_uuids(servers)
    proxy.faults = first(method, '/allocations', fault)
    chosen = placed(client, *uuids)
    assert bool(chosen) is answered
    assert hosts.all_allocations() == held_by(chosen, uuids)


def test_a_claim_whose_answer_hangs(proxy: Proxy, hosts: NovaCloud, client: NovaClient) -> None:
    """The allocation stands where something is answered meanwhile, so that the circuit stays
    closed and it is looked at in time; else, without patience, it is refused and deleted."""
    [uuid] = uuids = new_uuids()
    proxy.faults = first('PUT', '/allocations', hang_after())
    chosen = placed(client, uuid)
    proxy.wait_for_hanging()
    proxy.release()
    writes = [each for each in proxy.asked if each.startswith('PUT')]
    assert not chosen or len(writes) == 1
    wait_until(
        lambda: hosts.all_allocations() == (held_by(chosen, uuids) if chosen else {}),
        SOON,
        'agreement of the answer and the allocations',
    )


def test_a_claim_that_hangs(proxy: Proxy, hosts: NovaCloud, client: NovaClient) -> None:
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


def test_silence(proxy: Proxy, client: NovaClient, scheduler: Daemon) -> None:
    """One request waits in vain; the next do not wait, until a probe is answered."""
    proxy.faults = lambda method, path, body: hang()
    assert placed(client) == []
    asked = [each for each in proxy.asked if CANDIDATES in each]
    for _ in range(3):
        assert placed(client) == []
    assert [each for each in proxy.asked if CANDIDATES in each] == asked
    assert 'Placement is left alone until it answers again' in scheduler.text()
    proxy.faults = None
    proxy.release()
    wait_until(lambda: bool(placed(client)), SOON, 'answer of the daemon')
    assert 'Placement answers again' in scheduler.text()


@pytest.mark.parametrize(
    ('fault', 'said'),
    [
        pytest.param(answer(200, b'<html>'), 'Placement sent no allocation candidates', id='page'),
        pytest.param(
            answer(200, b'[' * 1_000_000), 'Placement sent no allocation candidates', id='deep'
        ),
        pytest.param(
            answer(200, b'{"allocation_requests": [{"allocations": {"a": 5}}]}'), '', id='amounts'
        ),
        pytest.param(answer(500, b'\xff'), 'Placement answers 500', id='500'),
        pytest.param(answer(403, b''), 'see the credentials', id='403'),
        pytest.param(answer(406), r'Placement is to be upgraded', id='406'),
    ],
)
def test_candidates(
    proxy: Proxy, client: NovaClient, scheduler: Daemon, fault: Fault, said: str
) -> None:
    """What is no list of candidates is refused, and the log says what it was."""
    proxy.faults = every('GET', CANDIDATES, fault)
    before = len(scheduler.text())
    assert placed(client) == []
    log = scheduler.text()[before:]
    assert said in log
    assert 'Traceback' not in log


def test_memory(proxy: Proxy, client: NovaClient, scheduler: Daemon) -> None:
    """Answers that are too large cost no more than the largest that is read."""
    proxy.faults = every('GET', CANDIDATES, huge(2 << 30))
    [worker] = psutil.Process(scheduler.pid).children()
    for _ in range(3):
        assert placed(client) == []
    assert 'the answer has more than 64 MiB' in scheduler.text()
    assert _peak(worker.pid) < 400 << 20


def _peak(pid: int) -> int:
    """The most resident memory that a process ever had, in bytes."""
    with open(f'/proc/{pid}/status') as status:
        [line] = [each for each in status if each.startswith('VmHWM')]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize(('status', 'detail'), [(409, 'no room'), (400, 'no such class')])
def test_the_next_host(
    proxy: Proxy, hosts: NovaCloud, client: NovaClient, scheduler: Daemon, status: int, detail: str
) -> None:
    """A candidate that is refused leaves the others; a query that is at fault is logged."""
    [server] = new_uuids()
    body = json.dumps({'errors': [{'status': status, 'detail': detail, 'code': ''}]}).encode()
    proxy.faults = first('PUT', '/allocations', *[answer(status, body)] * 2)
    chosen = placed(client, server)
    assert len([each for each in proxy.asked if each.startswith('PUT')]) == 3
    assert hosts.all_allocations() == held_by(chosen, [server])
    said = rf"WARNING nova.scheduler.client.report .*Claim refused for \['{server}'\]: 400 no such"
    assert bool(re.search(said, scheduler.text())) is (status == 400)


def test_an_evacuation_whose_consumer_changes(
    proxy: Proxy, hosts: NovaCloud, client: NovaClient, scheduler: Daemon
) -> None:
    """A claim that is lost to another process ends in the very exception of nova's on which a
    conductor ends the evacuation."""
    [server] = new_uuids()
    source = next(each.uuid for each in hosts.computes.values() if each.name == 'host-0')
    hosts.placement.allocate(server, source, SMALL.resources())
    claims: list[str] = []

    def rule(method: str, path: str, body: bytes) -> Fault | None:
        claims.extend([path] * (method == 'PUT'))
        # The first one finds that the consumer exists; before the second it is changed.
        if method == 'PUT' and len(claims) == 2:
            hosts.placement.keep(server, {source: SMALL.resources()})
        return None

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


def test_the_end_of_the_process(hosts: NovaCloud, proxy: Proxy, caller: Caller) -> None:
    """What is still to be given back is given back before."""
    with Daemon(hosts, behind(proxy)) as daemon:
        proxy.faults = every('PUT', '/allocations', hang_after())
        assert 'NoValidHost' in str(caller.place(server=daemon.host).error)
        assert hosts.all_allocations()
        proxy.faults = None
        proxy.release()
        assert daemon.stop() == 0
        assert hosts.all_allocations() == {}


def expiring(keystone: Keystone, method: str) -> Rule:
    """A rule: the token expires just before the first request of a kind."""
    given = keystone.given

    def rule(asked: str, path: str, body: bytes) -> Fault | None:
        if asked == method and keystone.given == given:
            keystone.expired = True
        return answer(401) if keystone.expired else None

    return rule


def test_a_token_expires(hosts: NovaCloud, proxy: Proxy, caller: Caller) -> None:
    """A new one is asked for, once, and the request goes on."""
    with Keystone() as keystone:
        named = {'endpoint_override': proxy.url, **keystone.options()}
        with Daemon(hosts, {'placement': named}) as daemon:
            proxy.faults = lambda *_: answer(401) if keystone.expired else None
            assert caller.place(server=daemon.host).error is None
            for method in ('GET', 'PUT'):
                given = keystone.given
                proxy.faults = expiring(keystone, method)
                assert caller.place(server=daemon.host).error is None
                assert keystone.given == given + 1
            assert PASSWORD not in daemon.text()
