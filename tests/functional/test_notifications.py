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
"""The queues of a notification format."""
PATIENCE = 30.0
OWN = ('message_id', 'timestamp', '_unique_id', '_context_timestamp')
"""Fields whose values differ between two messages."""
MEANT = (
    'auth_token',
    'remote_address',
    'timestamp',
    'service_catalog',
    '_enginefacade_context',
)
"""Fields of the context in the PCI requests of the legacy format. nova publishes the
user's token and address there, and whether the context has read a database; novasched
publishes the same fields as in the message's context."""


@dataclass(frozen=True)
class Scheduler:
    """A scheduler, and the bus where its notifications arrive."""

    daemon: Daemon
    caller: Caller
    bus: NotificationQueues
    cloud: NovaCloud
    formats: tuple[str, ...]

    def ask(self, arguments):
        """The scheduler's answer or refusal, and its notifications.

        :returns: 'places' or the refusal; and the list of notifications.
        """
        context = context_of(CALLS['boot']) | {'auth_token': conductor_requests.TOKEN}
        answer = self.caller.select(self.daemon.host, arguments, context)
        notifications = self.bus.drain() + self._later_notifications(context)

        for server in self.cloud.all_allocations():
            self.cloud.placement.release(server)
        outcome = 'places' if isinstance(answer, list) else answer
        return outcome, notifications

    def _later_notifications(self, context):
        """Notifications before the notifications of a marked request, which comes
        after the request under test."""
        marked = {**context, 'request_id': 'req-mark'}
        uuid = '00000000-0000-4000-8000-00000000ffff'
        arguments = conductor_requests.changed(
            'boot', {'instance_uuid': uuid}, instance_uuids=[uuid]
        )
        self.caller.select(self.daemon.host, arguments, marked)
        messages = []

        def mark_has_ended():
            """True once every format has brought the end of the marked request."""
            messages.extend(self.bus.drain())
            ends = 0
            for message in messages:
                if _is_mark(message) and message['event_type'].endswith('end'):
                    ends += 1
            return ends == len(self.formats)

        wait_until(mark_has_ended, PATIENCE, 'notification of the mark')
        return [message for message in messages if not _is_mark(message)]


def _is_mark(message):
    return message['_context_request_id'] == 'req-mark'


@contextmanager
def schedulers(cloud, form, *commands):
    """A scheduler for every command, on the same furnished cloud and with the same
    configuration."""
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
        running = []
        for command in commands:
            daemon = stack.enter_context(Daemon(cloud, config, command))
            running.append(Scheduler(daemon, caller, bus, cloud, QUEUES[form]))
        yield running


@pytest.fixture(scope='module')
def pair(cloud):
    """nova-scheduler and novasched."""
    with schedulers(cloud, 'both', [cloud.nova.script('nova-scheduler')], []) as both:
        yield both


@pytest.mark.parametrize('case', conductor_requests.cases('', ''))
def test_nova_scheduler_and_novasched_send_the_same_notifications(pair, cloud, case):
    """Both schedulers send the same notifications, field by field and in both formats,
    for requests that are answered and for requests that are refused. No notification is
    sent if Placement has no candidates, and no end if no host is found. The
    notifications of novasched do not contain the user's token."""
    nova, ours = pair
    cloud.refresh_services()
    arguments = conductor_requests.cases(
        cloud.cell_uuids['cell1'], cloud.cells['cell1'].url
    )[case]

    expected_outcome, expected = nova.ask(copy.deepcopy(arguments))
    outcome, notifications = ours.ask(arguments)

    assert outcome == expected_outcome
    assert conductor_requests.TOKEN not in json.dumps(notifications)
    assert _comparable(notifications, ours) == _comparable(expected, nova)

    phases = {message['event_type'].rpartition('.')[2] for message in expected}
    if case == 'too much':
        assert phases == set()
    elif 'filtered' in case:
        assert phases == {'start'}
    else:
        assert phases == {'start', 'end'}


@pytest.mark.parametrize('form', ['unversioned', 'versioned'])
def test_notifications_have_the_configured_format_only(cloud, form):
    """The scheduler sends notifications in the configured format only."""
    with schedulers(cloud, form, []) as [ours]:
        _, notifications = ours.ask(conductor_requests.changed('boot', {}))
    queues = tuple(message['queue'] for message in notifications)
    assert queues == QUEUES[form] * 2


def _comparable(messages, scheduler):
    """The messages of every queue in order, without the fields that may differ."""
    comparable = []
    for message in messages:
        plain = {k: _plain(v) for k, v in message.items() if k not in OWN}
        publisher = plain['publisher_id']
        plain['publisher_id'] = publisher.replace(scheduler.daemon.host, 'HOST')
        comparable.append(plain)
    return sorted(comparable, key=lambda message: message['queue'])


def _plain(value):
    """The value with sets in order, and without the fields that novasched omits."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value

    plain = {name: _plain(item) for name, item in value.items()}
    if '_changed_fields' in plain:
        plain['_changed_fields'] = sorted(plain['_changed_fields'])
    context = plain.get('_context')
    if isinstance(context, dict):
        plain['_context'] = {k: v for k, v in context.items() if k not in MEANT}
    return plain


def test_requests_are_answered_without_a_notification_bus(cloud):
    """Without a notification bus, requests are answered and the process ends as usual,
    without waiting."""
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
