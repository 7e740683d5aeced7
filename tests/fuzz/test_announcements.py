# SPDX-License-Identifier: Apache-2.0
"""Random, damaged and hostile announcements among real announcements. A request at the
same time gets hosts, every claim ends by the timeout, and the memory stays bounded."""

import time
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.rpc.announcements import MAX_MESSAGE_BYTES, Message, Row, encode
from novasched.rpc.peer_protocol import MAX_PEERS
from novasched.rpc.peers import MAX_CLAIMS_OF_PEERS, PeerSchedulers
from novasched.scheduler.claims.ledger import chosen_limit
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.fitting import LIMITS, limits_of
from novasched.scheduler.model.pci import PciRequest
from tests.fuzz import mutation
from tests.fuzz.clouds import HOSTS, MESSAGES, SETTINGS
from tests.fuzz.mutation import EFFORT, mutated, one_input
from tests.lab.builders import a_group, a_host, a_mapped_candidate, a_request, a_uuid
from tests.lab.memory_schedulers import ManualClock
from tests.lab.topologies import a_guest, a_pinned, a_shared

BUSY_HOSTS = HOSTS[:2]
"""The hosts of all claims. A request always fits on the remaining hosts."""
DEVICE = PciRequest(1, ({'vendor_id': '8086', 'product_id': '10fb'},), 'nic', 'id')
KINDS = (
    {},
    {'numa_topology': a_guest(a_shared(2))},
    {'numa_topology': a_guest(a_pinned(2)), 'pci_requests': (DEVICE,)},
    {'pci_requests': (DEVICE,), 'physnets': frozenset({'net'})},
    {'group': a_group('anti-affinity')},
)


def real_rows():
    """A row for every kind of claim, written by a real scheduler."""
    ledger = SharedLedger(SETTINGS.in_flight_timeout)
    peers = PeerSchedulers(ledger, 'real')
    claims = PendingClaims(SETTINGS, ledger, peers)
    for number, fields in enumerate(KINDS):
        name = BUSY_HOSTS[number % len(BUSY_HOSTS)]
        host = a_host(name)
        uuid = a_uuid(f'instance {number}')
        request = a_request(**fields, instance_uuid=uuid, instance_uuids=(uuid,))
        candidate = a_mapped_candidate(host.uuid, 'id', [a_uuid('device')])
        claims.choose(host, request, candidate, {LIMITS: limits_of(host, request)})
    with peers.sending():
        peers.wake()
        _, table = peers.announcements()
    return msgspec.msgpack.decode(table)['rows']


ROWS = real_rows()
REAL_ROWS = msgspec.convert(ROWS, list[Row])
PINNED_ROW = next(row for row in ROWS if 'numa' in row and 'pci' in row)
FIELDS = tuple(Row.__struct_fields__)
message = st.fixed_dictionaries(
    {
        'sender': st.sampled_from(['a', 'b', '']),
        'number': st.integers(0, 9) | mutation.number,
        'rows': st.lists(st.sampled_from(ROWS), max_size=4).flatmap(mutated),
    },
    optional={
        'whole': st.booleans(),
        'ask': st.lists(st.sampled_from(['*', 'us', 'a', '\x00']), max_size=2),
    },
)
random_row = st.dictionaries(
    st.sampled_from(FIELDS) | mutation.text, mutation.value, max_size=6
)


class Listener:
    """A scheduler that receives the messages of a test, and has real claims of a
    peer."""

    def __init__(self):
        self.clock = ManualClock()
        self.clock.now = time.monotonic()
        ledger = SharedLedger(SETTINGS.in_flight_timeout, self.clock)
        self.peers = PeerSchedulers(ledger, 'us', patience=0.0)
        self.claims = PendingClaims(SETTINGS, ledger, self.peers)
        self._number = 0

    @contextmanager
    def connected(self):
        with self.peers.sending(), self.peers.receiving():
            yield self

    def hear(self, *texts):
        """Receive messages after real claims, and answer like the exchange."""
        self._number += 1
        self.peers.receive(encode(Message('real', self._number, REAL_ROWS)))
        for text in texts:
            self.peers.receive(text)
        self.peers.wake()
        for text in self.peers.announcements():
            self.peers.receive(text)

    def check(self, cloud):
        """A request gets hosts, and every claim ends in time."""
        reply = cloud.scheduler.answer(MESSAGES['full'], self.claims)
        assert isinstance(reply, list), reply
        assert len(reply) == 2
        self.check_bounds()

        self.clock.now += chosen_limit(self.claims.ledger.timeout) + 1.0
        self.claims.count()
        assert self.claims.ledger.all() == []

    def check_bounds(self):
        theirs = [claim for claim in self.claims.ledger.all() if not claim.is_ours]
        assert len(theirs) <= MAX_CLAIMS_OF_PEERS
        assert self.peers.position[1] <= MAX_PEERS + 1


@pytest.fixture(scope='module')
def listener():
    """A listener for all inputs of the module, like in a long-lived daemon."""
    with Listener().connected() as listener:
        yield listener


