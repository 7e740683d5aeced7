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
    """Options of both schedulers, except the format of notifications."""
    return {
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
        'notifications': {'notification_format': form},
        'filter_scheduler': {'enabled_filters': ','.join(conductor_requests.FILTERS)},
    }


def requests_by_subject():
    """Requests for new servers, by the subject of the request."""
    impossible = conductor_requests.a_flavor(
        extra_specs={'capabilities:hypervisor_type': 'none'}
    )
    volume = conductor_requests.cases('', '')['volume']['spec_obj'][
        conductor_requests.DATA
    ]
    of_volume = {'image': volume['image'], 'is_bfv': volume['is_bfv']}
    return {
        'plain': _request({}),
        'zone': _request({'availability_zone': 'e2e-az'}),
        'two': _request({}, count=2),
        'pinned': _request(conductor_requests.pinned(None)),
        'refused': _request({'flavor': impossible}),
        'volume': _request(of_volume),
        'saved volume': _request(of_volume),
    }


def _request(fields, count=1):
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    fields = copy.deepcopy(fields)
    fields.update(instance_uuid=uuids[0], num_instances=count)
    return conductor_requests.changed('boot', fields, instance_uuids=uuids)


@pytest.fixture(scope='module')
def scheduler(cloud):
    """A nova-scheduler that notifies in both formats."""
    conductor_requests.furnish(cloud)
    with Daemon(cloud, config('both'), [cloud.nova.script('nova-scheduler')]) as daemon:
        yield daemon


@contextmanager
def conductor(path, form):
    """A function that notifies of a refused request like nova-conductor."""
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
    event = 'compute_task.build_instances'
    if form == 'versioned':
        event += '.error'
    yield lambda context: notifier.error(RequestContext.from_dict(context), event, {})
    transport.cleanup()


@contextmanager
def running(command):
    """A child process that is killed at the end of the context."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize('form', TOPICS)
def test_shadow_decides_like_the_observed_nova_scheduler(
    scheduler, cloud, caller, form
):
    """Both schedulers decide the same. The report cannot tell for a server on a volume
    if no database has the server's request spec. At the end shadow's queue is deleted,
    and the queues of further listeners have all notifications."""
    cases = requests_by_subject()
    spec = cases['saved volume']['spec_obj']
    row = {
        'server': spec[conductor_requests.DATA]['instance_uuid'],
        'spec': json.dumps(spec),
    }
    insert = 'insert into request_specs (instance_uuid, spec) values (:server, :spec)'
    # nova-api writes the row before it calls the conductor.
    with cloud.api.engine.begin() as connection:
        connection.execute(sa.text(insert), row)
    path = cloud.config('shadow', config(form))
    options = ['--listen', '--requests-seen', str(len(cases)), '--format', 'json']
    command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'shadow']
    with (
        conductor(path, form) as refuse,
        notification_queues(cloud.amqp_url) as listener,
        running([*command, '--config-file', str(path), *options]) as shadow,
    ):
        wait_until(
            lambda: broker.consumers(cloud.amqp_url, QUEUE) > 0, PATIENCE, 'listener'
        )

        for arguments in cases.values():
            cloud.refresh_services()
            request_id = f'req-{secrets.token_hex(8)}'
            context = context_of(CALLS['boot']) | {'request_id': request_id}
            answer = caller.select(scheduler.host, arguments, context)
            if not isinstance(answer, list):
                assert answer == 'NoValidHost'
                refuse(context)

        out, _ = shadow.communicate(timeout=PATIENCE)
        queues = []
        for message in listener.drain():
            if message['event_type'] == START:
                queues.append(message['queue'])
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
    assert queues.count(f'{TOPICS[form]}.info') == 7
    for server in cloud.all_allocations():
        cloud.placement.release(server)
