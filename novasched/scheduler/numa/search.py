# SPDX-License-Identifier: Apache-2.0
"""Distinct host cells for guest cells: bipartite matching with backtracking.

Sets of host cells are integers used as bit masks. Each guest cell has the mask of host
cells that it fits; beyond that, the choice must contain a host cell of each constraint
(a mask), and be accepted as a whole. Guest cells are assigned in turn, each to the
lowest host cell that leaves the others assignable, which a bipartite matching decides:
without constraints and acceptance nothing is ever undone.
"""

import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

Acceptance = Callable[[int], bool]
"""True if a set of host cells will do, one for each guest cell; for a larger set, False
only if no subset of it will do."""


def bottleneck(masks: Sequence[int], free: int) -> tuple[int, int] | None:
    """Guest cells that cannot all be assigned from the host cells in ``free``, and all
    that they fit of these: two masks, the first with more bits than the second (Hall's
    condition). None when all can be assigned."""
    owners: dict[int, int] = {}
    assigned = 0
    for guest, mask in enumerate(masks):
        choices = mask & free & ~assigned
        if choices:
            host = choices & -choices
            owners[host] = guest
            assigned |= host
            continue
        path = _AugmentingPath(masks, free, owners)
        if not path.assign(guest):
            return sum(
                1 << owners[host] for host in _bits(path.seen)
            ) | 1 << guest, path.seen
        assigned = sum(owners)
    return None


@dataclass(slots=True)
class _AugmentingPath:
    """A search for guest cells that can make room for one more by moving on."""

    masks: Sequence[int]
    free: int
    owners: dict[int, int]
    seen: int = 0

    def assign(self, guest: int) -> bool:
        """Give the guest cell a host cell, if need be that of one that moves to
        another."""
        for host in _bits(self.masks[guest] & self.free):
            if host & self.seen:
                continue
            self.seen |= host
            if host not in self.owners or self.assign(self.owners[host]):
                self.owners[host] = guest
                return True
        return False


@dataclass(slots=True)
class Search:
    """One search. ``kinds`` has the same key for host cells that can stand for each
    other in every respect, so that only one of those is tried in a guest cell's
    turn."""

    masks: Sequence[int]
    constraints: tuple[int, ...] = ()
    accepts: Acceptance | None = None
    kinds: Sequence[Hashable] = ()
    _dead_ends: set[int] = field(default_factory=set)
    _accepted: dict[int, bool] = field(default_factory=dict)
    _reachable: int = 0
    _was_refused: bool = False

    def succeeds(self, free: int) -> bool:
        """True if there is a choice at all, which mostly a matching tells."""
        if not self.constraints and self.accepts is None:
            return bottleneck(self.masks, free) is None
        return self.first(free) is not None

    def first(self, free: int) -> tuple[int, ...] | None:
        """The index of each guest cell's host cell, first in lexicographic order."""
        if not self.constraints and self.accepts is None:
            return self._unconstrained(free)
        self._reachable = union(self.masks) & free
        if self._assignable(self.masks, 0, free):
            return self._assign(0, free)
        return None

    def _unconstrained(self, free: int) -> tuple[int, ...] | None:
        if bottleneck(self.masks, free) is not None:
            return None
        chosen = []
        for count, mask in enumerate(self.masks, 1):
            rest = self.masks[count:]
            host = next(
                h for h in _bits(mask & free) if bottleneck(rest, free & ~h) is None
            )
            free &= ~host
            chosen.append(host.bit_length() - 1)
        return tuple(chosen)

    def _assign(self, used: int, free: int) -> tuple[int, ...] | None:
        guest = used.bit_count()
        if guest == len(self.masks):
            if self._accepts(used):
                return ()
            self._look_ahead()
            return None
        if used in self._dead_ends:
            return None
        tried = set()
        for host in _bits(self.masks[guest] & free):
            index = host.bit_length() - 1
            if self.kinds and self.kinds[index] in tried:
                continue
            if self.kinds:
                tried.add(self.kinds[index])
            if self._assignable(self.masks[guest + 1 :], used | host, free & ~host):
                rest = self._assign(used | host, free & ~host)
                if rest is not None:
                    return index, *rest
        self._dead_ends.add(used)
        return None

    def _assignable(self, rest: Sequence[int], used: int, free: int) -> bool:
        """False if the remaining guest cells cannot all be assigned; True may be too
        hopeful where there are constraints or acceptance."""
        within = union(rest) & free
        unmet = [mask & within for mask in self.constraints if not mask & used]
        if _disjoint(unmet) > len(rest) or not all(unmet):
            return False
        if bottleneck(rest, free) is not None:
            return False
        worth_asking = bool(rest) and (self._was_refused or not used)
        if worth_asking:
            return self._accepts(used | within)
        return True

    def _accepts(self, hosts: int) -> bool:
        if self.accepts is None:
            return True
        if hosts not in self._accepted:
            self._accepted[hosts] = self.accepts(hosts)
        return self._accepted[hosts]

    def _look_ahead(self) -> None:
        """After the first refusal, ask for acceptance of all that can still be reached;
        a host cell without which the rest will not do becomes a constraint."""
        if not self._was_refused:
            self._was_refused = True
            indispensable = (
                host
                for host in _bits(self._reachable)
                if not self._accepts(self._reachable & ~host)
            )
            self.constraints = (*self.constraints, *indispensable)


def _disjoint(masks: Sequence[int]) -> int:
    """A number of masks of which no two overlap, so that each needs a host cell of its
    own."""
    seen = count = 0
    for mask in sorted(masks, key=int.bit_count):
        if not mask & seen:
            seen |= mask
            count += 1
    return count


def union(masks: Sequence[int]) -> int:
    """The set of all host cells of some masks."""
    return functools.reduce(operator.or_, masks, 0)


def _bits(mask: int) -> Iterator[int]:
    """The single bits of a mask, the lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
