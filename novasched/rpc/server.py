# SPDX-License-Identifier: Apache-2.0
"""The server to which nova's conductors and computes talk, and the methods that they
call."""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_messaging import opts

from novasched.conf import tls
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import MAX_LINE_CHARACTERS, cut, printable
from novasched.rpc import decode, encode, wire
from novasched.rpc import oslo_messaging_internals as internals
from novasched.rpc.faults import translate_error
from novasched.rpc.heartbeats import RpcHeartbeats
from novasched.rpc.versions import IGNORED_CASTS, LATEST, read
from novasched.rpc.wire.base import NAME
from novasched.scheduler.drivers import Driver
from novasched.scheduler.errors import BadRequest

# Operators search for what this logger writes.
LOG = logging.getLogger('nova.scheduler.manager')

EXCHANGE = 'nova'
TOPIC = 'scheduler'

PING = 'rpc_ping_enabled'
RABBIT = 'oslo_messaging_rabbit'
PREFETCH = 'rabbit_qos_prefetch_count'
MAX_WAITING_MESSAGES = 1000
"""Messages that wait here for a thread unless nova.conf says how many: those that are
decided within a minute at Placement's pace, after which callers give up. Each takes 35
kB. Callers of messages that wait here are sent heartbeats, callers of those left with
the broker are not."""
RECEIVED = 'novasched_received'
"""The key of a context for the moment at which the message reached this process
(monotonic seconds). The dispatcher overwrites a value that comes with the message."""
MAX_DEPTH = 100
"""Lists and dicts of an argument in each other; services send a tenth of it."""
HALF_CHARACTER = re.compile('[\ud800-\udfff]')
VERSION_PATTERN = re.compile(r'\A[0-9]{1,9}(\.[0-9]{1,9}){1,2}')


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """The RPC transport that ``transport_url`` names. It connects when it is used, and
    then again and again until the broker answers.

    :raises ConfigError: the URL, which holds a password and is not shown, is of no
        known driver or cannot be parsed; a file that TLS needs cannot be used; or
        oslo.messaging is a release that this one cannot work with
    """
    internals.check_private_names()
    # The exchange is only a default: [DEFAULT] control_exchange may name another.
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_options(conf)
    option = '[DEFAULT] transport_url'
    transport = checked_transport(
        option, lambda: oslo_messaging.get_rpc_transport(conf)
    )
    if 'ssl' in transport.conf.get(RABBIT, ()) and transport.conf[RABBIT].ssl:
        tls.check_group(
            transport.conf, RABBIT, 'ssl_ca_file', 'ssl_cert_file', 'ssl_key_file'
        )
    return transport


def checked_transport(option: str, make: Callable[[], Any]) -> Any:
    """The transport that ``make`` makes of an option's URL.

    :raises ConfigError: the URL, which is not shown, cannot be used.
    """
    try:
        return make()
    except cfg.Error:
        raise  # some are ValueErrors, and none is about what the URL looks like
    except (oslo_messaging.InvalidTransportURL, ValueError):
        why = 'it cannot be read as a URL'
    except oslo_messaging.DriverLoadFailure as error:
        why = f'there is no driver {error.driver}'
    raise ConfigError(option, '(not shown)', why)


class SchedulerEndpoint:
    """The scheduler's own methods, in no namespace; a message may name any public
    one."""

    target = oslo_messaging.Target(version=LATEST)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def select_destinations(
        self, context: RequestContext, /, **arguments: Any
    ) -> encode.Reply:
        """Hosts for the instances of a request, in any form of 4.x."""
        call = read(arguments)
        uuids = call.instance_uuids
        LOG.debug(
            'Starting to schedule for instances: %s',
            uuids if uuids is None else list(uuids),
        )
        chosen = self._driver.select_destinations(decode.request(call, context))
        return encode.reply(chosen, call.return_objects, call.spec_version)

    def _ignore(self, context: RequestContext, /, **arguments: Any) -> None:
        """Do nothing, with any arguments: hosts are read from the databases.

        nova-api casts aggregates that change, and computes cast their instances.
        """

    update_aggregates = delete_aggregate = _ignore
    update_instance_info = delete_instance_info = sync_instance_info = _ignore


class BaseEndpoint:
    """Methods that every nova service has."""

    target = oslo_messaging.Target(namespace='baseapi', version='1.1')

    def ping(self, context: RequestContext, arg: Any) -> dict[str, Any]:
        """The name of this service, with the argument that was sent."""
        return {'service': 'scheduler', 'arg': arg}

    def get_backdoor_port(self, context: RequestContext) -> None:
        """The port of eventlet's debugging console, which is not there: null."""


class CallerContext(RequestContext):
    """The context of a request, with printable values for the log. Tenants choose the
    names in a context."""

    def get_logging_values(self) -> dict[str, Any]:
        values = super().get_logging_values()
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = cut(printable(value), MAX_LINE_CHARACTERS)
        return values


