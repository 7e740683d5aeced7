# SPDX-License-Identifier: Apache-2.0
"""What the unit in ``etc/systemd`` relies on."""

from __future__ import annotations

import socket

import pytest

from tests.lab.daemon import START, Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler has a unit of its own')


def test_systemd_is_told_when_the_daemon_is_ready(cloud: NovaCloud, directory) -> None:
    """Type=notify: READY comes once what an operator has to mend has been looked at."""
    path = directory / 'notify'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(path))
        notified.settimeout(START)
        daemon = Daemon(cloud, environment={'NOTIFY_SOCKET': str(path)})
        try:
            daemon.launch()
            assert b'READY=1' in notified.recv(1024)
        finally:
            daemon.close()


def test_systemd_is_told_nothing_of_a_daemon_that_cannot_run(cloud: NovaCloud, directory) -> None:
    """A mistake in the configuration fails the start of the unit."""
    path = directory / 'never'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(path))
        notified.setblocking(False)
        daemon = Daemon(
            cloud,
            {'filter_scheduler': {'enabled_filters': 'NoSuchFilter'}},
            environment={'NOTIFY_SOCKET': str(path)},
        )
        assert daemon.run_to_end() == 1
        with pytest.raises(BlockingIOError):
            notified.recv(1024)
