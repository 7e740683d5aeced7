# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl sandbox`` at work: start a cloud, boot servers, check, show."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from novasched.sandbox import report
from novasched.sandbox.cloud import Sandbox
from novasched.sandbox.machines import varied

CONFIRMED, NOT_CONFIRMED = 0, 1
LOG_FORMAT = '%(asctime)s %(levelname)s %(name)s %(message)s'
LOGGERS = ('nova', 'novasched')


def run(arguments: argparse.Namespace) -> int:
    """See :func:`novasched.sandbox.command.run`."""
    _log(arguments.verbose)
    console = Console()
    random = Random(arguments.seed)
    machines = varied(arguments.hosts, random)
    quiet = arguments.verbose or arguments.format == 'json' or not console.is_terminal
    with _terminable(), _progress(console, quiet) as progress:
        task = progress.add_task('Starting', total=arguments.servers)
        with Sandbox(machines, random=random) as cloud:
            progress.update(task, description='Booting servers')
            for booted in _boots(cloud, arguments, random):
                progress.advance(task, booted)
            progress.update(task, description='Asking Placement')
            result = report.of(cloud.machines, cloud.boots, cloud.problems())
    if arguments.format == 'json':
        print(json.dumps(result, indent=2))
    else:
        report.show(result, console)
    return NOT_CONFIRMED if result['problems'] else CONFIRMED


def _boots(cloud: Sandbox, arguments: argparse.Namespace, random: Random) -> Iterator[int]:
    """Ask for all servers; yields how many were asked for at once."""
    group = cloud.group(arguments.policy) if arguments.policy else None
    left = arguments.servers
    while left:
        count = min(arguments.multi, left)
        flavor = random.choice(arguments.flavors)
        cloud.boot(flavor, count, zone=arguments.az, group=group)
        left -= count
        yield count


def _progress(console: Console, quiet: bool) -> Progress:
    return Progress(
        TextColumn('{task.description}'),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet,
    )


def _log(verbose: bool) -> None:
    """Warnings on standard error; everything that the services log when asked."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, handlers=[_StandardError()])
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.NOTSET)


class _StandardError(logging.Handler):
    """Writes to what is standard error at the time: the progress bar replaces it, to
    make room for such lines."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the program as an exception does, so that nothing is left behind."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
