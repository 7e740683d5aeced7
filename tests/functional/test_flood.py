# SPDX-License-Identifier: Apache-2.0
"""More requests at once than can be served within the patience of those who ask."""

import os
import signal
import threading
from contextlib import contextmanager

import psutil
import pytest

from novasched.rpc.server import MAX_WAITING_MESSAGES
from tests.lab import broker
from tests.lab.daemon import Daemon
from tests.lab.processes import wait_until
from tests.lab.proxy import WAIT, Proxy, Tunnel
from tests.lab.rpc_load import HUGE, concurrent_callers

FLOOD = int(os.environ.get('NOVASCHED_TEST_FLOOD', '300'))
PER_MESSAGE = 60_000
PER_THREAD = 1_000_000
"""Bytes of memory at the most: a message of nova's that waits, decoded (35 kB in the
mean), and a request at work with all that it needs for the first time (measured: 0.7
MB)."""
IMPATIENT = 2  # seconds; the least that a caller can say
QUIET = {'DEFAULT': {'debug': False}}


@pytest.fixture(scope='module')
def hosts(cloud):
    """A small cloud with room for everybody."""
    cloud.reset()
    for number in range(10):
        name = f'host-{number}'
        cell = ('cell1', 'cell2')[number % 2]
        cloud.add_host(name, cell, vcpus=100_000, ram_mb=50_000_000, disk_gb=1_000_000)
    return cloud


@pytest.fixture
def callers(hosts):
    with concurrent_callers(hosts.amqp_url) as made:
        yield made


@contextmanager
def watched(*daemons):
    """By how many bytes the resident memory of each one's worker has grown at the most,
    which is known at the end of the block."""
    workers = [psutil.Process(daemon.pid).children()[0] for daemon in daemons]
    before = [worker.memory_info().rss for worker in workers]
    grown = [0] * len(workers)
    over = threading.Event()

    def watch():
        ended = False
        while not ended:
            ended = over.wait(0.2)
            for number, worker in enumerate(workers):
                now = worker.memory_info().rss - before[number]
                grown[number] = max(grown[number], now)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield grown
    finally:
        over.set()
        watcher.join()


