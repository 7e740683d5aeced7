# SPDX-License-Identifier: Apache-2.0
"""Decide the requests that a running scheduler tells of on the notification bus, and
report.

The listener has a queue of its own, so that no other listener misses anything. nova's
services would fill it for ever, so it is deleted in the end.
"""

import argparse
import functools
import math
import queue
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import oslo_messaging
from oslo_config import cfg

from novasched.cells.database import Database
from novasched.conf import loading
from novasched.conf.redaction import hide
from novasched.rpc.notifications import sender
from novasched.rpc.oslo_messaging_internals import delete_queue
from novasched.rpc.server import EXCHANGE
from novasched.rpc.wire import BadObject, RequestSpec, loads
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.tools.shadow.comparison import ComparedRequest, shadowing
from novasched.tools.shadow.watch import Event, LiveComparison

EVENTS = oslo_messaging.NotificationFilter(
    event_type=r'(scheduler\.select_destinations|(compute\.)?instance\.create|compute_task)\.'
)


@contextmanager
def listening(conf: cfg.ConfigOpts, receive: Callable[[Event], None]) -> Iterator[str]:
    """Listen from now on; the value is the name of the queue.

    Where both formats are sent the versioned one is listened to, since it says more.

    :param receive: called with each event in turn, from a thread of its own.
    :raises ConfigError: the transport's URL cannot be used.
    """
    oslo_messaging.set_transport_defaults(EXCHANGE)
    sender.register(conf)
    transport = sender.make_transport(conf)
    queue = f'novasched-shadow-{socket.gethostname()}'
    service = loading.service_settings(conf)
    topics = service.versioned_notifications_topics
    if service.notification_format == sender.LEGACY:
        topics = conf[sender.GROUP].topics
    targets = [oslo_messaging.Target(topic=topic) for topic in topics]

    def hear(
        context: Any, publisher: str, name: str, payload: Any, _metadata: Any
    ) -> None:
        receive(Event(publisher, name, context, payload))

    # oslo.messaging calls what bears a priority's name.
    endpoint = SimpleNamespace(filter_rule=EVENTS, info=hear, error=hear)
    listener = oslo_messaging.get_notification_listener(
        transport, targets, [endpoint], executor='threading', pool=queue
    )
    # One thread hears everything in order.
    conf.set_override('executor_thread_pool_size', 1)
    _delete(transport, queue)  # what a listener before left that was killed
    listener.start()
    try:
        yield queue
    finally:
        listener.stop()
        listener.wait()
        _delete(transport, queue)
        transport.cleanup()


def _delete(transport: Any, queue: str) -> None:
    try:
        delete_queue(transport, queue)
    except Exception as error:  # amqp's errors are those of the driver's own choice
        print(f'the queue {queue} is not deleted: {hide(error)}', file=sys.stderr)


def run(arguments: argparse.Namespace) -> list[ComparedRequest]:
    """Listen until there are enough events or it is interrupted, then until all of it
    is settled or it is interrupted again."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with (
        shadowing(arguments) as (conf, application, shadow),
        ThreadPoolExecutor(8, thread_name_prefix='shadow') as pool,
    ):
        watch = LiveComparison(
            shadow,
            application.placement.allocations,
            functools.partial(_saved, application.cells.api),
            arguments.patience,
            pool,
        )
        with listening(conf, events.put) as name:
            print(
                f'listening in the queue {name}; interrupt to report', file=sys.stderr
            )
            try:
                end = time.monotonic() + (arguments.seconds or math.inf)
                most = arguments.requests_seen or math.inf
                while time.monotonic() < end and watch.started < most:
                    _take(watch, events, starts=True)
            except KeyboardInterrupt:
                print('interrupted; waiting for what has begun', file=sys.stderr)
            try:
                while not watch.is_idle:
                    _take(watch, events, starts=False)
            except KeyboardInterrupt:
                print('interrupted', file=sys.stderr)
    return sorted(watch.rows, key=lambda row: row.line)


def _take(
    watch: LiveComparison, events: queue.SimpleQueue[Event], starts: bool
) -> None:
    """One event if there is one soon, and what it settles."""
    with suppress(queue.Empty):
        watch.receive(events.get(timeout=0.2), starts)
    watch.settle()


def _saved(api: Database, server: str) -> RequestSpec | None:
    """The RequestSpec of an instance, without the parts that nova does not save; None
    if there is none that can be read."""
    try:
        rows = api.rows('request_specs', ('spec',), instance_uuid=server)
        found = loads(str(rows[0].spec)) if rows else None
    except (DatabaseUnavailable, BadObject):
        return None
    if isinstance(found, RequestSpec):
        return found
    return None
