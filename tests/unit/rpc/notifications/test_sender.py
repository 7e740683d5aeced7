# SPDX-License-Identifier: Apache-2.0
import threading
from dataclasses import replace

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.rpc.notifications import sender
from novasched.rpc.notifications.sender import QueuedNotifier, make_notifier
from novasched.scheduler.model.request import Origin
from tests.lab.builders import a_request
from tests.unit.rpc.test_server import a_conf

REQUEST = replace(a_request(), origin=Origin(None, None))
PATIENCE = 30


class Listener:
    """Receives notifications when ``listens`` is set. The first notification fails."""

    def __init__(self):
        self.heard = []
        self.listens = threading.Event()
        self.busy = threading.Event()

    def __call__(self, notification):
        self.busy.set()
        self.listens.wait(PATIENCE)
        self.heard.append(notification.phase)
        if len(self.heard) == 1:
            raise KeyError('the first one')


def test_notifications_are_sent_in_order_despite_a_failure(caplog):
    """A failed notification is logged, and the rest is sent until the end."""
    listener = Listener()
    listener.listens.set()
    notifier = QueuedNotifier(listener)
    notifier.started(REQUEST)
    notifier.ended(REQUEST, [])
    notifier.started(REQUEST)
    notifier.close()
    assert listener.heard == ['start', 'end', 'start']
    assert 'Cannot send notification scheduler.select_destinations.start' in caplog.text


def test_excess_notifications_are_dropped_while_the_bus_is_stuck(monkeypatch, caplog):
    """Beyond the maximum number, waiting notifications are dropped with a warning."""
    monkeypatch.setattr(sender, 'MAX_WAITING_NOTIFICATIONS', 2)
    listener = Listener()
    notifier = QueuedNotifier(listener)
    notifier.started(REQUEST)
    assert listener.busy.wait(PATIENCE)
    for _ in range(5):
        notifier.started(REQUEST)
    assert caplog.text.count('dropped') == 3
    assert notifier.dropped == 3
    listener.listens.set()
    notifier.started(REQUEST)
    notifier.close()


def test_a_request_of_unknown_origin_has_no_notification():
    """A request without a message has no notification, and starts no thread."""
    notifier = QueuedNotifier(Listener())
    notifier.started(a_request())
    notifier.ended(a_request(), [])
    assert notifier._queue._thread is None
    notifier.close()


@pytest.mark.parametrize(
    'lines',
    [
        (),
        ('[oslo_messaging_notifications]', 'driver = noop'),
        ('[notifications]', 'notification_format = both'),
    ],
)
def test_no_notifier_is_made_without_a_driver_or_with_noop(tmp_path, lines):
    """The default driver is noop: no notifier is made, in no format."""
    conf = a_conf(tmp_path, *lines)
    assert make_notifier(conf, loading.service_settings(conf)) is None


def test_a_bad_url_of_notifications_is_not_shown_in_the_error(tmp_path):
    """The error has the option and not the value."""
    section = '[oslo_messaging_notifications]'
    conf = a_conf(
        tmp_path, section, 'driver = messagingv2', 'transport_url = x://u:secret@h'
    )
    with pytest.raises(ConfigError) as caught:
        make_notifier(conf, loading.service_settings(conf))
    assert 'secret' not in str(caught.value)
    assert section in str(caught.value)
