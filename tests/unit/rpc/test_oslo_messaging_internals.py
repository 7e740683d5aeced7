# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for a thread, over oslo.messaging's own in-memory AMQP."""

import importlib.metadata
import threading
from collections import deque
from dataclasses import dataclass, field

import pytest

from novasched.conf.errors import ConfigError
from novasched.rpc import oslo_messaging_internals, server
from novasched.rpc.oslo_messaging_internals import MessageCounts
from tests.lab.wire import CASTS, a_spec, primitive
from tests.unit.rpc.test_server import CONTEXT, HERE, a_transport, serving

WAIT = 30


@dataclass
class Door:
    """A driver that lets requests pass when it is opened, and notes in which order they came."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    zones: list[str | None] = field(default_factory=list)

    def select_destinations(self, request):
        self.zones.append(request.availability_zone)
        self.entered.release()
        assert self.opened.wait(WAIT)
        return [[HERE]]


@pytest.fixture
def transport(tmp_path):
    """The messages of a nova.conf that lets one thread be used."""
    lines = 'executor_thread_pool_size = 1', 'rpc_ping_enabled = true'
    return a_transport(tmp_path, 'kombu+memory://localhost/', *lines)


def test_pings_during_a_flood(transport):
    """Requests for which there is no thread wait, and are begun in their order. Health probes of both
    kinds are answered while they have every thread, and before those that wait."""
    door, zones = Door(), [str(number) for number in range(20)]
    with serving(transport, door) as client:
        for zone in zones:
            client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec(availability_zone=zone))
        assert door.entered.acquire(timeout=WAIT)
        nova = client.prepare(timeout=WAIT, namespace='baseapi', version='1.1')
        assert nova.call(CONTEXT, 'ping', arg='there?')
        library = client.prepare(timeout=WAIT, version=None)
        assert library.call(CONTEXT, 'oslo_rpc_server_ping')
        assert door.zones == ['0']
        door.opened.set()
        for _ in zones[1:]:
            assert door.entered.acquire(timeout=WAIT)
    assert door.zones == zones


def test_ignored_casts(transport, caplog):
    """They are not even decoded; other casts are handled, and calls are answered. All are
    counted, and how long each waited that was begun."""
    door, counts = Door(), MessageCounts(wait_seconds=deque(maxlen=100))
    door.opened.set()
    with serving(transport, door, counts) as client:
        everybody = client.prepare(fanout=True)
        for method in CASTS:
            for _ in range(10):
                everybody.cast(CONTEXT, method, garbage={'nova_object.name': 3})
        client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec())
        assert door.entered.acquire(timeout=WAIT)
        client.prepare(timeout=WAIT).call(CONTEXT, 'sync_instance_info', zeal=[primitive('X', '1')])
    assert [line for line in caplog.messages if 'garbage' in line or 'skipping' in line] == []
    assert (counts.handled, counts.ignored, counts.dropped) == (1, 10 * len(CASTS), 0)
    assert [0 <= seconds < WAIT for seconds in counts.wait_seconds] == [True, True]


@pytest.mark.parametrize(
    ('lines', 'limit'),
    [([], server.MAX_WAITING_MESSAGES), (['rabbit_qos_prefetch_count = 7'], 7), (['rabbit_qos_prefetch_count = 0'], 0)],
)  # fmt: skip
def test_how_many_may_wait(tmp_path, lines, limit):
    """The number of nova.conf counts; 0 is without limit."""
    made = a_transport(tmp_path, 'kombu+memory://localhost/', '[oslo_messaging_rabbit]', *lines)
    assert made.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count == limit
    made.cleanup()


def test_a_release_without_private_names(tmp_path, monkeypatch):
    """The start is refused in one line with the version and the names that are missing."""
    oslo_messaging_internals.check_private_names()
    server_module = 'oslo_messaging.rpc.server'
    names = {
        f'{server_module}:RPCServer': ['_on_incoming', 'a'],
        f'{server_module}:B': [],
        'c:C': ['d'],
    }
    monkeypatch.setattr(oslo_messaging_internals, 'PRIVATE_NAMES', names)
    with pytest.raises(ConfigError) as caught:
        a_transport(tmp_path, 'kombu+memory://localhost/')
    version = importlib.metadata.version('oslo.messaging')
    assert str(caught.value).startswith(f'oslo.messaging = {version}: ')
    assert f' lacks {server_module}.RPCServer.a, {server_module}.B, c.C; ' in str(caught.value)