class Serializer(oslo_messaging.Serializer):  # type: ignore[misc]
    """Encodes and decodes objects and contexts; all else travels as it is."""

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """An argument with every object primitive in it decoded.

        :raises BadRequest: an object in it cannot be decoded.
        """
        _check_depth(entity)
        try:
            return _decoded(entity)
        except wire.BadObject as error:
            raise BadRequest(str(error)) from None

    def serialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """A result with every object in it as its primitive."""
        if isinstance(entity, wire.NovaObject):
            return entity.obj_to_primitive()
        if isinstance(entity, list | tuple):
            return [self.serialize_entity(ctxt, item) for item in entity]
        if isinstance(entity, dict):
            return {
                key: self.serialize_entity(ctxt, item) for key, item in entity.items()
            }
        return entity

    def deserialize_context(self, ctxt: Mapping[str, Any]) -> RequestContext:
        """The context of a request, also made the one that this thread logs with.

        Keys of any release are accepted: releases before Queens say ``tenant`` for the
        project. The user's token is left out: this service calls others in its own
        name.
        """
        context = CallerContext.from_dict(
            dict(ctxt),
            auth_token=None,
            user_id=ctxt.get('user_id') or ctxt.get('user'),
            project_id=ctxt.get('project_id') or ctxt.get('tenant'),
        )
        if trace := ctxt.get('traceparent'):
            context.traceparent = trace  # type: ignore[attr-defined]  # no field of theirs
        context.received = ctxt.get(RECEIVED, math.inf)  # type: ignore[attr-defined]
        return context

    def serialize_context(self, ctxt: RequestContext) -> dict[str, Any]:
        """The context as a dict, for messages that this service sends."""
        return ctxt.to_dict()


def _check_depth(entity: Any) -> None:
    """Check that an argument can be walked through, and encoded again.

    :raises BadRequest: it is nested too deeply, or has half a character, as only JSON
        can.
    """
    level = [entity]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
            elif (
                isinstance(item, str)
                and not item.isascii()
                and HALF_CHARACTER.search(item)
            ):
                raise BadRequest(
                    'a text with half a character in it (a lone surrogate)'
                )
        if not below:
            return
        level = below
    raise BadRequest(f'more than {MAX_DEPTH} lists and dicts in each other')


def _decoded(entity: Any) -> Any:
    if isinstance(entity, dict):
        if NAME in entity:
            return wire.decode(entity)
        return {key: _decoded(value) for key, value in entity.items()}
    if isinstance(entity, list | tuple):
        return [_decoded(item) for item in entity]
    return entity


class Dispatcher(oslo_messaging.RPCDispatcher):  # type: ignore[misc]
    """oslo.messaging's dispatcher, but for faults and heartbeats.

    An error is sent as the fault that ``faults.FAULTS`` has for it. oslo.messaging's
    dispatcher starts a thread for each call that wants heartbeats, and never ends it if
    there is no such method; here one thread serves all calls, also those not begun.
    """

    def __init__(
        self, endpoints: Sequence[Any], serializer: Any, heartbeats: RpcHeartbeats
    ) -> None:
        super().__init__(
            list(endpoints), serializer, oslo_messaging.DefaultRPCAccessPolicy
        )
        self._heartbeats = heartbeats

    def dispatch(self, incoming: Any) -> Any:
        """Call the method that a message names, and answer its result.

        :raises NoSuchMethod: there is no such method.
        :raises UnsupportedVersion: there is none of that version.
        :raises ExpectedException: around the fault that the caller is sent. It is
            logged by then, so that oslo.messaging logs nothing.
        """
        try:
            return self._dispatch(incoming)
        except (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion):
            raise
        except Exception as error:
            failed = error
        try:
            raise translate_error(failed)
        except Exception:
            raise oslo_messaging.ExpectedException from None
        finally:
            # It holds this frame, and the frames of the whole request.
            del failed

    def _dispatch(self, incoming: Any) -> Any:
        call = self._heartbeats.add(incoming)
        try:
            _check(incoming.message)
            if incoming.message['method'] in IGNORED_CASTS:
                incoming.message['args'] = {}  # objects that are not known here
            # An endpoint gets nothing but the context and the caller's arguments.
            incoming.ctxt[RECEIVED] = call.arrived
            incoming.client_timeout = None
            return super().dispatch(incoming)
        finally:
            self._heartbeats.finish(incoming)


def _check(message: Mapping[str, Any]) -> None:
    """Check that a message has the parts of a call.

    :raises BadRequest: a message is no call, which oslo.messaging takes for granted.
    """
    version = message.get('version', '1.0')
    if not isinstance(message.get('method'), str):
        flaw = 'it names no method'
    elif not isinstance(version, str) or not VERSION_PATTERN.fullmatch(version):
        flaw = 'its version is none'
    elif not isinstance(message.get('args', {}), dict):
        flaw = 'its arguments have no names'
    else:
        return
    raise BadRequest(flaw)


def make_server(
    transport: Any,
    host: str,
    driver: Driver,
    counts: internals.MessageCounts | None = None,
) -> internals.RpcServer:
    """A server, not started: ``start()``, ``stop()``, which leaves the queues and what
    is not begun to others, then ``wait()`` for what is in progress. It handles each
    message in a thread of ``[DEFAULT] executor_thread_pool_size``.

    :param counts: the counts that it keeps up.
    """
    heartbeats = RpcHeartbeats()
    dispatcher = Dispatcher(
        [SchedulerEndpoint(driver), BaseEndpoint()], Serializer(), heartbeats
    )
    target = oslo_messaging.Target(topic=TOPIC, server=host)
    counts = counts or internals.MessageCounts()
    make_room = getattr(driver, 'make_room', lambda: None)
    return internals.RpcServer(
        transport,
        target,
        dispatcher,
        heartbeats,
        counts,
        on_full=make_room,
    )


def _declare_options(conf: cfg.ConfigOpts) -> None:
    internals.declare_undeclared_options(conf)
    conf.register_opts(_options(PREFETCH), RABBIT)
    conf.set_default(PREFETCH, MAX_WAITING_MESSAGES, RABBIT)
    if conf is not cfg.CONF:
        # The dispatcher asks the global configuration whether to answer pings.
        ping = _options(PING)
        conf.register_opts(ping)
        cfg.CONF.register_opts(ping)
        cfg.CONF.set_override(PING, conf[PING])


def _options(name: str) -> list[cfg.Opt]:
    """oslo.messaging's own declaration of an option."""
    return [opt for _, group in opts.list_opts() for opt in group if opt.name == name]
