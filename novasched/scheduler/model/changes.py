# SPDX-License-Identifier: Apache-2.0
"""Versions of a view, and the ids changed between two versions.

The databases give the ids of changed rows. A change log keeps the ids, so there is no
need to compare the objects of two views to find the changes again.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

MAX_STEPS = 1000
"""Versions in a log: at 50 requests/s, those of the last 20 seconds."""
MAX_IDS = 20_000
"""Ids in a log, so that a log takes 2 MiB at most."""

# Shared by all logs: no two views have the same version, so the version of another log,
# or of a branch, is recognised as unknown.
_versions = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The version of a view, and the ids changed in the last steps.

    A view made from a shared view, for a single request, has a branch of the log. The
    branch knows the changes since versions of the shared view. Its own version is
    unknown to all other logs.

    :ivar version: grows from version to version; 0 for a view without versions.
    :ivar steps: the version before a step, and the ids changed in the step, oldest step
        first.
    :ivar number: the number of ids in all steps.
    :ivar is_branch: True for the log of a view for a single request.
    """

    version: int = 0
    steps: tuple[tuple[int, frozenset[str]], ...] = ()
    number: int = 0
    is_branch: bool = False

    def since(self, version: int) -> frozenset[str] | None:
        """Ids that may have changed since a version. All other ids are unchanged.

        :return: None if the log does not know: the version is too old, or of a
            different view. Then everything may have changed.
        """
        if version == self.version != 0:
            return frozenset()
        if not self.steps or version < self.steps[0][0]:
            return None

        changes = []
        for before, ids in reversed(self.steps):
            changes.append(ids)
            if before == version:
                return frozenset().union(*changes)
            if before < version:
                break
        return None

    def with_step(self, ids: Collection[str]) -> 'ChangeLog':
        """The log of the next version of a view, with a change of these ids."""
        version = next(_versions)
        if not self.version:
            return ChangeLog(version)

        steps = (*self.steps, (self.version, frozenset(ids)))
        number = self.number + len(steps[-1][1])
        first = 0
        while number > MAX_IDS or len(steps) - first > MAX_STEPS:
            number -= len(steps[first][1])
            first += 1
        return ChangeLog(version, steps[first:], number)

    def branch(self, ids: Collection[str]) -> 'ChangeLog':
        """The log of a view for a single request, which differs in these ids."""
        log = self
        if ids:
            log = self.with_step(ids)
        return replace(log, is_branch=True)


UNVERSIONED = ChangeLog()
"""The log of a view without versions."""
