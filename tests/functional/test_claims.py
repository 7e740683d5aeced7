# SPDX-License-Identifier: Apache-2.0
"""The client of Placement claims in a real Placement on MariaDB."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from keystoneauth1 import adapter, session, token_endpoint

from novasched.cells.database import Database
from novasched.cells.instance_states import InstanceStates
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
    """An HTTP client that counts requests, and that a test can hold up."""

    def __init__(self, url):
        token_session = session.Session(auth=token_endpoint.Token(url, TOKEN))
        super().__init__(token_session, service_type='placement', endpoint_override=url)
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
    """The HTTP client of the Placement client under test."""
    return Counting(cloud.placement_url)


@pytest.fixture
def client(http):
    return PlacementClient(Settings(), http)


@pytest.fixture
def hosts(cloud):
    """Two providers with room for four servers each."""
    cloud.reset()
    first = cloud.add_host('one', vcpus=ROOM, cpu_ratio=1.0)
    second = cloud.add_host('two', vcpus=ROOM, cpu_ratio=1.0)
    yield [first.uuid, second.uuid]
    cloud.reset()


def requests_for(count):
    """Requests for a vCPU, every request for a new server."""
    return [replace(a_request(), instance_uuid=uuid) for uuid in new_uuids(count)]


def one_vcpu(requests, provider):
    """The allocations of requests for a vCPU on a provider."""
    return {str(request.instance_uuid): {provider: {'VCPU': 1}} for request in requests}


def methods(http):
    """The HTTP methods of the requests to Placement."""
    return [line.split()[0] for line in http.asked]


def held(cloud):
    return cloud.placement.all_allocations()


@pytest.mark.parametrize(
    ('first', 'second', 'fits'), [(2, 2, True), (4, 4, True), (5, 1, False)]
)
def test_a_joint_claim_for_instances_succeeds_for_all_or_none(
    cloud, client, http, hosts, first, second, fits
):
    """A single request claims for several servers, for all of them or for none. The
    claims can be given back."""
    on_first = requests_for(first)
    on_second = requests_for(second)
    wanted = [(request, a_candidate(hosts[0])) for request in on_first]
    wanted += [(request, a_candidate(hosts[1])) for request in on_second]

    claims = client.claim_together(wanted)

    assert http.asked == ['POST /allocations']
    if fits:
        expected = one_vcpu(on_first, hosts[0]) | one_vcpu(on_second, hosts[1])
        assert held(cloud) == expected
        assert claims is not None
    else:
        assert held(cloud) == {}
        assert claims is None

    for claim in claims or ():
        client.delete_allocations(claim)
    assert held(cloud) == {}


def test_a_joint_claim_with_an_impossible_part_is_refused_as_a_whole(
    cloud, client, hosts
):
    """Several servers are not claimed for together if a server has an allocation
    already, or if a provider does not exist. Placement then refuses the whole request,
    and remembers the servers without allocations; later claims for these servers
    succeed."""
    allocated, first, second = requests_for(3)
    assert client.claim(allocated, a_candidate(hosts[0]))
    before = held(cloud)

    [unknown_provider] = new_uuids(1)
    for request, provider in ((allocated, hosts[1]), (second, unknown_provider)):
        wanted = [(first, a_candidate(hosts[0])), (request, a_candidate(provider))]
        assert client.claim_together(wanted) is None
        assert held(cloud) == before

    claims = [
        client.claim(first, a_candidate(hosts[1])),
        client.claim(second, a_candidate(hosts[1])),
    ]
    assert held(cloud) == before | one_vcpu([first, second], hosts[1])

    for claim in claims:
        client.delete_allocations(claim)
    assert held(cloud) == before


@pytest.mark.parametrize(
    ('later', 'asked'),
    [
        (1, ['PUT']),
        (ROOM - 1, ['POST']),
        (ROOM, ['POST', 'POST', 'POST', 'PUT', 'PUT']),
    ],
)
def test_claims_that_come_during_an_earlier_claim_share_a_request(
    cloud, client, http, hosts, later, asked
):
    """A single request makes the claims that come during an earlier claim. Placement
    refuses the request if the provider is too small; halves of the request are tried
    then, so that as many claims succeed as one by one."""
    first, *later_requests = requests_for(1 + later)
    candidate = a_candidate(hosts[0])
    http.hold_up('/allocations')
    assert http.gate

    with ThreadPoolExecutor(1 + later) as pool:
        futures = [pool.submit(client.claim, first, candidate)]
        assert http.waiting.acquire(timeout=WAIT)
        for request in later_requests:
            futures.append(pool.submit(client.claim, request, candidate))
        pause = threading.Event()
        while len(client._claims._batches.waiting) < later:
            pause.wait(0.001)
        http.gate.set()
        results = [future.result(WAIT) for future in futures]

    assert methods(http)[1:] == asked
    claims = [claim for claim in results if claim]
    assert len(claims) == min(ROOM, 1 + later)
    assert held(cloud).keys() == {claim.uuid for claim in claims}


def test_requests_during_a_query_share_the_next_query(client, http, hosts):
    """Every request gets the answer to its question. Requests that come during a query
    do not use the answer, which is older than the requests, but share the next query.
    The client keeps no query."""
    too_large = []
    for request in requests_for(2):
        too_large.append(replace(request, flavor=a_flavor(vcpus=ROOM + 1)))
    requests = [*requests_for(8), too_large[1]]
    http.hold_up('/allocation_candidates')
    assert http.gate
    barrier = threading.Barrier(1 + len(requests))

    def ask(request):
        barrier.wait(WAIT)
        return sorted(client.candidates(request))

    with ThreadPoolExecutor(1 + len(requests)) as pool:
        first = pool.submit(client.candidates, too_large[0])
        assert http.waiting.acquire(timeout=WAIT)
        later = [pool.submit(ask, request) for request in requests]
        barrier.wait(WAIT)
        http.gate.set()

    assert sorted(first.result()) == []
    assert [future.result() for future in later] == [*[sorted(hosts)] * 8, []]
    # Two queries for the large flavor, at least one for the small flavor. A slow thread
    # may have come too late for the next query.
    assert 3 <= http.asked.count('GET /allocation_candidates') <= 8
    assert not client._queries


@pytest.fixture
def instances(cloud):
    """The reader of instances in nova's databases."""
    cells = Cells(
        Database(sa.create_engine(cloud.api.url), 'API database'), database_options()
    )
    cells.refresh()
    yield InstanceStates(cells)
    cells.close()
    cells.api.close()


