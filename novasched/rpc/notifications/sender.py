# SPDX-License-Identifier: Apache-2.0
"""The way of notifications to the message bus. No request waits for it."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import opts
from oslo_utils import timeutils

from novasched.concurrency.worker_queue import WorkerQueue
from novasched.conf.settings import ServiceSettings
from novasched.rpc.notifications import payloads
from novasched.rpc.server import checked_transport
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.request import Origin, Request

LOG = logging.getLogger(__name__)

GROUP = 'oslo_messaging_notifications'
LEGACY = 'unversioned'
VERSIONED = 'versioned'
BOTH = 'both'
EVENT = 'scheduler.select_destinations'
START = 'start'
END = 'end'
MAX_WAITING_NOTIFICATIONS = 1000
"""More are dropped while the bus takes none."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A phase of a request; in the end with the claims of its instances."""

    phase: str
    origin: Origin
    request: Request
    claims: Sequence[PendingClaim] = ()


class ContextSerializer(oslo_messaging.NoOpSerializer):  # type: ignore[misc]
    """The context as nova sends it; payloads are plain already."""

    def serialize_context(self, ctxt: Any) -> dict[str, Any]:
        return payloads.context_on_wire(ctxt.to_dict(), timeutils.utcnow())


class QueuedNotifier:
    """Implements :class:`novasched.scheduler.ports.Notifier`, in order, by a thread of
    its own."""

    def __init__(self, send: Callable[[Notification], None]) -> None:
        self._queue: WorkerQueue[Notification] = WorkerQueue(
            send,
            'notifications',
            lambda notification: f'tell of {EVENT}.{notification.phase}',
            MAX_WAITING_NOTIFICATIONS,
        )

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    def started(self, request: Request) -> None:
        self._add(START, request)

    def ended(self, request: Request, claims: Sequence[PendingClaim]) -> None:
        self._add(END, request, claims)

    def close(self) -> None:
        """Send the rest: see
        :meth:`novasched.concurrency.worker_queue.WorkerQueue.close`."""
        self._queue.close()

    def _add(
        self, phase: str, request: Request, claims: Sequence[PendingClaim] = ()
    ) -> None:
        if request.origin is None:
            return
        if not self._queue.put(Notification(phase, request.origin, request, claims)):
            LOG.warning(
                'A notification is dropped, since %d wait for the message bus',
                MAX_WAITING_NOTIFICATIONS,
            )


@dataclass(frozen=True, slots=True)
class NotificationSender:
    """Sends a notification in the formats that nova.conf names, the legacy one
    first."""

    legacy: oslo_messaging.Notifier | None
    versioned: oslo_messaging.Notifier | None

    def __call__(self, notification: Notification) -> None:
        """Send it; oslo.messaging logs errors, and raises none."""
        sent = notification.origin.spec.obj_to_primitive()
        if notification.phase == START:
            fields = payloads.at_start(sent, notification.request)
        else:
            if self.versioned:
                sent = payloads.stamped(sent)
            fields = payloads.at_end(sent, notification.request, notification.claims)
        caller = notification.origin.context
        event = f'{EVENT}.{notification.phase}'
        if self.legacy:
            wire = payloads.context_on_wire(caller.to_dict(), timeutils.utcnow())
            attributes = payloads.context_attributes(wire)
            self.legacy.info(caller, event, payloads.legacy_payload(fields, attributes))
        if self.versioned:
            self.versioned.info(caller, event, payloads.versioned_payload(fields))


def make_notifier(
    conf: cfg.ConfigOpts, service: ServiceSettings
) -> QueuedNotifier | None:
    """Notifications as nova.conf wants them; None where every driver is noop, which is
    the default.

    :raises ConfigError: the transport's URL cannot be used.
    """
    register(conf)
    if not {*conf[GROUP].driver} - {'noop'}:
        return None
    notifier = functools.partial(
        oslo_messaging.Notifier, make_transport(conf), serializer=ContextSerializer()
    )
    old = new = None
    if service.notification_format in (LEGACY, BOTH):
        old = notifier(f'scheduler.{service.host}')
    if service.notification_format in (VERSIONED, BOTH):
        topics = [*service.versioned_notifications_topics]
        new = notifier(f'nova-scheduler:{service.host}', topics=topics)
    return QueuedNotifier(NotificationSender(old, new))


def register(conf: cfg.ConfigOpts) -> None:
    """Declare oslo.messaging's options of notifications."""
    conf.register_opts(
        next(group for name, group in opts.list_opts() if name == GROUP), GROUP
    )


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """Make the transport of notifications.

    :raises ConfigError: the URL of the transport cannot be used.
    """
    option = f'[{GROUP}] transport_url'
    return checked_transport(
        option, lambda: oslo_messaging.get_notification_transport(conf)
    )
