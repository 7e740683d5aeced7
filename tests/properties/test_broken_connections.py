# SPDX-License-Identifier: Apache-2.0
"""Schedulers whose connections to the broker break while they choose."""

import math
from collections import deque
from contextlib import ExitStack
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.rpc.peers import PeerSchedulers
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.memory_schedulers import ManualClock

NAMES = ('a', 'b', 'c')
HOST = a_host('host')


class Scheduler:
    """A scheduler with a connection to send and a connection to receive.

    :param queues: the messages that have not arrived yet, by the name of the scheduler;
        without a connection to receive, a scheduler has no queue.
    :ivar unchecked: choices that may turn out not to fit.
    :ivar kept: choices that fit beside all claims that the scheduler knew.
    """

    def __init__(self, name, queues):
        ledger = SharedLedger(60.0, ManualClock())
        self.name = name
        self.queues = queues
        self.peers = PeerSchedulers(ledger, name)
        self.claims = PendingClaims(Settings(), ledger, self.peers)
        self.unchecked = deque()
        self.kept = []
        self._numbers = count(1)
        self._sending = ExitStack()
        self._receiving = ExitStack()
        self._is_sending = False
        self.connect_to_send()
        self.connect_to_receive()

    def connect_to_send(self):
        if not self._is_sending:
            self._is_sending = True
            self._sending.enter_context(self.peers.sending())

    def connect_to_receive(self):
        if self.name not in self.queues:
            self.queues[self.name] = deque()
            self._receiving.enter_context(self.peers.receiving())

    def lose_connection_to_send(self):
        """The messages of the last moment are lost with the connection."""
        if self._is_sending:
            self._messages()
            self._is_sending = False
            self._sending.close()

    def lose_connection_to_receive(self):
        """The messages in the queue are lost with the connection."""
        if self.queues.pop(self.name, None) is not None:
            self._receiving.close()

    def send(self):
        if self._is_sending:
            for text in self._messages():
                for queue in self.queues.values():
                    queue.append(text)

    def _messages(self):
        self.peers.wake()
        return self.peers.announcements()

    def receive(self):
        queue = self.queues.get(self.name)
        if queue:
            self.peers.receive(queue.popleft())

    def choose(self):
        uuid = a_uuid(f'{self.name} {next(self._numbers)}')
        request = a_request(instance_uuid=uuid, instance_uuids=(uuid,))
        self.unchecked.append(self.claims.choose(HOST, request, None, {}))

    def check(self):
        """Check the oldest choice, unless the scheduler still waits for peers."""
        if not self.unchecked:
            return
        choice = self.unchecked[0]
        now = self.claims.ledger.clock()
        waits = self.peers._echo_due(now) > now
        with self.claims.ledger as ledger:
            if waits and ledger.position_of(choice) == math.inf:
                return
            rivals = [claim for claim in ledger if ledger.is_ahead(claim, choice)]

        self.unchecked.popleft()
        if rivals:
            self.claims.release(choice)
        else:
            self.kept.append(choice)
            self.claims.claimed([choice])


STEPS = {
    'sends': Scheduler.send,
    'receives': Scheduler.receive,
    'chooses': Scheduler.choose,
    'checks': Scheduler.check,
    'cannot send': Scheduler.lose_connection_to_send,
    'cannot receive': Scheduler.lose_connection_to_receive,
    'can send': Scheduler.connect_to_send,
    'can receive': Scheduler.connect_to_receive,
}


def settle(schedulers):
    """Let all messages arrive."""
    for _ in range(4):
        for scheduler in schedulers:
            scheduler.send()
        for scheduler in schedulers:
            while scheduler.queues[scheduler.name]:
                scheduler.receive()


@given(steps=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([*STEPS]))))
@settings(max_examples=1000)
def test_no_two_schedulers_keep_a_host_despite_broken_connections(steps):
    """Schedulers choose a host for one guest while connections break and come back. No
    more than one scheduler keeps its choice."""
    queues = {}
    schedulers = {name: Scheduler(name, queues) for name in NAMES}
    settle(schedulers.values())

    for name, step in steps:
        STEPS[step](schedulers[name])

    for scheduler in schedulers.values():
        scheduler.connect_to_send()
        scheduler.connect_to_receive()
    settle(schedulers.values())
    for scheduler in schedulers.values():
        for _ in range(len(scheduler.unchecked)):
            scheduler.check()
        assert not scheduler.unchecked
    assert sum(bool(scheduler.kept) for scheduler in schedulers.values()) <= 1
