# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.cycle import Cycle
from novasched.scheduler.decision import DecisionTrace
from novasched.scheduler.errors import BadPlugin, NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.weighers.ram import RAMWeigher
from novasched.scheduler.weights import no_clock
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.ports import Audience, CountingPlacement

FILTERS = (ServerGroupAntiAffinityFilter, ServerGroupAffinityFilter)


class Cloud:
    """A cycle over hosts that hold ``slots`` servers each."""

    def __init__(self, *hosts, slots=10, stale=(), filters=FILTERS, **settings):
        values = Settings(**settings)
        self.names = {host.uuid: host.host for host in hosts}
        self.placement = CountingPlacement(
            {host.uuid: slots for host in hosts if host.host not in stale}
            | {host.uuid: 0 for host in hosts if host.host in stale},
            stale=frozenset(host.uuid for host in hosts if host.host in stale),
        )
        pipeline = Pipeline(values, [each(values) for each in filters], [RAMWeigher(values)])
        self.cycle = Cycle(
            [],
            self.placement,
            MemoryHosts(hosts),
            pipeline,
            PendingClaims(values),
            None,
        )

    def ask(self, request):
        rows = self.cycle.decide(request, DecisionTrace(request, 1, no_clock)).selections
        return [[selection.service_host for selection in row] for row in rows]

    @property
    def claimed(self):
        return {uuid: self.names[rp] for uuid, rp in self.placement.hosts.items()}


A = a_host('a', ram=4096)
B = a_host('b', ram=3072)
C = a_host('c', ram=2048)
FAR = a_host('far', ram=8192, cell='cell2')


def test_the_best_host_is_claimed():
    """One server goes to the host with the greatest weight, and is claimed there."""
    cloud = Cloud(C, A, B)
    assert cloud.ask(a_request()) == [['a']]
    assert cloud.claimed == {a_uuid('server0'): 'a'}


def test_servers_of_one_request_see_each_other():
    """Each server finds the host as the servers before it have left it."""
    cloud = Cloud(A, B, C)
    assert cloud.ask(a_request(count=4)) == [['a'], ['a'], ['a'], ['b']]


def test_a_refused_claim_means_the_next_host():
    """Where somebody was faster, the next best host is tried."""
    cloud = Cloud(A, B, C, stale=('a',))
    assert cloud.ask(a_request()) == [['b']]
    assert cloud.placement.refused == [A.uuid]


@pytest.mark.parametrize(
    ('hosts', 'count', 'options', 'answer'),
    [
        ((A, B, C), 1, {}, [['a', 'b', 'c']]),
        ((A, B, C), 1, {'max_attempts': 2}, [['a', 'b']]),
        ((A, B, C), 1, {'max_attempts': 1}, [['a']]),
        ((A, B, FAR), 1, {}, [['far']]),
        ((A, B, a_host('far', ram=0, cell='cell2')), 1, {}, [['a', 'b']]),
        ((A, B, C), 4, {}, [['a', 'c'], ['a', 'c'], ['a', 'c'], ['b', 'c']]),
    ],
)
def test_alternates(hosts, count, options, answer):
    """Behind a chosen host stand the best of its cell that no server was placed on."""
    cloud = Cloud(*hosts, **options)
    assert cloud.ask(a_request(count=count, return_alternates=True)) == answer


def test_alternates_are_not_claimed():
    """An alternate carries a candidate for later, and no allocation."""
    cloud = Cloud(A, B)
    request = a_request(return_alternates=True)
    rows = cloud.cycle.decide(request, DecisionTrace(request, 1, no_clock)).selections
    chosen, alternate = rows[0]
    assert list(chosen.candidate.allocations) == [A.uuid]
    assert list(alternate.candidate.allocations) == [B.uuid]
    assert cloud.claimed == {a_uuid('server0'): 'a'}


@pytest.mark.parametrize(
    ('slots', 'count', 'reason'),
    [(0, 1, ''), (1, 3, 'There are not enough hosts available.')],
)
def test_a_refusal_leaves_nothing_claimed(slots, count, reason):
    """No candidates give the empty reason; too few hosts give back what was claimed."""
    cloud = Cloud(A, B, slots=slots)
    with pytest.raises(NoValidHost) as refusal:
        cloud.ask(a_request(count=count))
    assert refusal.value.reason == reason
    assert cloud.claimed == {}
    assert cloud.placement.slots == {A.uuid: slots, B.uuid: slots}


