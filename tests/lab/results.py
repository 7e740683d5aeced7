# SPDX-License-Identifier: Apache-2.0
"""Measurements of both schedulers with their bounds, and the costs of a scheduler: its
memory, its processor time and its queries to databases."""

import math
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from statistics import median

import psutil
import sqlalchemy as sa

from tests.lab.tables import Sheet, publish, verdict


@dataclass(frozen=True)
class Bound:
    """A figure with its minimum or maximum."""

    figure: float
    sign: str
    limit: float
    what: str = ''

    @property
    def met(self):
        if self.sign == '≤':
            return self.figure <= self.limit
        return self.figure >= self.limit

    def __str__(self):
        figure = f'{self.figure:.3g} {self.what}'.strip()
        return f'{figure} ({self.sign} {self.limit:g}): {verdict(self.met)}'


@dataclass(frozen=True)
class Row:
    """A row of the table: medians, and the 95th percentile of times.

    :ivar placement: the figure of the same queries to Placement without a scheduler.
    """

    hosts: int
    what: str
    unit: str
    ours: float | None = None
    nova: float | None = None
    placement: float | None = None
    bounds: tuple[Bound, ...] = ()
    ours_p95: float | None = None
    nova_p95: float | None = None

    @classmethod
    def of_times(cls, hosts, what, ours, nova):
        """A row for times in seconds. nova may have no times."""
        return cls(
            hosts,
            what,
            'ms',
            _milliseconds(ours, 50),
            _milliseconds(nova, 50),
            ours_p95=_milliseconds(ours, 95),
            nova_p95=_milliseconds(nova, 95),
        )

    def bounded(self, *bounds):
        """The row with bounds."""
        return replace(self, bounds=bounds)

    def report(self):
        """The row for JSON."""
        bounds = [{**asdict(bound), 'met': bound.met} for bound in self.bounds]
        return {**asdict(self), 'bounds': bounds}

    def texts(self):
        """The cells of the row."""
        return [
            f'{self.hosts:,}',
            self.what,
            self.unit,
            _figure(self.ours),
            _figure(self.ours_p95),
            _figure(self.nova),
            _figure(self.nova_p95),
            _figure(self.placement),
            '\n'.join(map(str, self.bounds)),
        ]


def told(rows, tell):
    """The rows, each told as soon as it is measured."""
    measured = []
    for row in rows:
        measured.append(row)
        tell('  '.join(filter(None, row.texts())))
    return measured


def conclude(chosen, rows, tell):
    """Publish the rows of a measurement; the exit status, which is 1 if a bound is
    missed.

    :param chosen: the options.
    """
    tell('done')
    publish(chosen, [sheet(rows)], {'rows': [row.report() for row in rows]})
    return int(missed(rows) > 0)


def missed(rows):
    """The number of bounds that are missed."""
    number = 0
    for row in rows:
        number += missed_of(row.bounds)
    return number


def missed_of(bounds):
    """The number of these bounds that are missed."""
    return sum(not bound.met for bound in bounds)


def sheet(rows, hosts='hosts'):
    """The table of rows.

    :param hosts: the title of the first column.
    """
    columns = (
        hosts,
        'what',
        'unit',
        'novasched',
        'p95',
        'nova-scheduler',
        'p95',
        'Placement',
        'bound',
    )
    texts = [row.texts() for row in rows]
    return Sheet('novasched and nova-scheduler', columns, texts, words=3)


def at(times, share):
    """A percentile of times; the median for 50."""
    if share == 50:
        return median(times)
    return sorted(times)[math.ceil(len(times) * share / 100) - 1]


def _milliseconds(times, share):
    """A percentile of times in seconds; None without times."""
    if not times:
        return None
    return at(times, share) * 1e3


def _figure(value):
    if value is None:
        return ''
    if value == int(value) or value >= 100:
        return f'{value:,.0f}'
    return f'{value:,.3g}'


SHOWN = 100  # characters of a statement
_NOT_ASKED = ('Connect', 'Quit')


def resident(leader):
    """The resident memory of a process and its descendants, in bytes. Shared pages count
    once (Linux)."""
    total = 0
    main = psutil.Process(leader)
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # the process has ended
            total += process.memory_full_info().pss
    return total


def processor_s(leader):
    """The processor time of a process and its descendants, in seconds, with the
    descendants that have ended."""
    total = 0.0
    main = psutil.Process(leader)
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # its parent counts it from now on
            total += sum(process.cpu_times()[:4])
    return total


class QueryLog:
    """The statements of a database server, except for the statements of Placement.

    :param placement: the URL of Placement's database.
    """

    def __init__(self, placement):
        url = sa.make_url(placement)
        self._engine = sa.create_engine(
            url.set(database=''), isolation_level='AUTOCOMMIT'
        )
        self._placement = url.database

    @contextmanager
    def watch(self):
        """A list that gets the statements of the block at its end."""
        statements: list[str] = []
        with self._engine.connect() as connection:
            own = connection.exec_driver_sql('SELECT CONNECTION_ID()').scalar_one()
            connection.exec_driver_sql("SET GLOBAL log_output = 'TABLE'")
            connection.exec_driver_sql('TRUNCATE mysql.general_log')
            connection.exec_driver_sql('SET GLOBAL general_log = ON')
            try:
                yield statements
            finally:
                connection.exec_driver_sql('SET GLOBAL general_log = OFF')

            excluded = {own, *self._threads(connection)}
            rows = connection.exec_driver_sql(
                'SELECT thread_id, command_type, argument FROM mysql.general_log'
            )
            for thread, command, argument in rows:
                if thread in excluded or command in _NOT_ASKED:
                    continue
                text = ' '.join(argument.split())[:SHOWN]
                statements.append(text or command)

    def _threads(self, connection):
        rows = connection.exec_driver_sql(
            'SELECT id FROM information_schema.processlist WHERE db = %s',
            (self._placement,),
        )
        return list(rows.scalars())
