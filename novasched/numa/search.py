# SPDX-License-Identifier: Apache-2.0
"""Distinct positions for a row of takers, the first in lexicographic order.

Sets of positions are integers used as bit masks. A taker accepts some positions; beyond
that, each of some sets (``needs``) must be hit, and the whole choice must be approved.
Takers are served in turn and each takes the lowest position that leaves the others
servable, which a bipartite matching decides: without needs and approval nothing is ever
undone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

Approval = Callable[[int], bool]
"""Whether a set of positions will do, one for each taker; of a set of more positions, whether
any part of it might. Once it says no there, no part will do."""


def shortage(wanted: Sequence[int], free: int) -> tuple[int, int] | None:
    """Takers who cannot all be served from the positions in ``free``, and all that they
    accept of these: two masks, the first with more bits than the second (Hall's condition).
    None when everybody can be served."""
    owners: dict[int, int] = {}
    taken = 0
    for taker, mask in enumerate(wanted):
        open_ = mask & free & ~taken
        if open_:
            position = open_ & -open_
            owners[position] = taker
            taken |= position
            continue
        chain = _Chain(wanted, free, owners)
        if not chain.moves(taker):
            return sum(1 << owners[each] for each in _bits(chain.seen)) | 1 << taker, chain.seen
        taken = sum(owners)
    return None


@dataclass(slots=True)
class _Chain:
    """A search for takers who can make room for one more by moving on."""

    wanted: Sequence[int]
    free: int
    owners: dict[int, int]
    seen: int = 0

    def moves(self, taker: int) -> bool:
        """Give the taker a position, if need be that of one who moves to another."""
        for position in _bits(self.wanted[taker] & self.free):
            if position & self.seen:
                continue
            self.seen |= position
            if position not in self.owners or self.moves(self.owners[position]):
                self.owners[position] = taker
                return True
        return False


@dataclass(slots=True)
class Search:
    """One search. ``alike`` names positions that can stand for each other in every respect,
    so that of those only one is tried in a taker's turn."""

    wanted: Sequence[int]
    needs: tuple[int, ...] = ()
    approve: Approval | None = None
    alike: Sequence[Hashable] = ()
    _fruitless: set[int] = field(default_factory=set)
    _approved: dict[int, bool] = field(default_factory=dict)
    _reachable: int = 0
    _refused: bool = False

    def first(self, free: int) -> tuple[int, ...] | None:
        """The position of each taker."""
        if not self.needs and self.approve is None:
            return self._plainly(free)
        self._reachable = _union(self.wanted) & free
        return self._serve(0, free) if self._servable(self.wanted, 0, free) else None

    def _plainly(self, free: int) -> tuple[int, ...] | None:
        """The same where nothing but takers and positions counts."""
        if shortage(self.wanted, free) is not None:
            return None
        chosen = []
        for served, mask in enumerate(self.wanted, 1):
            rest = self.wanted[served:]
            open_ = _bits(mask & free)
            position = next(each for each in open_ if shortage(rest, free & ~each) is None)
            free &= ~position
            chosen.append(position.bit_length() - 1)
        return tuple(chosen)

    def _serve(self, used: int, free: int) -> tuple[int, ...] | None:
        served = used.bit_count()
        if served == len(self.wanted):
            if self._approves(used):
                return ()
            self._learn()
            return None
        if used in self._fruitless:
            return None
        tried = set()
        for position in _bits(self.wanted[served] & free):
            index = position.bit_length() - 1
            if self.alike and self.alike[index] in tried:
                continue
            if self.alike:
                tried.add(self.alike[index])
            now, left = used | position, free & ~position
            if self._servable(self.wanted[served + 1 :], now, left):
                rest = self._serve(now, left)
                if rest is not None:
                    return index, *rest
        self._fruitless.add(used)
        return None

    def _servable(self, rest: Sequence[int], used: int, free: int) -> bool:
        """Whether what is left can still come to a good end; True may be too hopeful where
        there are needs or approval."""
        within = _union(rest) & free
        unmet = [need & within for need in self.needs if not need & used]
        if _apart(unmet) > len(rest) or not all(unmet):
            return False
        if shortage(rest, free) is not None:
            return False
        hopeful = bool(rest) and (self._refused or not used)
        return self._approves(used | within) if hopeful else True

    def _approves(self, positions: int) -> bool:
        if self.approve is None:
            return True
        if positions not in self._approved:
            self._approved[positions] = self.approve(positions)
        return self._approved[positions]

    def _learn(self) -> None:
        """After the first refusal, look ahead: approval is asked for what can still be
        reached, and a position without which the rest will not do becomes a need."""
        if not self._refused:
            self._refused = True
            vital = (
                position
                for position in _bits(self._reachable)
                if not self._approves(self._reachable & ~position)
            )
            self.needs = (*self.needs, *vital)


def _apart(sets: Sequence[int]) -> int:
    """A number of sets of which no two overlap, so that each needs a position of its own."""
    seen = count = 0
    for each in sorted(sets, key=int.bit_count):
        if not each & seen:
            seen |= each
            count += 1
    return count


def _union(masks: Sequence[int]) -> int:
    return functools.reduce(operator.or_, masks, 0)


def _bits(mask: int) -> Iterator[int]:
    """The single bits of a mask, the lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
