# SPDX-License-Identifier: Apache-2.0
"""Replicas of the databases of a simulation, which may lag behind.

nova-api, nova-conductor and nova-compute write to the primary databases. Schedulers read
from replicas, as behind a proxy that splits reads from writes. A replica gets each
commit of a primary database after the lag of the replica, in the order of the commits.

A scheduler that is near a node of a cluster reads from one replica. A scheduler behind a
balancer has connections to several replicas, so that its next reading may be older than
its last one.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa

from tests.simulation.loop import WORLD, Loop

REPLICAS = 2
"""Number of replicas of each database."""


@dataclass(frozen=True)
class Commit:
    """A commit of a primary database.

    :ivar at: when the commit was made.
    :ivar statements: statements with their parameters.
    """

    at: float
    statements: Sequence[tuple[str, Any]]


@dataclass
class Replica:
    """A replica of a database.

    :ivar lag_s: seconds by which the replica is behind the database.
    :ivar done: the number of the commits that the replica has.
    """

    path: str
    connection: sqlite3.Connection
    lag_s: float = 0.0
    done: int = 0


@dataclass
class Replicas:
    """The replicas of all databases, which are named as their files."""

    loop: Loop
    _commits: dict[str, list[Commit]] = field(default_factory=dict)
    _replicas: dict[str, list[Replica]] = field(default_factory=dict)
    # The replicas that serve the connections of each process.
    _numbers: dict[str, Sequence[int]] = field(default_factory=dict)

    def follow(self, databases: Mapping[str, sa.Engine]) -> None:
        """Copy the primary databases, and take all commits from now on."""
        for name, engine in databases.items():
            self._commits[name] = []
            self._replicas[name] = []
            for number in range(REPLICAS):
                self._replicas[name].append(_copy(engine, number))
            self._record(name, engine)

    def begin_lag(self, random: Random, longest_s: float) -> None:
        """Let each replica be behind by some seconds from now on."""
        for replicas in self._replicas.values():
            for replica in replicas:
                replica.lag_s = random.uniform(0, longest_s)

    def end_lag(self) -> None:
        """Let no replica be behind from now on."""
        for replicas in self._replicas.values():
            for replica in replicas:
                replica.lag_s = 0.0

    def _record(self, name: str, engine: sa.Engine) -> None:
        """Record the commits of a primary database."""
        statements: list[tuple[str, Any]] = []

        def execute(
            connection: sa.Connection,
            cursor: Any,
            statement: str,
            parameters: Any,
            context: Any,
            is_many: bool,
        ) -> None:
            if context.isinsert or context.isupdate or context.isdelete:
                for values in parameters if is_many else [parameters]:
                    statements.append((statement, values))

        def commit(connection: sa.Connection) -> None:
            if statements:
                self._commits[name].append(Commit(self.loop.now, [*statements]))
                statements.clear()

        sa.event.listen(engine, 'after_cursor_execute', execute)
        sa.event.listen(engine, 'commit', commit)
        sa.event.listen(engine, 'rollback', lambda connection: statements.clear())

    def connect(self, dialect: Any, record: Any, arguments: Any, options: Any) -> Any:
        """Connect a process to a replica in place of the primary database."""
        name = Path(arguments[0]).stem
        owner = self.loop.owner
        if owner == WORLD or name not in self._replicas:
            return None
        random = self.loop.random
        if owner not in self._numbers:
            count = random.randint(1, REPLICAS)
            self._numbers[owner] = random.sample(range(REPLICAS), count)
        replica = self._replicas[name][random.choice(self._numbers[owner])]
        return dialect.connect(replica.path, **options)

    def catch_up(self, name: str) -> None:
        """Bring the replicas of a database up to date, less their lags."""
        commits = self._commits.get(name, [])
        for replica in self._replicas.get(name, ()):
            moment = self.loop.now - replica.lag_s
            first = replica.done
            while replica.done < len(commits) and commits[replica.done].at <= moment:
                for statement, values in commits[replica.done].statements:
                    replica.connection.execute(statement, values)
                replica.done += 1
            if replica.done > first:
                replica.connection.commit()


def _copy(engine: sa.Engine, number: int) -> Replica:
    """A copy of a database."""
    path = f'{engine.url.database}-{number}'
    connection = sqlite3.connect(path)
    with engine.connect() as source:
        source.connection.driver_connection.backup(connection)
    connection.execute('PRAGMA journal_mode = WAL')
    connection.execute('PRAGMA synchronous = OFF')
    return Replica(path, connection)
