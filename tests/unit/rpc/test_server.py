# SPDX-License-Identifier: Apache-2.0
"""The server over oslo.messaging's own in-memory AMQP: all but the broker is real."""

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field

import oslo_messaging
import pytest
from oslo_config import cfg

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.rpc import server
from novasched.rpc.server import SchedulerEndpoint
from novasched.rpc.versions import IGNORED_CASTS
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from tests.lab.wire import CALLS, CASTS, MADE, a_spec, context_of, decoded
from tests.lab.wire import CONTEXT as CALLER

HERE = Selection('node', 'h1', 'n1', 'cell', availability_zone='az')
THERE = Selection('other', 'h2', 'n2', 'cell', availability_zone='az')
CONTEXT = context_of(CALLS['boot'])


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
    return server.make_transport(a_conf(folder, '[DEFAULT]', f'transport_url = {url}', *more))


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


DRIVER = Script()


@pytest.fixture(scope='module')
def client(tmp_path_factory):
    transport = a_transport(tmp_path_factory.mktemp('nova'), 'kombu+memory://localhost/')
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
        ('4.5', {'spec_obj': a_spec(), 'instance_uuids': UUIDS, 'return_objects': False, 'return_alternates': True}, [DICT, DICT]),
        ('4.5', {'spec_obj': a_spec(), 'instance_uuids': UUIDS, 'return_objects': True, 'return_alternates': True}, [['h1', 'h2'], ['h1', 'h2']]),
        ('4.5', {'spec_obj': a_spec(), 'instance_uuids': UUIDS, 'return_objects': True, 'return_alternates': False}, [['h1'], ['h1']]),
        ('4.5', CALLS['boot of three']['args'], [['h1', 'h2']] * 3),
        ('4.5', CALLS['rebuild']['args'], [['h1']]),
    ],
)  # fmt: skip
def test_select_destinations(client, version, arguments, answer):
    """Each version is asked in its form and answered in its form."""
    DRIVER.asked.clear()
    reply = client.prepare(version=version).call(CONTEXT, 'select_destinations', **arguments)
    if arguments.get('return_objects'):
        chosen = [
            [each.value('service_host') for each in row] for row in decoded({'x': reply})['x']
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
    with caplog.at_level(logging.INFO), pytest.raises(oslo_messaging.RemoteError) as caught:
        client.call(context, 'select_destinations', spec_obj=3)
    assert 'a-very-secret-token' not in f'{caught.value} {caught.value.traceback} {caplog.text}'


@pytest.mark.parametrize(
    ('method', 'version', 'kind', 'why'),
    [
        ('_driver', '4.5', 'NoSuchMethod', 'Endpoint does not support RPC method _driver'),
        ('run_instance', '4.5', 'NoSuchMethod', 'Endpoint does not support RPC method run_instance'),
        *(('select_destinations', version, 'UnsupportedVersion', version) for version in ('3.0', '4.6', '5.0')),
    ],
)  # fmt: skip
def test_unknown_methods(client, method, version, kind, why):
    """Health probes look for this text in the answer to a method that does not exist. Other majors
    and newer minors get oslo.messaging's own error."""
    with pytest.raises(oslo_messaging.RemoteError) as caught:
        client.prepare(version=version).call(CONTEXT, method, spec_obj=a_spec())
    assert caught.value.exc_type == kind
    assert why in caught.value.value


def test_the_library(tmp_path):
    """Messages are handled in native threads. Unless nova.conf enables it, oslo.messaging's own
    ping is not answered."""
    transport = a_transport(tmp_path, 'fake://')
    made = server.make_server(transport, 'here', Script())
    assert made.executor_type == 'threading'
    assert (made._target.topic, made._target.server) == ('scheduler', 'here')
    made.start()
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic='scheduler'))
    with pytest.raises(oslo_messaging.UnsupportedVersion):
        client.call({}, 'oslo_rpc_server_ping')
    made.stop()
    made.wait()
    transport.cleanup()


def test_a_driver_that_is_not_there(tmp_path):
    """A transport that cannot be had is an error in the configuration; it shows no password."""
    with pytest.raises(ConfigError) as caught:
        a_transport(tmp_path, 'carrierpigeon://nova:secret@mq/')
    assert 'there is no driver carrierpigeon' in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_names():
    """nova's services cast nothing but what is ignored to a scheduler. Arguments of a message cannot
    clash with those that the dispatcher gives."""
    assert set(CASTS) == IGNORED_CASTS
    with pytest.raises(BadRequest):
        SchedulerEndpoint(Script()).select_destinations(CALLER, context=1, self=2)