def packed(document):
    """MessagePack of a document. MessagePack has no long integers and no surrogates."""
    with mutation.deep_recursion():
        return msgspec.msgpack.encode(_packable(document))


def _packable(value):
    if isinstance(value, dict):
        packable = {}
        for key, inner in value.items():
            packable[_packable(key)] = _packable(inner)
        return packable
    if isinstance(value, list):
        return [_packable(inner) for inner in value]
    if isinstance(value, str):
        return value.encode('utf-8', 'replace').decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**64 - 1))
    return value


@EFFORT
@given(messages=st.lists(message.flatmap(mutated) | message, min_size=1, max_size=3))
def test_a_request_gets_hosts_despite_damaged_announcements(cloud, listener, messages):
    """Real rows and messages with wrong values."""
    with one_input('announcements'):
        listener.hear(*map(packed, messages))
        listener.check(cloud)


@EFFORT
@given(
    rows=st.lists(random_row, min_size=1, max_size=4),
    sender=st.sampled_from(['a', 'real']),
)
def test_a_request_gets_hosts_despite_random_rows(cloud, listener, rows, sender):
    """Rows of random content, also in the name of a known scheduler."""
    rows = list(map(mutation.unwrapped, rows))
    with one_input('announcements'):
        listener.hear(packed({'sender': sender, 'number': 1, 'rows': rows}))
        listener.check(cloud)


@EFFORT
@given(data=st.data())
def test_a_request_gets_hosts_despite_damaged_bytes(cloud, listener, data):
    """Messages with changed, additional and missing bytes."""
    text = bytearray(packed({'sender': 'a', 'number': 1, 'rows': ROWS}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with one_input('announcements'):
        listener.hear(bytes(text), data.draw(st.binary(max_size=40)))
        listener.check(cloud)


def many_rows(sender, count):
    """Rows of different claims, with real content."""
    rows = []
    for number in range(count):
        row = ROWS[number % len(ROWS)]
        instance = a_uuid(f'{sender}-{number}')
        rows.append({**row, 'number': number + 1, 'instance': instance})
    return rows


@EFFORT
@given(
    senders=st.lists(st.text(max_size=3), min_size=1, max_size=9),
    repeated=st.integers(1, 400),
    seconds=st.floats(0.0, 9.0),
)
def test_memory_stays_bounded_in_a_flood_of_announcements(
    listener, senders, repeated, seconds
):
    """More rows, senders and questions than a scheduler keeps."""
    with one_input('announcements'):
        for sender in senders:
            rows = many_rows(sender, repeated)
            for number in range(3):
                body = {
                    'sender': f'{sender}{number}',
                    'number': 2 * number,
                    'rows': rows,
                    'ask': ['*'],
                }
                listener.peers.receive(packed(body))
        listener.check_bounds()

        listener.clock.now += seconds
        listener.hear()


def a_message(**fields):
    row = {**PINNED_ROW, 'number': 1, **fields}
    return packed({'sender': 'hostile', 'number': 1, 'rows': [row]})


EMOJI = '\U0001f600'
SPARSE_CELL = {**PINNED_ROW['numa']['cells'][0], 'cpuset': list(range(128))}
KEPT = {
    'An emoji for an instance, which reached the database of a cell': a_message(
        instance=EMOJI, cell=a_uuid('cell1')
    ),
    'An emoji for a cell, a host and a group': a_message(
        cell=EMOJI, uuid=EMOJI, group=EMOJI
    ),
    'Small dicts that take half a megabyte': a_message(
        pci=[{'count': 1, 'spec': 9000 * [{}]}]
    ),
    'The same vCPUs in many cells': a_message(numa={'cells': 60 * [SPARSE_CELL]}),
    'Mappings that are not JSON': a_message(mappings='xx'),
    'Mappings in lists, deeper than a decoder goes': a_message(mappings='[' * 9000),
    'An age below zero, for ever': a_message(age=-1e9),
    'An age that is no number': a_message(age=float('nan')),
    'Lists in each other, in a field that is skipped': (
        b'\x82\xa6sender\xa1a\xa1x' + b'\x91' * 100_000 + b'\xc0'
    ),
    'A list that is said to be longer than the memory': (
        b'\x83\xa6sender\xa1a\xa6number\x01\xa4rows\xdd\xff\xff\xff\xff'
    ),
    'A message of more bytes than any': b'\x00' * (MAX_MESSAGE_BYTES + 1),
}  # fmt: skip
"""Messages that did harm before rows were checked, and similar messages."""


@pytest.mark.parametrize('text', KEPT.values(), ids=KEPT)
def test_kept_messages_that_once_did_harm_are_refused(cloud, text):
    """A message that once did harm is refused, alone and in the name of the process
    itself."""
    with ExitStack() as stack:
        stack.enter_context(one_input('announcements'))
        listener = stack.enter_context(Listener().connected())
        listener.hear(text)
        assert listener.peers.refused == 1
        forged = {
            'sender': listener.peers.name,
            'number': 1,
            'rows': [1, {}, {'number': 'x'}],
        }
        listener.hear(packed(forged))
        listener.check(cloud)
