# SPDX-License-Identifier: Apache-2.0
"""The RPC server of the scheduler, with the methods that nova's services call."""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_messaging import opts
from stevedore.exception import NoMatches

from novasched.conf import tls
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import (
    MAX_LINE_CHARACTERS,
    cut,
    printable,
    secret_in_use,
)
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

TRANSPORT_OPTION = '[DEFAULT] transport_url'
PING = 'rpc_ping_enabled'
RABBIT = internals.RABBIT
PREFETCH = 'rabbit_qos_prefetch_count'
MAX_WAITING_MESSAGES = 1000
"""Default of ``[oslo_messaging_rabbit] rabbit_qos_prefetch_count``, the maximum number
of messages that wait in this process for a thread.

Placement can serve so many requests within a minute, after which callers give up. A
message takes 35 kB. The callers of waiting messages get heartbeats. The callers of
messages in the broker get no heartbeats."""
RECEIVED = 'novasched_received'
"""The key of a context for the moment at which the message reached this process
(monotonic seconds). The dispatcher overwrites a value that comes with the message."""
MAX_DEPTH = 100
"""Maximum depth of lists and dicts in an argument. nova's services send a tenth."""
SURROGATE = re.compile('[\ud800-\udfff]')
"""Half of a character in UTF-16, which JSON can carry and UTF-8 cannot."""
NoteSpan = Callable[[dict[str, Any]], None]
"""Writes the trace of the current span to the context of a message."""
VERSION_PATTERN = re.compile(r'\A[0-9]{1,9}(\.[0-9]{1,9}){1,2}')


def make_transport(conf: cfg.ConfigOpts) -> Any:
    """The RPC transport of ``[DEFAULT] transport_url``.

    The transport connects when it is used, and tries again until the broker answers.

    :raises ConfigError: the URL has an unknown driver or cannot be parsed; a file for
        TLS cannot be used; or novasched does not support the installed release of
        oslo.messaging. The text does not show the URL, which contains a password.
    """
    internals.check_private_names()
    # The exchange is only a default: [DEFAULT] control_exchange may name another.
    oslo_messaging.set_transport_defaults(EXCHANGE)
    _declare_options(conf)
    transport = checked_transport(
        conf, TRANSPORT_OPTION, lambda: oslo_messaging.get_rpc_transport(conf)
    )

    # Only the driver of RabbitMQ declares the option.
    if 'ssl' in transport.conf.get(RABBIT, ()) and transport.conf[RABBIT].ssl:
        tls.check_group(
            transport.conf, RABBIT, 'ssl_ca_file', 'ssl_cert_file', 'ssl_key_file'
        )
    return transport


def checked_transport(
    conf: cfg.ConfigOpts, option: str, make: Callable[[], Any]
) -> Any:
    """Make the transport for the URL in an option.

    :raises ConfigError: the URL cannot be used, a library for its driver is missing, or
        options of the driver contradict each other. The text does not show the URL.
    """
    try:
        return make()
    except cfg.Error:
        # oslo.config derives several errors from ValueError. None is about the URL.
        raise
    except (oslo_messaging.InvalidTransportURL, ValueError):
        why = 'it cannot be read as a URL'
    except oslo_messaging.DriverLoadFailure as error:
        # A driver that stevedore finds refuses options that contradict each other.
        if not isinstance(error.ex, NoMatches):
            raise internals.option_error(conf, error.ex) from None
        why = f'there is no driver {error.driver}'
    except ImportError as error:
        why = (
            f'the module {error.name or error} is missing; install it into the '
            'environment of novasched'
        )
    raise ConfigError(option, '(not shown)', why)


class SchedulerEndpoint:
    """The methods of the scheduler. A message can call every public method."""

    target = oslo_messaging.Target(version=LATEST)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def select_destinations(
        self, context: RequestContext, /, **arguments: Any
    ) -> encode.Reply:
        """Choose hosts for the instances of a request. The arguments may have the form
        of any version from 4.0 on."""
        call = read(arguments)
        uuids = None
        if call.instance_uuids is not None:
            uuids = list(call.instance_uuids)
        LOG.debug('Starting to schedule for instances: %s', uuids)

        chosen = self._driver.select_destinations(decode.request(call, context))
        return encode.reply(chosen, call.return_objects, call.spec_version)

    def _ignore(self, context: RequestContext, /, **arguments: Any) -> None:
        """Do nothing: novasched reads aggregates and instances from the databases.

        nova-api casts changed aggregates, and nova-compute casts its instances.
        """

    update_aggregates = delete_aggregate = _ignore
    update_instance_info = delete_instance_info = sync_instance_info = _ignore


