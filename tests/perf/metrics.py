# SPDX-License-Identifier: Apache-2.0
"""What metrics cost, and what a flood at their port does: ``python -m tests.perf.metrics``.

Two daemons with RabbitMQ, MariaDB and Placement, one of them with ``[novasched] metrics_bind``,
are asked for a server again and again: in turn without metrics, with them, and with them while
thousands of HTTP requests, garbage and connections that never ask come to the port. The flood
comes from a process of the lowest priority on the same machine. What such a process costs whatever
it talks to is seen when it talks to a port on which nobody listens. Prints milliseconds of
requests, and how often something was sent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
from tests.lab.daemon import Daemon
from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import large_cloud
from tests.lab.processes import free_port
from tests.lab.results import at
from tests.lab.steady import Caller
from tests.lab.tables import Sheet, show

OFF, ON = 'metrics off', 'metrics on'
ELSEWHERE, FLOODED = 'metrics on, a flood to nobody', 'metrics on, a flood to them'
ROUNDS = 5
WARM = 10  # requests that are not measured


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser('python -m tests.perf.metrics', description=__doc__)
    parser.add_argument('--hosts', type=int, default=100)
    parser.add_argument('--requests', type=int, default=200, help='of each kind')
    chosen = parser.parse_args(arguments)
    bind = f'127.0.0.1:{free_port()}'
    with cloud() as made:
        made.grow(large_cloud(chosen.hosts))
        quiet = config(fallback=False)
        loud = {**quiet, 'novasched': {'metrics_bind': bind}}
        with (
            Caller(made.config('caller')) as caller,
            Daemon(made, quiet) as without,
            Daemon(made, loud) as with_them,
        ):
            taken, sent = measure(caller, without, with_them, bind, chosen.requests)
    rows = [
        [how, *(f'{at(seconds, share) * 1e3:.0f}' for share in (50, 95, 100)), f'{sent[how]:,}']
        for how, seconds in taken.items()
    ]
    columns = ('how', 'p50', 'p95', 'longest', 'sent')
    show([Sheet('A request for one server, ms', columns, rows)])
    return 0


def measure(
    caller: Caller, without: Daemon, with_them: Daemon, bind: str, count: int
) -> tuple[dict[str, list[float]], Counter[str]]:
    """Seconds of each request, by how it was asked, and how often floods sent something."""
    taken: dict[str, list[float]] = {OFF: [], ON: [], ELSEWHERE: [], FLOODED: []}
    sent = Counter[str]()
    nobody = f'127.0.0.1:{free_port()}'
    for daemon in (without, with_them):
        batch(caller, daemon, WARM)
    for _ in range(ROUNDS):
        taken[OFF] += batch(caller, without, count // ROUNDS)
        taken[ON] += batch(caller, with_them, count // ROUNDS)
        for how, port in ((ELSEWHERE, nobody), (FLOODED, bind)):
            with flooding(port) as told:
                taken[how] += batch(caller, with_them, count // ROUNDS)
            sent[how] += told[0]
    return taken, sent


def batch(caller: Caller, daemon: Daemon, count: int) -> list[float]:
    answers = [caller.place(server=daemon.host) for _ in range(count)]
    assert [each.error for each in answers if each.error] == []
    return [each.taken for each in answers]


@contextmanager
def flooding(bind: str) -> Iterator[list[int]]:
    """A flood from another process; at the end how much it sent."""
    command = ['nice', '-n', '19', sys.executable, '-m', 'tests.lab.http_flood', bind]
    sent: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == 'begun\n'
        yield sent
        said, _ = child.communicate('enough\n')
        sent.append(int(said))


if __name__ == '__main__':
    sys.exit(main())
