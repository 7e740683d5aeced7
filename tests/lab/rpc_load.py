# SPDX-License-Identifier: Apache-2.0
"""Load on schedulers over RPC: clients with request after request, and thousands of
callers at once."""

import json
import secrets
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import oslo_messaging
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from oslo_config import cfg

from novasched.rpc.server import make_transport
from tests.lab.broker import EXCHANGE, TOPIC, connect
from tests.lab.daemon import new_uuids
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.processes import in_threads, wait_until
from tests.lab.wire import FLAVOR, a_spec

CONTEXT = {'user_id': USER, 'project_id': PROJECT, 'is_admin': True}
PATIENCE = 60


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    :ivar asked_at: when the request was sent (monotonic seconds).
    :ivar seconds: seconds until the answer.
    :ivar server: the UUID of the requested server.
    :ivar host: the host of the server; None after an error.
    """

    asked_at: float
    seconds: float
    server: str
    host: str | None = None
    error: str | None = None


def arguments_for(server, **fields):
    """The arguments of a call for one server of 512 MB.

    :param fields: fields of the request spec that differ.
    """
    fields = {'num_instances': 1, 'project_id': PROJECT, **fields}
    return {
        'spec_obj': a_spec(instance_uuid=server, **fields),
        'instance_uuids': [server],
        'return_objects': True,
        'return_alternates': False,
    }


class Caller:
    """A client of oslo.messaging that sends arguments as they are. Several threads may
    call at once."""

    def __init__(self, config):
        conf = cfg.ConfigOpts()
        conf(['--config-file', str(config)], project='nova')
        self._transport = make_transport(conf)
        target = oslo_messaging.Target(topic=TOPIC, version='4.5')
        self._client = oslo_messaging.get_rpc_client(self._transport, target)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self._transport.cleanup()

    def call(self, method, /, arguments, context=None, **options):
        """Call a method.

        :param options: options of oslo.messaging's ``prepare()``.
        """
        client = self._client.prepare(**{'timeout': PATIENCE, **options})
        return client.call(context or CONTEXT, method, **arguments)

    def cast(self, method, /, arguments, **options):
        """Cast a method to all schedulers, unless the options name a server."""
        client = self._client.prepare(**(options or {'fanout': True}))
        client.cast(CONTEXT, method, **arguments)

    def select(self, host, arguments, context):
        """The answer of a scheduler to version 4.0, the oldest version of callers, or
        the class of the error."""
        try:
            return self.call(
                'select_destinations',
                dict(arguments),
                dict(context),
                server=host,
                version='4.0',
            )
        except oslo_messaging.RemoteError as error:
            return error.exc_type

    def place(self, uuid=None, fields=None, **options):
        """Ask for a server of 512 MB.

        :param uuid: the UUID of the server, by default a new UUID.
        :param fields: fields of the request spec that differ.
        :param options: options of oslo.messaging's ``prepare()``.
        """
        server = uuid or new_uuids()[0]
        arguments = arguments_for(server, **(fields or {}))

        asked_at = time.monotonic()
        host = None
        text = None
        try:
            [[selection]] = self.call('select_destinations', arguments, **options)
        except oslo_messaging.MessagingException as error:
            text = repr(error)
        else:
            host = selection['nova_object.data']['service_host']
        return Answer(asked_at, time.monotonic() - asked_at, server, host, text)


@dataclass
class Load:
    """The answers so far."""

    answers: list[Answer] = field(default_factory=list)

    def since(self, moment):
        """The answers to requests that were sent after a moment."""
        return [answer for answer in self.answers if answer.asked_at > moment]

    def failures(self):
        """The answers that are errors."""
        return [answer for answer in self.answers if answer.error]


@contextmanager
def load(caller, clients, *, pause=0, **arguments):
    """Let clients send requests in a block. At the end of the block all requests are
    answered.

    :param clients: number of clients at the same time.
    :param pause: seconds that a client waits before a request.
    :param arguments: arguments of :meth:`Caller.place`.
    """
    requests = Load()
    is_over = threading.Event()

    def ask():
        while not is_over.wait(pause):
            requests.answers.append(caller.place(**arguments))

    with in_threads([ask] * clients, is_over):
        yield requests


LIFETIME = 1800
HUGE = {
    **FLAVOR,
    'nova_object.data': {**FLAVOR['nova_object.data'], 'vcpus': 10_000_000},
}


class ConcurrentCallers:
    """Callers that share a connection.

    :ivar asked: the UUIDs of the requested servers in order.
    :ivar hosts: the host of each answered server; None for a refusal.
    :ivar answers: number of answers for each server.
    :ivar heartbeats: number of heartbeats for each server.
    :ivar waited: seconds until the answer for each server.
    :ivar gave_up: the servers whose callers had no message for longer than their
        patience.
    """

    def __init__(self, connection):
        self._connection = connection
        channel = connection.channel()
        self._reply_q = f'reply_{secrets.token_hex(16)}'
        queue = Queue(self._reply_q, durable=False, auto_delete=True)
        self._producer = Producer(channel)
        self._consumer = Consumer(channel, [queue], callbacks=[self._hear])
        self._consumer.consume()
        self.asked: list[str] = []
        self.hosts: dict[str, str | None] = {}
        self.answers: Counter[str] = Counter()
        self.heartbeats: Counter[str] = Counter()
        self.waited: dict[str, float] = {}
        self.gave_up: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._silent_after: dict[str, float] = {}
        self._patience: dict[str, float] = {}

    def ask(self, count, to=TOPIC, flavor=FLAVOR, patience=PATIENCE, lifetime=LIFETIME):
        """Let more callers ask for a server each.

        :param count: number of callers.
        :param to: the routing key.
        :param patience: seconds that a caller waits for the next message.
        :param lifetime: seconds until the broker drops the request.
        :returns: the UUIDs of the servers.
        """
        servers = new_uuids(count)
        for server in servers:
            arguments = arguments_for(server, flavor=flavor)
            # The UUID of the server serves as the ID of the message, too.
            call = {'_msg_id': server, '_reply_q': self._reply_q, '_timeout': patience}
            now = time.monotonic()
            self._asked_at[server] = now
            self._patience[server] = patience
            self._silent_after[server] = now + patience
            self._publish('select_destinations', arguments, call, to, lifetime)
        self.asked += servers
        return servers

    def tell(self, count, method, arguments):
        """Send a number of equal casts to all schedulers."""
        for _ in range(count):
            self._publish(method, arguments, {}, None, None)

    def listen(self, until, seconds, description):
        """Receive messages until a condition holds."""

        def is_over():
            if until():
                return True
            with suppress(TimeoutError):
                self._connection.drain_events(timeout=0.1)
            return False

        wait_until(is_over, seconds, description, pause=0)

    def answered(self, servers):
        """True if all requests for these servers are answered."""
        return all(self.answers[server] for server in servers)

    def _publish(self, method, arguments, call, to, lifetime):
        context = {f'_context_{key}': value for key, value in CONTEXT.items()}
        body = {
            'method': method,
            'args': arguments,
            'version': '4.5',
            'namespace': None,
            '_unique_id': secrets.token_hex(16),
            **call,
            **context,
        }
        if to:
            exchange = Exchange(EXCHANGE, type='topic', passive=True)
        else:
            exchange = Exchange(f'{TOPIC}_fanout', type='fanout', passive=True)
        self._producer.publish(
            {'oslo.version': '2.0', 'oslo.message': json.dumps(body)},
            exchange=exchange,
            routing_key=to or '',
            serializer='json',
            expiration=lifetime,
        )

    def _hear(self, envelope, message):
        message.ack()
        body = json.loads(envelope['oslo.message'])
        server = body['_msg_id']
        now = time.monotonic()
        if now > self._silent_after[server]:
            self.gave_up.add(server)
        self._silent_after[server] = now + self._patience[server]

        if not body['ending']:
            self.heartbeats[server] += 1
            return

        self.answers[server] += 1
        self.waited[server] = now - self._asked_at[server]
        if body['failure'] is None:
            [[selection]] = body['result']
            self.hosts[server] = selection['nova_object.data']['service_host']
        else:
            assert json.loads(body['failure'])['class'] == 'NoValidHost', body
            self.hosts[server] = None


@contextmanager
def concurrent_callers(amqp_url):
    """Callers on a connection that the block closes."""
    with connect(amqp_url) as connection:
        yield ConcurrentCallers(connection)
