# SPDX-License-Identifier: Apache-2.0
"""The client of Placement against a real Placement on MariaDB."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from keystoneauth1 import adapter, session, token_endpoint

from novasched.cells.database import Database
from novasched.cells.instances import InstanceStates
from novasched.cells.mappings import Cells
from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.scheduler.errors import PlacementUnavailable
from tests.lab.builders import a_candidate, a_flavor, a_request
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import new_uuids
from tests.lab.nova_databases import database_options
from tests.lab.placement_api import TOKEN
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy, answer

ROOM = 4
WAIT = 30.0


class Counting(adapter.Adapter):
    """An HTTP client that notes what it asks, and that can be held up."""

    def __init__(self, url):
        own = session.Session(auth=token_endpoint.Token(url, TOKEN))
        super().__init__(own, service_type='placement', endpoint_override=url)
        self.asked = []
        self.waiting = threading.Semaphore(0)
        self.gate = None
        self.held_up = ''

    def request(self, url, method, **kwargs):
        self.asked.append(f'{method} {url.partition("?")[0]}')
        if self.gate is not None and url.startswith(self.held_up):
            self.waiting.release()
            assert self.gate.wait(WAIT)
        return super().request(url, method, **kwargs)

    def hold_up(self, path):
        """Let requests for a path wait for the gate."""
        self.held_up = path
        self.gate = threading.Event()


@pytest.fixture
def http(cloud):
    """How the client under test reaches Placement."""
    return Counting(cloud.placement_url)


@pytest.fixture
def client(http):
    return PlacementClient(Settings(), http)


@pytest.fixture
def hosts(cloud):
    """Two providers with room for four servers each."""
    cloud.reset()
    yield [
        cloud.add_host(name, vcpus=ROOM, cpu_ratio=1.0).uuid for name in ('one', 'two')
    ]
    cloud.reset()


def servers(count):
    """Requests for a vCPU, each with a server of its own in hand."""
    return [replace(a_request(), instance_uuid=uuid) for uuid in new_uuids(count)]


def held(cloud):
    return cloud.placement.all_allocations()


@pytest.mark.parametrize(
    ('first', 'second', 'fits'), [(2, 2, True), (4, 4, True), (5, 1, False)]
)
def test_together(cloud, client, http, hosts, first, second, fits):
    """Several servers are claimed by one request, all of them or none, and are given
    back."""
    providers = [hosts[0]] * first + [hosts[1]] * second
    requests = servers(len(providers))
    wanted = [(r, a_candidate(rp)) for r, rp in zip(requests, providers, strict=True)]
    claims = client.claim_together(wanted)
    assert http.asked == ['POST /allocations']
    expected = {
        str(request.instance_uuid): {rp: {'VCPU': 1}}
        for request, rp in zip(requests, providers, strict=True)
    }
    assert held(cloud) == (expected if fits else {})
    assert (claims is not None) is fits
    for claim in claims or ():
        client.delete_allocations(claim)
    assert held(cloud) == {}


def test_together_with_what_is_in_the_way(cloud, client, hosts):
    """A server that has an allocation already is not claimed for in passing. Where a
    provider is gone, Placement refuses all, and remembers the servers though they hold
    nothing; those of the others are claimed for afterwards."""
    first, one, two = servers(3)
    assert client.claim(first, a_candidate(hosts[0]))
    before = held(cloud)
    for other, provider in ((first, hosts[1]), (two, new_uuids(1)[0])):
        wanted = [(one, a_candidate(hosts[0])), (other, a_candidate(provider))]
        assert client.claim_together(wanted) is None
        assert held(cloud) == before
    claims = [client.claim(each, a_candidate(hosts[1])) for each in (one, two)]
    claimed = {str(r.instance_uuid): {hosts[1]: {'VCPU': 1}} for r in (one, two)}
    assert held(cloud) == before | claimed
    for claim in claims:
        client.delete_allocations(claim)
    assert held(cloud) == before


@pytest.mark.parametrize(
    ('others', 'asked'),
    [
        (1, ['PUT']),
        (ROOM - 1, ['POST']),
        (ROOM, ['POST', 'POST', 'POST', 'PUT', 'PUT']),
    ],
)
def test_claims_that_come_during_another(cloud, client, http, hosts, others, asked):
    """They are made by one request; where Placement refuses that, halves of it are
    tried, so that as many are claimed as one by one."""
    requests = servers(1 + others)
    http.hold_up('/allocations')
    assert http.gate
    with ThreadPoolExecutor(len(requests)) as pool:
        made = [pool.submit(client.claim, requests[0], a_candidate(hosts[0]))]
        assert http.waiting.acquire(timeout=WAIT)
        made += [
            pool.submit(client.claim, each, a_candidate(hosts[0]))
            for each in requests[1:]
        ]
        pause = threading.Event()
        while len(client._claims._batches.waiting) < others:
            pause.wait(0.001)
        http.gate.set()
        claims = [each.result(WAIT) for each in made]
    assert [each.split()[0] for each in http.asked[1:]] == asked
    assert len([claim for claim in claims if claim]) == min(ROOM, 1 + others)
    assert held(cloud).keys() == {claim.uuid for claim in claims if claim}


def test_questions_at_the_same_time(client, http, hosts):
    """Each request gets the answer to its own question. Those that come while a query
    is under way do not use its answer, which is older than they are, but share the
    next; nothing is kept."""
    large = [replace(each, flavor=a_flavor(vcpus=ROOM + 1)) for each in servers(2)]
    requests = [*servers(8), large[1]]
    http.hold_up('/allocation_candidates')
    assert http.gate
    come = threading.Barrier(1 + len(requests))

    def ask(request):
        come.wait(WAIT)
        return sorted(client.candidates(request))

    with ThreadPoolExecutor(1 + len(requests)) as pool:
        first = pool.submit(client.candidates, large[0])
        assert http.waiting.acquire(timeout=WAIT)
        others = [pool.submit(ask, request) for request in requests]
        come.wait(WAIT)
        http.gate.set()
    assert sorted(first.result()) == []
    assert [each.result() for each in others] == [*[sorted(hosts)] * 8, []]
    # Two of the large ones; one that was slow to ask may have come too late for the
    # next.
    assert 3 <= http.asked.count('GET /allocation_candidates') <= 8
    assert not client._queries


@pytest.fixture
def instances(cloud):
    """What reads instances in nova's databases."""
    cells = Cells(
        Database(sa.create_engine(cloud.api.url), 'API database'), database_options()
    )
    cells.refresh()
    yield InstanceStates(cells)
    cells.close()
    cells.api.close()


