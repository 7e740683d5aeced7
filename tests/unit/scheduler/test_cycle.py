# SPDX-License-Identifier: Apache-2.0
import itertools
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.scheduler.errors import BadPlugin, NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from novasched.scheduler.filters.failure_domain import FailureDomainFilter
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import RecordingNotifier, a_driver, ask

POLICIES = (ServerGroupAntiAffinityFilter, ServerGroupAffinityFilter)


def cloud(*hosts, filters=POLICIES, **options):
    """A driver over these hosts, the first with the most memory."""
    return a_driver(hosts, *filters, weighers=[RAMWeigher], **options)


def claimed(driver):
    """The host that each instance has a claim on, by UUID."""
    names = {uuid: host.host for uuid, host in driver.deps.hosts.hosts.items()}
    return {
        uuid: names[provider] for uuid, provider in driver.deps.placement.hosts.items()
    }


A = a_host('a', ram=4096)
B = a_host('b', ram=3072)
C = a_host('c', ram=2048)
FAR = a_host('far', ram=8192, cell='cell2')


@pytest.mark.parametrize(
    ('hosts', 'count', 'options', 'answer'),
    [
        ((C, A, B), 1, {}, [['a', 'b', 'c']]),
        ((A, B, C), 1, {'max_attempts': 2}, [['a', 'b']]),
        ((A, B, C), 1, {'max_attempts': 1}, [['a']]),
        ((A, B, FAR), 1, {}, [['far']]),
        ((A, B, a_host('far', ram=0, cell='cell2')), 1, {}, [['a', 'b']]),
        ((A, B, C), 4, {}, [['a', 'c'], ['a', 'c'], ['a', 'c'], ['b', 'c']]),
    ],
)
def test_hosts_and_alternates(hosts, count, options, answer):
    """Each instance goes to the best host that those before it have left; behind that
    stand the best of its cell that no instance was placed on. Each has a candidate, the
    first a claim."""
    driver = cloud(*hosts, **options)
    rows = driver.select_destinations(a_request(count=count, return_alternates=True))
    assert [[each.service_host for each in row] for row in rows] == answer
    for each in itertools.chain.from_iterable(rows):
        assert list(each.candidate.allocations) == [each.compute_node_uuid]
    assert [*claimed(driver).values()] == [row[0] for row in answer]


@pytest.mark.parametrize(
    ('slots', 'count', 'reason'),
    [(0, 1, ''), (1, 3, 'There are not enough hosts available.')],
)
def test_a_refusal_leaves_nothing_claimed(slots, count, reason):
    """No candidates give the empty reason; too few hosts give back what was claimed."""
    driver = cloud(A, B, slots=slots)
    with pytest.raises(NoValidHost) as refusal:
        ask(driver, count=count)
    assert refusal.value.reason == reason
    assert claimed(driver) == {}
    assert driver.deps.placement.slots == {A.uuid: slots, B.uuid: slots}


class BreaksAtTheSecond(Filter):
    """Raises when it sees an instance that was just placed."""

    def reject(self, host, request):
        if host.num_instances:
            raise ZeroDivisionError


class BreaksAfterwards(Filter):
    """Raises when it is asked for the limits of a host."""

    def limits(self, host, request):
        raise ZeroDivisionError

    def reject(self, host, request):
        return


@pytest.mark.parametrize('plugin', [BreaksAtTheSecond, BreaksAfterwards])
def test_an_error_leaves_nothing_claimed(plugin):
    """Claims stand only once the whole answer does, alternates included."""
    driver = cloud(A, B, filters=[plugin])
    with pytest.raises(BadPlugin):
        ask(driver, count=2, return_alternates=True)
    assert claimed(driver) == {}


def test_without_uuids_nothing_is_claimed():
    """An old caller gets hosts, as many as num_instances says, and claims by itself."""
    driver = cloud(A, B)
    assert ask(driver, count=2, instance_uuids=None, instance_uuid=None) == [
        ['a'],
        ['a'],
    ]
    assert claimed(driver) == {}


def test_a_rebuild_asks_placement_nothing():
    """Whether an instance's own host suits a new image is decided without a claim."""
    driver = cloud(A, B, slots=0)
    hints = {'_nova_check_type': ['rebuild']}
    assert ask(driver, hints=hints, force_hosts=('b',)) == [['b']]
    assert claimed(driver) == {}


MEMBERS = [a_uuid(f'server{i}') for i in range(4)]
APART = a_group('anti-affinity', MEMBERS)


@pytest.mark.parametrize(
    ('count', 'fields', 'answer'),
    [
        (3, {'group': APART}, [['a'], ['b'], ['c']]),
        (4, {'group': APART}, None),
        (4, {'group': a_group('affinity', MEMBERS)}, [['a']] * 4),
        (2, {'group': APART, 'instance_uuids': None}, [['a'], ['a']]),
    ],
)
def test_groups_within_one_request(count, fields, answer):
    """Members placed a moment ago count, if the caller names them: each host gets one,
    or the first member chooses the host for all. If there are too few hosts, none is
    kept."""
    driver = cloud(A, B, C)
    if answer is None:
        with pytest.raises(NoValidHost):
            ask(driver, count=count, **fields)
        assert claimed(driver) == {}
    else:
        assert ask(driver, count=count, **fields) == answer


def test_a_candidate_without_its_host_is_passed_over():
    """Placement may offer a node that no cell knows, or knows no longer."""
    driver = cloud(A, B)
    driver.deps.placement.free.by_provider[a_uuid('gone')] = {'VCPU': 5}
    assert ask(driver) == [['a']]