def test_an_error_leaves_nothing_claimed():
    """A bug in a filter fails the request and undoes the claims made before it."""

    class BreaksAtTheSecond(Filter):
        def reject(self, host, request):
            if host.num_instances:
                raise ZeroDivisionError
            return

    cloud = Cloud(A, B, filters=[BreaksAtTheSecond])
    with pytest.raises(BadPlugin):
        cloud.ask(a_request(count=2))
    assert cloud.claimed == {}


def test_an_error_among_the_alternates_leaves_nothing_claimed():
    """Claims stand only once the whole answer does."""

    class BreaksAfterwards(Filter):
        def limits(self, host, request):
            raise ZeroDivisionError

        def reject(self, host, request):
            return

    cloud = Cloud(A, B, filters=[BreaksAfterwards])
    with pytest.raises(BadPlugin):
        cloud.ask(a_request(count=2, return_alternates=True))
    assert cloud.claimed == {}


def test_without_uuids_nothing_is_claimed():
    """An old caller gets hosts, as many as num_instances says, and claims by itself."""
    cloud = Cloud(A, B)
    assert cloud.ask(a_request(count=2, instance_uuids=None, instance_uuid=None)) == [['a'], ['a']]
    assert cloud.claimed == {}


@pytest.mark.parametrize(
    ('uuids', 'answer'),
    [((a_uuid('server0'), a_uuid('server1')), [['a'], ['b']]), (None, [['a'], ['a']])],
)
def test_servers_without_names_are_on_no_host(uuids, answer):
    """Policies know the servers of the same request only if the caller names them."""
    members = [a_uuid('server0'), a_uuid('server1')]
    request = a_request(
        count=2,
        instance_uuids=uuids,
        group=a_group('anti-affinity', members),
    )
    assert Cloud(A, B).ask(request) == answer


def test_a_rebuild_asks_placement_nothing():
    """Whether a server's own host suits a new image is decided without a claim."""
    cloud = Cloud(A, B, slots=0)
    request = a_request(hints={'_nova_check_type': ['rebuild']}, force_hosts=('b',))
    assert cloud.ask(request) == [['b']]
    assert cloud.claimed == {}


def test_anti_affinity_within_one_request():
    """Members placed a moment ago count: each host gets one, the rest is refused."""
    members = [a_uuid(f'server{i}') for i in range(3)]
    group = a_group('anti-affinity', members)
    assert Cloud(A, B, C).ask(a_request(count=3, group=group)) == [['a'], ['b'], ['c']]
    cloud = Cloud(A, B)
    with pytest.raises(NoValidHost):
        cloud.ask(a_request(count=3, group=group))
    assert cloud.claimed == {}


def test_affinity_within_one_request():
    """The first member chooses the host for all."""
    group = a_group('affinity', [a_uuid(f'server{i}') for i in range(4)])
    assert Cloud(A, B).ask(a_request(count=4, group=group)) == [['a']] * 4


def test_a_candidate_without_its_host_is_passed_over():
    """Placement may offer a node that no cell knows, or knows no longer."""
    cloud = Cloud(A, B)
    cloud.placement.free.by_provider[a_uuid('gone')] = {'VCPU': 5}
    assert cloud.ask(a_request()) == [['a']]


def test_the_same_seed_gives_the_same_answer():
    """Chance is an argument: a decision can be repeated."""
    hosts = [a_host(f'h{i}') for i in range(9)]
    ask = [Cloud(*hosts, host_subset_size=9).ask(a_request(count=5)) for _ in range(2)]
    assert ask[0] == ask[1]


@pytest.mark.parametrize(
    ('slots', 'count', 'told'),
    [
        (10, 2, [('start', 0, []), ('end', 1, ['a', 'a'])]),
        (1, 2, [('start', 0, []), ('end', 1, ['a', 'b'])]),
        (1, 3, [('start', 0, [])]),
        (0, 1, []),
    ],
)
def test_who_listens_is_told(slots, count, told):
    """Of the start once Placement has offered something, of the end when every server has its
    host; by then it is about the last one."""
    cloud, audience = Cloud(A, B, slots=slots), Audience()
    cloud.cycle.notifier = audience
    with suppress(NoValidHost):
        cloud.ask(replace(a_request(count=count), instance_uuid=a_uuid('server0')))
    assert audience.heard == [
        (phase, a_uuid(f'server{number}'), hosts) for phase, number, hosts in told
    ]
