# SPDX-License-Identifier: Apache-2.0
"""The server over oslo.messaging's own in-memory AMQP, where all but the broker is
real: objects and contexts in and out, and messages that wait for a thread."""

import importlib.metadata
import json
import logging
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import oslo_messaging
import pytest
from kombu import Connection, Exchange, Producer
from oslo_config import cfg

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.rpc import oslo_messaging_internals, server, wire
from novasched.rpc.oslo_messaging_internals import MessageCounts
from novasched.rpc.server import SchedulerEndpoint, Serializer
from novasched.rpc.versions import IGNORED_CASTS
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from tests.lab.wire import (
    CALLS,
    CASTS,
    FLAVOR,
    MADE,
    RECORDED,
    a_spec,
    context_of,
    decoded,
    primitive,
)
from tests.lab.wire import CONTEXT as CALLER

HERE = Selection('node', 'h1', 'n1', 'cell', availability_zone='az')
THERE = Selection('other', 'h2', 'n2', 'cell', availability_zone='az')
CONTEXT = context_of(CALLS['boot'])
SERIALIZER = Serializer()
WAIT = 30


@dataclass
class Script:
    """A driver that chooses the same hosts for everybody."""

    asked: list[Request] = field(default_factory=list)

    def select_destinations(self, request):
        self.asked.append(request)
        return [[HERE, THERE] if request.return_alternates else [HERE]] * request.count


def a_conf(folder, *lines):
    """A nova.conf that is read."""
    path = folder / 'nova.conf'
    path.write_text('\n'.join(lines))
    conf = cfg.ConfigOpts()
    loading.register(conf)
    conf([], project='nova', default_config_files=[str(path)], default_config_dirs=[])
    return conf


def a_transport(folder, url, *more):
    """The transport of a nova.conf that names that URL and says ``more``."""
    return server.make_transport(
        a_conf(folder, '[DEFAULT]', f'transport_url = {url}', *more)
    )


@contextmanager
def serving(transport, driver, counts=None):
    """A client of a server that runs as long as the block lasts."""
    running = server.make_server(transport, 'here', driver, counts)
    running.start()
    target = oslo_messaging.Target(topic='scheduler', version='4.5')
    yield oslo_messaging.get_rpc_client(transport, target, timeout=10)
    running.stop()
    running.wait()
    transport.cleanup()


