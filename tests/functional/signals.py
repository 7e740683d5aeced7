# SPDX-License-Identifier: Apache-2.0
"""Signals to a daemon, and the processes that get them."""

import os
import signal

import psutil

from tests.lab.processes import wait_until

WAIT = 60.0


def workers(daemon):
    """Its child processes: the workers, unless it serves metrics, too."""
    return psutil.Process(daemon.pid).children()


def reload(daemon, said='SIGHUP: reloaded'):
    """SIGHUP; returns when the log says once more what came of it."""
    before = daemon.text().count(said)
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: daemon.text().count(said) > before, WAIT, said)


def report(daemon, pid):
    """The Guru Meditation Report of one of its processes; the configuration ends it."""
    before = len(daemon.text())
    os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: 'report_interval = 1' in daemon.text()[before:], WAIT, 'report')
    return daemon.text()[before:]
