# SPDX-License-Identifier: Apache-2.0
"""What the cycle asks of the outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from novasched.inflight import Flight
from novasched.model.candidate import Candidate
from novasched.model.host import Fleet
from novasched.model.request import Request
from novasched.records.account import Account

Candidates = Mapping[str, Sequence[Candidate]]
"""Provider UUID to the candidates that take something from it, in Placement's order."""


class Placement(Protocol):
    """What the cycle asks of the Placement service (``placement/client.py``)."""

    def expect(self, moment: float) -> None:
        """A request that arrived at a moment (monotonic seconds) will soon ask for
        candidates: others that ask the same may wait for it a little."""

    def candidates(self, request: Request) -> Candidates:
        """Ways to serve the request, by the UUID of each provider involved."""

    def claim(self, request: Request, candidate: Candidate) -> object | None:
        """Allocate a candidate to the server in hand; None if somebody has it."""

    def claim_together(
        self, wanted: Sequence[tuple[Request, Candidate]]
    ) -> Sequence[object] | None:
        """Allocate a candidate to each of several new servers; None if one cannot have
        its, and then none has."""

    def give_back(self, claim: Any) -> None:
        """Undo what a claim returned; never raises."""


class Hosts(Protocol):
    """What the cycle asks of the cells (``cells/snapshot.py``)."""

    def prepare(self, moment: float) -> None:
        """Begin to read what has changed up to a moment (monotonic seconds), while
        Placement is asked."""

    def aimed(self, request: Request) -> Request:
        """The request with the host or node that it names looked up.

        :raises NoValidHost: there is no such host.
        """

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Fleet:
        """The hosts as they were when the request arrived, or later: those with the UUIDs
        of these compute nodes and perhaps others; all of them for None.

        :param instances: with the servers on each host.
        :param images: these with the properties of their images.
        """


class Notices(Protocol):
    """Whom the cycle tells of what it does (``notify/sender.py``); nothing here raises, or
    takes time."""

    def started(self, request: Request) -> None:
        """Hosts are going to be chosen: Placement has offered some, or is not asked."""

    def ended(self, request: Request, flights: Sequence[Flight]) -> None:
        """Every server has its host; one flight for each, in their order."""

    def close(self) -> None:
        """No more is told."""


class Records(Protocol):
    """Who keeps accounts of decisions (``recorder/keeper.py``); nothing here raises, or takes
    time."""

    def opened(self, request: Request, seed: int) -> Account | None:
        """The account of a request that is going to be decided; None if none is wanted."""

    def closed(self, account: Account) -> None:
        """It has been decided."""

    def close(self) -> None:
        """No more is kept."""


class Forgetful:
    """Implements :class:`Records` for nobody."""

    def opened(self, request: Request, seed: int) -> Account | None:
        """Keep none."""
        return None

    def closed(self, account: Account) -> None:
        """There is none."""

    def close(self) -> None:
        """Keep none."""


class Silence:
    """Implements :class:`Notices` for nobody."""

    dropped = 0

    def started(self, request: Request) -> None:
        """Say nothing."""

    def ended(self, request: Request, flights: Sequence[Flight]) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""
