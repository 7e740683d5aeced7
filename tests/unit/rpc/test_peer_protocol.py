# SPDX-License-Identifier: Apache-2.0
"""Transcripts of the protocol among schedulers: messages in and out, at moments."""

import math

import pytest

from novasched.rpc.announcements import MAX_ASKED, Message, Row, decode, encode
from novasched.rpc.peer_protocol import (
    MAX_PEERS,
    ApplyRows,
    CleanUp,
    Echo,
    PeerProtocol,
    Refuse,
)

CHANGE = [Row(1)]


def received(sender, number, rows=(), **fields):
    """A received message with encoded rows."""
    return decode(encode(Message(sender, number, list(rows), **fields)))


def connected(name='b', now=0.0):
    """A scheduler that sends and receives, and has sent its first messages."""
    scheduler = PeerProtocol(name)
    scheduler.start_sending(0.0)
    scheduler.start_receiving(now)
    scheduler.due(now)
    return scheduler


def acquainted(name='b', now=0.0):
    """A scheduler with peer a, at number 7."""
    scheduler = connected(name, now)
    scheduler.receive(received('a', 7), now)
    scheduler.due(now)
    return scheduler


def test_a_connected_scheduler_asks_for_tables_and_sends_a_table():
    """A scheduler asks all peers for tables, and sends a table."""
    b = PeerProtocol('b')
    b.start_sending(0.0)
    b.start_receiving(0.0)
    assert b.is_due(0.0)
    assert b.due(0.0) == [Message('b', 0, ask=['*']), Message('b', 0, whole=True)]


def test_a_reconnected_scheduler_asks_for_tables_and_sends_a_table():
    """A new receiving connection leads to the same messages."""
    b = acquainted()
    b.stop_receiving(0.0)
    b.start_receiving(9.0)
    assert b.due(9.0) == [Message('b', 0, ask=['*']), Message('b', 0, whole=True)]


def test_a_heartbeat_is_due_each_second():
    """A heartbeat is due each second, and does not change the number."""
    b = connected()
    assert b.next_heartbeat == 1.0
    assert not b.is_due(0.9)
    assert b.is_due(1.0)
    assert b.due(1.0) == [Message('b', 0)]
    assert b.next_heartbeat == 2.0


def test_a_heartbeat_can_be_sent_early():
    b = connected()
    b.hasten_heartbeat()
    assert b.is_due(0.1)
    assert b.due(0.1) == [Message('b', 0)]
    assert b.next_heartbeat == 1.1


def test_changes_are_numbered():
    """Changes take the place of a heartbeat."""
    b = acquainted()
    assert b.due(0.3, CHANGE) == [Message('b', 1, CHANGE)]
    assert b.due(0.6, CHANGE) == [Message('b', 2, CHANGE)]
    assert b.next_heartbeat == 1.6
    assert b.due(1.6) == [Message('b', 2)]


def test_an_unknown_scheduler_is_asked_for_a_table():
    """A new peer may have earlier claims."""
    b = connected()
    assert b.receive(received('a', 7), 0.1) == [ApplyRows('a', [], False)]
    assert b.is_due(0.1)
    assert b.due(0.1) == [Message('b', 0, ask=['a'])]
    assert b.missed == 0


def test_a_scheduler_that_sent_a_table_is_not_asked():
    b = connected()
    b.receive(received('a', 7, whole=True), 0.1)
    assert not b.is_due(0.1)


@pytest.mark.parametrize(('messages', 'missed'), [
    ([received('a', 7)], 0),
    ([received('a', 8, CHANGE)], 0),
    ([received('a', 8, CHANGE), received('a', 9, CHANGE), received('a', 9)], 0),
    ([received('a', 8)], 1),
    ([received('a', 9, CHANGE)], 1),
    ([received('a', 7, CHANGE)], 1),
    ([received('a', 6)], 1),
    ([received('a', 9, whole=True), received('a', 10, CHANGE)], 0),
    ([received('a', 9), received('a', 9), received('a', 12)], 2),
])  # fmt: skip
def test_numbers_show_lost_messages(messages, missed):
    """Only changes increase the number. A table makes up for all earlier messages."""
    b = acquainted()
    for message in messages:
        b.receive(message, 0.1)
    assert b.missed == missed
    assert b.is_due(0.1) is bool(missed)

    question = []
    if missed:
        question.append('a')
    assert b.due(0.1) == [Message('b', 0, ask=question)]


@pytest.mark.parametrize(('ask', 'is_answered'), [
    (['b'], True),
    (['*'], True),
    (['a', 'b'], True),
    (['c'], False),
    ([], False),
])  # fmt: skip
def test_only_an_asked_scheduler_answers_with_a_table(ask, is_answered):
    """The table follows the heartbeat, with the number of the last changes."""
    b = acquainted()
    b.due(0.1, CHANGE)
    b.receive(received('a', 7, ask=ask), 0.2)
    assert b.is_due(0.2) is is_answered

    answer = [Message('b', 1)]
    if is_answered:
        answer.append(Message('b', 1, whole=True))
    assert b.due(0.2) == answer
    assert b.due(0.3) == [Message('b', 1)], 'once'


