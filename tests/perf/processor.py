# SPDX-License-Identifier: Apache-2.0
"""Measure the processor time of requests: ``python -m tests.perf.processor``.

Each process of a small installation takes processor time for a request: the scheduler,
Placement, MariaDB and RabbitMQ, all on this machine. The script prints milliseconds of
processor time a request by process, and the share of Placement's time that the
scheduler's questions take. Another row has the processor time of a scheduler without
requests.

With ``--schedulers``, several schedulers serve the cloud by their common queue, and
their processor time is added up.

With ``--beside``, another version of novasched serves the same cloud in turn with this
version: figures of one run can be compared also on a busy machine. The exit status is 1
if a bound is missed.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import median

import pytest

from tests.lab.daemon import Daemon
from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import large_cloud
from tests.lab.large_cloud_requests import KINDS, STREAMED, Kind
from tests.lab.processes import Failed
from tests.lab.results import Bound, at, missed_of, processor_s, resident
from tests.lab.rpc_load import Caller
from tests.lab.tables import Sheet, add_outputs, numbers, publish, teller
from tests.perf.callers import Bare, PlacementLog, Scheduler

THIS = 'this version'
OTHER = 'beside'
OURS = 'novasched'
"""The name of the scheduler among the processes."""
MARIADB = 'MariaDB'
PROCESSES = (OURS, 'Placement', MARIADB, 'RabbitMQ')
NAMES = (THIS, OTHER)
TURNS = 2
"""Turns of each version under each load."""
QUESTIONS = 5
"""Repetitions of a question to Placement."""
WARM_S = 0.5
SETTLED_S = 10.0
"""Seconds without requests before the processor time of an idle scheduler counts."""
IDLE_S = 60.0
TO_OTHER = 1.05
"""Bound of the 95th percentile, relative to the other version."""
MIB = 2**20


@dataclass(frozen=True)
class Load:
    """The requests of clients, a request of a client after the other.

    :ivar limits: the maximum processor time of a request in milliseconds, by process.
    :ivar questions: the maximum of Placement for the scheduler's questions.
    :ivar faster: the minimum rate, relative to the other version.
    """

    title: str
    clients: int
    kinds: Sequence[Kind]
    limits: dict[str, float]
    questions: float | None = None
    faster: float | None = None


LOADS = (
    Load('one client', 1, [KINDS['plain']], {OURS: 15, MARIADB: 10}),
    Load('16 clients, four flavors', 16, STREAMED, {OURS: 6, MARIADB: 3}, 2, 1.15),
    Load('64 clients, one flavor', 64, [KINDS['plain']], {OURS: 6}, faster=1.3),
)
IDLE_LIMITS = {10_000: 1.0}
"""The maximum share of a core of each idle scheduler in percent, by number of hosts."""
MEMORY_LIMITS = {50_000: 900.0}
"""The maximum resident memory in MiB, by number of hosts."""


@dataclass(frozen=True)
class Figures:
    """The figures of a version under a load; the sum of the figures of its turns.

    :ivar seconds: the processor time by process.
    :ivar questions: the processor time of Placement for the scheduler's questions.
    :ivar times: seconds of each request.
    :ivar lasted: seconds of all turns.
    """

    seconds: Counter[str] = field(default_factory=Counter)
    questions: float = 0.0
    times: Sequence[float] = ()
    lasted: float = 0.0

    def __add__(self, turn):
        return Figures(
            self.seconds + turn.seconds,
            self.questions + turn.questions,
            [*self.times, *turn.times],
            self.lasted + turn.lasted,
        )

    def each(self, seconds):
        """Milliseconds a request."""
        return seconds / len(self.times) * 1e3

    @property
    def pace(self):
        """Requests a second."""
        return len(self.times) / self.lasted


@dataclass(frozen=True)
class Served:
    """Schedulers of a version that serve the cloud.

    :ivar common: calls the schedulers by their common queue.
    :ivar started: seconds from the start of each scheduler to its first answer.
    """

    daemons: Sequence[Daemon]
    common: Scheduler
    started: Sequence[float]

    @property
    def memory(self):
        """MiB of the scheduler that has most."""
        return max(resident(daemon.pid) for daemon in self.daemons) / MIB


class Bench:
    """The versions in a cloud, and their figures.

    :param schedulers: the number of schedulers that serve at the same time.
    """

    def __init__(self, cloud, caller, schedulers, tell):
        self.cloud = cloud
        self.schedulers = schedulers
        self.bare = Bare(cloud.placement_url)
        self.caller = caller
        self.log = PlacementLog(cloud.placement_process.log)
        self.tell = tell

    @contextmanager
    def serving(self, command):
        """Schedulers of a version that serve alone while the context lasts: schedulers
        of a cloud tell each other of their claims."""
        daemons = []
        started = []
        with ExitStack() as stack:
            for _ in range(self.schedulers):
                daemon = Daemon(self.cloud, config(fallback=False), command)
                scheduler = Scheduler(daemon, self.caller, self.bare, self.log)
                began = time.monotonic()
                stack.enter_context(daemon)
                scheduler.place('plain')
                started.append(time.monotonic() - began)
                # The first requests have costs of the start.
                for kind in (KINDS['plain'], *STREAMED):
                    scheduler.stream(1, WARM_S, [kind])
                daemons.append(daemon)
            yield Served(daemons, replace(scheduler, is_shared=True), started)

    def turn(self, served, load, seconds):
        """The figures of schedulers while clients send requests."""
        before = self._seconds(served)
        with served.common.streaming(load.clients, seconds, load.kinds) as stream:
            # Before the claims are deleted, which takes time of Placement.
            spent = self._seconds(served) - before

        questions = 0.0
        for path, number in Counter(stream.paths).items():
            questions += number * self._cost(path)
        return Figures(spent, questions, stream.times, stream.lasted)

    def idle(self, served):
        """The share of a core by process, in percent, while no request comes."""
        time.sleep(SETTLED_S)
        before = self._seconds(served)
        began = time.monotonic()
        time.sleep(IDLE_S)
        after = self._seconds(served)
        lasted = time.monotonic() - began
        return {name: (after[name] - before[name]) / lasted * 100 for name in after}

    def _cost(self, path):
        """Seconds of Placement's processor time for a question."""
        leader = self.cloud.placement_process.pid
        before = processor_s(leader)
        for _ in range(QUESTIONS):
            self.bare.send('GET', path)
        return (processor_s(leader) - before) / QUESTIONS

    def _seconds(self, served):
        """The processor time of each process so far, by name."""
        seconds = Counter[str]()
        for daemon in served.daemons:
            seconds[OURS] += processor_s(daemon.pid)
        for name, server in self.cloud.servers.items():
            seconds[name] = processor_s(server.pid)
        return seconds