def test_a_live_migration_that_is_repeated(cloud, instances, hosts, caplog):
    """A move whose claim got no answer is repeated through another scheduler, which
    claims the same: the first one leaves it, while the move goes on and when it is
    done."""
    old, new = hosts
    [server, migration] = new_uuids(2)
    cell = cloud.cells['cell1']
    cloud.boot(server, 'one', Flavor())
    cloud.placement.allocate(server, old, {'VCPU': 1})
    wanted = replace(a_request(), instance_uuid=server).with_requested_destination(
        cell_uuid=cloud.cell_uuids['cell1']
    )

    def begin():
        cell.update('instances', {'task_state': 'migrating'}, uuid=server)
        cloud.placement.hand_over(server, migration)

    with Proxy(cloud.placement_url) as proxy:
        first = PlacementClient(Settings(), Counting(proxy.url), instances)
        second = PlacementClient(Settings(), Counting(cloud.placement_url), instances)
        begin()
        # What the instance holds is read first; the claim, and all after it, get no
        # answer.
        proxy.faults = lambda *_: answer(500) if claimed(proxy) else None
        with pytest.raises(PlacementUnavailable):
            first.claim(wanted, a_candidate(new))
        cloud.placement.hand_over(migration, server)
        cell.update('instances', {'task_state': None}, uuid=server)
        begin()
        assert second.claim(wanted, a_candidate(new))
        valid = held(cloud)
        assert valid[server] == {new: {'VCPU': 1}}
        proxy.faults = None
        looked_at(proxy)
        assert held(cloud) == valid
        cell.update(
            'instances', {'host': 'two', 'node': 'two', 'task_state': None}, uuid=server
        )
        first.close(5)
        second.close()
    assert held(cloud) == valid
    [warning] = [
        each.getMessage() for each in caplog.records if 'is left' in each.getMessage()
    ]
    assert f'instance {server} is left' in warning
    assert 'it is on the host two' in warning


def claimed(proxy):
    """True once a claim was sent, the request in hand included."""
    return any(line.startswith('PUT') for line in proxy.asked)


def looked_at(proxy):
    """Return when a scheduler has looked at what it may have to undo, all of it:
    another look begins after it."""
    for _ in range(2):
        count = len(proxy.asked)
        wait_until(lambda count=count: len(proxy.asked) > count, WAIT, 'look')
