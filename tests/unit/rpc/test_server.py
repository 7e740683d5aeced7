# SPDX-License-Identifier: Apache-2.0
"""The server over the in-memory transport of kombu: objects and contexts, and messages
that wait for a thread. Everything but the broker is real."""

import importlib.metadata
import json
import logging
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import oslo_messaging
import pytest
from kombu import Connection, Exchange, Producer
from oslo_config import cfg

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.rpc import oslo_messaging_internals, server, wire
from novasched.rpc.oslo_messaging_internals import MessageCounts
from novasched.rpc.server import SchedulerEndpoint, Serializer
from novasched.rpc.versions import IGNORED_CASTS
from novasched.scheduler.drivers import Driver
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from tests.lab.processes import wait_until
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
class Script(Driver):
    """A driver that chooses the same hosts for every request."""

    requests: list[Request] = field(default_factory=list)

    def select_destinations(self, request):
        self.requests.append(request)
        hosts = [HERE]
        if request.return_alternates:
            hosts.append(THERE)
        return [hosts] * request.count


def a_conf(folder, *lines):
    """The options of a nova.conf."""
    path = folder / 'nova.conf'
    path.write_text('\n'.join(lines))
    conf = cfg.ConfigOpts()
    loading.register(conf)
    conf([], project='nova', default_config_files=[str(path)], default_config_dirs=[])
    return conf


def a_transport(folder, url, *more):
    """The transport of a nova.conf with a URL and further lines."""
    return server.make_transport(
        a_conf(folder, '[DEFAULT]', f'transport_url = {url}', *more)
    )


@contextmanager
def serving(transport, driver, counts=None):
    """A client of a server. The server runs until the end of the block."""
    running = server.make_server(transport, 'here', driver, counts)
    running.start()
    target = oslo_messaging.Target(topic='scheduler', version='4.5')
    yield oslo_messaging.get_rpc_client(transport, target, timeout=10)
    running.stop()
    running.wait()
    transport.cleanup()


@dataclass
class Door(Driver):
    """A driver that keeps requests until the door is opened, and notes the order of
    requests."""

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


def test_a_request_has_the_moment_of_arrival_in_the_process(transport):
    """A request has the moment at which the message reached this process, not the
    moment at which a thread began. A moment in the message does not count."""
    door = Door()
    context = {**CONTEXT, server.RECEIVED: 1e9}
    with serving(transport, door) as client:
        for _ in range(2):
            client.cast(context, 'select_destinations', spec_obj=a_spec())
        assert door.entered.acquire(timeout=WAIT)

        # When the ping is answered, both earlier messages have arrived.
        client.prepare(timeout=WAIT, version=None).call(CONTEXT, 'oslo_rpc_server_ping')
        opened_at = time.monotonic()
        door.opened.set()
        assert door.entered.acquire(timeout=WAIT)

    assert len(door.received) == 2
    assert max(door.received) < opened_at


def publish(sent_at, timeout):
    """Send a request with a timestamp of the broker."""
    context = {f'_context_{key}': value for key, value in CONTEXT.items()}
    body = {
        'method': 'select_destinations',
        'args': {'spec_obj': a_spec()},
        'version': '4.5',
        '_msg_id': str(sent_at),
        '_reply_q': 'reply',
        '_timeout': timeout,
        '_unique_id': str(sent_at),
        **context,
    }
    exchange = Exchange('nova', type='topic', durable=False)
    with Connection('memory://localhost/') as connection:
        producer = Producer(connection.channel(), exchange)
        producer.publish(
            {'oslo.version': '2.0', 'oslo.message': json.dumps(body)},
            routing_key='scheduler',
            timestamp=sent_at,
        )


def test_a_message_is_dropped_if_the_caller_has_given_up(tmp_path):
    """A message is dropped if the timestamp of the broker shows that the caller has
    given up. After the queue was empty, a timestamp before does not count."""
    door = Door()
    counts = MessageCounts()
    door.opened.set()
    url = 'kombu+memory://localhost/'
    # A server makes the queue.
    with serving(a_transport(tmp_path, url), door):
        pass

    now = int(time.time())
    for age in (100, 70, 62, 20, 0):
        publish(now - age, 60)
    with serving(a_transport(tmp_path, url), door, counts):
        for _ in range(3):
            assert door.entered.acquire(timeout=WAIT)

        # The server finds the queue empty meanwhile.
        time.sleep(2 * oslo_messaging_internals.POLL_S)
        publish(now - 90, 60)
        assert door.entered.acquire(timeout=WAIT)
    assert counts.dropped == 2


def test_pings_are_answered_before_waiting_requests(transport):
    """Requests wait for a thread, and are begun in order. Health probes of both kinds
    are answered while requests occupy every thread, and before waiting requests."""
    door = Door()
    zones = list(map(str, range(20)))
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


