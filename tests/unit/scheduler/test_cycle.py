# SPDX-License-Identifier: Apache-2.0
import math
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.placement.allocations import CLAIM_LIMIT_S, Claim
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.placement.trees import Group, TreeQuery
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.errors import BadPlugin, NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.affinity import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from novasched.scheduler.filters.failure_domain import FailureDomainFilter
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.memory import MemoryHosts, MemoryPlacement
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.host import Instance
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import (
    a_group,
    a_host,
    a_request,
    a_uuid,
    numbered_hosts,
    numbered_uuids,
)
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import ManualClock, RecordingNotifier, a_driver, ask
from tests.lab.provider_trees import ASKED_AT, an_answer
from tests.lab.provider_trees import a_host as providers_of_a_host

POLICIES = (ServerGroupAntiAffinityFilter, ServerGroupAffinityFilter)


def cloud(*hosts, filters=POLICIES, **options):
    """A driver with hosts, of which the first has the most memory."""
    return a_driver(hosts, *filters, weighers=[RAMWeigher], **options)


def claimed(driver):
    """UUID of an instance to the name of its claimed host."""
    hosts = driver.deps.hosts.hosts
    names = {}
    for instance, provider in driver.deps.placement.hosts.items():
        names[instance] = hosts[provider].host
    return names


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
def test_instances_get_the_best_hosts_and_alternates_of_the_cell(
    hosts, count, options, answer
):
    """An instance goes to the best host that earlier instances leave. The alternates
    are the best hosts of its cell without a new instance. Destination and alternates
    have a candidate, and the destination has a claim."""
    driver = cloud(*hosts, **options)

    rows = driver.select_destinations(a_request(count=count, return_alternates=True))

    names = []
    for row in rows:
        names.append([selection.service_host for selection in row])
        for selection in row:
            allocations = selection.candidate.allocations
            assert list(allocations) == [selection.compute_node_uuid]
    assert names == answer
    assert [*claimed(driver).values()] == [row[0] for row in answer]


@pytest.mark.parametrize(
    ('slots', 'count', 'reason'),
    [(0, 1, ''), (1, 3, 'There are not enough hosts available.')],
)
def test_a_refusal_releases_all_claims(slots, count, reason):
    """Without candidates, the reason is empty. With too few hosts, the claims made are
    released."""
    driver = cloud(A, B, slots=slots)

    with pytest.raises(NoValidHost) as refusal:
        ask(driver, count=count)

    assert refusal.value.reason == reason
    assert claimed(driver) == {}
    assert driver.deps.placement.slots == {A.uuid: slots, B.uuid: slots}


class BreaksAtTheSecond(Filter):
    """Raises for a host with an instance that was just placed."""

    def reject(self, host, request):
        if host.num_instances:
            raise ZeroDivisionError


class BreaksAfterwards(Filter):
    """Raises for the limits of a host."""

    def limits(self, host, request):
        raise ZeroDivisionError

    def reject(self, host, request):
        return


@pytest.mark.parametrize('plugin', [BreaksAtTheSecond, BreaksAfterwards])
def test_an_error_releases_all_claims(plugin):
    """An error releases all claims, even an error in the choice of alternates."""
    driver = cloud(A, B, filters=[plugin])
    with pytest.raises(BadPlugin):
        ask(driver, count=2, return_alternates=True)
    assert claimed(driver) == {}


def test_a_request_without_uuids_gets_hosts_without_claims():
    """An old caller, which claims without the scheduler, gets a host for each of
    num_instances."""
    driver = cloud(A, B)
    assert ask(driver, count=2, instance_uuids=None, instance_uuid=None) == [
        ['a'],
        ['a'],
    ]
    assert claimed(driver) == {}


def test_a_rebuild_needs_no_candidates_and_no_claim():
    """A rebuild checks the host of the instance against the new image, without a
    claim."""
    driver = cloud(A, B, slots=0)
    hints = {'_nova_check_type': ['rebuild']}
    assert ask(driver, hints=hints, force_hosts=('b',)) == [['b']]
    assert claimed(driver) == {}


