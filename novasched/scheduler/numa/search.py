# SPDX-License-Identifier: Apache-2.0
"""Assign distinct host cells to guest cells: bipartite matching with backtracking.

Sets of host cells are integers used as bit masks. Each guest cell has a mask of host
cells that fit the guest cell. The assignment must also contain a host cell of each
constraint (a mask), and the set of assigned host cells must be accepted as a whole.

Guest cells are assigned in turn. A guest cell gets the lowest host cell with which a
matching of the remaining guest cells exists. Without constraints and acceptance, the
search therefore never backtracks.
"""

import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

Acceptance = Callable[[int], bool]
"""Acceptance of a set of host cells, one for each guest cell.

For a larger set, the answer is False only if every subset is refused.
"""


def bottleneck(masks: Sequence[int], free: int) -> tuple[int, int] | None:
    """Find guest cells with too few host cells in ``free``.

    None means that all guest cells can be assigned. Otherwise the answer has two masks:
    guest cells, and all host cells in ``free`` that fit any of these guest cells. By
    Hall's theorem the first mask has more bits than the second.
    """
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
            guests = 1 << guest
            for host in _bits(path.visited):
                guests |= 1 << owners[host]
            return guests, path.visited
        assigned = sum(owners)
    return None


@dataclass(slots=True)
class _AugmentingPath:
    """A path along which assigned guest cells move to make room for another.

    ``owners`` has the guest cell of each assigned host cell; ``visited`` is the mask of
    host cells that the search has visited.
    """

    masks: Sequence[int]
    free: int
    owners: dict[int, int]
    visited: int = 0

    def assign(self, guest: int) -> bool:
        """Assign a host cell to the guest cell; the owner of the host cell moves.

        Returns False if no host cell can be vacated.
        """
        for host in _bits(self.masks[guest] & self.free):
            if host & self.visited:
                continue
            self.visited |= host
            if host not in self.owners or self.assign(self.owners[host]):
                self.owners[host] = guest
                return True
        return False


@dataclass(slots=True)
class Search:
    """A search for an assignment.

    ``kinds`` has a key for each host cell. Host cells with the same key are
    interchangeable, so a guest cell tries a single host cell of each key.

    ``_dead_ends`` are sets of used host cells from which no assignment follows.
    ``_accepted`` remembers the answers of ``accepts``, ``_reachable`` is the mask of
    all host cells that any guest cell fits, and ``_was_refused`` is set after the first
    complete assignment was refused.
    """

    masks: Sequence[int]
    constraints: tuple[int, ...] = ()
    accepts: Acceptance | None = None
    kinds: Sequence[Hashable] = ()
    _dead_ends: set[int] = field(default_factory=set)
    _accepted: dict[int, bool] = field(default_factory=dict)
    _reachable: int = 0
    _was_refused: bool = False

    def succeeds(self, free: int) -> bool:
        """Return True if an assignment exists; mostly a matching suffices."""
        if not self.constraints and self.accepts is None:
            return bottleneck(self.masks, free) is None
        return self.first(free) is not None

    def first(self, free: int) -> tuple[int, ...] | None:
        """Return the lexicographically first assignment, None if there is none.

        The assignment has the index of a host cell for each guest cell.
        """
        if not self.constraints and self.accepts is None:
            return self._first_unconstrained(free)

        self._reachable = union(self.masks) & free
        if self._assignable(self.masks, 0, free):
            return self._assign(0, free)
        return None

    def _first_unconstrained(self, free: int) -> tuple[int, ...] | None:
        if bottleneck(self.masks, free) is not None:
            return None

        chosen = []
        for guest, mask in enumerate(self.masks):
            rest = self.masks[guest + 1 :]
            for host in _bits(mask & free):
                if bottleneck(rest, free & ~host) is None:
                    chosen.append(host.bit_length() - 1)
                    free &= ~host
                    break
        return tuple(chosen)

    def _assign(self, used: int, free: int) -> tuple[int, ...] | None:
        """Assign the remaining guest cells.

        Guest cells are assigned in order, so the number of used host cells is the index
        of the next guest cell.
        """
        guest = used.bit_count()
        if guest == len(self.masks):
            if self._accepts(used):
                return ()
            self._add_indispensable()
            return None
        if used in self._dead_ends:
            return None

        tried_kinds = set()
        for host in _bits(self.masks[guest] & free):
            index = host.bit_length() - 1
            if self.kinds:
                kind = self.kinds[index]
                if kind in tried_kinds:
                    continue
                tried_kinds.add(kind)

            if self._assignable(self.masks[guest + 1 :], used | host, free & ~host):
                rest = self._assign(used | host, free & ~host)
                if rest is not None:
                    return index, *rest

        self._dead_ends.add(used)
        return None

    def _assignable(self, rest: Sequence[int], used: int, free: int) -> bool:
        """Return False if the remaining guest cells cannot be assigned.

        True is certain only without constraints and acceptance.
        """
        within = union(rest) & free
        unmet = [mask & within for mask in self.constraints if not mask & used]
        if _disjoint_count(unmet) > len(rest) or not all(unmet):
            return False
        if bottleneck(rest, free) is not None:
            return False

        # Acceptance is expensive: ask at the start, and further on only after a
        # complete assignment was refused.
        if rest and (self._was_refused or not used):
            return self._accepts(used | within)
        return True

    def _accepts(self, hosts: int) -> bool:
        if self.accepts is None:
            return True
        if hosts not in self._accepted:
            self._accepted[hosts] = self.accepts(hosts)
        return self._accepted[hosts]

    def _add_indispensable(self) -> None:
        """After the first refusal, make indispensable host cells constraints.

        A host cell is indispensable if all other reachable cells together are refused.
        """
        if self._was_refused:
            return

        self._was_refused = True
        indispensable = []
        for host in _bits(self._reachable):
            if not self._accepts(self._reachable & ~host):
                indispensable.append(host)
        self.constraints = (*self.constraints, *indispensable)


def _disjoint_count(masks: Sequence[int]) -> int:
    """Count disjoint masks greedily: each disjoint mask needs a host cell."""
    union_of_masks = 0
    count = 0
    for mask in sorted(masks, key=int.bit_count):
        if not mask & union_of_masks:
            union_of_masks |= mask
            count += 1
    return count


def union(masks: Sequence[int]) -> int:
    """Return the union of the masks."""
    return functools.reduce(operator.or_, masks, 0)


def _bits(mask: int) -> Iterator[int]:
    """Yield the single bits of the mask, the lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
