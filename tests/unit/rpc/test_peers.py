# SPDX-License-Identifier: Apache-2.0
"""Pending claims of schedulers that announce claims to peers."""

import logging
import math
from dataclasses import fields, replace

import msgspec
import pytest

from novasched.conf.settings import Settings
from novasched.rpc.announcements import (
    MAX_PARTS,
    MAX_ROW_BYTES,
    MAX_VCPUS,
    Message,
    Row,
    claim_of,
    decode,
    decode_row,
    encode,
    row_of,
)
from novasched.rpc.peer_protocol import (
    HEARTBEAT_INTERVAL_S,
    MAX_PEERS,
    PEER_TIMEOUT_S,
)
from novasched.rpc.peers import (
    MAX_CLAIMS_OF_PEERS,
    WARNING_INTERVAL_S,
    PeerSchedulers,
)
from novasched.scheduler import fitting
from novasched.scheduler.claims.ledger import SHOWN_S
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.claim import Stage
from novasched.scheduler.model.host import HostSnapshot, HostView
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.model.request import REQUEST_LIMIT_S
from tests.lab.builders import (
    a_candidate,
    a_flavor,
    a_group,
    a_host,
    a_mapped_candidate,
    a_request,
    a_uuid,
)
from tests.lab.logs import logged
from tests.lab.memory_schedulers import ManualClock
from tests.lab.topologies import a_cell, a_guest, a_pinned, a_shared

CELLS = HostTopology((a_cell(0, cores=2), a_cell(1, cores=2)))
POOLS = (Pool('p', 'v', 2, 0, {'rp_uuid': 'A'}), Pool('p', 'v', 2, 1, {'rp_uuid': 'B'}))
HOST = a_host('a', ram=4096, numa=lambda: CELLS, pci=lambda: POOLS)
OTHER = a_host('b', ram=4096)
GUEST = {'numa_topology': a_guest(a_pinned(2))}
DEVICE = {'pci_requests': (PciRequest(1, ({'product_id': 'p'},), 'gpu', 'id'),)}


class Scheduler:
    """A scheduler process. A test names the receivers of announcements."""

    def __init__(self, name, clock=None, **settings):
        self.clock = clock or ManualClock()
        ledger = SharedLedger(60.0, self.clock)
        self.peers = PeerSchedulers(ledger, name, patience=30.0)
        self.claims = PendingClaims(Settings(**settings), ledger, self.peers)
        self._sending = self.peers.sending()
        self._sending.__enter__()

    def add(self, name='server', host=HOST, candidate=None, **fields):
        uuid = a_uuid(name)
        request = a_request(**fields, instance_uuid=uuid, instance_uuids=(uuid,))
        limits = {}
        if request.numa_topology:
            limits = {fitting.LIMITS: fitting.limits_of(host, request)}
        return self.claims.choose(host, request, candidate, limits)

    def speak(self, *others):
        """Send all messages that are due to this scheduler and to ``others``."""
        self.peers.wake()
        texts = self.peers.announcements()
        for receiver in (self, *others):
            for text in texts:
                receiver.peers.receive(text)
        return list(map(decode, texts))

    def left(self, host=HOST):
        pending = self.claims.of(
            HostSnapshot(HostView({host.uuid: host}), self.clock.now)
        )
        return self.claims.subtract(host, pending.get(host.uuid, ()))

    @property
    def hears(self):
        """Instances in claims of peers, with True for claimed instances."""
        is_claimed = {}
        with self.claims.ledger as ledger:
            for claim in ledger:
                if not claim.is_ours:
                    uuid = claim.request.instance_uuid
                    is_claimed[uuid] = ledger.is_claimed(claim)
        return is_claimed


def introduce(one, two):
    """Make two schedulers known to each other, with all claims."""
    for _ in range(2):
        one.speak(two)
        two.speak(one)


@pytest.fixture
def pair():
    """Two schedulers that know each other."""
    one = Scheduler('one')
    two = Scheduler('two')
    introduce(one, two)
    assert one.peers.position == (0, 2)
    assert two.peers.position == (1, 2)
    return one, two


