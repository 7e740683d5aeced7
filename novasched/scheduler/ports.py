# SPDX-License-Identifier: Apache-2.0
"""Ports of the cycle to the outside."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from novasched.conf.errors import NovaschedError
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.claim import PendingClaim, State
from novasched.scheduler.model.host import HostSnapshot
from novasched.scheduler.model.request import Request

MAX_CLAIMS_PER_HOST = 3
"""Claims for one instance on one host, with other providers each, before the next host
is tried: a full cloud is asked so many times as often as nova-scheduler would, not
more."""


class Placement(Protocol):
    """Placement, as far as the cycle needs it (``placement/client.py``)."""

    def expect(self, moment: float) -> None:
        """A request that arrived at a moment (monotonic seconds) will soon ask for
        candidates: others that ask the same may wait for it a little."""

    def candidates(self, request: Request) -> Candidates:
        """Ways to serve the request, by the UUID of each provider involved."""

    def claim(self, request: Request, candidate: Candidate) -> object | None:
        """Allocate a candidate to the current instance; None if somebody has it."""

    def claim_together(
        self, wanted: Sequence[tuple[Request, Candidate]]
    ) -> Sequence[object] | None:
        """Allocate a candidate to each of several new instances; None if one cannot
        have its, and then none has."""

    def delete_allocations(self, claim: Any) -> None:
        """Undo what a claim returned; never raises."""


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance in nova's databases: ``building`` until its build has ended, ``gone``
    once it is deleted, or buried in cell0 since its build was refused; ``task`` is a
    task or a migration in progress. ``hosts`` are those of the resource providers that
    were asked about."""

    building: bool = False
    gone: bool = False
    host: str | None = None
    task: str | None = None
    hosts: frozenset[str] = frozenset()


class Instances(Protocol):
    """Instances, each read by itself (``cells/instances.py``)."""

    def find(self, uuid: str, providers: Collection[str]) -> InstanceState | None:
        """The instance as it is now; None if nova does not know it.

        :raises DatabaseUnavailable: that cannot be told.
        """


class Outdated(NovaschedError):
    """For the driver: what a request began with has changed meanwhile; it is to be
    decided anew."""


class Hosts(Protocol):
    """Hosts of the cells, as far as the cycle needs them (``cells/snapshot.py``)."""

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
        named: Collection[str] = (),
        located: Collection[str] = (),
        flavors: bool = False,
    ) -> HostSnapshot:
        """The hosts as they were when the request arrived, or later: those with the
        UUIDs of these compute nodes and perhaps others; all of them for None.

        :param instances: with all instances on each host.
        :param images: these with the properties of their images.
        :param named: with those of the instances of these UUIDs that are on hosts, at
            least.
        :param located: say of these instances on which hosts of all cells they are.
        :param flavors: with at least one instance of each flavor on each host.
        :raises Outdated: the request goes by another version of nova-compute than is
            there.
        """


class Notifier(Protocol):
    """Tells others what the cycle does (``rpc/notifications``); nothing here raises, or
    takes time."""

    def started(self, request: Request) -> None:
        """Hosts are going to be chosen: Placement has offered some, or is not asked."""

    def ended(self, request: Request, claims: Sequence[PendingClaim]) -> None:
        """Every instance has its host; one claim for each, in their order."""


class Peers(Protocol):
    """The other schedulers of the cloud (``rpc/peers.py``); nothing here raises."""

    part: tuple[int, int]
    """The place of this process among all that are alive, from 0 on, and their
    number."""
    missed: int
    """How often messages of others were missed."""
    late: int
    """Decisions that could not wait for what others had announced before."""

    @property
    def is_sharing(self) -> bool:
        """True while announcements go out and come in."""

    def tell(self, claim: PendingClaim, state: State) -> None:
        """Announce what has become of a claim; returns at once."""

    def catch_up(self, claim: PendingClaim) -> None:
        """Wait a little until all is heard that was announced before a claim."""