def test_the_claim_of_a_repeated_live_migration_is_not_deleted(
    cloud, instances, hosts, caplog
):
    """A live migration whose claim got no answer is repeated through another scheduler,
    with the same claim. The first scheduler does not delete the allocation, neither
    during the migration nor after it."""
    source, destination = hosts
    [server, migration] = new_uuids(2)
    cell = cloud.cells['cell1']
    cloud.boot(server, 'one', Flavor())
    cloud.placement.allocate(server, source, {'VCPU': 1})
    request = replace(a_request(), instance_uuid=server)
    request = request.with_requested_destination(cell_uuid=cloud.cell_uuids['cell1'])

    def begin_migration():
        cell.update('instances', {'task_state': 'migrating'}, uuid=server)
        cloud.placement.hand_over(server, migration)

    def fail_after_claim(*_):
        """Answer the reads before the claim; fail the claim and all later requests."""
        return answer(500) if claim_was_sent(proxy) else None

    with Proxy(cloud.placement_url) as proxy:
        first = PlacementClient(Settings(), Counting(proxy.url), instances)
        second = PlacementClient(Settings(), Counting(cloud.placement_url), instances)

        begin_migration()
        proxy.faults = fail_after_claim
        with pytest.raises(PlacementUnavailable):
            first.claim(request, a_candidate(destination))
        cloud.placement.hand_over(migration, server)
        cell.update('instances', {'task_state': None}, uuid=server)

        begin_migration()
        assert second.claim(request, a_candidate(destination))
        allocations = held(cloud)
        assert allocations[server] == {destination: {'VCPU': 1}}

        proxy.faults = None
        wait_for_two_checks(proxy)
        assert held(cloud) == allocations

        arrived = {'host': 'two', 'node': 'two', 'task_state': None}
        cell.update('instances', arrived, uuid=server)
        first.close(5)
        second.close()
    assert held(cloud) == allocations

    [warning] = [message for message in caplog.messages if 'is left' in message]
    assert f'instance {server} is left' in warning
    assert 'it is on the host two' in warning


def claim_was_sent(proxy):
    """True once a claim was sent to Placement, counting the current request."""
    return any(line.startswith('PUT') for line in proxy.asked)


def wait_for_two_checks(proxy):
    """Wait until the scheduler has completed a check of the claims without an answer:
    until a second check begins."""
    for _ in range(2):
        count = len(proxy.asked)
        wait_until(lambda count=count: len(proxy.asked) > count, WAIT, 'look')