def test_the_same_seed_gives_the_same_answer():
    """Chance is an argument: a decision can be repeated."""
    hosts = [a_host(f'h{i}') for i in range(9)]
    request = a_request(count=5)
    one, two = (
        cloud(*hosts, host_subset_size=9).decide(request, 1).hosts for _ in range(2)
    )
    assert one == two


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
    """Of the start once Placement has offered something, of the end when every instance
    has its host; by then it is about the last one."""
    notifier = RecordingNotifier()
    driver = cloud(A, B, slots=slots, notifier=notifier)
    with suppress(NoValidHost):
        driver.select_destinations(
            replace(a_request(count=count), instance_uuid=MEMBERS[0])
        )
    assert notifier.sent == [
        (phase, MEMBERS[number], hosts) for phase, number, hosts in told
    ]


class Faster:
    """Another scheduler, which has sent a server of the group to a host just before
    us."""

    position = (0, 2)
    missed = 0
    late = 0

    def __init__(self, driver, host, server='rival'):
        self.claims = driver.pending_claims
        self.rival = host
        self.server = a_uuid(server)
        self.claims.peers = self

    def announce(self, claim, state):
        """It does not listen."""

    def catch_up(self, claim):
        if self.rival:
            request = a_request(instance_uuid=self.server, group=a_group('', ()))
            what = self.rival, request, None, None, {}, time.monotonic(), {}
            self.claims.ledger.put(PendingClaim(*what, is_ours=False), order=0)
            self.rival = None


@pytest.mark.parametrize(
    ('rival', 'count', 'group', 'answer', 'given_back'),
    [
        (A, 1, a_group('anti-affinity'), [['b']], 1),
        (B, 1, a_group('anti-affinity'), [['a']], 0),
        (C, 1, a_group('affinity'), [['c']], 1),
        (A, 1, None, [['a']], 0),
        (B, 2, APART, [['a'], ['c']], 1),
        (C, 2, APART, [['a'], ['b']], 0),
    ],
)
def test_another_scheduler_was_faster(rival, count, group, answer, given_back):
    """What does not fit beside its claims is given back, and chosen anew as things are
    now."""
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, rival)
    assert ask(driver, count=count, group=group) == answer
    assert [[host] for host in claimed(driver).values()] == answer
    assert driver.pending_claims.count() == count
    assert driver.pending_claims.given_back == given_back


@pytest.mark.parametrize(
    'rival', [{'host': a_host('unknown')}, {'host': A, 'server': 'server0'}]
)
def test_what_is_nobody_elses_is_not_given_back(rival):
    """A request that came twice has one place, and on a host of no known cell there is
    none."""
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, **rival)
    assert ask(driver, group=a_group('affinity')) == [['a']]


def test_a_decision_says_that_another_was_faster():
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, A)
    decision = driver.decide(a_request(group=a_group('anti-affinity')), seed=1)
    [attempt] = decision.attempts
    assert (attempt.unfit, decision.hosts) == (('a',), ('b',))


RACKS = [
    a_host(x, metadata={'failure_domain': rack}) for x, rack in ('a1', 'b1', 'c2', 'd3')
]


@pytest.mark.parametrize(
    ('rival', 'count', 'group', 'answer', 'given_back'),
    [
        ('b', 1, a_group('anti-affinity'), ['c'], 1),
        ('c', 1, a_group('anti-affinity'), ['a'], 0),
        ('b', 2, APART, ['c', 'd'], 1),
        ('c', 2, APART, ['a', 'd'], 1),
        ('b', 1, a_group('affinity'), ['a'], 0),
        ('c', 1, a_group('affinity'), ['c'], 1),
        ('c', 2, a_group('affinity', MEMBERS), ['c', 'c'], 1),
    ],
)
def test_another_scheduler_was_faster_in_a_rack(
    rival, count, group, answer, given_back
):
    """It is the same as on a host, though the claim is on another one."""
    [host] = [host for host in RACKS if host.host == rival]
    driver = a_driver(RACKS, FailureDomainFilter, in_flight_timeout=60.0)
    Faster(driver, host)
    assert ask(driver, count=count, group=group) == [[each] for each in answer]
    assert driver.pending_claims.given_back == given_back


@pytest.mark.parametrize(
    ('plugin', 'policy', 'slots', 'found'),
    [
        (FailureDomainFilter, 'anti-affinity', 'bcd', {'x': 'b', 'y': 'd'}),
        (FailureDomainFilter, 'affinity', 'bcd', {'x': 'b', 'y': 'c'}),
        (FailureDomainFilter, 'affinity', 'bd', {'x': 'b'}),
        (ServerGroupAffinityFilter, 'affinity', 'bcd', {'x': 'b'}),
    ],
)
def test_a_group_that_has_changed_when_a_claim_is_refused(plugin, policy, slots, found):
    """Another member goes to host b just then: whatever the first is tried on next is
    judged again, though nothing has come to that host."""
    hosts = [
        a_host(x, metadata={'failure_domain': rack})
        for x, rack in ('a1', 'b2', 'c2', 'd3')
    ]
    stale = {host.uuid for host in hosts}
    room = {host.uuid: int(host.host in slots) for host in hosts}
    driver = a_driver(
        hosts, plugin, placement=CountingPlacement(room, stale), in_flight_timeout=60.0
    )
    members = iter(['x'])

    def place(uuid):
        group = a_group(policy)
        with suppress(NoValidHost):
            ask(driver, instance_uuids=(uuid,), instance_uuid=uuid, group=group)

    def drop(claim, real=driver.pending_claims.drop):
        real(claim)
        for uuid in members:
            place(uuid)

    driver.pending_claims.drop = drop
    place('y')
    assert claimed(driver) == found
