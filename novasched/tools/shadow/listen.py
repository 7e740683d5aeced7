# SPDX-License-Identifier: Apache-2.0
"""Decides the requests of a running scheduler, taken from its notifications.

The listener has its own queue, so that no other listener misses a notification. nova's
services would go on filling the queue, so the queue is deleted at the end.
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
    """Listen until the end of the block. The value is the name of the queue.

    If both formats are sent, the versioned one is used, since it contains more fields.

    :param receive: called with each event in order, in a thread of the listener.
    :raises ConfigError: the transport's URL cannot be used.
    """
    oslo_messaging.set_transport_defaults(EXCHANGE)
    sender.register(conf)
    transport = sender.make_transport(conf)
    queue_name = f'novasched-shadow-{socket.gethostname()}'
    service = loading.service_settings(conf)
    topics = service.versioned_notifications_topics
    if service.notification_format == sender.LEGACY:
        topics = conf[sender.GROUP].topics
    targets = [oslo_messaging.Target(topic=topic) for topic in topics]

    def handle(
        context: Any, publisher: str, name: str, payload: Any, _metadata: Any
    ) -> None:
        receive(Event(publisher, name, context, payload))

    # oslo.messaging calls the attribute named like the priority of a notification.
    endpoint = SimpleNamespace(filter_rule=EVENTS, info=handle, error=handle)
    listener = oslo_messaging.get_notification_listener(
        transport, targets, [endpoint], executor='threading', pool=queue_name
    )
    # Several threads would deliver events out of order.
    conf.set_override('executor_thread_pool_size', 1)
    # A killed listener may have left its queue.
    _delete(transport, queue_name)
    listener.start()
    try:
        yield queue_name
    finally:
        listener.stop()
        listener.wait()
        _delete(transport, queue_name)
        transport.cleanup()


def _delete(transport: Any, queue_name: str) -> None:
    try:
        delete_queue(transport, queue_name)
    except Exception as error:  # the classes of errors depend on the driver
        text = f'the queue {queue_name} is not deleted: {hide(error)}'
        print(text, file=sys.stderr)


def run(arguments: argparse.Namespace) -> list[ComparedRequest]:
    """Listen until the time or the number of requests of the arguments is reached, then
    wait for the results of open requests. SIGINT ends either phase."""
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
                limit = arguments.requests_seen or math.inf
                while time.monotonic() < end and watch.started < limit:
                    _take(watch, events, starts=True)
            except KeyboardInterrupt:
                print('interrupted; waiting for open requests', file=sys.stderr)

            try:
                while not watch.is_idle:
                    _take(watch, events, starts=False)
            except KeyboardInterrupt:
                print('interrupted', file=sys.stderr)
    return sorted(watch.rows, key=lambda row: row.line)


def _take(
    watch: LiveComparison, events: queue.SimpleQueue[Event], starts: bool
) -> None:
    """Wait shortly for an event, and settle requests.

    :param starts: an event may start a new request.
    """
    with suppress(queue.Empty):
        watch.receive(events.get(timeout=0.2), starts)
    watch.settle()


def _saved(api: Database, server: str) -> RequestSpec | None:
    """The RequestSpec of an instance as saved by nova; None if nova has saved no
    readable RequestSpec."""
    try:
        rows = api.rows('request_specs', ('spec',), instance_uuid=server)
        if not rows:
            return None
        spec = loads(str(rows[0].spec))
    except (DatabaseUnavailable, BadObject):
        return None
    if isinstance(spec, RequestSpec):
        return spec
    return None
