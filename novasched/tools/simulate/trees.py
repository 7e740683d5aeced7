# SPDX-License-Identifier: Apache-2.0
"""The provider trees of hosts, with the claims of a simulation."""

from collections import Counter

from novasched.placement.base_answer import BaseAnswer
from novasched.placement.local_candidates import MatchedHosts, match
from novasched.placement.trees import TreeQuery
from novasched.scheduler.memory import FreeResources


class TreesLeft:
    """The trees of an answer to a base query, less the simulated claims.

    :ivar _seen: number of changes of free resources that the answer has.
    """

    def __init__(self, answer: BaseAnswer, free: FreeResources) -> None:
        self._answer = answer
        self._free = free
        self._seen = 0
        # Another query may know the providers, with simulated claims.
        for row, uuid in enumerate(answer.trees.uuids):
            if uuid in free.by_provider:
                self._update(row, uuid)
            else:
                free.by_provider[uuid] = self._left_of(row)

    @property
    def asked_at(self) -> float:
        """When Placement was asked (monotonic seconds)."""
        return self._answer.asked_at

    def match(self, query: TreeQuery) -> MatchedHosts | None:
        """Find the hosts that still serve a query. None if the real Placement may
        refuse the query.

        :raises SearchTooLong: a tree has too many possibilities.
        """
        if self._answer.unknown_traits(query):
            return None
        self._follow()
        return match(self._answer, query, self._answer.capacity_left)

    def lacking(self, query: TreeQuery) -> Counter[frozenset[str]]:
        """The number of hosts without candidates, by the resource classes of which the
        tree of the host has too little; all classes if only the groups do not fit."""
        matched = self.match(query)
        demand = query.demand
        free = self._answer.free_of_trees

        lacking = Counter[frozenset[str]]()
        for host, uuid in enumerate(self._answer.trees.host_uuids):
            if matched is not None and matched.has(uuid):
                continue
            missing = {name for name in demand if free[name][host] < demand[name]}
            lacking[frozenset(missing or demand)] += 1
        return lacking

    def _follow(self) -> None:
        """Bring the answer up to date with the claims and releases since."""
        row_of = self._answer.trees.row_of
        for provider in {*self._free.changes[self._seen :]}:
            if provider in row_of:
                self._update(row_of[provider], provider)
        self._seen = len(self._free.changes)

    def _update(self, row: int, provider: str) -> None:
        for name, amount in self._free.by_provider[provider].items():
            if name in self._answer.capacity_left:
                self._answer.capacity_left[name][row] = amount

    def _left_of(self, row: int) -> dict[str, int]:
        left = {}
        for name, column in self._answer.capacity_left.items():
            left[name] = int(column[row])
        return left