@pytest.mark.parametrize(
    'fields',
    [
        {},
        {'flavor': a_flavor(vcpus=3, memory_mb=1024, root_gb=7, ephemeral_gb=2, id=5)},
        GUEST,
        DEVICE,
        {**GUEST, **DEVICE},
        {**DEVICE, 'candidate': a_mapped_candidate('a', 'id', ['B'])},
        {'group': a_group('anti-affinity')},
    ],
)
def test_a_peer_subtracts_the_same_resources_for_a_claim(pair, fields):
    """A claim takes the same from a host in the scheduler that chose the host and in a
    peer, and needs a few hundred bytes in a message."""
    one, two = pair
    claim = one.add(**fields)
    [message] = one.speak(two)

    for field in fields_of(HOST):
        # These two are functions.
        if field not in ('numa', 'pci'):
            assert getattr(two.left(), field) == getattr(one.left(), field)
    assert two.left().numa_topology == one.left().numa_topology
    assert two.left().pci_stats == one.left().pci_stats
    assert two.left() != HOST

    [heard] = two.claims.ledger.all()
    assert heard.is_in_group(fields.get('group')) == ('group' in fields)
    assert two.claims.unclaimed(0.0) == claim.amounts
    assert len(encode(message)) < 800


def test_a_scheduler_without_peers_announces_no_claims():
    """A scheduler that is alone announces no claims. A newcomer gets all pending
    claims, and later the changes."""
    first = Scheduler('first')
    newcomer = Scheduler('newcomer')
    first.speak()
    early = first.add('early')
    first.claims.claimed([early])
    [heartbeat] = first.speak()
    assert heartbeat.rows == []

    with newcomer.peers.receiving():
        newcomer.speak(first)
        first.add('late')
        first.speak(newcomer)
        assert newcomer.hears == {a_uuid('early'): True, a_uuid('late'): False}

        first.claims.release(early)
        first.speak(newcomer)
        assert newcomer.hears == {a_uuid('late'): False}


def fields_of(value):
    return [field.name for field in fields(value)]


def test_a_claim_counts_in_a_peer_until_the_release(pair):
    """A claim counts from the choice of the host until the release. A claim in
    Placement ends claims of the same instance on other hosts."""
    one, two = pair
    before = two.add('moves', OTHER)
    two.claims.claimed([before])

    gone = one.add('gone')
    kept = one.add('moves')
    one.speak(two)
    assert two.hears == {a_uuid('gone'): False, a_uuid('moves'): False}

    one.claims.claimed([kept])
    one.claims.release(gone)
    one.speak(two)
    assert two.hears == {a_uuid('moves'): True}
    assert two.left(OTHER).num_instances == OTHER.num_instances
    assert two.claims.count() == 0, 'only its own count'
    assert one.hears == {}


def test_a_new_scheduler_asks_for_all_pending_claims(pair):
    """A newcomer asks, and gets all pending claims."""
    one, two = pair
    one.claims.claimed([one.add('claimed')])
    one.add('chosen')
    one.speak(two)
    late = Scheduler('late')
    one.speak(late)
    assert late.hears == {}

    late.speak(one, two)
    one.speak(two, late)
    assert late.hears == {a_uuid('claimed'): True, a_uuid('chosen'): False}
    assert late.peers.missed == 0


def test_a_scheduler_asks_for_the_table_after_a_lost_message(pair):
    """The next message, here a heartbeat, shows that a message was lost. The table
    makes up for the message."""
    one, two = pair
    gone = one.add('gone')
    one.speak(two)

    one.add('missed')
    one.claims.release(gone)
    one.speak()
    one.speak(two)
    assert two.hears == {a_uuid('gone'): False}
    assert two.peers.missed == 1

    two.speak(one)
    one.speak(two)
    assert two.hears == {a_uuid('missed'): False}


