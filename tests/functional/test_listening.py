# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl shadow --listen`` beside the real nova-scheduler."""

import copy
import json
import secrets
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager

import oslo_messaging
import pytest
import sqlalchemy as sa
from oslo_config import cfg
from oslo_context.context import RequestContext

from novasched.rpc.notifications.sender import (
    ContextSerializer,
    make_transport,
    register,
)
from tests.lab import broker, conductor_requests
from tests.lab.broker import notification_queues
from tests.lab.daemon import Daemon
from tests.lab.processes import wait_until
from tests.lab.wire import CALLS, context_of

PATIENCE = 120.0
QUEUE = f'novasched-shadow-{socket.gethostname()}'
TOPICS = {'unversioned': 'notifications', 'versioned': 'versioned_notifications'}
START = 'scheduler.select_destinations.start'


def config(form):
    """The same for both schedulers, but for the format of notifications."""
    return {
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
        'notifications': {'notification_format': form},
        'filter_scheduler': {'enabled_filters': ','.join(conductor_requests.FILTERS)},
    }


def asked():
    """Requests for new servers by what they are about."""
    impossible = conductor_requests.a_flavor(
        extra_specs={'capabilities:hypervisor_type': 'none'}
    )
    volume = conductor_requests.cases('', '')['volume']['spec_obj'][
        conductor_requests.DATA
    ]
    cases = {
        'plain': ({}, 1),
        'zone': ({'availability_zone': 'e2e-az'}, 1),
        'two': ({}, 2),
        'pinned': (conductor_requests.pinned(None), 1),
        'refused': ({'flavor': impossible}, 1),
        'volume': ({name: volume[name] for name in ('image', 'is_bfv')}, 1),
        'saved volume': ({name: volume[name] for name in ('image', 'is_bfv')}, 1),
    }
    return {
        name: _of(copy.deepcopy(fields), count)
        for name, (fields, count) in cases.items()
    }


def _of(fields, count):
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    named = {**fields, 'instance_uuid': uuids[0], 'num_instances': count}
    return conductor_requests.changed('boot', named, instance_uuids=uuids)


@pytest.fixture(scope='module')
def scheduler(cloud):
    """nova's own, which notifies in both formats."""
    conductor_requests.furnish(cloud)
    with Daemon(cloud, config('both'), [cloud.nova.script('nova-scheduler')]) as daemon:
        yield daemon


@contextmanager
def conductor(path, form):
    """Says what nova-conductor says of a request that is refused."""
    conf = cfg.ConfigOpts()
    conf([], project='nova', default_config_files=[str(path)], default_config_dirs=[])
    oslo_messaging.set_transport_defaults('nova')
    register(conf)
    transport = make_transport(conf)
    notifier = oslo_messaging.Notifier(
        transport,
        'compute_task.conductor',
        serializer=ContextSerializer(),
        topics=[TOPICS[form]],
    )
    event = 'compute_task.build_instances' + ('.error' if form == 'versioned' else '')
    yield lambda context: notifier.error(RequestContext.from_dict(context), event, {})
    transport.cleanup()


@contextmanager
def running(command):
    """A child that does not outlive the test."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize('form', TOPICS)
def test_the_same(scheduler, cloud, caller, form):
    """Whatever is asked for, both decide the same. Of a server on a volume that no
    database knows it is told that it could not be rebuilt. The queue is gone in the
    end, and the queue of others has all."""
    cases = asked()
    spec = cases['saved volume']['spec_obj']
    row = {
        'server': spec[conductor_requests.DATA]['instance_uuid'],
        'spec': json.dumps(spec),
    }
    insert = 'insert into request_specs (instance_uuid, spec) values (:server, :spec)'
    with (
        cloud.api.engine.begin() as connection
    ):  # as nova-api does before it calls the conductor
        connection.execute(sa.text(insert), row)
    path = cloud.config('shadow', config(form))
    options = ['--listen', '--requests-seen', str(len(cases)), '--format', 'json']
    command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'shadow']
    with (
        conductor(path, form) as refuse,
        notification_queues(cloud.amqp_url) as others,
        running([*command, '--config-file', str(path), *options]) as shadow,
    ):
        wait_until(
            lambda: broker.consumers(cloud.amqp_url, QUEUE) > 0, PATIENCE, 'listener'
        )
        for arguments in cases.values():
            cloud.refresh_services()
            context = context_of(CALLS['boot']) | {
                'request_id': f'req-{secrets.token_hex(8)}'
            }
            answer = caller.select(scheduler.host, arguments, context)
            if not isinstance(answer, list):
                assert answer == 'NoValidHost'
                refuse(context)
        out, _ = shadow.communicate(timeout=PATIENCE)
        heard = [
            each['queue'] for each in others.drain() if each['event_type'] == START
        ]
    report = json.loads(out)
    assert report['counts'] == {
        'requests': 7,
        'compared': 6,
        'same': 6,
        'different': 0,
        'unknown': 1,
        'failed': 0,
    }, report
    assert shadow.returncode == 0
    rows = dict(zip(cases, report['requests'], strict=True))
    assert rows['refused']['hosts'] == []
    assert len(rows['two']['hosts']) == 2
    assert 'the notification asks for DISK_GB:10' in rows['volume']['unknown']
    assert rows['pinned']['missing_fields'][-1:] == ['network_metadata']
    assert bool(rows['plain']['missing_fields']) == (form == 'unversioned')
    assert not broker.exists(cloud.amqp_url, QUEUE)
    assert heard.count(f'{TOPICS[form]}.info') == 7
    for server in cloud.all_allocations():
        cloud.placement.release(server)