def test_a_flood(hosts, callers):
    """Everybody who asks is answered once, or refused once; two daemons share the work,
    and the memory of neither grows by more than what waits there and what is at
    work."""
    with (
        Daemon(hosts, QUIET) as one,
        Daemon(hosts, QUIET) as other,
        watched(one, other) as grown,
    ):
        impossible = callers.ask(FLOOD // 50, flavor=HUGE)
        possible = callers.ask(FLOOD - len(impossible))
        everybody = [*impossible, *possible]
        callers.listen(
            lambda: callers.answered(everybody), 30 + FLOOD / 4, 'answer for all'
        )
    refused = [one.text().count(REFUSAL), other.text().count(REFUSAL)]
    print(f'{FLOOD} requests: {[each // 2**20 for each in grown]} MiB more, {refused}')
    assert callers.answers == dict.fromkeys(everybody, 1)
    assert {each for each in everybody if callers.hosts[each] is None} == set(
        impossible
    )
    assert hosts.all_allocations().keys() == set(possible)
    assert min(refused) > 0
    most = min(FLOOD, MAX_WAITING_MESSAGES) * PER_MESSAGE + 64 * PER_THREAD
    assert max(grown) < most


REFUSAL = 'Got no allocation candidates'


@pytest.fixture
def gate(hosts):
    with Proxy(hosts.placement_url) as made:
        yield made


@pytest.fixture
def wire(hosts):
    with Tunnel(hosts.amqp_url) as made:
        yield made


@pytest.fixture
def slow(hosts, gate, wire):
    """A scheduler of one thread, whose requests take until the gate is opened."""
    options = {
        'DEFAULT': {
            **QUIET['DEFAULT'],
            'executor_thread_pool_size': 1,
            'transport_url': wire.url,
        },
        'placement': {'endpoint': gate.url},
    }
    with Daemon(hosts, options) as running:
        gate.shut()
        yield running
        gate.open()
    broker.purge(hosts.amqp_url)


def begun(callers, gate):
    """The server of a request that is being scheduled, and lasts until the gate is
    opened."""
    [server] = callers.ask(1)
    gate.wait_for_hanging()
    return server


def test_most_stays_with_the_broker(hosts, slow, gate, callers):
    """A scheduler takes so many messages as it can keep from giving up and no more.
    When it ends, those that it has not begun go to others at once, and that in progress
    is answered."""
    depth = lambda: broker.depth(hosts.amqp_url)  # noqa: E731
    first = begun(callers, gate)
    rest = max(FLOOD - MAX_WAITING_MESSAGES, 100)
    with watched(slow) as grown:
        callers.ask(MAX_WAITING_MESSAGES + rest)
        wait_until(lambda: depth() == rest, WAIT, 'end of taking')
    print(f'{MAX_WAITING_MESSAGES} waiting: {grown[0] // 2**20} MiB more')
    assert grown[0] < MAX_WAITING_MESSAGES * PER_MESSAGE
    os.kill(slow.pid, signal.SIGTERM)
    wait_until(lambda: depth() == MAX_WAITING_MESSAGES + rest, WAIT, 'giving back')
    assert slow.alive()
    gate.open()
    callers.listen(lambda: callers.answered([first]), WAIT, 'answer')
    assert slow.wait() == 0


def test_a_crash_loses_what_was_begun(hosts, slow, gate, callers):
    """Messages that wait in a scheduler that is killed are answered by another one."""
    lost = begun(callers, gate)
    others = callers.ask(20)
    wait_until(lambda: broker.depth(hosts.amqp_url) == 0, WAIT, 'taking')
    slow.kill()
    with Daemon(hosts, QUIET):
        callers.listen(lambda: callers.answered(others), WAIT, 'answers')
    assert callers.answers == dict.fromkeys(others, 1)
    assert not callers.answered([lost])


def test_a_lost_connection(hosts, slow, gate, callers, wire):
    """The broker sends all anew that waits in a scheduler which it has lost; each of
    them is served once, and what is in progress is finished."""
    everybody = [begun(callers, gate), *callers.ask(20)]
    taken = lambda: broker.depth(hosts.amqp_url) == 0  # noqa: E731
    wait_until(taken, WAIT, 'taking')
    wire.cut()
    wait_until(lambda: 'Reconnected to AMQP server' in slow.text(), WAIT, 'connection')
    wait_until(taken, WAIT, 'taking once more')
    gate.open()
    everybody += callers.ask(1)  # comes after all that would come twice
    callers.listen(lambda: callers.answered(everybody), WAIT, 'answers')
    assert callers.answers == dict.fromkeys(everybody, 1)


def test_who_waits(hosts, slow, gate, callers):
    """A caller that gives up after two seconds of silence hears of the scheduler for as
    long as it takes, before its request is begun and after; then it gets its answer. A
    request that has waited for longer than its caller does is dropped, with a line in
    the log that names request and server; others are served in the order in which they
    came."""
    first = begun(callers, gate)
    late = callers.ask(2, lifetime=3)
    others = callers.ask(20, patience=IMPATIENT)
    callers.listen(lambda: callers.heartbeats[others[-1]] > 2, WAIT, 'heartbeats')
    wait_until(lambda: slow.text().count('the caller has given up') == 2, WAIT, 'lines')
    for server in late:
        assert f"for instances ['{server}'] dropped" in slow.text()
    gate.open()
    callers.listen(lambda: callers.answered([first, *others]), WAIT, 'answers')
    assert list(callers.answers) == [first, *others]
    assert None not in callers.hosts.values()
    assert not hosts.all_allocations().keys() & set(late)
