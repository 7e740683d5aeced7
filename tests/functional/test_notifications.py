# SPDX-License-Identifier: Apache-2.0
"""Notifications of nova-scheduler and of novasched, compared for the same requests."""

import copy
import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.lab import conductor_requests
from tests.lab.broker import NotificationQueues, notification_queues
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.processes import free_port, wait_until
from tests.lab.rpc_load import Caller
from tests.lab.wire import CALLS, context_of

QUEUES = {
    'unversioned': ('notifications.info',),
    'versioned': ('versioned_notifications.info',),
    'both': ('notifications.info', 'versioned_notifications.info'),
}
"""Where each format is heard."""
PATIENCE = 30.0
OWN = ('message_id', 'timestamp', '_unique_id', '_context_timestamp')
"""What is different in each message."""
MEANT = (
    'auth_token',
    'remote_address',
    'timestamp',
    'service_catalog',
    '_enginefacade_context',
)
"""The context in the PCI requests of the legacy format. There nova tells everybody the
user's token, where the user is, and whether it has read a database; we say there what
the message's own context says."""


@dataclass(frozen=True)
class Scheduler:
    """A scheduler, and what it is heard to say."""

    daemon: Daemon
    caller: Caller
    bus: NotificationQueues
    cloud: NovaCloud
    formats: tuple[str, ...]

    def ask(self, arguments):
        """Its answer, or its refusal; and the notifications of it."""
        context = context_of(CALLS['boot']) | {'auth_token': conductor_requests.TOKEN}
        answer = self.caller.select(self.daemon.host, arguments, context)
        found = self.bus.drain() + self._last(context)
        for server in self.cloud.all_allocations():
            self.cloud.placement.release(server)
        return 'places' if isinstance(answer, list) else answer, found

    def _last(self, context):
        """Later notifications, up to those of one more request."""
        marked = {**context, 'request_id': 'req-mark'}
        uuid = '00000000-0000-4000-8000-00000000ffff'
        arguments = conductor_requests.changed(
            'boot', {'instance_uuid': uuid}, instance_uuids=[uuid]
        )
        self.caller.select(self.daemon.host, arguments, marked)
        heard = []

        def done():
            heard.extend(self.bus.drain())
            ends = [
                each
                for each in heard
                if _is_mark(each) and each['event_type'].endswith('end')
            ]
            return len(ends) == len(self.formats)

        wait_until(done, PATIENCE, 'notification of the mark')
        return [each for each in heard if not _is_mark(each)]


def _is_mark(message):
    return message['_context_request_id'] == 'req-mark'


@contextmanager
def schedulers(cloud, form, *commands):
    """One for each command, on one furnished cloud and with the same configuration."""
    conductor_requests.furnish(cloud)
    config = {
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
        'notifications': {'notification_format': form},
        'filter_scheduler': {'enabled_filters': ','.join(conductor_requests.FILTERS)},
        'novasched': {'in_flight_timeout': 0},
    }
    with ExitStack() as stack:
        caller = stack.enter_context(Caller(cloud.config('caller')))
        bus = stack.enter_context(notification_queues(cloud.amqp_url))
        daemons = [
            stack.enter_context(Daemon(cloud, config, command)) for command in commands
        ]
        yield [Scheduler(each, caller, bus, cloud, QUEUES[form]) for each in daemons]


@pytest.fixture(scope='module')
def pair(cloud):
    """nova's and ours."""
    with schedulers(cloud, 'both', [cloud.nova.script('nova-scheduler')], []) as both:
        yield both


@pytest.mark.parametrize('case', conductor_requests.cases('', ''))
def test_both_say_the_same(pair, cloud, case):
    """Field by field, in each format, of requests that are answered and of those that
    are refused: with nothing to say where Placement has no candidates, and no end where
    no host is found. The user's token is in nothing that we say."""
    nova, ours = pair
    cloud.refresh_services()
    arguments = conductor_requests.cases(
        cloud.cell_uuids['cell1'], cloud.cells['cell1'].url
    )[case]
    outcome, expected = nova.ask(copy.deepcopy(arguments))
    answer, found = ours.ask(arguments)
    assert answer == outcome
    assert conductor_requests.TOKEN not in json.dumps(found)
    assert _comparable(found, ours) == _comparable(expected, nova)
    phases = {each['event_type'].rpartition('.')[2] for each in expected}
    if case == 'too much':
        assert phases == set()
    elif 'filtered' in case:
        assert phases == {'start'}
    else:
        assert phases == {'start', 'end'}


@pytest.mark.parametrize('form', ['unversioned', 'versioned'])
def test_one_format_alone(cloud, form):
    """Nothing is said in the other one."""
    with schedulers(cloud, form, []) as [ours]:
        _, found = ours.ask(conductor_requests.changed('boot', {}))
    assert tuple(each['queue'] for each in found) == QUEUES[form] * 2


def _comparable(messages, by):
    """The messages of each queue in order, without what may differ."""
    plain = [
        {name: _plain(value) for name, value in each.items() if name not in OWN}
        for each in messages
    ]
    for each in plain:
        each['publisher_id'] = each['publisher_id'].replace(by.daemon.host, 'HOST')
    return sorted(plain, key=lambda each: each['queue'])


def _plain(value):
    """The same with sets in order, and without what we mean not to say."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _plain(each) for name, each in value.items()}
    if '_changed_fields' in kept:
        kept['_changed_fields'] = sorted(kept['_changed_fields'])
    if isinstance(kept.get('_context'), dict):
        kept['_context'] = {k: v for k, v in kept['_context'].items() if k not in MEANT}
    return kept


def test_nobody_waits_for_the_bus(cloud):
    """A bus that is not there neither fails nor holds up requests, nor the end of the
    process."""
    conductor_requests.furnish(cloud)
    config = {
        'oslo_messaging_notifications': {
            'driver': 'messagingv2',
            'transport_url': f'rabbit://guest:guest@127.0.0.1:{free_port()}/',
        }
    }
    arguments = conductor_requests.changed('boot', {})
    with Caller(cloud.config('caller')) as caller, Daemon(cloud, config) as daemon:
        for _ in range(3):
            answer = caller.select(daemon.host, arguments, context_of(CALLS['boot']))
            assert isinstance(answer, list)
            cloud.placement.release(arguments['instance_uuids'][0])
        assert daemon.stop() == 0