class BaseEndpoint:
    """The methods of every nova service."""

    target = oslo_messaging.Target(namespace='baseapi', version='1.1')

    def ping(self, context: RequestContext, arg: Any) -> dict[str, Any]:
        """The name of this service, with the argument of the caller."""
        return {'service': 'scheduler', 'arg': arg}

    def get_backdoor_port(self, context: RequestContext) -> None:
        """The port of eventlet's debugging console. novasched has no such console."""


class CallerContext(RequestContext):
    """The context of a request, with printable values for the log. Tenants choose the
    names of users and projects in a context."""

    def get_logging_values(self) -> dict[str, Any]:
        values = super().get_logging_values()
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = cut(printable(value), MAX_LINE_CHARACTERS)
        return values


class Serializer(oslo_messaging.Serializer):  # type: ignore[misc]
    """Encodes and decodes nova objects and contexts. Plain values stay as they are.

    :param keeps_caller: a plugin reads the context of the caller, with the token.
    """

    def __init__(self, keeps_caller: bool = False) -> None:
        self.keeps_caller = keeps_caller

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Decode every object primitive in an argument.

        :raises BadRequest: an object cannot be decoded.
        """
        _check_depth(entity)
        try:
            return _decoded(entity)
        except wire.BadObject as error:
            raise BadRequest(str(error)) from None

    def serialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Encode every object in a result as a primitive."""
        if isinstance(entity, wire.NovaObject):
            return entity.obj_to_primitive()
        if isinstance(entity, list | tuple):
            return [self.serialize_entity(ctxt, item) for item in entity]
        if isinstance(entity, dict):
            encoded = {}
            for key, value in entity.items():
                encoded[key] = self.serialize_entity(ctxt, value)
            return encoded
        return entity

    def deserialize_context(self, ctxt: Mapping[str, Any]) -> RequestContext:
        """The context of a request, which also becomes the logging context of this
        thread.

        Releases before Queens send the user and project as ``user`` and ``tenant``. The
        token of the user is left out: novasched calls other services with its own
        credentials. Only plugins that read ``caller`` get the token.
        """
        context = CallerContext.from_dict(
            dict(ctxt),
            auth_token=None,
            user_id=ctxt.get('user_id') or ctxt.get('user'),
            project_id=ctxt.get('project_id') or ctxt.get('tenant'),
        )
        # oslo.context has no fields for these two values.
        trace = ctxt.get('traceparent')
        if trace:
            context.traceparent = trace  # type: ignore[attr-defined]
        context.received = ctxt.get(RECEIVED, math.inf)  # type: ignore[attr-defined]
        if self.keeps_caller:
            context.caller = ctxt  # type: ignore[attr-defined]
        return context

    def serialize_context(self, ctxt: RequestContext) -> dict[str, Any]:
        """Encode the context for messages that this service sends."""
        return ctxt.to_dict()


def _check_depth(entity: Any) -> None:
    """Check that an argument can be decoded recursively, and encoded as UTF-8.

    :raises BadRequest: the argument is nested too deeply, or contains a lone surrogate.
    """
    level = [entity]
    for _ in range(MAX_DEPTH):
        next_level: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                next_level += item.keys()
                next_level += item.values()
            elif isinstance(item, list | tuple):
                next_level += item
            elif (
                isinstance(item, str) and not item.isascii() and SURROGATE.search(item)
            ):
                raise BadRequest('a string contains a lone surrogate')

        if not next_level:
            return
        level = next_level

    raise BadRequest(f'more than {MAX_DEPTH} nested lists and dicts')


def _decoded(entity: Any) -> Any:
    if isinstance(entity, dict):
        if NAME in entity:
            return wire.decode(entity)
        return {key: _decoded(value) for key, value in entity.items()}

    if isinstance(entity, list | tuple):
        return [_decoded(item) for item in entity]
    return entity


def _note_nothing(_: dict[str, Any]) -> None:
    """Without spans, the trace of the caller stays."""


def _span_writer() -> NoteSpan:
    """Return the function that writes the trace of the current span to a context.

    oslo.messaging's span of a message is then the parent of the span of the request.
    Without a span, the trace of the caller stays.
    """
    try:
        from opentelemetry.trace.propagation import tracecontext
    except ImportError:
        # oslo.messaging logs it.
        return _note_nothing
    return tracecontext.TraceContextTextMapPropagator().inject