class Report:
    """The rows of the table, and the bounds."""

    def __init__(self, tell):
        self.rows: list[list[str]] = []
        self.bounds: list[Bound] = []
        self.figures: list[dict[str, object]] = []
        self._tell = tell

    def add(self, hosts, title, what, values, *bounds):
        """Add a row.

        :param values: the figure by version.
        """
        row = [f'{hosts:,}', title, what]
        row += [f'{values[name]:.3g}' if name in values else '' for name in NAMES]
        row.append('\n'.join(map(str, bounds)))
        self._tell('  '.join(filter(None, row)))
        self.rows.append(row)
        self.bounds += bounds
        self.figures.append(
            {
                'hosts': hosts,
                'load': title,
                'what': what,
                **values,
                'bounds': [asdict(bound) for bound in bounds],
            }
        )

    def of_load(self, hosts, load, by_version):
        """Add the rows of a load."""
        for process in PROCESSES:
            values = {
                version: figures.each(figures.seconds[process])
                for version, figures in by_version.items()
            }
            what = f'{process}, ms a request'
            self.add(hosts, load.title, what, values, *_limit(values, process, load))

        values = {
            version: figures.each(figures.questions)
            for version, figures in by_version.items()
        }
        bounds = []
        if load.questions is not None:
            bounds.append(Bound(values[THIS], '≤', load.questions))
        what = 'of Placement, for questions'
        self.add(hosts, load.title, what, values, *bounds)

        paces = {version: figures.pace for version, figures in by_version.items()}
        bounds = []
        if OTHER in paces and load.faster is not None:
            factor = paces[THIS] / paces[OTHER]
            bounds.append(Bound(factor, '≥', load.faster, 'x beside'))
        self.add(hosts, load.title, 'requests/s', paces, *bounds)

        for share in (50, 95):
            values = {
                version: at(figures.times, share) * 1e3
                for version, figures in by_version.items()
            }
            bounds = []
            if OTHER in values and share == 95:
                factor = values[THIS] / values[OTHER]
                bounds.append(Bound(factor, '≤', TO_OTHER, 'x beside'))
            self.add(hosts, load.title, f'p{share}, ms', values, *bounds)


