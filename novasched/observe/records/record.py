# SPDX-License-Identifier: Apache-2.0
"""Records of decisions: frozen values, to JSON and back.

A record is read by other releases than the one that wrote it: fields are only ever
added, with a default.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from novasched.scheduler.decision import CandidateCounts, HostWeight
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.numa import GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import (
    Destination,
    InstanceGroup,
    RequestedNetwork,
    Retry,
)

MAX_REJECTIONS_KEPT = 100
"""Newest decisions of which the reasons against each host are kept."""


class RequestParts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a request that a summary lacks, as they are in the request; None for
    those that it has, or that are too long to be kept. ``image`` are the image's
    properties.

    What is in them is a part of a record, too: fields of these classes are only ever
    added.
    """

    scheduler_hints: Mapping[str, tuple[str, ...]] | None = None
    extra_specs: Mapping[str, str] | None = None
    image: Mapping[str, Any] | None = None
    ignore_hosts: tuple[str, ...] | None = None
    force_hosts: tuple[str, ...] | None = None
    force_nodes: tuple[str, ...] | None = None
    instance_group: InstanceGroup | None = None
    requested_destination: Destination | None = None
    retry: Retry | None = None
    numa_topology: GuestTopology | None = None
    pci_requests: tuple[PciRequest, ...] | None = None
    requested_networks: tuple[RequestedNetwork, ...] | None = None
    requested_resources: tuple[RequestGroup, ...] | None = None
    root_required: frozenset[str] | None = None
    root_forbidden: frozenset[str] | None = None
    same_subtree: tuple[frozenset[str], ...] | None = None
    physnets: frozenset[str] | None = None
    tunneled: bool | None = None


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """A request in short. Sizes are the flavor's, in MiB and GiB; the root disk counts
    towards ``disk_gb`` unless it is a volume.

    :ivar lacks: the parts of the request that are not in full in the summary; None in
        older records.
    :ivar parts: those of them that are short enough, and the NUMA cells, which readers
        make of flavor and image if they are not there.
    """

    servers: tuple[str, ...] = ()
    count: int = 1
    project: str | None = None
    user: str | None = None
    flavor: str = ''
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    zone: str | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    policy: str | None = None
    destination: str | None = None
    ignore_hosts: tuple[str, ...] = ()
    force_hosts: tuple[str, ...] = ()
    force_nodes: tuple[str, ...] = ()
    root_gb: int = 0
    swap_mb: int = 0
    is_bfv: bool = False
    flavor_id: int | None = None
    image_format: str | None = None
    image_properties: Mapping[str, Any] = field(default_factory=dict)
    lacks: tuple[str, ...] | None = None
    parts: RequestParts | None = None


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """A reason, with numbers that vary given as a range, and the number of hosts it
    rejects."""

    reason: str
    hosts: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A filter, or a field of the request that narrows: the numbers of hosts that came
    in and passed, and the reasons against the others."""

    name: str
    start: int
    end: int
    causes: tuple[ReasonCount, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Record of a :class:`~novasched.scheduler.decision.PlacementAttempt`.

    :ivar in_flight: the number of hosts from which pending claims were subtracted.
    :ivar left: the number of hosts that passed.
    :ivar best: the ten to try first.
    """

    server: str | None
    start: int
    in_flight: int = 0
    stages: tuple[Stage, ...] = ()
    left: int = 0
    best: tuple[HostWeight, ...] = ()
    refused: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Reasons why Placement did not offer hosts.

    :ivar found: of earlier releases and of simulations, constraints without any one of
        which it offers some.
    :ivar asked: the number of questions to it.
    :ivar constraints: the number of constraints in the query.
    :ivar refusal: Placement's reason against the query itself.
    :ivar passing: of earlier releases: asked again with all constraints, it offered
        some.
    :ivar lacking: the hosts that it did not offer, by the constraint that they lack
        first; those that are left at the end are not known to lack any.
    :ivar nearest: constraints that are all that some hosts lack, with their number.
    """

    found: tuple[str, ...] = ()
    asked: int = 0
    constraints: int = 0
    refusal: str | None = None
    passing: bool = False
    lacking: tuple[Stage, ...] = ()
    nearest: tuple[ReasonCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The host of each instance and the number of alternates of the first; or
    ``refusal``, the reason given to the caller, or ``failure``, the fault that an
    operator must mend."""

    hosts: tuple[str, ...] = ()
    alternates: int = 0
    refusal: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One decision. ``at`` is when it began (seconds since 1970), ``steps`` are
    seconds."""

    id: str
    at: float
    seed: int
    request_id: str | None
    global_request_id: str | None
    asked: RequestSummary
    offer: CandidateCounts | None = None
    looks: tuple[AttemptRecord, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    together_refused: bool = False
    outdated: str | None = None
    inquiry: Diagnosis | None = None


@dataclass(frozen=True, slots=True)
class HostNames:
    """Hosts, and the nodes on them unless they have the same names."""

    hosts: Sequence[str] = ()
    nodes: Sequence[str] = ()

    def find(self, name: str) -> Iterator[tuple[int, str]]:
        """Indexes of a host or node, with the name of the node if that is not plain."""
        nodes = self.nodes or self.hosts
        for index, (host, node) in enumerate(zip(self.hosts, nodes, strict=True)):
            if name in (host, node):
                same = host.partition('.')[0] == node.partition('.')[0]
                yield index, '' if same else f' ({node})'


@dataclass(frozen=True, slots=True)
class StageRejections:
    """The hosts that a stage rejected: ``which`` of the reasons each had."""

    stage: str
    names: HostNames
    reasons: Sequence[str]
    which: Sequence[int]


@dataclass(frozen=True, slots=True)
class Rejections:
    """The rejected hosts, and the others as ranked for the first instance, best
    first."""

    dropped: Sequence[StageRejections] = ()
    ranked: HostNames = field(default_factory=HostNames)

    def against(self, name: str) -> list[str]:
        """Reasons against a host, or against each of its nodes."""
        return [
            *(
                f'{stage.stage}: {stage.reasons[stage.which[index]]}{node}'
                for stage in self.dropped
                for index, node in stage.names.find(name)
            ),
            *(
                f'fit, number {index + 1} of {len(self.ranked.hosts)} by weight{node}'
                for index, node in self.ranked.find(name)
            ),
        ]


def packed(value: Record | Rejections) -> bytes:
    """JSON, compressed: it takes a fifth of the room, and a fraction of the time that
    it takes to write what is saved."""
    return zlib.compress(to_json(value), 1)


def unpacked(text: bytes | str) -> bytes:
    """The JSON of what :func:`packed` gave; earlier releases wrote it as it is.

    :raises ValueError: it is neither.
    """
    try:
        if isinstance(text, bytes):
            return zlib.decompress(text)
        return text.encode()
    except zlib.error as error:
        raise ValueError(str(error)) from None


to_json = msgspec.json.encode
from_json = msgspec.json.Decoder(Record).decode
"""Raises ValueError where a text holds no record."""
parts_from_json = msgspec.json.Decoder(RequestParts).decode
rejections_from_json = msgspec.json.Decoder(Rejections).decode