def test_a_rebuild_hint_without_forced_hosts_has_no_effect(caplog):
    """A request with the hint that forces no host is decided like any other: the
    instance gets a claim, and the log has one warning."""
    driver = cloud(A, B)
    hints = {'_nova_check_type': ['rebuild'], 'other': ['hint']}
    request = a_request(hints=hints)

    decision = driver.decide(request, seed=0)

    assert decision.hosts == ('a',)
    assert claimed(driver) == {request.instance_uuid: 'a'}
    assert decision.request.scheduler_hints == {'other': ('hint',)}
    assert decision.request.had_false_hint
    [warning] = [record for record in caplog.records if record.levelname == 'WARNING']
    assert '_nova_check_type' in warning.message
    assert request.instance_uuid in warning.message


MEMBERS = numbered_uuids('server', 4)
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
def test_group_members_of_the_same_request_count(count, fields, answer):
    """Members of the same request count, if the caller names the instances: every host
    gets a single member, or all members follow the first member. Too few hosts leave no
    claim."""
    driver = cloud(A, B, C)
    if answer is None:
        with pytest.raises(NoValidHost):
            ask(driver, count=count, **fields)
        assert claimed(driver) == {}
    else:
        assert ask(driver, count=count, **fields) == answer


def test_a_candidate_of_an_unknown_host_is_passed_over():
    """Placement may offer a node that no cell has, or that was deleted."""
    driver = cloud(A, B)
    driver.deps.placement.free.by_provider[a_uuid('gone')] = {'VCPU': 5}
    assert ask(driver) == [['a']]


def test_the_same_seed_gives_the_same_answer():
    """The seed is an argument, so that a decision can be repeated."""
    hosts = numbered_hosts(9)
    request = a_request(count=5)

    first = cloud(*hosts, host_subset_size=9).decide(request, 1)
    second = cloud(*hosts, host_subset_size=9).decide(request, 1)

    assert first.hosts == second.hosts


@pytest.mark.parametrize(
    ('slots', 'count', 'notifications'),
    [
        (10, 2, [('start', 0, []), ('end', 1, ['a', 'a'])]),
        (1, 2, [('start', 0, []), ('end', 1, ['a', 'b'])]),
        (1, 3, [('start', 0, [])]),
        (0, 1, []),
    ],
)
def test_start_and_end_of_a_decision_are_notified(slots, count, notifications):
    """The start is notified after Placement has offered candidates. The end is notified
    when every instance has its host, and names the last instance."""
    notifier = RecordingNotifier()
    driver = cloud(A, B, slots=slots, notifier=notifier)
    request = replace(a_request(count=count), instance_uuid=MEMBERS[0])

    with suppress(NoValidHost):
        driver.select_destinations(request)

    expected = []
    for phase, number, hosts in notifications:
        expected.append((phase, MEMBERS[number], hosts))
    assert notifier.sent == expected


class Faster:
    """Another scheduler, which places a member of the group on a host just before."""

    position = (0, 2)
    missed = 0
    late = 0

    def __init__(self, driver, host, server='rival'):
        self.claims = driver.pending_claims
        self.rival = host
        self.server = a_uuid(server)
        self.claims.peers = self

    def announce(self, claim, state):
        """Ignore the announcement."""

    def catch_up(self, claim):
        if self.rival:
            request = a_request(instance_uuid=self.server, group=a_group('', ()))
            theirs = PendingClaim(
                self.rival,
                request,
                None,
                None,
                {},
                time.monotonic(),
                {},
                is_ours=False,
            )
            with self.claims.ledger as ledger:
                ledger.chosen(theirs, position=0)
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
def test_a_claim_that_conflicts_with_another_scheduler_is_released(
    rival, count, group, answer, given_back
):
    """A claim that does not fit beside the other scheduler's claims is released, and
    another host is chosen."""
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, rival)
    assert ask(driver, count=count, group=group) == answer
    assert [[host] for host in claimed(driver).values()] == answer
    assert driver.pending_claims.count() == count
    assert driver.pending_claims.given_back == given_back


class AlwaysFaster(Faster):
    """Another scheduler, which moves its member to each host that is chosen, just
    before."""

    theirs = None

    def catch_up(self, claim):
        if self.theirs is not None:
            with self.claims.ledger as ledger:
                ledger.released(self.theirs, time.monotonic())
        self.rival = claim.host
        super().catch_up(claim)
        [self.theirs] = [each for each in self.claims.ledger.all() if not each.is_ours]


