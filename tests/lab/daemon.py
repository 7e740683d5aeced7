# SPDX-License-Identifier: Apache-2.0
"""A scheduler in a process of its own: the daemon's console script, or nova's; and its check."""

import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from . import broker
from .nova_cloud import NovaCloud
from .nova_release import ENVIRONMENT, Config
from .processes import START, Forked, Process, Service

SCHEDULER_VARIABLE = 'NOVASCHED_TEST_SCHEDULER'
MODULE = 'novasched.cmd.novasched'
CHECKED_AREAS = ('databases', 'Placement', 'RabbitMQ')


def command_line() -> list[str]:
    """The scheduler under test: the installed console script, or what the environment names
    (for instance nova's own nova-scheduler, to prove the tests)."""
    named = os.environ.get(SCHEDULER_VARIABLE)
    return shlex.split(named) if named else [str(Path(sys.executable).parent / 'novasched')]


def is_reference() -> bool:
    """Whether the scheduler under test is nova's own."""
    return Path(command_line()[0]).name == 'nova-scheduler'


class Daemon(Service):
    """A scheduler of this cloud under a host name that no other one ever had."""

    forked: ClassVar[bool] = False
    """Whether those of no particular command or environment are forks of a process that has
    imported the program, and not started by the console script."""

    def __init__(
        self,
        cloud: NovaCloud,
        overrides: Config | None = None,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # A name of its own: the consumer that a killed one leaves behind for a while
        # cannot be taken for this one.
        self.host = f'sched-{secrets.token_hex(4)}'
        self.config = cloud.config(self.host, overrides)
        self.log = self.config.with_suffix('.log')
        self._amqp_url = cloud.amqp_url
        self._command = [*(command or command_line()), '--config-file', str(self.config)]
        self._environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        named = command or environment or SCHEDULER_VARIABLE in os.environ
        self._by_fork = self.forked and not named

    def text(self) -> str:
        return self.log.read_text(errors='replace')

    def start(self) -> None:
        """Start it; returns when it consumes the queue of its own host name, which it does
        after the common one."""
        process = self.launch()
        queue = f'{broker.TOPIC}.{self.host}'
        process.ready(
            lambda: broker.consumers(self._amqp_url, queue) > 0, START, f'consumer of {queue}'
        )

    def launch(self) -> Process:
        # Captured by pytest, and shown with a test that fails.
        print(f'log of {self.host}: {self.log}')
        if self._by_fork:
            self._process = Forked(MODULE, self._command, self.log, env=self._environment)
        else:
            self._process = Process(self._command, self.log, env=self._environment)
        return self._process

    def run_to_end(self, seconds: float = START) -> int:
        """Start it and return the exit status with which it gives up by itself."""
        process = self.launch()
        try:
            return process.wait(seconds)
        finally:
            process.kill()

    def wait(self, seconds: float = START) -> int:
        """Its exit status, when it ends by itself."""
        return self.process.wait(seconds)


def checked(config: Path) -> dict[str, tuple[str, str]]:
    """What ``novaschedctl check`` says of the servers that a nova.conf names, {subject: (level, text)}."""
    command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'check']
    done = subprocess.run(
        [*command, '--config-file', str(config), '--format', 'json', '--timeout', '60'],
        capture_output=True,
        text=True,
    )
    return {
        each['subject']: (each['level'], each['text'])
        for each in json.loads(done.stdout)['findings']
        if each['area'] in CHECKED_AREAS
    }
