# SPDX-License-Identifier: Apache-2.0
"""Helpers that send signals to a daemon and find its processes."""

import os
import signal

import psutil

from tests.lab.processes import wait_until

WAIT = 60.0


def workers(daemon):
    """The child processes of the daemon: the workers, and the metrics server if there
    is one."""
    return psutil.Process(daemon.pid).children()


def reload(daemon, said='SIGHUP: reloaded'):
    """Send SIGHUP; returns when the log has one more line with the text."""
    before = daemon.text().count(said)
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: daemon.text().count(said) > before, WAIT, said)


def report(daemon, pid):
    """The Guru Meditation Report of a process of the daemon. The report ends with the
    configuration."""
    before = len(daemon.text())
    os.kill(pid, signal.SIGUSR2)
    # The last option of the configuration.
    wait_until(lambda: 'report_interval = 1' in daemon.text()[before:], WAIT, 'report')
    return daemon.text()[before:]
