# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl shadow --listen`` beside the real nova-scheduler."""

from __future__ import annotations

import copy
import json
import secrets
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import oslo_messaging
import pytest
import sqlalchemy as sa
from oslo_config import cfg
from oslo_context.context import RequestContext

from novasched.rpc.notifications.sender import ContextSerializer, make_transport, register
from tests.lab import broker, told
from tests.lab.broker import listening
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.processes import wait_until
from tests.lab.steady import Caller
from tests.lab.wire import CALLS, context_of

PATIENCE = 120.0
QUEUE = f'novasched-shadow-{socket.gethostname()}'
TOPICS = {'unversioned': 'notifications', 'versioned': 'versioned_notifications'}
Arguments = dict[str, Any]


def config(form: str, multiplier: float = 1.0) -> dict[str, dict[str, object]]:
    """The same for both schedulers, but for the multiplier of the memory's weight."""
    return {
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
        'notifications': {'notification_format': form},
        'filter_scheduler': {
            'enabled_filters': ','.join(told.FILTERS),
            'ram_weight_multiplier': multiplier,
        },
    }


def asked() -> dict[str, Arguments]:
    """Requests for new servers by what they are about."""
    impossible = told.a_flavor(extra_specs={'capabilities:hypervisor_type': 'none'})
    volume = told.cases('', '')['volume']['spec_obj'][told.DATA]
    cases = {
        'plain': ({}, 1),
        'zone': ({'availability_zone': 'e2e-az'}, 1),
        'two': ({}, 2),
        'pinned': (told.pinned(None), 1),
        'refused': ({'flavor': impossible}, 1),
        'volume': ({name: volume[name] for name in ('image', 'is_bfv')}, 1),
        'saved volume': ({name: volume[name] for name in ('image', 'is_bfv')}, 1),
    }
    return {name: _of(copy.deepcopy(fields), count) for name, (fields, count) in cases.items()}


def _of(fields: Mapping[str, Any], count: int) -> Arguments:
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    named = {**fields, 'instance_uuid': uuids[0], 'num_instances': count}
    return told.changed('boot', named, instance_uuids=uuids)


class Cloud:
    """The cloud's nova-scheduler, and what is asked of it while a shadow listens."""

    def __init__(self, cloud: NovaCloud, form: str) -> None:
        self.cloud, self.form = cloud, form

    def report(self, multiplier: float = 1.0) -> dict[str, Any]:
        """What the shadow says of one request after the other, by what they are about."""
        told.furnish(self.cloud)
        cases = asked()
        self._save(cases['saved volume'])
        path = self.cloud.config('shadow', config(self.form, multiplier))
        options = ['--listen', '--requests-seen', str(len(cases)), '--format', 'json']
        command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'shadow']
        command += ['--config-file', str(path), *options]
        with (
            Daemon(
                self.cloud, config(self.form), [self.cloud.nova.script('nova-scheduler')]
            ) as daemon,
            Caller(self.cloud.config('caller')) as caller,
            self._conductor() as refuse,
            listening(self.cloud.amqp_url) as others,
            _running(command) as shadow,
        ):
            url = self.cloud.amqp_url
            wait_until(lambda: broker.consumers(url, QUEUE) > 0, PATIENCE, 'listener')
            for arguments in cases.values():
                self.cloud.refresh_services()
                request = f'req-{secrets.token_hex(8)}'
                context = context_of(CALLS['boot']) | {'request_id': request}
                answer = caller.select(daemon.host, arguments, context)
                if not isinstance(answer, list):
                    assert answer == 'NoValidHost'
                    refuse(context)
            out, _ = shadow.communicate(timeout=PATIENCE)
            rows = json.loads(out)
            rows['status'] = shadow.returncode
            events = [each['event_type'] for each in others.drain()]
            rows['heard by others'] = events.count('scheduler.select_destinations.start')
        assert len(rows['requests']) == len(cases)
        rows['requests'] = dict(zip(cases, rows['requests'], strict=True))
        return rows

    def _save(self, arguments: Arguments) -> None:
        """What nova-api writes before it calls the conductor."""
        spec = arguments['spec_obj']
        row = {'server': spec[told.DATA]['instance_uuid'], 'spec': json.dumps(spec)}
        insert = 'insert into request_specs (instance_uuid, spec) values (:server, :spec)'
        with self.cloud.api.engine.begin() as connection:
            connection.execute(sa.text(insert), row)

    @contextmanager
    def _conductor(self) -> Iterator[Any]:
        """Says what nova-conductor says of a request that is refused."""
        conf = cfg.ConfigOpts()
        path = str(self.cloud.config('conductor', config(self.form)))
        conf([], project='nova', default_config_files=[path], default_config_dirs=[])
        oslo_messaging.set_transport_defaults('nova')
        register(conf)
        transport = make_transport(conf)
        notifier = oslo_messaging.Notifier(
            transport,
            'compute_task.conductor',
            serializer=ContextSerializer(),
            topics=[TOPICS[self.form]],
        )
        event = 'compute_task.build_instances'
        yield lambda context: notifier.error(
            RequestContext.from_dict(context),
            f'{event}.error' if self.form == 'versioned' else event,
            {},
        )
        transport.cleanup()


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A child that does not outlive the test."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture(params=TOPICS)
def watched(request: pytest.FixtureRequest, cloud: NovaCloud) -> Cloud:
    """A cloud whose scheduler notifies in one format."""
    return Cloud(cloud, request.param)


def test_the_same(watched: Cloud) -> None:
    """Whatever is asked for, both decide the same. Of a server on a volume that no database
    knows it is told that it could not be rebuilt. The queue is gone in the end, and the
    queue of others has all."""
    report = watched.report()
    assert report['counts'] == {
        'requests': 7, 'compared': 6, 'same': 6, 'different': 0, 'unknown': 1, 'failed': 0,
    }, report  # fmt: skip
    assert report['status'] == 0
    rows = report['requests']
    assert rows['refused']['hosts'] == []
    assert len(rows['two']['hosts']) == 2
    assert 'what is told asks for DISK_GB:10' in rows['volume']['unknown']
    assert rows['pinned']['untold'][-1:] == ['network_metadata']
    assert bool(rows['plain']['untold']) == (watched.form == 'unversioned')
    assert not broker.exists(watched.cloud.amqp_url, QUEUE)
    assert report['heard by others'] == 7


def test_a_weigher(watched: Cloud) -> None:
    """Where memory weighs otherwise it is told so; for half of a request with what is not
    told."""
    report = watched.report(multiplier=-1.0)
    row = report['requests']['plain']
    difference = row['difference']
    assert (difference['recorded'], difference['ours']) == (told.HOSTS[3], told.HOSTS[0])
    assert difference['why'].startswith('ours weighs differently: RAMWeigher +')
    if watched.form == 'versioned':
        assert report['status'] == 1
        assert row['compared']
    else:
        assert report['counts']['different'] == 0
        assert 'but not told: scheduler_hints' in row['unknown']
    assert report['requests']['refused']['compared']