@pytest.mark.parametrize('count', [1, 2])
def test_a_request_is_refused_after_too_many_conflicts(caplog, count):
    """The hosts are ranked a limited number of times. Nothing stays claimed."""
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    AlwaysFaster(driver, None)
    with pytest.raises(NoValidHost):
        ask(driver, count=count, group=a_group('anti-affinity'))
    assert 'Other requests were faster 100 times' in caplog.text
    assert claimed(driver) == {}
    assert driver.pending_claims.count() == 0


class RefusesTheFirst(CountingPlacement):
    """Refuses claims on a host without slots. Another request of the process chooses a
    host meanwhile."""

    choose = None

    def claim(self, request, candidate, basis):
        claim = super().claim(request, candidate, basis)
        if claim is None:
            self.choose()
        return claim


def test_the_choice_after_a_refusal_counts_all_earlier_claims():
    """After a refusal another host is chosen, beside the claims of that moment. The
    claims of other schedulers are judged beside all of these."""
    slots = {A.uuid: 0, B.uuid: 10, C.uuid: 10}
    placement = RefusesTheFirst(slots, stale=[A.uuid])
    driver = cloud(
        A,
        B,
        C,
        filters=[NumInstancesFilter],
        placement=placement,
        in_flight_timeout=60.0,
        max_instances_per_host=2,
    )
    Faster(driver, B)

    def choose():
        request = a_request(instance_uuid=a_uuid('ours'))
        driver.pending_claims.choose(B, request, None, {})

    placement.choose = choose
    assert ask(driver) == [['c']]


@pytest.mark.parametrize(
    'rival', [{'host': a_host('unknown')}, {'host': A, 'server': 'server0'}]
)
def test_claims_of_the_same_instance_or_unknown_hosts_do_not_conflict(rival):
    """A claim of the same instance is no conflict, nor is a claim on an unknown
    host."""
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, **rival)
    assert ask(driver, group=a_group('affinity')) == [['a']]


@pytest.mark.parametrize(
    ('policy', 'shown_on', 'answer'),
    [
        ('anti-affinity', A, [['b']]),
        ('anti-affinity', B, [['a']]),
        ('affinity', C, [['c']]),
        ('affinity', None, [['a']]),
        (None, C, [['a']]),
    ],
)
@pytest.mark.parametrize('is_over', [False, True])
def test_a_group_member_newer_than_the_list_of_the_caller_counts(
    policy, shown_on, answer, is_over
):
    """A member is counted that has arrived on its host while the request waited, even
    if the claim of the member is over. nova-conductor has read the group before. A
    member that is on no host any more is not counted."""
    uuid = a_uuid('newer')
    hosts = []
    for host in (A, B, C):
        instances = {uuid: Instance(uuid)} if host is shown_on else {}
        hosts.append(replace(host, instances=instances))
    driver = cloud(*hosts, in_flight_timeout=60.0)
    request = a_request(
        instance_uuid=uuid, instance_uuids=(uuid,), group=a_group(policy)
    )
    claim = driver.pending_claims.choose(shown_on or C, request, None, {})
    driver.pending_claims.claimed([claim])
    with driver.pending_claims.ledger as ledger:
        ledger.shown(claim, -math.inf, claim.since)
        if is_over:
            ledger.expire(claim.since)
        assert (claim in ledger) is not is_over

    assert ask(driver, group=a_group(policy)) == answer


class SlowToRead(MemoryHosts):
    """Hosts that take long to read. Another request places a server meanwhile, which
    the hosts show in the end.

    :ivar place: places the server; None afterwards.
    """

    place = None

    def read(self, *arguments):
        if self.place is not None:
            self.place()
            self.place = None
        return super().read(*arguments)


@pytest.mark.parametrize(
    ('policy', 'chosen', 'answer'),
    [('anti-affinity', A, [['b']]), ('affinity', C, [['c']])],
)
@pytest.mark.parametrize('is_shown', [True, False])
def test_a_group_member_claimed_while_hosts_are_read_counts(
    policy, chosen, answer, is_shown
):
    """A member of the group that was claimed after the reading of the hosts had begun is
    counted: by its claim, or on the hosts if they show the member already."""
    uuid = a_uuid('newer')
    hosts = []
    for host in (A, B, C):
        if is_shown and host is chosen:
            host = replace(host, instances={uuid: Instance(uuid)})
        hosts.append(host)
    hosts = SlowToRead(hosts)
    driver = a_driver(hosts, *POLICIES, weighers=[RAMWeigher], in_flight_timeout=60.0)

    def place():
        request = a_request(
            instance_uuid=uuid, instance_uuids=(uuid,), group=a_group(policy)
        )
        claim = driver.pending_claims.choose(chosen, request, None, {})
        driver.pending_claims.claimed([claim])
        if is_shown:
            with driver.pending_claims.ledger as ledger:
                ledger.shown(claim, -math.inf, claim.since)

    hosts.place = place
    assert ask(driver, group=a_group(policy)) == answer