def test_rows_of_another_scheduler_are_applied():
    b = acquainted()
    [action] = b.receive(received('a', 8, CHANGE), 0.1)
    assert [action.sender, action.is_table] == ['a', False]
    assert list(map(bytes, action.rows)) == list(map(encode, CHANGE))
    [action] = b.receive(received('a', 8, CHANGE, whole=True), 0.1)
    assert action.is_table


def test_a_table_makes_up_for_a_lost_message():
    """The transcript in the documentation of the module."""
    a = connected('a')
    b = connected('b')

    def exchange(sender, receiver, now, changes=()):
        """Send the due messages, and return a list of the messages."""
        messages = sender.due(now, changes)
        for message in messages:
            receiver.receive(decode(encode(message)), now)
        return messages

    for now in (0.1, 0.2, 0.3):
        exchange(a, b, now)
        exchange(b, a, now)
    assert exchange(a, b, 1.0, CHANGE) == [Message('a', 1, CHANGE)]
    a.due(1.1, CHANGE)  # is lost
    assert exchange(a, b, 2.1) == [Message('a', 2)]
    assert exchange(b, a, 2.2) == [Message('b', 0, ask=['a'])]
    assert exchange(a, b, 2.3) == [Message('a', 2), Message('a', 2, whole=True)]
    assert exchange(b, a, 2.4) == [Message('b', 0)]
    assert (a.missed, b.missed) == (0, 1)


@pytest.mark.parametrize('is_known', [False, True])
def test_a_question_is_repeated_until_the_table_arrives(is_known):
    """A question is repeated every two seconds until the table arrives. Heartbeats do
    not answer the question."""
    b = connected()
    if is_known:
        b.receive(received('a', 5, whole=True), 0.0)
    b.receive(received('a', 7), 0.0)
    asked = [b.due(0.0)[0].ask]
    for now in (1.0, 2.0, 3.0, 4.0):
        b.receive(received('a', 7), now)
        b.receive(received('b', 0), now)
        asked.append(b.due(now)[0].ask)
    assert asked == [['a'], [], ['a'], [], ['a']]

    b.receive(received('a', 7, whole=True), 4.1)
    for now in (5.0, 6.0, 7.0):
        b.receive(received('a', 7), now)
        b.receive(received('b', 0), now)
        assert b.due(now) == [Message('b', 0)]
    assert b.missed == is_known


def test_a_scheduler_without_peers_or_broker_announces_no_changes():
    """Changes are announced while a peer is alive and messages reach the broker."""
    b = connected()
    assert not b.is_heard
    b.receive(received('b', 0), 0.1)
    assert not b.is_heard, 'its own message'
    b.receive(received('a', 7), 0.1)
    assert b.is_heard
    b.stop_sending(0.0)
    assert not b.is_heard
    b.start_sending(0.0)
    assert b.is_heard
    b.stop_receiving(0.0)
    assert not b.is_heard


def test_a_change_without_an_announcement_counts_as_a_lost_message():
    """A change without an announcement counts as a lost message, unless the next
    connection begins with a table."""
    b = connected()
    b.leave_out_change()
    b.leave_out_change()
    assert b.due(1.0) == [Message('b', 2)]
    b.stop_sending(0.0)
    b.leave_out_change()
    b.start_sending(0.0)
    assert b.due(2.0) == [Message('b', 2, ask=['*']), Message('b', 2, whole=True)]


def test_a_question_without_a_connection_is_dropped():
    """Without a connection, a question is dropped. After the reconnect, the scheduler
    asks all peers."""
    b = acquainted()
    b.stop_sending(0.0)
    b.receive(received('a', 9), 0.1)
    assert not b.is_due(0.1)
    b.start_sending(0.0)
    assert b.due(0.2) == [Message('b', 0, ask=['*']), Message('b', 0, whole=True)]


def parted(now=10.0):
    """A scheduler that has lost both connections, and has peers a and c."""
    b = acquainted()
    b.receive(received('c', 3), 0.0)
    b.stop_sending(now)
    b.stop_receiving(now)
    return b


def reconnect(scheduler, now):
    """Make both connections of a scheduler anew."""
    scheduler.start_sending(now)
    scheduler.start_receiving(now)


def test_a_scheduler_is_apart_until_all_tables_arrive():
    """Its own messages give no place in the order before, and are sent again then."""
    b = parted(10.0)
    assert b.apart_until == 30.0
    reconnect(b, 12.0)
    b.due(12.0)
    assert b.receive(received('b', 0), 12.1) == [CleanUp(None)]

    b.receive(received('a', 8, CHANGE), 12.2)
    b.receive(received('c', 3, whole=True), 12.3)
    assert b.receive(received('b', 0), 12.4) == []
    b.receive(received('a', 8, CHANGE, whole=True), 12.5)
    assert b.apart_until == -math.inf
    assert b.due(12.5) == [Message('b', 0, ask=['a']), Message('b', 0, whole=True)]
    assert b.receive(received('b', 0), 12.6) == [Echo([])]