def _limit(values, process, load):
    """The bound of a process under a load, if there is one."""
    if process not in load.limits:
        return []
    return [Bound(values[THIS], '≤', load.limits[process])]


def measure(bench, hosts, chosen, report):
    """Add the rows of a number of hosts."""
    computes = large_cloud(hosts, (), [*bench.cloud.cells])
    bench.tell(f'{hosts:,} hosts: filling the databases')
    bench.cloud.grow(computes, chosen.instances)
    commands = {THIS: []}
    if chosen.beside:
        commands[OTHER] = [chosen.beside]

    memory: dict[str, float] = {}
    starts: dict[str, list[float]] = {version: [] for version in commands}
    for load in LOADS:
        by_version = {version: Figures() for version in commands}
        for _ in range(TURNS):
            for version, command in commands.items():
                bench.tell(f'{load.title}: {version}')
                with bench.serving(command) as served:
                    seconds = chosen.seconds / TURNS
                    by_version[version] += bench.turn(served, load, seconds)
                    memory[version] = served.memory
                    starts[version] += served.started
        report.of_load(hosts, load, by_version)

    seconds_of_start = {version: median(starts[version]) for version in commands}
    report.add(hosts, 'start', 's to the first answer', seconds_of_start)
    bounds = []
    if hosts in MEMORY_LIMITS:
        bounds.append(Bound(memory[THIS], '≤', MEMORY_LIMITS[hosts]))
    report.add(hosts, 'after the last load', 'memory, MiB', memory, *bounds)

    shares = {}
    for version, command in commands.items():
        bench.tell(f'idle: {version}')
        with bench.serving(command) as served:
            shares[version] = bench.idle(served)
    for process in PROCESSES:
        values = {version: shares[version][process] for version in shares}
        bounds = []
        if process == OURS and hosts in IDLE_LIMITS:
            limit = IDLE_LIMITS[hosts] * chosen.schedulers
            bounds.append(Bound(values[THIS], '≤', limit))
        report.add(hosts, 'idle', f'{process}, % of a core', values, *bounds)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        'python -m tests.perf.processor', description=__doc__
    )
    parser.add_argument(
        '--hosts', type=numbers, default=(5_000, 10_000), help='with commas'
    )
    parser.add_argument('--instances', type=int, default=20, help='on each host')
    parser.add_argument('--cells', type=int, default=2, help='that the hosts are in')
    parser.add_argument(
        '--schedulers', type=int, default=1, help='that serve the cloud together'
    )
    parser.add_argument(
        '--seconds', type=float, default=60.0, help='of each load and version'
    )
    parser.add_argument('--beside', help='the command novasched of another version')
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    tell = teller()
    report = Report(tell)
    cells = [f'cell{i + 1}' for i in range(chosen.cells)]
    try:
        with cloud(cells=cells) as made, Caller(made.config('conductor')) as caller:
            bench = Bench(made, caller, chosen.schedulers, tell)
            for hosts in chosen.hosts:
                measure(bench, hosts, chosen, report)
    except (pytest.fail.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    columns = ('hosts', 'load', 'what', *NAMES, 'bound')
    publish(
        chosen,
        [Sheet('Processor time', columns, report.rows, words=3)],
        {'processor': report.figures},
    )
    return int(missed_of(report.bounds) > 0)


if __name__ == '__main__':
    sys.exit(main())