@dataclass
class Door:
    """A driver that lets requests pass when it is opened, and notes in which order they
    came."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    zones: list[str | None] = field(default_factory=list)
    received: list[float] = field(default_factory=list)
    asked_for_room: threading.Event = field(default_factory=threading.Event)

    def make_room(self):
        self.asked_for_room.set()

    def select_destinations(self, request):
        self.zones.append(request.availability_zone)
        self.received.append(request.received)
        self.entered.release()
        assert self.opened.wait(WAIT)
        return [[HERE]]


@pytest.fixture
def transport(tmp_path):
    """The messages of a nova.conf that lets one thread be used."""
    lines = 'executor_thread_pool_size = 1', 'rpc_ping_enabled = true'
    return a_transport(tmp_path, 'kombu+memory://localhost/', *lines)


def test_when_a_message_came(transport):
    """A request names the moment at which its message reached this process, not the one
    at which a thread begins it; a message that names a moment of its own changes
    nothing."""
    door = Door()
    said = {**CONTEXT, server.RECEIVED: 1e9}
    with serving(transport, door) as client:
        for _ in range(2):
            client.cast(said, 'select_destinations', spec_obj=a_spec())
        assert door.entered.acquire(timeout=WAIT)
        # The answer to a ping that was sent behind them: both are here.
        client.prepare(timeout=WAIT, version=None).call(CONTEXT, 'oslo_rpc_server_ping')
        opened_at = time.monotonic()
        door.opened.set()
        assert door.entered.acquire(timeout=WAIT)
    assert [received < opened_at for received in door.received] == [True, True]


def publish(sent_at, timeout):
    """Send a request that the broker has put a time on."""
    body = {
        'method': 'select_destinations',
        'args': {'spec_obj': a_spec()},
        'version': '4.5',
        '_msg_id': str(sent_at),
        '_reply_q': 'reply',
        '_timeout': timeout,
        '_unique_id': str(sent_at),
        **{f'_context_{key}': CONTEXT[key] for key in CONTEXT},
    }
    with Connection('memory://localhost/') as connection:
        Producer(
            connection.channel(), Exchange('nova', type='topic', durable=False)
        ).publish(
            {'oslo.version': '2.0', 'oslo.message': json.dumps(body)},
            routing_key='scheduler',
            timestamp=sent_at,
        )


def test_callers_that_gave_up_before_their_messages_came(tmp_path):
    """Messages that waited for a scheduler are dropped, if the broker says that they
    are older than their callers wait. Once the queue was empty the broker's clock is
    not believed."""
    door = Door()
    counts = MessageCounts()
    door.opened.set()
    url = 'kombu+memory://localhost/'
    with serving(a_transport(tmp_path, url), door):
        pass  # makes the queue
    now = int(time.time())
    for age in (100, 70, 62, 20, 0):
        publish(now - age, 60)
    with serving(a_transport(tmp_path, url), door, counts):
        for _ in range(3):
            assert door.entered.acquire(timeout=WAIT)
        time.sleep(2 * oslo_messaging_internals.POLL_S)  # the queue is seen to be empty
        publish(now - 90, 60)
        assert door.entered.acquire(timeout=WAIT)
    assert counts.dropped == 2


def test_pings_during_a_flood(transport):
    """Requests for which there is no thread wait, and are begun in their order. Health
    probes of both kinds are answered while they have every thread, and before those
    that wait."""
    door = Door()
    zones = [str(number) for number in range(20)]
    with serving(transport, door) as client:
        for zone in zones:
            client.cast(
                CONTEXT, 'select_destinations', spec_obj=a_spec(availability_zone=zone)
            )
        assert door.entered.acquire(timeout=WAIT)
        nova = client.prepare(timeout=WAIT, namespace='baseapi', version='1.1')
        assert nova.call(CONTEXT, 'ping', arg='there?')
        library = client.prepare(timeout=WAIT, version=None)
        assert library.call(CONTEXT, 'oslo_rpc_server_ping')
        assert door.zones == ['0']
        door.opened.set()
        for _ in zones[1:]:
            assert door.entered.acquire(timeout=WAIT)
    assert door.zones == zones


def test_no_room_for_more_messages(tmp_path):
    """The driver hears of it as soon as as many messages wait for a thread as may."""
    lines = (
        'executor_thread_pool_size = 1',
        '[oslo_messaging_rabbit]',
        f'{server.PREFETCH} = 2',
    )
    door = Door()
    with serving(
        a_transport(tmp_path, 'kombu+memory://localhost/', *lines), door
    ) as client:
        for count in (2, 1):
            assert not door.asked_for_room.is_set()
            for _ in range(count):
                client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec())
            assert count == 1 or door.entered.acquire(timeout=WAIT)
        assert door.asked_for_room.wait(WAIT)
        door.opened.set()
        for _ in range(2):
            assert door.entered.acquire(timeout=WAIT)


def test_ignored_casts(transport, caplog):
    """They are not even decoded; other casts are handled, and calls are answered. All
    are counted, and how long each waited that was begun."""
    door = Door()
    counts = MessageCounts(wait_seconds=deque(maxlen=100))
    door.opened.set()
    with serving(transport, door, counts) as client:
        everybody = client.prepare(fanout=True)
        for method in CASTS:
            for _ in range(10):
                everybody.cast(CONTEXT, method, garbage={'nova_object.name': 3})
        client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec())
        assert door.entered.acquire(timeout=WAIT)
        client.prepare(timeout=WAIT).call(
            CONTEXT, 'sync_instance_info', zeal=[primitive('X', '1')]
        )
    assert [
        line for line in caplog.messages if 'garbage' in line or 'skipping' in line
    ] == []
    assert (counts.handled, counts.ignored, counts.dropped) == (1, 10 * len(CASTS), 0)
    assert [0 <= seconds < WAIT for seconds in counts.wait_seconds] == [True, True]


@pytest.mark.parametrize(
    ('lines', 'limit'),
    [
        ([], server.MAX_WAITING_MESSAGES),
        (['rabbit_qos_prefetch_count = 7'], 7),
        (['rabbit_qos_prefetch_count = 0'], 0),
    ],
)
def test_how_many_may_wait(tmp_path, lines, limit):
    """The number of nova.conf counts; 0 is without limit."""
    made = a_transport(
        tmp_path, 'kombu+memory://localhost/', '[oslo_messaging_rabbit]', *lines
    )
    assert made.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count == limit
    made.cleanup()


def test_a_release_without_private_names(tmp_path, monkeypatch):
    """The start is refused in one line with the version and the names that are
    missing."""
    oslo_messaging_internals.check_private_names()
    server_module = 'oslo_messaging.rpc.server'
    names = {
        f'{server_module}:RPCServer': ['_on_incoming', 'a'],
        f'{server_module}:B': [],
        'c:C': ['d'],
    }
    monkeypatch.setattr(oslo_messaging_internals, 'PRIVATE_NAMES', names)
    with pytest.raises(ConfigError) as caught:
        a_transport(tmp_path, 'kombu+memory://localhost/')
    version = importlib.metadata.version('oslo.messaging')
    assert str(caught.value).startswith(f'oslo.messaging = {version}: ')
    assert f' lacks {server_module}.RPCServer.a, {server_module}.B, c.C; ' in str(
        caught.value
    )


DRIVER = Script()
"""Its server stays on the bus, where it would take the messages of the tests before."""


@pytest.fixture(scope='module')
def client(tmp_path_factory):
    transport = a_transport(
        tmp_path_factory.mktemp('nova'), 'kombu+memory://localhost/'
    )
    with serving(transport, DRIVER) as client:
        yield client


DICT = {'host': 'h1', 'nodename': 'n1', 'limits': {}}
UUIDS = ['u1', 'u2']


@pytest.mark.parametrize(
    ('version', 'arguments', 'answer'),
    [
        ('4.0', MADE['held back to 4.0'], [DICT, DICT]),
        ('4.1', MADE['held back to 4.0'], [DICT, DICT]),
        ('4.2', MADE['held back to 4.0'], [DICT, DICT]),
        ('4.3', {'spec_obj': a_spec()}, [DICT]),
        ('4.3', MADE['ocata'], [DICT, DICT]),
        ('4.4', {'spec_obj': a_spec(), 'instance_uuids': UUIDS}, [DICT, DICT]),
        ('4.4', {'spec_obj': a_spec(), 'instance_uuids': None}, [DICT]),
        (
            '4.5',
            {
                'spec_obj': a_spec(),
                'instance_uuids': UUIDS,
                'return_objects': False,
                'return_alternates': True,
            },
            [DICT, DICT],
        ),
        (
            '4.5',
            {
                'spec_obj': a_spec(),
                'instance_uuids': UUIDS,
                'return_objects': True,
                'return_alternates': True,
            },
            [['h1', 'h2'], ['h1', 'h2']],
        ),
        (
            '4.5',
            {
                'spec_obj': a_spec(),
                'instance_uuids': UUIDS,
                'return_objects': True,
                'return_alternates': False,
            },
            [['h1'], ['h1']],
        ),
        ('4.5', CALLS['boot of three']['args'], [['h1', 'h2']] * 3),
        ('4.5', CALLS['rebuild']['args'], [['h1']]),
    ],
)
def test_select_destinations(client, version, arguments, answer):
    """Each version is asked in its form and answered in its form."""
    DRIVER.asked.clear()
    reply = client.prepare(version=version).call(
        CONTEXT, 'select_destinations', **arguments
    )
    if arguments.get('return_objects'):
        chosen = [
            [each.value('service_host') for each in row]
            for row in decoded({'x': reply})['x']
        ]
        assert chosen == answer
    else:
        assert reply == answer
    (request,) = DRIVER.asked
    uuids = arguments.get('instance_uuids')
    assert request.instance_uuids == (None if uuids is None else tuple(uuids))


def test_a_refusal_tells_no_token(client, caplog):
    """Neither the answer nor the log shows the caller's token."""
    context = {**CONTEXT, 'auth_token': 'a-very-secret-token'}
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(oslo_messaging.RemoteError) as caught,
    ):
        client.call(context, 'select_destinations', spec_obj=3)
    assert (
        'a-very-secret-token'
        not in f'{caught.value} {caught.value.traceback} {caplog.text}'
    )


