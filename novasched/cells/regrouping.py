# SPDX-License-Identifier: Apache-2.0
"""Hosts whose aggregates have changed lately, so that Placement may not know the change
yet."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from novasched.cells.aggregates import AggregatesByHost, AggregateState
from novasched.scheduler.model.host import Aggregate, Host
from novasched.scheduler.model.request import Destination, Request

AGGREGATES_LAG_S = 5.0
"""Seconds after which Placement has a change of aggregates, at the latest. nova-api
writes its database first, and the aggregates of the resource providers in Placement up
to half a second later."""


@dataclass(frozen=True, slots=True)
class _Regrouped:
    """A host with changed aggregates.

    :ivar noticed_at: the end of the reading that showed the change, in monotonic
        seconds. The change is from before.
    :ivar former: UUIDs of the aggregates in which Placement may still have the host.
    """

    noticed_at: float
    former: frozenset[str]

    def may_be_unknown(self, moment: float) -> bool:
        """True if an answer of Placement may lack the change.

        :param moment: when Placement was asked, in monotonic seconds.
        """
        return moment < self.noticed_at + AGGREGATES_LAG_S

    def is_misplaced(self, host: Host, destination: Destination) -> bool:
        """True if Placement may offer the host only because Placement lacks the
        change."""
        present = _uuids(host.aggregates)
        if not destination.forbidden_aggregates.isdisjoint(present):
            return True
        for alternatives in destination.aggregates:
            if alternatives.isdisjoint(present) and not alternatives.isdisjoint(
                self.former
            ):
                return True
        return False


class RegroupedHosts:
    """The hosts whose aggregates have changed lately. Written by one thread at a time,
    read by all.

    :ivar settled_at: if Placement is asked after this moment (monotonic seconds), the
        answer has the hosts in the same aggregates as the last state.
    """

    def __init__(self) -> None:
        self.settled_at = -math.inf
        self._by_name: Mapping[str, _Regrouped] = {}
        self._by_host: AggregatesByHost = {}
        self._version = 0

    def update(
        self, state: AggregateState, moment: float, is_current: bool = True
    ) -> None:
        """Note the changes since the last state.

        :param moment: the end of the reading of the state, in monotonic seconds.
        :param is_current: False if the database did not answer, so that the state is an
            earlier one: there may be a change that only Placement tells.
        """
        if not is_current:
            self.settled_at = moment + AGGREGATES_LAG_S
        version = state.changes.version
        if version == self._version:
            return

        before = self._by_host
        changed = state.changes.since(self._version)
        is_first = not self._version
        self._by_host = state.by_host
        self._version = version
        # Aggregates may have changed just before the start, too.
        self.settled_at = moment + AGGREGATES_LAG_S
        if is_first:
            return

        if changed is None:
            changed = frozenset(before.keys() | state.by_host.keys())
        regrouped = {}
        for name, change in self._by_name.items():
            if change.may_be_unknown(moment):
                regrouped[name] = change
        for name in changed:
            former = _uuids(before.get(name, ()))
            # Metadata and names of aggregates do not concern Placement.
            if former == _uuids(state.by_host.get(name, ())):
                continue
            if name in regrouped:
                former |= regrouped[name].former
            regrouped[name] = _Regrouped(moment, former)
        self._by_name = regrouped

    def misplaced(
        self, hosts: Mapping[str, Host], request: Request, asked_at: float
    ) -> Collection[str]:
        """UUIDs of hosts that have just left an aggregate which the request needs, or
        have just joined an aggregate which the request must avoid. Placement may still
        offer these hosts.

        :param asked_at: when Placement was asked at the earliest (monotonic seconds).
        """
        destination = request.requested_destination
        if destination is None or asked_at >= self.settled_at:
            return ()

        misplaced = set()
        for uuid, host in hosts.items():
            change = self._by_name.get(host.host)
            if change is None or not change.may_be_unknown(asked_at):
                continue
            if change.is_misplaced(host, destination):
                misplaced.add(uuid)
        return misplaced


def _uuids(aggregates: Sequence[Aggregate]) -> frozenset[str]:
    """UUIDs of aggregates. The schema of nova's database allows NULL."""
    return frozenset(aggregate.uuid for aggregate in aggregates if aggregate.uuid)
