# SPDX-License-Identifier: Apache-2.0
"""What waits for a thread, over oslo.messaging's own in-memory AMQP."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest

from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.rpc import server
from novasched.rpc.intake import Counts
from tests.unit.rpc.test_server import CONTEXT, HERE, a_transport
from tests.unit.rpc.wire import CASTS, a_spec

WAIT = 30


@dataclass
class Door:
    """A driver that lets requests pass when it is opened, and notes in which order they came."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    zones: list[str | None] = field(default_factory=list)

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        self.zones.append(request.availability_zone)
        self.entered.release()
        assert self.opened.wait(WAIT)
        return [[HERE]]


@dataclass
class Notebook:
    """An observer that is told of aggregates that are gone, and of nothing else."""

    told: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def delete_aggregate(self, aggregate: Any) -> None:
        self.told.release()

    def ignored(self) -> tuple[str, ...]:
        return ('sync_instance_info',)


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[Any]:
    """The messages of a nova.conf that lets one thread be used."""
    made = a_transport(tmp_path, 'kombu+memory://localhost/', 'executor_thread_pool_size = 1')
    yield made
    made.cleanup()


@contextmanager
def serving(
    transport: Any, door: Door, observer: Any = None, counts: Counts | None = None
) -> Iterator[Any]:
    """A client of a server that runs as long as the block lasts."""
    running = server.make_server(transport, 'here', door, observer, counts)
    running.start()
    target = oslo_messaging.Target(topic='scheduler', version='4.5')
    yield oslo_messaging.get_rpc_client(transport, target)
    door.opened.set()
    running.stop()
    running.wait()


def test_one_after_the_other(transport: Any) -> None:
    """What is more than threads waits, and is begun in the order in which it came."""
    door = Door()
    with serving(transport, door) as client:
        zones = [str(number) for number in range(20)]
        for zone in zones:
            client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec(availability_zone=zone))
        assert door.entered.acquire(timeout=WAIT)
        assert door.zones == ['0']
        door.opened.set()
        for _ in zones[1:]:
            assert door.entered.acquire(timeout=WAIT)
    assert door.zones == zones


def test_casts_that_nobody_needs(transport: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They are not even decoded; the others are handled, and calls are answered. All are
    counted, and how long each waited that was begun."""
    notebook, counts = Notebook(), Counts(waits=deque())
    with serving(transport, Door(), notebook, counts) as client:
        everybody = client.prepare(fanout=True)
        for _ in range(50):
            everybody.cast(CONTEXT, 'sync_instance_info', garbage={'nova_object.name': 3})
        everybody.cast(CONTEXT, 'delete_aggregate', **CASTS['delete_aggregate']['args'])
        assert notebook.told.acquire(timeout=WAIT)
        with pytest.raises(oslo_messaging.RemoteError, match='does not take zeal'):
            client.prepare(timeout=WAIT).call(CONTEXT, 'sync_instance_info', zeal=1)
    assert [each for each in caplog.messages if 'garbage' in each or 'skipping' in each] == []
    assert (counts.handled, counts.ignored, counts.dropped) == (1, 50, 0)
    assert counts.waits is not None
    assert [0 <= each < WAIT for each in counts.waits] == [True, True]


@pytest.mark.parametrize(
    ('lines', 'limit'),
    [([], server.WAITING), (['rabbit_qos_prefetch_count = 7'], 7), (['rabbit_qos_prefetch_count = 0'], 0)],
)  # fmt: skip
def test_how_many_may_wait(tmp_path: Path, lines: list[str], limit: int) -> None:
    """What nova.conf says counts, be it without limit."""
    made = a_transport(tmp_path, 'kombu+memory://localhost/', '[oslo_messaging_rabbit]', *lines)
    assert made.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count == limit
    made.cleanup()