def test_a_peer_learns_changes_made_while_no_peer_was_heard(pair):
    """A scheduler that hears no peer announces no changes. A peer that still hears the
    scheduler notices the changes, asks for the table, and knows all claims again."""
    one, two = pair
    claimed = one.add('claimed')
    gone = one.add('gone')
    one.speak(two)
    one.clock.now += PEER_TIMEOUT_S + 1
    one.speak(two)
    assert one.peers.position == (0, 1)

    one.claims.claimed([claimed])
    one.claims.release(gone)
    one.add('chosen')
    one.speak(two)
    introduce(two, one)
    assert two.hears == {a_uuid('claimed'): True, a_uuid('chosen'): False}


def rivals(scheduler, claim):
    """The instances with claims that take precedence over a claim of the scheduler."""
    scheduler.peers.catch_up(claim)
    instances = []
    with scheduler.claims.ledger as ledger:
        for rival in ledger:
            if ledger.is_ahead(rival, claim) and rival.is_near(claim):
                instances.append(rival.request.instance_uuid)
    return instances


def test_the_rival_claim_that_was_announced_first_stays(pair):
    """Of two claims at the same time, the claim stays that was announced first, for
    both schedulers. A claim in Placement always stays."""
    one, two = pair
    first = one.add('first')
    second = two.add('second')
    one.speak(two)
    two.speak(one)
    assert rivals(one, first) == []
    assert rivals(two, second) == [a_uuid('first')]
    two.claims.claimed([second])
    two.speak(one)
    assert rivals(one, first) == [a_uuid('second')]


@pytest.mark.parametrize(('host', 'group', 'counts'), [
    (HOST, None, True),
    (OTHER, None, False),
    (OTHER, a_group('affinity'), True),
    (OTHER, replace(a_group('affinity'), uuid=a_uuid('another')), False),
])  # fmt: skip
def test_rival_claims_are_on_the_same_host_or_in_the_same_group(
    pair, host, group, counts
):
    one, two = pair
    one.add('rival', host, group=group)
    one.speak(two)
    own = two.add('own', group=a_group('affinity'))
    two.speak(one)
    assert bool(rivals(two, own)) is counts


def test_claims_of_a_silent_scheduler_stay_until_timeout():
    """A silent scheduler does not count as a peer. The claims of the silent scheduler
    still count, until the timeout."""
    clock = ManualClock()
    one = Scheduler('one')
    two = Scheduler('two', clock)
    introduce(one, two)
    one.claims.claimed([one.add('server')])
    one.speak(two)
    clock.now += PEER_TIMEOUT_S + 1
    two.speak()
    assert two.peers.position == (0, 1)
    assert two.hears == {a_uuid('server'): True}
    clock.now += 61.0
    assert two.left() == HOST


@pytest.mark.parametrize(
    'text', [b'', b'\xff', msgspec.msgpack.encode([1]), b'{"sender": 1}']
)
def test_an_unreadable_message_is_ignored(pair, text):
    one, two = pair
    two.peers.receive(text)
    one.add()
    one.speak(two)
    assert two.hears == {a_uuid('server'): False}


def test_unknown_fields_of_later_releases_are_skipped(pair):
    """Unknown fields are skipped, and missing fields have defaults."""
    _, two = pair
    later = {
        'sender': 'later',
        'number': 1,
        'color': 'blue',
        'rows': [
            {
                'number': 1,
                'state': 'chosen',
                'instance': a_uuid('x'),
                'uuid': HOST.uuid,
                'weight': 3,
            },
            {
                'number': 2,
                'state': 'dreamt of',
                'instance': a_uuid('y'),
                'uuid': HOST.uuid,
            },
        ],
    }
    two.peers.receive(msgspec.msgpack.encode(later))
    assert two.hears == {a_uuid('x'): False, a_uuid('y'): False}
    assert two.left().num_instances == HOST.num_instances + 2
    [row] = decode(encode(Message('s', 1, [Row(2)]))).rows
    assert decode_row(row) == Row(2)


def test_a_claim_has_the_same_age_in_a_peer():
    """A claim is as old for a peer as for the scheduler that has made the claim."""
    clock = ManualClock()
    claims = PendingClaims(Settings(), SharedLedger(60.0, clock))
    claim = claims.choose(HOST, a_request(), None, {})
    row = row_of(claim, math.inf, clock.now + 50.0)
    assert (row.state, row.age, row.claimed_age) == (Stage.CHOSEN, 50.0, None)
    assert claim_of(row, now=7000.0).since == 6950.0
    row = row_of(claim, clock.now + 20.0, clock.now + 50.0)
    assert (row.state, row.age, row.claimed_age) == (Stage.CLAIMED, 50.0, 30.0)


