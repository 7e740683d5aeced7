# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for one server after the other, as long as they are let; and callers
without number who all ask at once."""

import json
import secrets
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
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
from tests.lab.processes import wait_until
from tests.lab.wire import FLAVOR, a_spec

CONTEXT = {'user_id': USER, 'project_id': PROJECT, 'is_admin': True}
PATIENCE = 60


@dataclass(frozen=True)
class Answer:
    """One request: when it was made (monotonic seconds), how long it took, for which
    server, and the host of this, or what was raised."""

    asked_at: float
    seconds: float
    server: str
    host: str | None = None
    error: str | None = None


def arguments_for(server, **fields):
    """Those of a call for one server of 512 MB; fields of the request may be others."""
    fields = {'num_instances': 1, 'project_id': PROJECT, **fields}
    return {
        'spec_obj': a_spec(instance_uuid=server, **fields),
        'instance_uuids': [server],
        'return_objects': True,
        'return_alternates': False,
    }


class Caller:
    """oslo.messaging's own client, with arguments that go out as they are. Any number
    of threads may call."""

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

    def call(self, method, /, arguments, context=None, **how):
        """Call a method; ``how`` is what prepare() of the client takes."""
        return self._client.prepare(**{'timeout': PATIENCE, **how}).call(
            context or CONTEXT, method, **arguments
        )

    def cast(self, method, /, arguments, **how):
        """Tell every scheduler, unless one is named, and wait for none."""
        self._client.prepare(**(how or {'fanout': True})).cast(
            CONTEXT, method, **arguments
        )

    def select(self, host, arguments, context):
        """What a scheduler answers to the oldest callers' version, or the class of its
        error."""
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

    def place(self, uuid=None, fields=None, **how):
        """Ask for a server of 512 MB, a new one unless it is named; fields of the
        request may be others."""
        server = uuid or new_uuids()[0]
        arguments = arguments_for(server, **(fields or {}))
        asked = time.monotonic()
        try:
            [[chosen]] = self.call('select_destinations', arguments, **how)
        except oslo_messaging.MessagingException as error:
            return Answer(asked, time.monotonic() - asked, server, error=repr(error))
        host = chosen['nova_object.data']['service_host']
        return Answer(asked, time.monotonic() - asked, server, host)


@dataclass
class Load:
    """What came of the requests up to now."""

    answers: list[Answer] = field(default_factory=list)

    def since(self, moment):
        return [each for each in self.answers if each.asked_at > moment]

    def failures(self):
        return [each for each in self.answers if each.error]


@contextmanager
def load(caller, clients, *, pause=0, **how):
    """So many clients at work, which rest so many seconds before each request; at the
    end of the block all have got their last answers."""
    found = Load()
    over = threading.Event()

    def ask():
        while not over.wait(pause):
            found.answers.append(caller.place(**how))

    with ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask) for _ in range(clients)]
        try:
            yield found
        finally:
            over.set()
    for each in asking:
        each.result()


LIFETIME = 1800
HUGE = {
    **FLAVOR,
    'nova_object.data': {**FLAVOR['nova_object.data'], 'vcpus': 10_000_000},
}


class ConcurrentCallers:
    """Callers on one connection. ``asked`` has the UUIDs of the servers that they asked
    for. ``hosts`` says where each is to go, with None for a refusal; ``answers`` and
    ``heartbeats`` count what came for each. ``waited`` has the seconds until each
    answer, and ``gave_up`` the servers whose callers had heard nothing for longer than
    their patience before it came."""

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
        """So many more ask for a server each; the UUIDs of these."""
        servers = new_uuids(count)
        for server in servers:
            arguments = arguments_for(server, flavor=flavor)
            # The servers' UUIDs serve as the messages' as well.
            call = {'_msg_id': server, '_reply_q': self._reply_q, '_timeout': patience}
            now = time.monotonic()
            self._asked_at[server] = now
            self._patience[server] = patience
            self._silent_after[server] = now + patience
            self._publish('select_destinations', arguments, call, to, lifetime)
        self.asked += servers
        return servers

    def tell(self, count, method, arguments):
        """So many cast the same to every scheduler."""
        for _ in range(count):
            self._publish(method, arguments, {}, None, None)

    def listen(self, until, seconds, what):
        """Read what comes, until something holds."""

        def holds():
            if not (found := until()):
                with suppress(TimeoutError):
                    self._connection.drain_events(timeout=0.1)
            return found

        wait_until(holds, seconds, what, pause=0)

    def answered(self, servers):
        return all(self.answers[server] for server in servers)

    def _publish(self, method, arguments, call, to, lifetime):
        context = {f'_context_{key}': value for key, value in CONTEXT.items()}
        body = {
            'method': method, 'args': arguments, 'version': '4.5', 'namespace': None,
            '_unique_id': secrets.token_hex(16), **call, **context,
        }  # fmt: skip
        exchange = EXCHANGE if to else f'{TOPIC}_fanout'
        self._producer.publish(
            {'oslo.version': '2.0', 'oslo.message': json.dumps(body)},
            exchange=Exchange(exchange, type='topic' if to else 'fanout', passive=True),
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
            [[chosen]] = body['result']
            self.hosts[server] = chosen['nova_object.data']['service_host']
        else:
            assert json.loads(body['failure'])['class'] == 'NoValidHost', body
            self.hosts[server] = None


@contextmanager
def concurrent_callers(amqp_url):
    """Callers who ask and listen as long as the block lasts."""
    with connect(amqp_url) as connection:
        yield ConcurrentCallers(connection)
