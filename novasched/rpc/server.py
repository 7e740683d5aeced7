# SPDX-License-Identifier: Apache-2.0
"""The server that listens where nova's conductors and computes talk to a scheduler."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import opts
from oslo_messaging.rpc.server import RPCServer

from novasched import tls
from novasched.errors import ConfigError
from novasched.rpc.dispatcher import Dispatcher
from novasched.rpc.endpoint import BaseEndpoint, Driver, Observer, SchedulerEndpoint
from novasched.rpc.faults import NoValidHost
from novasched.rpc.serializer import Serializer

EXCHANGE = 'nova'
TOPIC = 'scheduler'
REMOTE_MODULES = [NoValidHost.__module__]

LOG = logging.getLogger(__name__)
RABBIT = 'oslo_messaging_rabbit'
TLS_FILES = {
    tls.AUTHORITY: 'ssl_ca_file',
    tls.CERTIFICATE: 'ssl_cert_file',
    tls.KEY: 'ssl_key_file',
}
PING = 'rpc_ping_enabled'
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
    if RABBIT in transport.conf and transport.conf[RABBIT].ssl:
        tls.check_group(transport.conf, RABBIT, TLS_FILES)
    return transport


def make_target(host: str) -> oslo_messaging.Target:
    """The queues ``scheduler``, ``scheduler.<host>`` and the fanout's."""
    return oslo_messaging.Target(topic=TOPIC, server=host)


class Server(RPCServer):  # type: ignore[misc]
    """oslo.messaging's own, but for how it stops.

    That one stops to read and remains a consumer until all in progress is finished. What the
    broker sends it meanwhile no other scheduler gets, and it is lost: it is read and
    acknowledged when the connection is closed, and nobody handles it.
    """

    def leave(self) -> None:
        """Leave the queues to others; handle what the broker has sent up to then."""
        self.stop()
        listener: Any = getattr(self.listener, '_poll_style_listener', None)
        connection = getattr(listener, 'conn', None)
        if connection is None:
            return  # oslo.messaging's fake transport has no broker
        broker = connection.connection
        try:
            for consumer, tag in list(connection._consumers.items()):
                consumer.cancel(tag)
        except (*broker.connection_errors, *broker.channel_errors) as error:
            LOG.warning('The broker cannot be told that this consumer stops: %s', error)
        while taken := listener.poll():
            self._on_incoming(taken)


def make_server(
    transport: Any, host: str, driver: Driver, observer: Observer | None = None
) -> Server:
    """A server, not started: ``start()``, ``leave()``, then ``wait()`` for what is in
    progress. It handles each message in a thread of ``[DEFAULT]
    executor_thread_pool_size``."""
    endpoints = [SchedulerEndpoint(driver, observer), BaseEndpoint()]
    dispatcher = Dispatcher(endpoints, Serializer(), oslo_messaging.DefaultRPCAccessPolicy)
    return Server(transport, make_target(host), dispatcher)


def _declare_options(conf: cfg.ConfigOpts) -> None:
    for module, name in UNDECLARED:
        try:
            options = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue  # a release that does not have them
        conf.register_opts(options, name)
    if conf is not cfg.CONF:
        # The dispatcher asks the global configuration whether to answer pings.
        ping = [each for _, every in opts.list_opts() for each in every if each.name == PING]
        conf.register_opts(ping)
        cfg.CONF.register_opts(ping)
        cfg.CONF.set_override(PING, conf[PING])