def test_a_claim_that_has_ended_is_not_announced(pair):
    """A choice may end before its announcement, since another scheduler has placed the
    instance later."""
    one, two = pair
    own = one.add('server')
    theirs = replace(own, host=OTHER, is_ours=False)
    with one.claims.ledger as ledger:
        ledger.chosen(theirs, position=1)
    with one.claims.ledger as ledger:
        ledger.claimed([theirs], one.claims.ledger.clock())
    one.speak(two)
    assert two.hears == {}


def test_a_claim_ends_at_the_same_moment_in_all_schedulers():
    """A claim ends at the same moment for a peer that hears of the claim late."""
    clock = ManualClock()
    one = Scheduler('one', clock)
    two = Scheduler('two', clock)
    claim = one.add('server')
    clock.now += 100.0
    one.claims.claimed([claim])
    clock.now += 50.0
    introduce(one, two)
    assert two.hears == {a_uuid('server'): True}

    clock.now += 9.0
    assert one.left() == two.left() != HOST
    clock.now += 1.0
    assert one.left() == two.left() == HOST


def test_a_released_claim_with_a_lost_announcement_is_forgotten(pair):
    """A claim whose announcement was lost is forgotten once it is released."""
    one, _ = pair
    lost = one.add('lost')
    one.peers.announcements()
    one.claims.release(lost)
    one.clock.now += HEARTBEAT_INTERVAL_S
    one.speak()
    assert one.peers._claims._unheard == {}


def test_a_scheduler_that_hears_no_messages_counts_no_peers(pair):
    """A process that hears nothing counts as the only process, until messages of peers
    arrive again."""
    one, two = pair
    with one.peers.receiving():
        two.speak(one)
        assert one.peers.position == (0, 2)
    assert one.peers.position == (0, 1)
    two.speak(one)
    assert one.peers.position == (0, 2)


def test_a_repeated_announcement_keeps_the_moment_of_a_claim():
    """A repeated announcement does not change the moment of a claim: answers of
    Placement since then include the claim."""
    clock = ManualClock()
    one = Scheduler('one')
    two = Scheduler('two', clock)
    for _ in range(2):
        two.speak(one)
        one.speak(two)
    claim = one.add(candidate=a_candidate(HOST.uuid, VCPU=1))
    one.claims.claimed([claim])
    one.speak(two)
    assert two.claims.unclaimed(clock.now - 1.0) == claim.amounts
    claimed_at = clock.now
    clock.now += 10.0
    # A scheduler that begins to listen asks for all pending claims.
    with two.peers.receiving():
        two.speak(one)
    messages = one.speak(two)
    assert [message.whole for message in messages] == [False, True]
    assert two.claims.unclaimed(claimed_at) == {}


def test_a_table_does_not_end_claims_of_other_schedulers(pair):
    """The table of a process does not end claims of further processes."""
    one, two = pair
    three = Scheduler('three')
    for _ in range(2):
        three.speak(one, two)
        one.speak(two, three)
        two.speak(one, three)

    one.add('of one')
    one.speak(two, three)
    three.add('of three')
    with two.peers.receiving():
        two.speak(one, three)
    assert [message.whole for message in three.speak(two)] == [False, True]
    assert two.hears.keys() == {a_uuid('of one'), a_uuid('of three')}


def test_a_table_does_not_end_claims_that_a_request_needs(pair):
    """A claim that is over at the peer counts beside the hosts of a request that has
    read them before the instance came, also after a table of the peer without it."""
    one, two = pair
    one.claims.claimed([one.add('server')])
    one.speak(two)
    read_at = two.clock.now
    with two.claims.ledger.keeping(read_at):
        for scheduler in pair:
            with scheduler.claims.ledger as ledger:
                [claim] = ledger
                ledger.shown(claim, scheduler.clock.now + 1, scheduler.clock.now, True)
            scheduler.clock.now += SHOWN_S + 2
            scheduler.left()
        assert not one.claims.ledger.all()

        introduce(one, two)
        one.add('missed')
        one.speak()
        introduce(one, two)

        assert two.hears == {a_uuid('server'): True, a_uuid('missed'): False}
        hosts = HostSnapshot(HostView({HOST.uuid: HOST}), read_at)
        assert len(two.claims.of(hosts)[HOST.uuid]) == 2