@pytest.mark.parametrize(
    ('method', 'version', 'kind', 'why'),
    [
        (
            '_driver',
            '4.5',
            'NoSuchMethod',
            'Endpoint does not support RPC method _driver',
        ),
        (
            'run_instance',
            '4.5',
            'NoSuchMethod',
            'Endpoint does not support RPC method run_instance',
        ),
        *(
            ('select_destinations', version, 'UnsupportedVersion', version)
            for version in ('3.0', '4.6', '5.0')
        ),
    ],
)
def test_unknown_methods(client, method, version, kind, why):
    """Health probes look for this text in the answer to a method that does not exist.
    Other majors and newer minors get oslo.messaging's own error."""
    with pytest.raises(oslo_messaging.RemoteError) as caught:
        client.prepare(version=version).call(CONTEXT, method, spec_obj=a_spec())
    assert caught.value.exc_type == kind
    assert why in caught.value.value


def test_the_library(tmp_path):
    """Messages are handled in native threads. Unless nova.conf enables it,
    oslo.messaging's own ping is not answered."""
    transport = a_transport(tmp_path, 'fake://')
    made = server.make_server(transport, 'here', Script())
    assert made.executor_type == 'threading'
    assert (made._target.topic, made._target.server) == ('scheduler', 'here')
    made.start()
    client = oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic='scheduler')
    )
    with pytest.raises(oslo_messaging.UnsupportedVersion):
        client.call({}, 'oslo_rpc_server_ping')
    made.stop()
    made.wait()
    transport.cleanup()


