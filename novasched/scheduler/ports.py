# SPDX-License-Identifier: Apache-2.0
"""The services that the cycle needs, as protocols."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.claim import PendingClaim, Stage
from novasched.scheduler.model.host import HostSnapshot
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import UsualGuests
from novasched.scheduler.plugin import Data

MAX_CLAIMS_PER_HOST = 3
"""Maximum number of claims for an instance on a host, each of a different candidate,
before the next host is tried. In a full cloud, Placement gets at most so many times the
claims of nova-scheduler."""


class Placement(Protocol):
    """Placement, as far as the cycle needs it (``placement/client.py``)."""

    def announce_arrival(self, basis: Basis) -> None:
        """Announce that a request will soon ask for candidates. Requests with the same
        query may wait a little for the new request, so that one answer serves them
        all."""

    def candidates(self, request: Request, basis: Basis) -> Candidates:
        """The allocation candidates of the request, by the UUID of each provider."""

    def claim(
        self, request: Request, candidate: Candidate, basis: Basis
    ) -> object | None:
        """Allocate a candidate to the current instance.

        :returns: the claim; None if Placement refuses, since another consumer has taken
            the resources.
        """

    def claim_together(
        self, wanted: Sequence[tuple[Request, Candidate]], basis: Basis
    ) -> Sequence[object] | None:
        """Allocate a candidate to each of several new instances.

        :returns: the claims; None, with nothing allocated, if Placement refuses one.
        """

    def delete_allocations(self, claim: Any) -> None:
        """Delete the allocations of a claim; never raises."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The data that the filters and weighers need for a request.

    :ivar named: UUIDs of instances that are needed if they are on a host.
    :ivar located: UUIDs of instances whose hosts are needed, in any cell.
    """

    data: frozenset[Data] = frozenset()
    named: Collection[str] = ()
    located: Collection[str] = ()


NEEDS_NOTHING = Needs()


class Hosts(Protocol):
    """Hosts of the cells, as far as the cycle needs them (``cells/host_reader.py``)."""

    def prefetch(self, moment: float) -> None:
        """Begin to read the changes up to a moment (monotonic seconds), while Placement
        is asked."""

    def minimum_version(self, since: float) -> int:
        """The lowest version that a nova-compute of any cell has reported; 0 without a
        version. The first call waits for a reading; later calls answer from the last
        reading.

        :param since: the earliest moment of the first reading, in monotonic seconds.
        """

    def with_requested_destination(self, request: Request) -> Request:
        """The request with the compute node of the requested host or node.

        :raises NoValidHost: the host or node does not exist.
        """

    def is_on_forced_host(self, request: Request) -> bool:
        """True if the instance of a request is on the host that the request forces.

        :raises Unavailable: the cell of the host does not answer.
        """

    def usual_guests(self) -> UsualGuests:
        """The usual guests of the cloud. The first call waits for a reading; later
        calls answer from the last reading."""

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs,
        basis: Basis,
    ) -> HostSnapshot:
        """The hosts, as fresh as the basis asks.

        :param uuids: compute nodes; the snapshot has their hosts, and perhaps further
            hosts. None for all hosts.
        :raises StaleData: the request was narrowed for another minimum version of
            nova-compute than the hosts report.
        """


class Notifier(Protocol):
    """Sends the notifications of nova (``rpc/notifications``). No member raises, and
    all members return at once."""

    def started(self, request: Request) -> None:
        """Note that the search for hosts begins: Placement has offered candidates, or
        need not be asked."""

    def ended(self, request: Request, claims: Sequence[PendingClaim]) -> None:
        """Note that every instance has a host.

        :param claims: a claim for each instance, in the order of the instances.
        """


class Peers(Protocol):
    """The other schedulers of the cloud (``rpc/peers.py``). No member raises."""

    position: tuple[int, int]
    """The position of this scheduler among all living schedulers, from 0 on, and the
    number of living schedulers."""
    missed: int
    """How often messages of other schedulers were lost."""
    late: int
    """The number of claims that were confirmed before all earlier announcements of
    other schedulers had arrived."""

    @property
    def is_sharing(self) -> bool:
        """True while announcements are sent and received."""

    def announce(self, claim: PendingClaim, stage: Stage) -> None:
        """Announce the new stage of a claim of this process; returns at once."""

    def catch_up(self, claim: PendingClaim) -> None:
        """Wait until the announcements before a claim have arrived: half a second at
        most, or until 20 seconds after a connection to the broker has broken."""