NETWORKS = {'physnets': frozenset({'net'}), 'tunneled': True}
NEAR_NETWORKS = HostTopology((a_cell(0), a_cell(1, **NETWORKS)))
USED = a_cell(0, cpu_usage=16)
"""Full with an allocation ratio of 2 for the eight CPUs."""
SHARED = {'numa_topology': a_guest(a_shared(2))}


@pytest.mark.parametrize(
    ('packing', 'cells', 'fields'),
    [
        (True, HostTopology((USED, a_cell(1))), SHARED),
        (False, HostTopology((USED, a_cell(1))), SHARED),
        (True, HostTopology((a_cell(0, memory_usage=4096), a_cell(1))), SHARED),
        (False, NEAR_NETWORKS, {**SHARED, **NETWORKS}),
        (False, NEAR_NETWORKS, {**GUEST, **NETWORKS}),
        (
            True,
            HostTopology((a_cell(0, **NETWORKS), a_cell(1))),
            {**GUEST, 'physnets': NETWORKS['physnets']},
        ),
        (True, CELLS, GUEST),
    ],
)
def test_an_instance_takes_the_same_numa_cells_in_a_peer(packing, cells, fields):
    """A guest takes the same NUMA cells in the scheduler that placed the guest and in a
    peer, also where allocation ratios or networks decide, and on top of earlier
    guests."""
    host = replace(
        HOST, numa=lambda: cells, cpu_allocation_ratio=2.0, ram_allocation_ratio=1.0
    )
    strategy = {'packing_host_numa_cells_allocation_strategy': packing}
    one = Scheduler('one', **strategy)
    two = Scheduler('two', **strategy)
    introduce(one, two)

    for name in ('first', 'second'):
        one.add(name, one.left(host), **fields)
        one.speak(two)
        assert two.left(host).numa_topology == one.left(host).numa_topology != cells


A_CLAIM = {'number': 1, 'instance': a_uuid('bad'), 'uuid': HOST.uuid, 'host': HOST.host}
A_CELL = msgspec.to_builtins(a_pinned(2))


def a_topology(**fields):
    return {'numa': {'cells': [{**A_CELL, **fields}]}}


BAD = {
    'an age below zero': {'age': -1e9},
    'an age without end': {'age': math.inf},
    'an age that is no number': {'age': math.nan},
    'an age of the answer below zero': {'claimed_age': -1.0},
    'a number of no claim': {'number': 0},
    'a number below zero': {'number': -1},
    'mappings that are not JSON': {'mappings': 'xx'},
    'mappings of another form': {'mappings': '{"": 1}'},
    'mappings in each other': {'mappings': '[' * 10_000},
    'an amount below zero': {'amounts': {'rp': {'VCPU': -1}}},
    'an amount beyond all': {'amounts': {'rp': {'VCPU': 2**62}}},
    'memory below zero': {'memory_mb': -1},
    'vCPUs beyond all': {'vcpus': 2**63},
    'a flavor below zero': {'flavor': -1},
    'a text that fills the memory': {'host': 'x' * MAX_ROW_BYTES},
    'a guest without NUMA cells': {'numa': {'cells': []}},
    'a vCPU beyond all': a_topology(pcpuset=[2**60]),
    'a vCPU below zero': a_topology(cpuset=[-1]),
    'memory of a cell below zero': a_topology(memory=-1),
    'a page size of no kind': a_topology(pagesize=-9),
    'a cell beyond all': a_topology(id=2**60),
    'devices below zero': {'pci': [{'count': -1}]},
    'a ratio that is no number': {
        'limits': {'cpu_allocation_ratio': math.nan, 'ram_allocation_ratio': 1.0}
    },
    'a list in place of a text': {'uuid': ['x']},
    'an instance that is an emoji': {'instance': '\U0001f600'},
    'an instance that is a word': {'instance': 'server'},
    'a UUID with a line break': {'instance': a_uuid('x') + '\n'},
    'a host that is an emoji': {'uuid': '\U0001f600'},
    'a cell that is an emoji': {'cell': '\U0001f600'},
    'a group that is an emoji': {'group': '\U0001f600'},
    'a project that is a novel': {'project': 'x' * 256},
    'a thousand small dicts': {'pci': [{'count': 1, 'spec': [{}] * (MAX_PARTS + 1)}]},
    'a provider of many classes': {
        'amounts': {'rp': {str(i): 1 for i in range(MAX_PARTS)}}
    },
    'many small NUMA cells': {
        'numa': {'cells': (MAX_PARTS + 1) * [{'id': 0, 'cpuset': [], 'memory': 0}]}
    },
    'more vCPUs than any guest has': {
        'numa': {'cells': [
            {'id': i, 'cpuset': list(range(128)), 'memory': 0} for i in range(33)
        ]}
    },
}  # fmt: skip