def test_a_driver_that_is_not_there(tmp_path):
    """A transport that cannot be had is an error in the configuration; it shows no
    password."""
    with pytest.raises(ConfigError) as caught:
        a_transport(tmp_path, 'carrierpigeon://nova:secret@mq/')
    assert 'there is no driver carrierpigeon' in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_names():
    """nova's services cast nothing but what is ignored to a scheduler. Arguments of a
    message cannot clash with those that the dispatcher gives."""
    assert set(CASTS) == IGNORED_CASTS
    with pytest.raises(BadRequest):
        SchedulerEndpoint(Script()).select_destinations(CALLER, context=1, self=2)


def test_objects_anywhere():
    """Objects are decoded wherever they lie, and encoded again; all else passes
    unchanged."""
    plain = [None, 3, 'x', [], {}, {'a': [1, {'b': None}]}, [[1], [2, 'x']]]
    sent = {'a': [FLAVOR, {'b': FLAVOR}], 'plain': plain}
    thing = SERIALIZER.deserialize_entity(CALLER, sent)
    assert [type(thing['a'][0]), type(thing['a'][1]['b'])] == [wire.Flavor, wire.Flavor]
    assert thing['plain'] == plain
    assert SERIALIZER.serialize_entity(CALLER, thing) == sent


@pytest.mark.parametrize(
    'sent',
    [
        {'user_id': 'u', 'project_id': 'p'},
        {'user': 'u', 'tenant': 'p'},
        {'user': 'u', 'project_id': 'p', 'zeal': [1], 'roles': None},
    ],
    ids=['now', 'once', 'unknown keys'],
)
def test_context(sent):
    """A context of any release names the user, the project and the request."""
    context = SERIALIZER.deserialize_context({'request_id': 'req-1', **sent})
    assert (context.user_id, context.project_id, context.request_id) == (
        'u',
        'p',
        'req-1',
    )


def test_recorded_context():
    """A recorded context is what the log shows, keeps no token, and is sent on as the
    same; a message without one gets a request id of its own."""
    body = RECORDED['boot']
    context = SERIALIZER.deserialize_context(context_of(body))
    values = context.get_logging_values()
    assert values['request_id'] == body['_context_request_id']
    assert values['user_identity'] == 'e2e-user e2e-project - - -'
    assert body['_context_auth_token']
    assert values['auth_token'] is None
    again = SERIALIZER.deserialize_context(SERIALIZER.serialize_context(context))
    assert again.get_logging_values() == values
    assert SERIALIZER.deserialize_context({}).request_id.startswith('req-')
