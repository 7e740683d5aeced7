# SPDX-License-Identifier: Apache-2.0
"""Announcements of pending claims over a broker in memory."""

from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread

from novasched.rpc.peers import PeerSchedulers
from tests.lab.processes import wait_until


class SimulatedBroker:
    """A broker that delivers all announcements to all schedulers in the same order."""

    def __init__(self):
        self.queues = []
        self.lock = Lock()

    def send(self, text):
        """Deliver an announcement to all schedulers."""
        with self.lock:
            for queue in self.queues:
                queue.put(text)

    @contextmanager
    def connecting(self, drivers):
        """The peers of each scheduler, as soon as the schedulers have met.

        :param drivers: the drivers of the schedulers.
        """
        peers = []
        for i, driver in enumerate(drivers):
            claims = driver.pending_claims
            claims.peers = PeerSchedulers(claims.ledger, f'controller{i}', 30.0)
            peers.append(claims.peers)
        self.queues = [SimpleQueue() for _ in peers]
        is_over = Event()

        def announce(peer):
            with peer.sending():
                while not is_over.is_set():
                    for text in peer.announcements():
                        self.send(text)

        def listen(peer, queue):
            with peer.receiving():
                while text := queue.get():
                    peer.receive(text)

        threads = [Thread(target=partial(announce, peer)) for peer in peers]
        for peer, queue in zip(peers, self.queues, strict=True):
            threads.append(Thread(target=partial(listen, peer, queue)))
        for thread in threads:
            thread.start()

        try:
            wait_until(
                lambda: all(peer.position[1] == len(peers) for peer in peers),
                30,
                'all peers',
            )
            yield peers
        finally:
            is_over.set()
            for peer in peers:
                peer.wake()
            self.send(b'')
            for thread in threads:
                thread.join()
