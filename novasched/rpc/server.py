# SPDX-License-Identifier: Apache-2.0
"""The server that listens where nova's conductors and computes talk to a scheduler."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import opts
from oslo_messaging._drivers.amqpdriver import AMQPListener
from oslo_messaging._drivers.base import PollStyleListenerAdapter
from oslo_messaging.rpc.server import RPCServer

from novasched import tls
from novasched.errors import ConfigError
from novasched.rpc.callers import Callers
from novasched.rpc.dispatcher import Dispatcher
from novasched.rpc.endpoint import (
    BaseEndpoint,
    Driver,
    Indifferent,
    Observer,
    SchedulerEndpoint,
)
from novasched.rpc.faults import NoValidHost
from novasched.rpc.intake import Counts, Intake
from novasched.rpc.serializer import Serializer

EXCHANGE = 'nova'
TOPIC = 'scheduler'
REMOTE_MODULES = [NoValidHost.__module__]

TLS_FILES = {
    tls.AUTHORITY: 'ssl_ca_file',
    tls.CERTIFICATE: 'ssl_cert_file',
    tls.KEY: 'ssl_key_file',
}
PING = 'rpc_ping_enabled'
RABBIT, PREFETCH = 'oslo_messaging_rabbit', 'rabbit_qos_prefetch_count'
WAITING = 1000
"""Messages that wait here for a thread unless nova.conf says how many. That is what is decided
within the minute for which a caller is patient, by Placement's pace; each takes 35 kB. To those
that wait here heartbeats are sent, to those that the broker has left nobody does."""
# Options that oslo.messaging declares on the process's global configuration alone, but
# reads on the transport's: without them it drops every message. (module, group)
UNDECLARED = (
    ('oslo_messaging._metrics.client', 'oslo_messaging_metrics'),
    ('oslo_messaging._tracing.client', 'oslo_messaging_tracing'),
)


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """The RPC transport that ``transport_url`` names. It connects when it is used, and
    then again and again until the broker answers.

    :raises ConfigError: the URL, which holds a password and is not shown, is of no known
        driver or cannot be parsed; or a file that TLS needs cannot be used
    """
    # The exchange is only a default: [DEFAULT] control_exchange may name another.
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_options(conf)
    option = '[DEFAULT] transport_url'
    try:
        transport = oslo_messaging.get_rpc_transport(conf, allowed_remote_exmods=REMOTE_MODULES)
    except cfg.Error:
        raise  # some are ValueErrors, and none is about what the URL looks like
    except (oslo_messaging.InvalidTransportURL, ValueError):
        raise ConfigError(option, '(not shown)', 'it cannot be read as a URL') from None
    except oslo_messaging.DriverLoadFailure as error:
        raise ConfigError(option, '(not shown)', f'there is no driver {error.driver}') from None
    if 'ssl' in transport.conf.get(RABBIT, ()) and transport.conf[RABBIT].ssl:
        tls.check_group(transport.conf, RABBIT, TLS_FILES)
    return transport


def make_target(host: str) -> oslo_messaging.Target:
    """The queues ``scheduler``, ``scheduler.<host>`` and the fanout's."""
    return oslo_messaging.Target(topic=TOPIC, server=host)


class Server(RPCServer):  # type: ignore[misc]
    """oslo.messaging's own, but that messages wait for a thread in an :class:`Intake`, and
    not in a queue without end."""

    def __init__(
        self, transport: Any, target: oslo_messaging.Target, dispatcher: Any, callers: Callers,
        ignored: Callable[[], Collection[str]], counts: Counts,
    ) -> None:  # fmt: skip
        super().__init__(transport, target, dispatcher)
        self._callers = callers
        self._ignored = ignored
        self.counts = counts
        self._intake: Intake | None = None
        self._in_progress = 0
        self._changing = threading.Lock()

    @property
    def in_progress(self) -> int:
        """How many messages have a thread."""
        return self._in_progress

    @property
    def waiting(self) -> int:
        """How many messages wait for one."""
        return self._intake.waiting if self._intake else 0

    def has_room(self) -> bool:
        """Whether a thread is free."""
        return self._in_progress < int(self.conf.executor_thread_pool_size)

    def _create_listener(self) -> Any:
        made = super()._create_listener()
        rabbit = getattr(made, '_poll_style_listener', None)
        if not isinstance(rabbit, AMQPListener):
            return made  # oslo.messaging's fake transport has no broker
        intake = self._intake = Intake(
            rabbit.driver, rabbit.conn, self._callers, self.has_room, self._ignored, self.counts
        )
        for consumer in rabbit.conn._consumers:
            consumer.callback = intake
        return PollStyleListenerAdapter(intake, made.batch_size, made.batch_timeout)

    def _on_incoming(self, incoming: Any) -> None:
        with self._changing:
            self._in_progress += 1
        super()._on_incoming(incoming)

    def _process_incoming(self, incoming: Any) -> None:
        try:
            super()._process_incoming(incoming)
        finally:
            with self._changing:
                self._in_progress -= 1


def make_server(
    transport: Any,
    host: str,
    driver: Driver,
    observer: Observer | None = None,
    counts: Counts | None = None,
) -> Server:
    """A server, not started: ``start()``, ``stop()``, which leaves the queues and what is not
    begun to others, then ``wait()`` for what is in progress. It handles each message in a
    thread of ``[DEFAULT] executor_thread_pool_size``.

    :param counts: is kept of them.
    """
    observer = observer or Indifferent()
    callers = Callers()
    endpoints = [SchedulerEndpoint(driver, observer), BaseEndpoint()]
    dispatcher = Dispatcher(endpoints, Serializer(), callers)
    target, counts = make_target(host), counts or Counts()
    return Server(transport, target, dispatcher, callers, observer.ignored, counts)


def _declare_options(conf: cfg.ConfigOpts) -> None:
    for module, name in UNDECLARED:
        try:
            options = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue  # a release that does not have them
        conf.register_opts(options, name)
    conf.register_opts(_options(PREFETCH), RABBIT)
    conf.set_default(PREFETCH, WAITING, RABBIT)
    if conf is not cfg.CONF:
        # The dispatcher asks the global configuration whether to answer pings.
        ping = _options(PING)
        conf.register_opts(ping)
        cfg.CONF.register_opts(ping)
        cfg.CONF.set_override(PING, conf[PING])


def _options(name: str) -> list[cfg.Opt]:
    """oslo.messaging's own declaration of an option."""
    return [each for _, every in opts.list_opts() for each in every if each.name == name]
