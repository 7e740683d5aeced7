# SPDX-License-Identifier: Apache-2.0
"""More concurrent requests than a scheduler answers within the callers' timeout."""

import os
import signal
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil
import pytest

from novasched.rpc.server import MAX_WAITING_MESSAGES
from tests.lab import broker
from tests.lab.daemon import Daemon
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import WAIT, Proxy, Tunnel
from tests.lab.rpc_load import HUGE, concurrent_callers

FLOOD = int(os.environ.get('NOVASCHED_TEST_FLOOD', '300'))
PER_MESSAGE = 60_000
"""Bound of the memory of a waiting nova message after decoding, in bytes. Measured: 35
kB on average."""
PER_THREAD = 1_000_000
"""Bound of the memory of a request at work, in bytes, with the objects that a first
request creates. Measured: 0.7 MB."""
SHORTEST_TIMEOUT = 2  # seconds; the least call_monitor_timeout of a caller
QUIET = {'DEFAULT': {'debug': False}}


@pytest.fixture(scope='module')
def hosts(cloud):
    """A small cloud with room for all requests."""
    cloud.reset()
    for number in range(10):
        name = f'host-{number}'
        cell = ('cell1', 'cell2')[number % 2]
        cloud.add_host(name, cell, vcpus=100_000, ram_mb=50_000_000, disk_gb=1_000_000)
    return cloud


@pytest.fixture
def callers(hosts):
    with concurrent_callers(hosts.amqp_url) as callers:
        yield callers


@contextmanager
def memory_growth(*daemons):
    """Watch the resident memory of the daemons' workers while the context lasts.

    Yields a list with the largest growth of every worker, in bytes. The list is
    complete at the end of the context.
    """
    workers = [psutil.Process(daemon.pid).children()[0] for daemon in daemons]
    before = [worker.memory_info().rss for worker in workers]
    growth = [0] * len(workers)
    over = threading.Event()

    def watch():
        ended = False
        while not ended:
            ended = over.wait(0.2)
            for i, worker in enumerate(workers):
                grown = worker.memory_info().rss - before[i]
                growth[i] = max(growth[i], grown)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield growth
    finally:
        over.set()
        watcher.join()


