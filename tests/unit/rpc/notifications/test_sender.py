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


class Crowd:
    """Hears notices, and can be made deaf for a while, or to cry."""

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


def test_sent_in_order_and_to_the_end(caplog):
    """One that cannot be sent is logged and stops no other; closing sends the rest."""
    crowd = Crowd()
    crowd.listens.set()
    notices = QueuedNotifier(crowd)
    notices.started(REQUEST)
    notices.ended(REQUEST, [])
    notices.started(REQUEST)
    notices.close()
    assert crowd.heard == ['start', 'end', 'start']
    assert 'Cannot send notification scheduler.select_destinations.start' in caplog.text


def test_nobody_waits_for_a_bus_that_is_stuck(monkeypatch, caplog):
    """Notices wait up to a number; more are dropped with a warning."""
    monkeypatch.setattr(sender, 'MAX_WAITING_NOTIFICATIONS', 2)
    crowd = Crowd()
    notices = QueuedNotifier(crowd)
    notices.started(REQUEST)
    assert crowd.busy.wait(PATIENCE)
    for _ in range(5):
        notices.started(REQUEST)
    assert caplog.text.count('dropped') == 3
    assert notices.dropped == 3
    crowd.listens.set()
    notices.started(REQUEST)
    notices.close()


def test_requests_of_unknown_origin():
    """A request that came over no wire has nothing to tell, and starts no thread."""
    notices = QueuedNotifier(Crowd())
    notices.started(a_request())
    notices.ended(a_request(), [])
    assert notices._queue._thread is None
    notices.close()


@pytest.mark.parametrize(
    'lines',
    [
        (),
        ('[oslo_messaging_notifications]', 'driver = noop'),
        ('[notifications]', 'notification_format = both'),
    ],
)
def test_silent_unless_a_driver_is_named(tmp_path, lines):
    """The default driver is noop, whatever the format: nothing is built."""
    conf = a_conf(tmp_path, *lines)
    assert make_notifier(conf, loading.service_settings(conf)) is None


def test_a_bad_url_is_not_shown(tmp_path):
    """The error says where to look, and not what is there."""
    section = '[oslo_messaging_notifications]'
    conf = a_conf(
        tmp_path, section, 'driver = messagingv2', 'transport_url = x://u:secret@h'
    )
    with pytest.raises(ConfigError) as caught:
        make_notifier(conf, loading.service_settings(conf))
    assert 'secret' not in str(caught.value)
    assert section in str(caught.value)
