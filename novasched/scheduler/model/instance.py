# SPDX-License-Identifier: Apache-2.0
"""The state of an instance in nova's databases."""

from dataclasses import dataclass

MAX_READ_LAG_S = 5.0
"""Seconds by which a reading of nova's databases may be behind.

nova writes to the primary. Behind a proxy that splits reads from writes, and on a node
of a Galera cluster, a scheduler may read the state of some time ago. nova-api sets the
task of a move 0.1 to 1 s before a scheduler chooses the host, so that with a lag of 0.2
to 2 s the row shows no task yet. 5 s is more than twice the largest of these lags, and
less than most moves take: a move that has failed counts no longer than others."""


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance in nova's databases.

    :ivar building: True until the build has ended.
    :ivar gone: True for a deleted instance, and for an instance in cell0, whose build
        was refused.
    :ivar host: the host of the instance.
    :ivar task: the current task or migration.
    :ivar hosts: the hosts of the resource providers in the question.
    :ivar evacuated_from: the hosts from which the instance was evacuated, and which are
        not back yet. The allocations on these hosts belong to the instance.
    """

    building: bool = False
    gone: bool = False
    host: str | None = None
    task: str | None = None
    hosts: frozenset[str] = frozenset()
    evacuated_from: frozenset[str] = frozenset()
