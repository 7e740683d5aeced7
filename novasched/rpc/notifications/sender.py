# SPDX-License-Identifier: Apache-2.0
"""Sends notifications to the message bus. No request waits for the message bus."""

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
MESSAGING_DRIVERS = {'messaging', 'messagingv2'}
EVENT = 'scheduler.select_destinations'
START = 'start'
END = 'end'
MAX_WAITING_NOTIFICATIONS = 1000
"""Maximum number of notifications that wait for the message bus. Further notifications
are dropped."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification about a request.

    :ivar phase: ``START`` or ``END``.
    :ivar claims: at the end, the claims of the instances in order.
    """

    phase: str
    origin: Origin
    request: Request
    claims: Sequence[PendingClaim] = ()


class ContextSerializer(oslo_messaging.NoOpSerializer):  # type: ignore[misc]
    """Encodes the context like nova. Payloads need no encoding."""

    def serialize_context(self, ctxt: Any) -> dict[str, Any]:
        return payloads.context_on_wire(ctxt.to_dict(), timeutils.utcnow())


class QueuedNotifier:
    """Sends notifications in order from one thread. Implements
    :class:`novasched.scheduler.ports.Notifier`."""

    def __init__(self, send: Callable[[Notification], None]) -> None:
        self._queue: WorkerQueue[Notification] = WorkerQueue(
            send,
            'notifications',
            lambda notification: f'send notification {EVENT}.{notification.phase}',
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
        """Send the waiting notifications: see
        :meth:`novasched.concurrency.worker_queue.WorkerQueue.close`."""
        self._queue.close()

    def _add(
        self, phase: str, request: Request, claims: Sequence[PendingClaim] = ()
    ) -> None:
        # Only a request from the message bus has a RequestSpec to send.
        if request.origin is None:
            return

        notification = Notification(phase, request.origin, request, claims)
        if not self._queue.put(notification):
            LOG.warning(
                'Notification dropped: %d notifications wait for the message bus',
                MAX_WAITING_NOTIFICATIONS,
            )


@dataclass(frozen=True, slots=True)
class NotificationSender:
    """Sends a notification in the formats of ``[notifications] notification_format``.

    Like nova, novasched sends the legacy notification first.

    :ivar legacy: None if the format is not enabled.
    :ivar versioned: None if the format is not enabled.
    """

    legacy: oslo_messaging.Notifier | None
    versioned: oslo_messaging.Notifier | None

    def __call__(self, notification: Notification) -> None:
        """Send a notification. oslo.messaging logs errors and raises no error."""
        sent = notification.origin.spec.obj_to_primitive()
        if notification.phase == START:
            fields = payloads.at_start(sent, notification.request)
        else:
            if self.versioned:
                sent = payloads.with_instance_uuid(sent)
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
    """Make the notifier for the options of nova.conf. None if no driver but ``noop`` is
    enabled, which is the default.

    :raises ConfigError: the URL of the transport cannot be used.
    """
    register(conf)
    if set(conf[GROUP].driver) <= {'noop'}:
        return None

    notifier = functools.partial(
        oslo_messaging.Notifier, make_transport(conf), serializer=ContextSerializer()
    )
    legacy = None
    if service.notification_format in (LEGACY, BOTH):
        legacy = notifier(f'scheduler.{service.host}')

    versioned = None
    if service.notification_format in (VERSIONED, BOTH):
        topics = list(service.versioned_notifications_topics)
        versioned = notifier(f'nova-scheduler:{service.host}', topics=topics)
    return QueuedNotifier(NotificationSender(legacy, versioned))


def notification_queues(conf: cfg.ConfigOpts, service: ServiceSettings) -> list[str]:
    """The queues that oslo.messaging declares at the first notification."""
    register(conf)
    if MESSAGING_DRIVERS.isdisjoint(conf[GROUP].driver):
        return []

    topics: list[str] = []
    if service.notification_format in (LEGACY, BOTH):
        topics += conf[GROUP].topics
    if service.notification_format in (VERSIONED, BOTH):
        topics += service.versioned_notifications_topics
    return [f'{topic}.info' for topic in topics]


def register(conf: cfg.ConfigOpts) -> None:
    """Declare oslo.messaging's options for notifications."""
    options = dict(opts.list_opts())[GROUP]
    conf.register_opts(options, GROUP)


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """Make the transport of notifications.

    :raises ConfigError: the URL of the transport cannot be used.
    """
    option = f'[{GROUP}] transport_url'
    return checked_transport(
        conf, option, lambda: oslo_messaging.get_notification_transport(conf)
    )