def test_a_scheduler_is_apart_until_a_missing_peer_times_out():
    """A scheduler misses a peer for the time after which silent peers are gone."""
    b = parted(10.0)
    b.start_receiving(12.0)
    b.start_sending(13.0)
    b.receive(received('a', 7, whole=True), 13.1)
    b.due(13.1)
    assert b.receive(received('b', 0), 18.0) == [CleanUp(frozenset('a'))]
    assert b.receive(received('b', 0), 19.1)[1:] == [Echo([])]
    assert b.apart_until == -math.inf
    assert b.due(19.1)[1:] == [Message('b', 0, whole=True)]


@pytest.mark.parametrize(('is_sending', 'is_receiving'), [(False, True), (True, False)])
def test_a_scheduler_with_a_single_connection_stays_apart(is_sending, is_receiving):
    """A table that arrives before messages go out does not end the time apart: peers
    may still choose without the claims of this scheduler."""
    b = acquainted()
    b.receive(received('a', 7, whole=True), 5.0)
    b.stop_sending(10.0)
    b.stop_receiving(10.0)
    if is_sending:
        b.start_sending(12.0)
    if is_receiving:
        b.start_receiving(12.0)
        b.receive(received('a', 7, whole=True), 12.1)
    assert b.apart_until == 30.0


def test_the_time_apart_counts_from_the_first_break():
    """Connections that break again and again do not delay decisions for ever."""
    b = parted(10.0)
    reconnect(b, 12.0)
    b.receive(received('a', 7, whole=True), 12.1)
    b.stop_receiving(25.0)
    assert b.apart_until == 30.0


def test_a_scheduler_without_peers_is_not_apart():
    b = connected()
    b.stop_sending(10.0)
    b.stop_receiving(10.0)
    assert b.apart_until == -math.inf


def test_the_position_follows_the_names_of_living_schedulers():
    """The position among all living schedulers, in the order of names."""
    b = connected('b')
    assert b.position == (0, 1)
    b.receive(received('c', 1), 0.1)
    assert b.position == (0, 2)
    b.receive(received('a', 1), 0.1)
    assert b.position == (1, 3)
    b.stop_receiving(0.0)
    assert b.position == (0, 1)


def test_a_silent_peer_is_forgotten_after_five_seconds():
    """A peer is forgotten after more than five silent seconds. The next message of the
    peer leads to a question."""
    b = acquainted()
    b.receive(received('b', 0), 5.0)
    assert b.position == (1, 2)
    [clean_up, _] = b.receive(received('b', 0), 6.0)
    assert clean_up == CleanUp(frozenset())
    assert b.position == (0, 1)
    b.receive(received('a', 7), 7.0)
    assert b.due(7.0) == [Message('b', 0, ask=['a'])]
    assert b.missed == 0


def test_heartbeats_trigger_the_cleanup_once_a_second():
    """The heartbeats of a scheduler trigger the clean-up. In the first seconds after a
    reconnect, silent peers may be alive."""
    b = connected(now=100.0)
    b.receive(received('a', 7), 100.0)
    echo = Echo([])
    assert b.receive(received('b', 0), 100.0) == [CleanUp(None), echo]
    assert b.receive(received('b', 0), 100.9) == [echo]
    assert b.receive(received('b', 0), 105.0) == [CleanUp(None), echo]
    b.receive(received('a', 7), 105.5)
    assert b.receive(received('b', 0), 106.0) == [CleanUp(frozenset('a')), echo]


def test_a_scheduler_shares_claims_while_messages_come_back():
    b = connected()
    assert not b.is_sharing(0.1)
    b.receive(received('b', 0), 1.0)
    assert b.is_sharing(6.0)
    assert not b.is_sharing(6.1)
    b.receive(received('b', 0), 7.0)
    b.stop_sending(0.0)
    assert not b.is_sharing(7.0)


def test_messages_of_peers_beyond_the_maximum_are_refused():
    """Messages of further peers are refused, and known peers still count."""
    b = connected()
    for number in range(MAX_PEERS):
        b.receive(received(f'scheduler {number}', 1), 0.1)
    [refusal] = b.receive(received('further', 1, ask=['b']), 0.1)
    assert refusal == Refuse('further', 'more than 1000 peers')
    assert b.position[1] == MAX_PEERS + 1
    [action] = b.receive(received('scheduler 0', 2, CHANGE), 0.1)
    assert action.sender == 'scheduler 0'
    [heartbeat] = b.due(0.1)
    assert len(heartbeat.ask) == MAX_ASKED
