# SPDX-License-Identifier: Apache-2.0
"""The state of an instance in nova's databases."""

from dataclasses import dataclass


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