def test_a_decision_records_hosts_lost_to_another_scheduler():
    driver = cloud(A, B, C, in_flight_timeout=60.0)
    Faster(driver, A)
    decision = driver.decide(a_request(group=a_group('anti-affinity')), seed=1)
    [attempt] = decision.attempts
    assert (attempt.unfit, decision.hosts) == (('a',), ('b',))


RACKS = []
for name, rack in ('a1', 'b1', 'c2', 'd3'):
    RACKS.append(a_host(name, metadata={'failure_domain': rack}))


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
def test_a_claim_that_conflicts_in_a_failure_domain_is_released(
    rival, count, group, answer, given_back
):
    """A conflict in a rack is resolved like a conflict on a host, although the claims
    are on different hosts."""
    [rival_host] = [host for host in RACKS if host.host == rival]
    driver = a_driver(RACKS, FailureDomainFilter, in_flight_timeout=60.0)
    Faster(driver, rival_host)

    assert ask(driver, count=count, group=group) == [[name] for name in answer]
    assert driver.pending_claims.given_back == given_back


@pytest.mark.parametrize(
    ('plugin', 'policy', 'slots', 'places'),
    [
        (FailureDomainFilter, 'anti-affinity', 'bcd', {'x': 'b', 'y': 'd'}),
        (FailureDomainFilter, 'affinity', 'bcd', {'x': 'b', 'y': 'c'}),
        (FailureDomainFilter, 'affinity', 'bd', {'x': 'b'}),
        (ServerGroupAffinityFilter, 'affinity', 'bcd', {'x': 'b'}),
    ],
)
def test_hosts_are_judged_again_if_a_group_changes_after_a_refusal(
    plugin, policy, slots, places
):
    """Another member goes to host b after the claim of the first member is refused. The
    next host of the first member is judged again, although that host is unchanged."""
    hosts = []
    for name, rack in ('a1', 'b2', 'c2', 'd3'):
        hosts.append(a_host(name, metadata={'failure_domain': rack}))
    free_slots = {host.uuid: int(host.host in slots) for host in hosts}
    placement = CountingPlacement(free_slots, stale=set(free_slots))
    driver = a_driver(hosts, plugin, placement=placement, in_flight_timeout=60.0)
    members = iter(['x'])

    def place(uuid):
        group = a_group(policy)
        with suppress(NoValidHost):
            ask(driver, instance_uuids=(uuid,), instance_uuid=uuid, group=group)

    def drop(claim, real=driver.pending_claims.release):
        real(claim)
        for uuid in members:
            place(uuid)

    driver.pending_claims.release = drop
    place('y')

    assert claimed(driver) == places


class PlacementWithDevices(MemoryPlacement):
    """A Placement whose candidates are worked out from provider trees.

    :param free: the unused capacity of providers at the claim, by UUID.
    """

    def __init__(self, candidates, free):
        super().__init__(free)
        self._candidates = candidates

    def candidates(self, request, basis=None):
        return self._candidates


