# SPDX-License-Identifier: Apache-2.0
"""How a host is looked for, for one server of a request, noted while that is done."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Protocol

from novasched.model.host import Host
from novasched.records.causes import Names
from novasched.records.figures import Passed
from novasched.records.reasons import counted, grouped
from novasched.records.record import Look, Share, Stage, Weighed

BEST, SERVERS = 10, 3
"""So many hosts are kept with what they weigh, and for so many servers of a request."""


class Weights(Protocol):
    """What hosts weigh, by their places in a list (``weighing.py``)."""

    @property
    def sums(self) -> Sequence[float]:
        """The weights."""

    def shares(self, place: int) -> Sequence[Share]:
        """What each weigher adds."""


class Unseen:
    """A look that nobody keeps: for alternates, and for hosts that are judged once more."""

    def did(self, step: str) -> None:
        """A step has ended."""

    def deducted(self, flights: Mapping[str, Sized], uuids: Sequence[str]) -> None:
        """Something is in flight to some of these hosts, or of others, and taken off."""

    def begins(self) -> None:
        """The hosts are at hand, and are going to be judged."""

    def passed(
        self, name: str, judged: Sequence[Host], rejected: Mapping[int, str], start: int
    ) -> None:
        """So many hosts came to a stage, and some of them did not pass: by their identity
        among those that were judged, with the reasons."""

    def weighed(self, name: str) -> None:
        """A weigher has done its part."""

    def ranked(self, hosts: Sequence[Host], order: Sequence[int], weights: Weights) -> None:
        """The hosts that passed are in order, the one to try first in front."""


UNSEEN = Unseen()


class Timed(Protocol):
    """The account that a look belongs to."""

    @property
    def timer(self) -> Callable[[], float]:
        """Seconds, from any moment on."""

    def did(self, step: str, about: Watched) -> None:
        """A step of the look has ended."""


class Watched(Unseen):
    """A look that is kept, as long as its account is."""

    def __init__(self, account: Timed, server: str | None, index: int, named: bool) -> None:
        # A weak reference, or else both would stay until garbage is looked for, which is rare,
        # with all that they know.
        self._account = weakref.proxy(account)
        self._timer = account.timer
        self._last = self._timer()
        self.server, self.index, self.named = server, index, named
        self.in_flight = 0
        self.start: int | None = None
        self.left = 0
        self.stages: list[tuple[str, int, list[str], Names]] = []
        self.laps: list[float] = []
        self.weighers: list[tuple[str, float]] = []
        self.best: list[Weighed] = []
        self.order = Names()
        self.refused: list[str] = []
        self.unfit: list[str] = []

    def did(self, step: str) -> None:
        """See :class:`Unseen`."""
        self._account.did(step, self)
        self._last = self._timer()

    def begins(self) -> None:
        """See :class:`Unseen`."""
        self._last = self._timer()

    def deducted(self, flights: Mapping[str, Sized], uuids: Sequence[str]) -> None:
        """See :class:`Unseen`."""
        busy = {uuid for uuid, each in flights.items() if len(each)}
        self.in_flight = len(busy.intersection(uuids)) if busy else 0

    def passed(
        self, name: str, judged: Sequence[Host], rejected: Mapping[int, str], start: int
    ) -> None:
        """See :class:`Unseen`."""
        if self.start is None:
            self.start = start
        names = Names()
        if rejected and self.named:
            all_gone = len(rejected) == len(judged)
            gone = judged if all_gone else [host for host in judged if id(host) in rejected]
            names = Names.of([host.host for host in gone], [host.nodename for host in gone])
        self.stages.append((name, start, [*rejected.values()], names))
        self.laps.append(self._lap())
        self.left = start - len(rejected)

    def weighed(self, name: str) -> None:
        """See :class:`Unseen`."""
        self.weighers.append((name, self._lap()))

    def ranked(self, hosts: Sequence[Host], order: Sequence[int], weights: Weights) -> None:
        """See :class:`Unseen`."""
        self.left = len(hosts)
        if self.start is None:
            self.start = self.left
        if self.named and not self.index:
            best = [hosts[place] for place in order]
            self.order = Names.of([host.host for host in best], [host.nodename for host in best])
        if self.index < SERVERS:
            self.best = [
                Weighed(
                    hosts[place].host,
                    hosts[place].nodename,
                    weights.sums[place],
                    tuple(weights.shares(place)),
                )
                for place in order[:BEST]
            ]

    def _lap(self) -> float:
        """Seconds since the last one."""
        last, self._last = self._last, self._timer()
        return self._last - last

    def passages(self) -> Iterator[Passed]:
        """The stages in numbers."""
        for (name, start, reasons, _), seconds in zip(self.stages, self.laps, strict=True):
            yield Passed(name, start, start - len(reasons), seconds)

    def folded(self) -> Look:
        """What is kept of it."""
        return Look(
            self.server,
            self.start or 0,
            self.in_flight,
            tuple(
                Stage(name, start, start - len(reasons), grouped(counted(reasons)))
                for name, start, reasons, _ in self.stages
            ),
            self.left,
            tuple(self.best),
            tuple(self.refused),
            tuple(self.unfit),
        )