@pytest.mark.parametrize('fields', BAD.values(), ids=BAD)
def test_a_bad_row_is_refused(pair, fields):
    """An invalid row is refused, with a log line per minute. The rest of the message
    counts."""
    _, two = pair
    good = {**A_CLAIM, 'number': 2, 'instance': a_uuid('good')}
    message = {'sender': 'other', 'number': 1, 'rows': [{**A_CLAIM, **fields}, good]}
    with logged('novasched.rpc.peers', logging.WARNING) as lines:
        for _ in range(9):
            two.peers.receive(msgspec.msgpack.encode(message))
        assert len(lines) == 1

        two.clock.now += WARNING_INTERVAL_S
        two.peers.receive(msgspec.msgpack.encode(message))
        assert len(lines) == 2
    assert two.peers.refused == 10
    assert two.hears == {a_uuid('good'): False}


@pytest.mark.parametrize(
    ('fields', 'is_kept'),
    [
        ({'state': 'claimed', 'age': 61.0}, False),
        ({'state': 'claimed', 'age': 59.0}, True),
        ({'state': 'claimed', 'age': 161.0, 'claimed_age': 59.0}, True),
        ({'state': 'claimed', 'age': 161.0, 'claimed_age': 61.0}, False),
        ({'state': 'chosen', 'age': 61.0}, True),
        ({'state': 'chosen', 'age': REQUEST_LIMIT_S + 1}, False),
    ],
)
def test_an_announced_claim_past_the_time_limit_is_not_kept(pair, fields, is_kept):
    """The timeout of a peer may be longer. Earlier releases do not tell when a request
    was answered."""
    _, two = pair
    message = {'sender': 'other', 'number': 1, 'rows': [{**A_CLAIM, **fields}]}
    two.peers.receive(msgspec.msgpack.encode(message))
    assert bool(two.hears) is is_kept
    assert two.peers.refused == 0


def test_many_claims_do_not_fill_the_memory(pair):
    """The number of rows in a message, of claims and of senders is bounded."""
    _, two = pair
    rows = []
    for number in range(1, MAX_CLAIMS_OF_PEERS + 1):
        rows.append(Row(number, instance=a_uuid(str(number)), uuid=HOST.uuid))
    two.peers.receive(encode(Message('other', 1, [*rows, rows[0]])))
    assert two.hears == {}

    two.peers.receive(encode(Message('other', 1, rows[1:])))
    for number in range(2 * MAX_PEERS):
        row = Row(1, instance=a_uuid(f'of {number}'), uuid=HOST.uuid)
        two.peers.receive(encode(Message(f'sender {number}', 1, [row])))
    assert len(two.hears) == MAX_CLAIMS_OF_PEERS
    assert two.peers.position[1] <= MAX_PEERS + 1