@pytest.mark.parametrize(
    ('taken', 'device'), [('', '0'), ('0', '1'), ('01', None), ('1', '0')]
)
def test_the_next_device_of_the_kind_is_claimed_after_a_refusal(taken, device):
    """A filter keeps one kind of devices, of which the offer has a candidate for one
    device. After a refused claim on this device, the next device of the kind is
    claimed."""
    gpu = ('VGPU', 1)
    providers = providers_of_a_host(A.uuid, gpu, gpu, gpu)
    pools = []
    for number, product in enumerate('ppq'):
        tags = {'rp_uuid': f'{A.uuid}-{number}'}
        pools.append(Pool(product, 'v', 1, tags=tags))
    host = a_host('a', pci=lambda: tuple(pools))
    spec = ({'vendor_id': 'v', 'product_id': 'p'},)

    query = TreeQuery((Group('', (('VCPU', 1),)), Group('id-0', (gpu,), kind='id')))
    answer = an_answer(providers)
    matched = match(answer, query, answer.capacity_left)
    free = {provider.name: dict(provider.free) for provider in providers}
    for number in taken:
        free[f'{A.uuid}-{number}']['VGPU'] = 0
    placement = PlacementWithDevices(LocalCandidates([matched], ASKED_AT), free)
    driver = cloud(host, filters=[PciPassthroughFilter], placement=placement)

    with suppress(NoValidHost):
        ask(driver, pci_requests=(PciRequest(1, spec, 'gpu', 'id'),))

    providers_of_claims = []
    for amounts in placement.allocations.values():
        providers_of_claims.append(amounts.keys())
    if device is None:
        assert providers_of_claims == []
    else:
        assert providers_of_claims == [{A.uuid, f'{A.uuid}-{device}'}]


class NotingPlacement(CountingPlacement):
    """Notes until when claims may begin, and refuses claims for several instances.

    :ivar until: the moments, in the order of the claims.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.until = []

    def claim(self, request, candidate, basis):
        self.until.append(Claim.of(request, candidate, basis).until)
        return super().claim(request, candidate, basis)

    def claim_together(self, wanted, basis):
        self.until.append(Claim.of(*wanted[0], basis).until)
        if len(wanted) > 1:
            return None
        return super().claim_together(wanted, basis)


class SlowFilter(Filter):
    """A filter that takes 400 seconds of a manual clock."""

    def __init__(self, clock):
        super().__init__(None)
        self.clock = clock

    def reject(self, host, request):
        self.clock.now += 400.0


def test_the_time_limit_of_claims_begins_with_the_first_claim():
    """The time in which hosts are chosen does not count, however long it takes. All
    claims of a try have the same limit."""
    clock = ManualClock()
    placement = NotingPlacement({A.uuid: 10})
    driver = cloud(A, filters=[SlowFilter(clock)], placement=placement)
    driver.pending_claims = PendingClaims(Settings(), SharedLedger(60.0, clock))

    basis = Basis(began=clock.now, read_since=clock.now)
    decision = driver.decide(a_request(count=2), 1, basis)

    first_claim = basis.began + 2 * 400.0
    assert decision.hosts == ('a', 'a')
    assert {*placement.until} == {first_claim + CLAIM_LIMIT_S}


class PlacesOthers(Filter):
    """A filter that takes some seconds of a manual clock for each instance. During the
    first, other requests place servers, which their hosts show at once.

    :ivar place: places the servers.
    """

    def __init__(self, clock, seconds):
        super().__init__(None)
        self.clock = clock
        self.seconds = seconds
        self.place = None
        self._last = None

    def reject(self, host, request):
        if request.instance_uuid == self._last:
            return
        self._last = request.instance_uuid
        self.clock.now += self.seconds
        if self.place is not None:
            self.place()
            self.place = None


@pytest.mark.parametrize('seconds', [2.0, 12.0])
def test_a_long_request_counts_claims_made_since_hosts_were_read(seconds):
    """A request for many instances counts the servers that others have placed since it
    read the hosts, although the hosts have shown these servers for minutes. It counts
    its own first instances as well."""
    clock = ManualClock()
    hosts = numbered_hosts(60)
    slow = PlacesOthers(clock, seconds)
    driver = cloud(*hosts, filters=[slow, NumInstancesFilter], max_instances_per_host=2)
    claims = PendingClaims(Settings(), SharedLedger(60.0, clock))
    driver.pending_claims = claims
    others = hosts[48:56]

    def place():
        for host in others:
            uuid = a_uuid(f'other on {host.host}')
            claim = claims.choose(host, a_request(instance_uuid=uuid), None, {})
            claims.claimed([claim])
            with claims.ledger as ledger:
                ledger.shown(claim, clock.now, clock.now)

    slow.place = place
    basis = Basis(began=clock.now, read_since=clock.now)
    decision = driver.decide(a_request(count=112), 1, basis)

    on_hosts = Counter(decision.hosts) + Counter(host.host for host in others)
    assert max(on_hosts.values()) == 2
    assert clock.now > basis.began + 100 * seconds