def test_the_driver_is_asked_for_room_at_the_limit_of_messages(tmp_path):
    """The driver is told when the maximum number of messages waits for a thread."""
    lines = (
        'executor_thread_pool_size = 1',
        '[oslo_messaging_rabbit]',
        f'{server.PREFETCH} = 2',
    )
    door = Door()
    transport = a_transport(tmp_path, 'kombu+memory://localhost/', *lines)
    with serving(transport, door) as client:
        for count in (2, 1):
            assert not door.asked_for_room.is_set()
            for _ in range(count):
                client.cast(CONTEXT, 'select_destinations', spec_obj=a_spec())
            assert count == 1 or door.entered.acquire(timeout=WAIT)
        assert door.asked_for_room.wait(WAIT)

        door.opened.set()
        for _ in range(2):
            assert door.entered.acquire(timeout=WAIT)


def test_ignored_casts_are_counted_but_not_decoded(transport, caplog):
    """Ignored casts are not even decoded. Further casts are handled, and calls are
    answered. Messages are counted, and so are waiting times."""
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
        # The casts came through another queue than the call.
        ignored = 10 * len(CASTS)
        wait_until(lambda: counts.ignored >= ignored, WAIT, 'ignored casts')

    assert 'garbage' not in caplog.text
    assert 'skipping' not in caplog.text
    assert (counts.handled, counts.ignored, counts.dropped) == (1, ignored, 0)
    assert len(counts.wait_seconds) == 2
    assert min(counts.wait_seconds) >= 0
    assert max(counts.wait_seconds) < WAIT


@pytest.mark.parametrize(
    ('lines', 'limit'),
    [
        ([], server.MAX_WAITING_MESSAGES),
        (['rabbit_qos_prefetch_count = 7'], 7),
        (['rabbit_qos_prefetch_count = 0'], 0),
    ],
)
def test_nova_conf_overrides_the_limit_of_waiting_messages(tmp_path, lines, limit):
    """An option in nova.conf takes precedence over novasched's default."""
    transport = a_transport(
        tmp_path, 'kombu+memory://localhost/', '[oslo_messaging_rabbit]', *lines
    )
    assert transport.conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count == limit
    transport.cleanup()


def test_an_oslo_messaging_release_without_private_names_is_refused(
    tmp_path, monkeypatch
):
    """The start is refused in one line with the version and the missing names."""
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
    lacks = f' lacks {server_module}.RPCServer.a, {server_module}.B, c.C; '
    assert lacks in str(caught.value)


@pytest.mark.parametrize(
    ('error', 'line'),
    [
        (oslo_messaging.MessageDeliveryFailure('PRECONDITION_FAILED'), 'PRECONDITION'),
        (
            RuntimeError('rabbit_quorum_queue and rabbit_ha_queues'),
            '[oslo_messaging_rabbit] rabbit_quorum_queue = False: ',
        ),
        (
            RuntimeError('Invalid SSL version : x'),
            '[oslo_messaging_rabbit] ssl_version = ',
        ),
    ],
)
def test_refused_queues_are_reported_in_a_single_line(
    tmp_path, monkeypatch, error, line
):
    """The end of a worker whose queues are refused is told in one line."""

    def refuse(*arguments, **options):
        raise error

    transport = a_transport(tmp_path, 'rabbit://localhost/')
    rpc_server = server.make_server(transport, 'host', Script())
    monkeypatch.setattr(oslo_messaging_internals.RPCServer, 'start', refuse)
    with pytest.raises(NovaschedError) as caught:
        rpc_server.start()
    assert str(caught.value).startswith(line)


DRIVER = Script()
"""The driver of all tests below. The server would take messages of the tests above."""


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
def test_a_call_is_answered_in_the_form_of_the_rpc_version(
    client, version, arguments, answer
):
    """A call of every RPC version has an answer in the form of the version."""
    DRIVER.requests.clear()
    reply = client.prepare(version=version).call(
        CONTEXT, 'select_destinations', **arguments
    )
    if arguments.get('return_objects'):
        reply = list(map(service_hosts, decoded({'reply': reply})['reply']))
    assert reply == answer

    [request] = DRIVER.requests
    uuids = arguments.get('instance_uuids')
    if uuids is not None:
        uuids = tuple(uuids)
    assert request.instance_uuids == uuids


def service_hosts(selections):
    return [selection.value('service_host') for selection in selections]