def large_rows(number):
    """Rows of claims of guests with as many vCPUs as a row may have."""
    cells = []
    for i in range(MAX_VCPUS // 128):
        cells.append({'id': i, 'cpuset': list(range(128)), 'memory': 0})
    rows = []
    for i in range(1, number + 1):
        row = {**A_CLAIM, 'number': i, 'instance': a_uuid(str(i))}
        rows.append({**row, 'numa': {'cells': cells}})
    return rows


def test_large_claims_do_not_fill_the_memory(pair):
    """The memory of the claims of all peers together is bounded, and claims that have
    ended make room."""
    _, two = pair
    rows = large_rows(900)
    for sender in ('a', 'b'):
        message = {'sender': sender, 'number': 1, 'rows': rows, 'whole': True}
        two.peers.receive(msgspec.msgpack.encode(message))

    kept = len(two.hears)
    assert 500 < kept < 900
    assert two.peers.refused == 2 * len(rows) - kept

    empty = {'sender': 'a', 'number': 2, 'rows': [], 'whole': True}
    two.peers.receive(msgspec.msgpack.encode(empty))
    assert two.hears == {}
    two.peers.receive(msgspec.msgpack.encode({**message, 'number': 2}))
    assert len(two.hears) == kept


def test_a_claim_of_a_peer_that_cannot_be_subtracted_is_dropped(pair):
    """Requests go on without the claim of a peer. For a claim of this process, the
    error is raised."""
    one, two = pair
    broken = Candidate({}, msgspec.Raw(b'xx'))
    one.add(candidate=broken, **DEVICE)
    one.add('whole')
    for claim in one.claims.ledger.all():
        with two.claims.ledger as ledger:
            ledger.chosen(replace(claim, is_ours=False))

    assert two.left().num_instances == HOST.num_instances + 1
    assert two.hears == {a_uuid('whole'): False}
    with pytest.raises(PlacementUnavailable):
        one.left()


@pytest.mark.parametrize('is_silent', [True, False])
def test_a_silent_scheduler_loses_claims_not_yet_in_placement(is_silent):
    """Unclaimed claims of a dead process do not count any longer. Claimed claims still
    count, and a short silence changes nothing."""
    clock = ManualClock()
    one = Scheduler('one')
    two = Scheduler('two', clock)
    with two.peers.receiving():
        introduce(one, two)
        one.claims.claimed([one.add('claimed')])
        one.add('chosen')
        one.speak(two)
        assert two.hears == {a_uuid('claimed'): True, a_uuid('chosen'): False}

        clock.now += PEER_TIMEOUT_S + (1 if is_silent else -1)
        two.speak()

    expected = {a_uuid('claimed'): True}
    if not is_silent:
        expected[a_uuid('chosen')] = False
    assert two.hears == expected


def test_an_instance_of_a_dead_scheduler_counts_once_a_host_shows_it():
    """The scheduler died before it told that Placement has the claims. Hosts of an
    earlier reading lack the instances, and no request waits for room: nothing was
    released."""
    clock = ManualClock()
    one = Scheduler('one')
    two = Scheduler('two', clock)
    with two.peers.receiving():
        introduce(one, two)
        one.add('shown')
        one.add('over')
        one.speak(two)
        with two.claims.ledger as ledger:
            for claim in list(ledger):
                if claim.request.instance_uuid == a_uuid('over'):
                    ledger.released(claim, clock.now - 1)
                else:
                    ledger.shown(claim, clock.now + 1, clock.now, True)

        before = clock.now
        clock.now += PEER_TIMEOUT_S + 1
        two.speak()

    assert two.hears == {a_uuid('shown'): False}
    with two.claims.ledger as ledger:
        assert not ledger.was_released(before, except_for=())


def test_peers_get_time_to_be_heard_again_after_a_reconnect():
    """After a reconnect, peers get time to be heard again."""
    clock = ManualClock()
    one = Scheduler('one')
    two = Scheduler('two', clock)
    with two.peers.receiving():
        introduce(one, two)
        one.add('chosen')
        one.speak(two)

    clock.now += 2 * PEER_TIMEOUT_S
    with two.peers.receiving():
        two.speak()
        assert two.hears == {a_uuid('chosen'): False}

        clock.now += PEER_TIMEOUT_S + 1
        two.speak()
        assert two.hears == {}