@pytest.mark.parametrize('threads', [64, 4])
def test_every_caller_in_a_flood_gets_a_single_answer(threads, hosts, callers):
    """Every caller gets exactly one answer or refusal, with many threads or few. Two
    daemons share the work, and the memory of a daemon grows only by its waiting
    messages and its requests at work."""
    options = {'DEFAULT': {**QUIET['DEFAULT'], 'executor_thread_pool_size': threads}}
    earlier = set(hosts.all_allocations())
    with (
        Daemon(hosts, options) as first,
        Daemon(hosts, options) as second,
        memory_growth(first, second) as growth,
    ):
        impossible = callers.ask(FLOOD // 50, flavor=HUGE)
        possible = callers.ask(FLOOD - len(impossible))
        everybody = [*impossible, *possible]
        callers.listen(
            lambda: callers.answered(everybody), 30 + FLOOD / 4, 'answer for all'
        )

    refusals = [daemon.text().count(REFUSAL) for daemon in (first, second)]
    growth_mib = [size // 2**20 for size in growth]
    print(f'{FLOOD} requests: {growth_mib} MiB more, {refusals}')

    assert callers.answers == dict.fromkeys(everybody, 1)
    refused = {server for server in everybody if callers.hosts[server] is None}
    assert refused == set(impossible)
    assert hosts.all_allocations().keys() - earlier == set(possible)
    assert min(refusals) > 0
    bound = min(FLOOD, MAX_WAITING_MESSAGES) * PER_MESSAGE + threads * PER_THREAD
    assert max(growth) < bound


REFUSAL = 'Got no allocation candidates'


@pytest.fixture
def gate(hosts):
    with Proxy(hosts.placement_url) as proxy:
        yield proxy


@pytest.fixture
def broker_connection(hosts):
    """The connection to the broker, which the test can cut."""
    with Tunnel(hosts.amqp_url) as tunnel:
        yield tunnel


@pytest.fixture
def slow(hosts, gate, broker_connection):
    """A scheduler with one thread, whose requests wait until the gate is opened."""
    options = {
        'DEFAULT': {
            **QUIET['DEFAULT'],
            'executor_thread_pool_size': 1,
            'transport_url': broker_connection.url,
        },
        'placement': {'endpoint': gate.url},
    }
    with Daemon(hosts, options) as running:
        gate.shut()
        yield running
        gate.open()
    broker.purge(hosts.amqp_url)


def begin(callers, gate):
    """Begin a request that is in progress until the gate is opened; the server of the
    request."""
    [server] = callers.ask(1)
    gate.wait_for_hanging()
    return server


def test_a_scheduler_leaves_most_messages_of_a_flood_to_the_broker(
    hosts, slow, gate, callers
):
    """A scheduler takes no more messages than MAX_WAITING_MESSAGES. When the scheduler
    stops, it returns the waiting messages to the broker at once, and answers the
    request in progress."""

    def depth():
        return broker.depth(hosts.amqp_url)

    first = begin(callers, gate)
    rest = max(FLOOD - MAX_WAITING_MESSAGES, 100)
    with memory_growth(slow) as growth:
        callers.ask(MAX_WAITING_MESSAGES + rest)
        wait_until(lambda: depth() == rest, WAIT, 'end of taking')
    print(f'{MAX_WAITING_MESSAGES} waiting: {growth[0] // 2**20} MiB more')
    assert growth[0] < MAX_WAITING_MESSAGES * PER_MESSAGE

    os.kill(slow.pid, signal.SIGTERM)
    wait_until(lambda: depth() == MAX_WAITING_MESSAGES + rest, WAIT, 'giving back')
    assert slow.alive()

    gate.open()
    callers.listen(lambda: callers.answered([first]), WAIT, 'answer')
    assert slow.wait() == 0


def test_a_crash_loses_only_the_request_in_progress(hosts, slow, gate, callers):
    """When a scheduler is killed, a second scheduler answers the messages that waited
    in the first scheduler. The request in progress gets no answer."""
    in_progress = begin(callers, gate)
    waiting = callers.ask(20)
    wait_until(lambda: broker.depth(hosts.amqp_url) == 0, WAIT, 'taking')

    slow.kill()
    with Daemon(hosts, QUIET):
        callers.listen(lambda: callers.answered(waiting), WAIT, 'answers')

    assert callers.answers == dict.fromkeys(waiting, 1)
    assert not callers.answered([in_progress])


def test_messages_are_served_once_after_a_lost_connection(
    hosts, slow, gate, callers, broker_connection
):
    """After a lost connection the broker delivers the waiting messages again. The
    scheduler serves every message once, and finishes the request in progress."""

    def all_taken():
        return broker.depth(hosts.amqp_url) == 0

    everybody = [begin(callers, gate), *callers.ask(20)]
    wait_until(all_taken, WAIT, 'taking')

    broker_connection.cut()
    wait_until(lambda: 'Reconnected to AMQP server' in slow.text(), WAIT, 'connection')
    wait_until(all_taken, WAIT, 'taking once more')

    gate.open()
    everybody += callers.ask(1)  # comes after all messages that could come twice
    callers.listen(lambda: callers.answered(everybody), WAIT, 'answers')
    assert callers.answers == dict.fromkeys(everybody, 1)


def test_waiting_callers_get_heartbeats_and_expired_calls_are_dropped(
    hosts, slow, gate, callers
):
    """A caller with a call_monitor_timeout of two seconds gets heartbeats before and
    during its request, and then the answer. The scheduler drops a request that has
    waited longer than its caller, and logs the server of the request. The remaining
    requests are served in order."""
    first = begin(callers, gate)
    late = callers.ask(2, lifetime=3)
    waiting = callers.ask(20, patience=SHORTEST_TIMEOUT)

    callers.listen(lambda: callers.heartbeats[waiting[-1]] > 2, WAIT, 'heartbeats')
    wait_until(lambda: slow.text().count('the caller has given up') == 2, WAIT, 'lines')
    for server in late:
        assert f"for instances ['{server}'] dropped" in slow.text()

    gate.open()
    callers.listen(lambda: callers.answered([first, *waiting]), WAIT, 'answers')
    assert list(callers.answers) == [first, *waiting]
    assert None not in callers.hosts.values()
    assert hosts.all_allocations().keys().isdisjoint(late)


def test_a_scheduler_turns_to_another_broker_of_transport_url(hosts, client):
    """A scheduler whose broker refuses connections turns to another broker of
    transport_url, past a broker that never was there."""
    with Tunnel(hosts.amqp_url) as first, Tunnel(hosts.amqp_url) as second:
        urls = [urlsplit(tunnel.url) for tunnel in (first, second)]
        away = f'nova:nova@127.0.0.1:{free_port()}'
        url = f'rabbit://{urls[0].netloc},{away},{urls[1].netloc}/'
        with Daemon(hosts, {'DEFAULT': {'transport_url': url}}):
            assert len(client.chosen()) == 1
            for gone, present in ((first, second), (second, first)):
                gone.refuse()
                assert len(client.chosen()) == 1
                gone.accept()
                present.cut()