def test_a_refusal_does_not_show_the_token_of_the_caller(client, caplog):
    """The answer and the log do not show the token of the caller."""
    context = {**CONTEXT, 'auth_token': 'a-very-secret-token'}
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(oslo_messaging.RemoteError) as caught,
    ):
        client.call(context, 'select_destinations', spec_obj=3)

    for text in (str(caught.value), str(caught.value.traceback), caplog.text):
        assert 'a-very-secret-token' not in text


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
        ('select_destinations', '3.0', 'UnsupportedVersion', '3.0'),
        ('select_destinations', '4.6', 'UnsupportedVersion', '4.6'),
        ('select_destinations', '5.0', 'UnsupportedVersion', '5.0'),
    ],
)
def test_a_call_of_an_unknown_method_or_version_is_refused(
    client, method, version, kind, why
):
    """Health probes look for this text in the answer to an unknown method. A call of an
    unknown version gets the error of oslo.messaging."""
    with pytest.raises(oslo_messaging.RemoteError) as caught:
        client.prepare(version=version).call(CONTEXT, method, spec_obj=a_spec())
    assert caught.value.exc_type == kind
    assert why in caught.value.value


def test_the_server_uses_threads_and_refuses_the_oslo_rpc_ping(tmp_path):
    """Native threads handle messages. By default, the server does not answer the ping
    of oslo.messaging."""
    transport = a_transport(tmp_path, 'fake://')
    rpc_server = server.make_server(transport, 'here', Script())
    assert rpc_server.executor_type == 'threading'
    assert rpc_server._target.topic == 'scheduler'
    assert rpc_server._target.server == 'here'

    rpc_server.start()
    client = oslo_messaging.get_rpc_client(
        transport, oslo_messaging.Target(topic='scheduler')
    )
    with pytest.raises(oslo_messaging.UnsupportedVersion):
        client.call({}, 'oslo_rpc_server_ping')
    rpc_server.stop()
    rpc_server.wait()
    transport.cleanup()


def test_an_unknown_transport_driver_is_refused_without_password(tmp_path):
    """An unknown transport is an error in the configuration. The text shows no
    password."""
    with pytest.raises(ConfigError) as caught:
        a_transport(tmp_path, 'carrierpigeon://nova:secret@mq/')
    assert 'there is no driver carrierpigeon' in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_all_casts_of_nova_are_ignored_and_arguments_cannot_clash():
    """The server ignores all casts of nova's services. Arguments of a message cannot
    clash with arguments of the dispatcher."""
    assert set(CASTS) == IGNORED_CASTS
    with pytest.raises(BadRequest):
        SchedulerEndpoint(Script()).select_destinations(CALLER, context=1, self=2)


def test_objects_are_decoded_and_encoded_at_any_depth():
    """Objects are decoded and encoded at any depth. Plain values stay unchanged."""
    plain = [None, 3, 'x', [], {}, {'a': [1, {'b': None}]}, [[1], [2, 'x']]]
    sent = {'a': [FLAVOR, {'b': FLAVOR}], 'plain': plain}
    entity = SERIALIZER.deserialize_entity(CALLER, sent)
    assert type(entity['a'][0]) is wire.Flavor
    assert type(entity['a'][1]['b']) is wire.Flavor
    assert entity['plain'] == plain
    assert SERIALIZER.serialize_entity(CALLER, entity) == sent


@pytest.mark.parametrize(
    'sent',
    [
        {'user_id': 'u', 'project_id': 'p'},
        {'user': 'u', 'tenant': 'p'},
        {'user': 'u', 'project_id': 'p', 'zeal': [1], 'roles': None},
    ],
    ids=['now', 'once', 'unknown keys'],
)
def test_a_context_names_the_user_project_and_request(sent):
    """A context of any release names the user, the project and the request."""
    context = SERIALIZER.deserialize_context({'request_id': 'req-1', **sent})
    assert context.user_id == 'u'
    assert context.project_id == 'p'
    assert context.request_id == 'req-1'


def test_a_recorded_context_is_logged_without_the_token():
    """The log shows the values of a recorded context, the token is dropped, and an
    encoded context is equal. A message without context gets a new request id."""
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


@pytest.mark.parametrize('switches', [1, 2, 3])
def test_a_listener_turns_to_every_broker(switches):
    """However often oslo.messaging and kombu turn to the next broker in a poll, the
    polls reach all brokers."""
    urls = [f'amqp://u:p@broker-{number}:5672//' for number in range(3)]
    broker = Connection(';'.join(urls))
    driver = SimpleNamespace(
        connection=SimpleNamespace(connection=broker), _new_tags=set()
    )
    link = oslo_messaging_internals.ListenerConnection(driver)

    tried = set()
    for _ in range(200):
        for _ in range(switches):
            broker.maybe_switch_next()
        tried.add(broker.hostname)
        link.choose_broker()

    assert tried == {'broker-0', 'broker-1', 'broker-2'}