class Dispatcher(oslo_messaging.RPCDispatcher):  # type: ignore[misc]
    """oslo.messaging's dispatcher, with other faults and heartbeats.

    ``faults.FAULTS`` maps an error to the fault that the caller gets. oslo.messaging's
    dispatcher starts a heartbeat thread for a call when a thread begins the call, and
    never ends the heartbeat thread if the method is unknown. Here, one thread sends all
    heartbeats, also for calls that wait for a thread.
    """

    def __init__(
        self,
        endpoints: Sequence[Any],
        serializer: Serializer,
        heartbeats: RpcHeartbeats,
        note_span: NoteSpan = _note_nothing,
    ) -> None:
        super().__init__(
            list(endpoints), serializer, oslo_messaging.DefaultRPCAccessPolicy
        )
        self._heartbeats = heartbeats
        self._note_span = note_span

    def dispatch(self, incoming: Any) -> Any:
        """Call the method that a message names, and return the result.

        :raises NoSuchMethod: the scheduler has no such method.
        :raises UnsupportedVersion: the scheduler has the method in other versions only.
        :raises ExpectedException: the method failed. The cause is the fault that the
            caller gets. The error has been logged, and oslo.messaging does not log an
            ExpectedException.
        """
        token = None
        if self.serializer.keeps_caller:
            token = incoming.ctxt.get('auth_token')
        with secret_in_use(token):
            return self._answer(incoming)

    def _answer(self, incoming: Any) -> Any:
        try:
            return self._dispatch(incoming)
        except (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion):
            raise
        except Exception as error:
            failed = error

        # Not in the handler above: see translate_error().
        try:
            raise translate_error(failed)
        except Exception:
            # ExpectedException keeps the exception that is being handled.
            raise oslo_messaging.ExpectedException from None
        finally:
            # The traceback holds this frame, and the frames of the whole request.
            del failed

    def _dispatch(self, incoming: Any) -> Any:
        call = self._heartbeats.add(incoming)
        try:
            _check_message(incoming.message)
            if incoming.message['method'] in IGNORED_CASTS:
                # The arguments contain objects that the serializer does not know.
                incoming.message['args'] = {}

            # The context is the only way to pass the moment of arrival to an endpoint.
            incoming.ctxt[RECEIVED] = call.arrived
            self._note_span(incoming.ctxt)
            # Without a timeout, oslo.messaging starts no heartbeat thread.
            incoming.client_timeout = None
            return super().dispatch(incoming)
        finally:
            self._heartbeats.finish(incoming)


def _check_message(message: Mapping[str, Any]) -> None:
    """Check that a message has the parts of a call. oslo.messaging does not check.

    :raises BadRequest: a part is missing or malformed.
    """
    if not isinstance(message.get('method'), str):
        raise BadRequest('the message has no method')

    version = message.get('version', '1.0')
    if not isinstance(version, str) or not VERSION_PATTERN.fullmatch(version):
        raise BadRequest('the version is malformed')

    if not isinstance(message.get('args', {}), dict):
        raise BadRequest('the arguments are not a dict')


def make_server(
    transport: Any,
    host: str,
    driver: Driver,
    counts: internals.MessageCounts | None = None,
    keeps_caller: bool = False,
) -> internals.RpcServer:
    """Make a server. The caller starts the server with ``start()``.

    ``stop()`` leaves the queues, and returns waiting messages to the broker. ``wait()``
    then waits for the messages in progress. The size of the thread pool is
    ``[DEFAULT] executor_thread_pool_size``.

    :param counts: the counts that the server updates.
    :param keeps_caller: see :class:`Serializer`.
    """
    heartbeats = RpcHeartbeats()
    note_span: NoteSpan = _note_nothing
    if internals.tracing_options(transport.conf) is not None:
        note_span = _span_writer()
    dispatcher = Dispatcher(
        [SchedulerEndpoint(driver), BaseEndpoint()],
        Serializer(keeps_caller),
        heartbeats,
        note_span,
    )
    target = oslo_messaging.Target(topic=TOPIC, server=host)
    counts = counts or internals.MessageCounts()
    return internals.RpcServer(
        transport, target, dispatcher, heartbeats, counts, on_full=driver.make_room
    )


def _declare_options(conf: cfg.ConfigOpts) -> None:
    internals.declare_undeclared_options(conf)
    conf.register_opts(_options(PREFETCH), RABBIT)
    conf.set_default(PREFETCH, MAX_WAITING_MESSAGES, RABBIT)

    if conf is not cfg.CONF:
        # The dispatcher reads this option from the global configuration.
        ping = _options(PING)
        conf.register_opts(ping)
        cfg.CONF.register_opts(ping)
        cfg.CONF.set_override(PING, conf[PING])


def _options(name: str) -> list[cfg.Opt]:
    """oslo.messaging's declarations of an option."""
    declared = []
    for _, options in opts.list_opts():
        declared += [option for option in options if option.name == name]
    return declared
