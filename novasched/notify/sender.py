# SPDX-License-Identifier: Apache-2.0
"""Notifications on their way to the message bus, which no request waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import opts
from oslo_utils import timeutils

from novasched.backlog import Backlog
from novasched.errors import ConfigError
from novasched.inflight import Flight
from novasched.model.request import Origin, Request
from novasched.model.settings import Settings
from novasched.notify import context, legacy, spec, versioned

LOG = logging.getLogger(__name__)

GROUP = 'oslo_messaging_notifications'
LEGACY, VERSIONED, BOTH = 'unversioned', 'versioned', 'both'
EVENT = 'scheduler.select_destinations'
START, END = 'start', 'end'
ROOM = 1000
"""So many notifications wait while the bus does not take them; more are dropped."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell of a request; in the end with the flights of its servers."""

    phase: str
    origin: Origin
    request: Request
    flights: Sequence[Flight] = ()


class ContextSerializer(oslo_messaging.NoOpSerializer):  # type: ignore[misc]
    """The context as nova sends it; payloads are plain already."""

    def serialize_context(self, ctxt: Any) -> dict[str, Any]:
        """See :func:`novasched.notify.context.on_wire`."""
        return context.on_wire(ctxt.to_dict(), timeutils.utcnow())


class Sender:
    """Implements :class:`novasched.ports.Notices`: notes what there is to tell, and tells it
    from a thread of its own, in order."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._tell = tell
        self._backlog: Backlog[Notice] = Backlog(tell, 'notices', _words, ROOM)

    @property
    def dropped(self) -> int:
        """How many notices were."""
        return self._backlog.dropped

    def started(self, request: Request) -> None:
        """See :class:`novasched.ports.Notices`."""
        if request.origin is not None:
            self._note(Notice(START, request.origin, request))

    def ended(self, request: Request, flights: Sequence[Flight]) -> None:
        """See :class:`novasched.ports.Notices`."""
        if request.origin is not None:
            self._note(Notice(END, request.origin, request, flights))

    def close(self) -> None:
        """Tell what is left, for as long as :data:`novasched.backlog.LAST_WORDS`."""
        self._backlog.close()

    def _note(self, notice: Notice) -> None:
        if not self._backlog.add(notice):
            LOG.warning('A notification is dropped, since %d wait for the message bus', ROOM)


def _words(notice: Notice) -> str:
    return f'tell of {EVENT}.{notice.phase}'


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells a notice in the formats that are wanted, the legacy one first."""

    settings: Settings
    legacy: oslo_messaging.Notifier | None
    versioned: oslo_messaging.Notifier | None

    def __call__(self, notice: Notice) -> None:
        """Send it; oslo.messaging logs what fails there, and raises nothing."""
        sent = notice.origin.spec.obj_to_primitive()
        if notice.phase == START:
            now = spec.at_start(sent, notice.request)
        else:
            if self.versioned:
                sent = spec.stamped(sent)
            now = spec.at_end(sent, notice.request, notice.flights, self.settings)
        caller, event = notice.origin.context, f'{EVENT}.{notice.phase}'
        if self.legacy:
            insides = context.insides(context.on_wire(caller.to_dict(), timeutils.utcnow()))
            self.legacy.info(caller, event, legacy.payload(now, insides))
        if self.versioned:
            self.versioned.info(caller, event, versioned.payload(now))


def make_notices(conf: cfg.ConfigOpts, settings: Settings, host: str) -> Sender | None:
    """Notifications as nova.conf wants them; None where every driver is noop, which is the
    default.

    :param host: the name of this scheduler.
    :raises ConfigError: the transport's URL cannot be used.
    """
    register(conf)
    if not {*conf[GROUP].driver} - {'noop'}:
        return None
    transport = make_transport(conf)
    wanted, serializer = conf.notifications.notification_format, ContextSerializer()
    old = new = None
    if wanted in (LEGACY, BOTH):
        old = oslo_messaging.Notifier(transport, f'scheduler.{host}', serializer=serializer)
    if wanted in (VERSIONED, BOTH):
        topics = conf.notifications.versioned_notifications_topics
        new = oslo_messaging.Notifier(
            transport, f'nova-scheduler:{host}', serializer=serializer, topics=topics
        )
    return Sender(Teller(settings, old, new))


def register(conf: cfg.ConfigOpts) -> None:
    """Declare oslo.messaging's options of notifications."""
    conf.register_opts(next(each for group, each in opts.list_opts() if group == GROUP), GROUP)


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """The transport of notifications.

    :raises ConfigError: its URL cannot be used.
    """
    try:
        return oslo_messaging.get_notification_transport(conf)
    except cfg.Error:
        raise  # some are ValueErrors, and none is about what the URL looks like
    except (oslo_messaging.InvalidTransportURL, ValueError):
        why = 'it cannot be read as a URL'
    except oslo_messaging.DriverLoadFailure as error:
        why = f'there is no driver {error.driver}'
    raise ConfigError(f'[{GROUP}] transport_url', '(not shown)', why)
