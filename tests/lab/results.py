# SPDX-License-Identifier: Apache-2.0
"""What was measured of both schedulers, and had to come out; and what a scheduler takes
of the machine: its memory, and its queries to the databases."""

import math
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from statistics import median

import psutil
import sqlalchemy as sa

from tests.lab.tables import Sheet, verdict


@dataclass(frozen=True)
class Bound:
    """A figure, and the least or the most that it may be."""

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
    """A line of the table: medians, and for times what 95 of 100 do not exceed.
    Placement's figure is for the same queries made bare."""

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
        """A line for times in seconds; nova may not have been asked."""
        every = [(share, times) for share in (50, 95) for times in (ours, nova)]
        figures = [at(times, share) * 1e3 if times else None for share, times in every]
        fast, slow, fast_p95, slow_p95 = figures
        return cls(hosts, what, 'ms', fast, slow, ours_p95=fast_p95, nova_p95=slow_p95)

    def bounded(self, *bounds):
        """The line with what has to come out."""
        return replace(self, bounds=bounds)

    def report(self):
        bounds = [{**asdict(bound), 'met': bound.met} for bound in self.bounds]
        return {**asdict(self), 'bounds': bounds}

    def texts(self):
        every = (self.ours, self.ours_p95, self.nova, self.nova_p95, self.placement)
        figures = map(_figure, every)
        bounds = '\n'.join(map(str, self.bounds))
        return [f'{self.hosts:,}', self.what, self.unit, *figures, bounds]


def missed(rows):
    return sum(not bound.met for row in rows for bound in row.bounds)


def sheet(rows, hosts='hosts'):
    columns = (
        *(
            hosts,
            'what',
            'unit',
            'novasched',
            'p95',
            'nova-scheduler',
            'p95',
            'Placement',
        ),
        'bound',
    )
    texts = [row.texts() for row in rows]
    return Sheet('novasched and nova-scheduler', columns, texts, words=3)


def at(times, share):
    """What that share (percent) of the times does not exceed: the median for 50."""
    if share == 50:
        return median(times)
    return sorted(times)[math.ceil(len(times) * share / 100) - 1]


def _figure(value):
    if value is None:
        return ''
    if value == int(value) or value >= 100:
        return f'{value:,.0f}'
    return f'{value:,.3g}'


SHOWN = 100  # characters of a statement
_NOT_ASKED = ('Connect', 'Quit')


def resident(leader):
    """The resident memory in bytes of a process and its descendants; what they share
    with each other counts once (Linux)."""
    found = 0
    main = psutil.Process(leader)
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found += process.memory_full_info().pss
    return found


class QueryLog:
    """The statements that the database server gets, but for those of Placement.

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
        """Fill the list, at the end of the block, with what was asked in it."""
        asked: list[str] = []
        with self._engine.connect() as connection:
            own = connection.exec_driver_sql('SELECT CONNECTION_ID()').scalar_one()
            connection.exec_driver_sql("SET GLOBAL log_output = 'TABLE'")
            connection.exec_driver_sql('TRUNCATE mysql.general_log')
            connection.exec_driver_sql('SET GLOBAL general_log = ON')
            try:
                yield asked
            finally:
                connection.exec_driver_sql('SET GLOBAL general_log = OFF')
            others = {own, *self._threads(connection)}
            rows = connection.exec_driver_sql(
                'SELECT thread_id, command_type, argument FROM mysql.general_log'
            )
            asked.extend(
                ' '.join(argument.split())[:SHOWN] or command
                for thread, command, argument in rows
                if thread not in others and command not in _NOT_ASKED
            )

    def _threads(self, connection):
        rows = connection.exec_driver_sql(
            'SELECT id FROM information_schema.processlist WHERE db = %s',
            (self._placement,),
        )
        return list(rows.scalars())
