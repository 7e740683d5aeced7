# SPDX-License-Identifier: Apache-2.0
"""What is kept of a decision: frozen values, to JSON and back.

A record is read by other releases than the one that wrote it: fields are only ever added,
with a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Asked:
    """The request in short. Sizes are the flavor's, in MiB and GiB; the root disk counts towards
    ``disk_gb`` unless it is a volume.

    :ivar lacks: the parts of the request that are not kept, or not in full; None where nobody
        noted them.
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


@dataclass(frozen=True, slots=True)
class Offer:
    """What Placement offered. ``hosts`` are those of its providers that are hosts of ours,
    ``elsewhere`` the candidates on none of them. ``total`` hosts are known in all cells; 0
    where nobody counted."""

    candidates: int = 0
    providers: int = 0
    hosts: int = 0
    elsewhere: int = 0
    total: int = 0
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, with the numbers in it that vary as a range, and for how many hosts."""

    reason: str
    hosts: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A filter, or a field of the request that narrows: so many hosts came in, so many went
    out, and why the others did not."""

    name: str
    start: int
    end: int
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What a weigher adds to the weight of a host."""

    weigher: str
    raw: float
    normalised: float
    multiplier: float
    added: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """A host with its weight, and what that is made of."""

    host: str
    node: str
    weight: float
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """How a host was looked for, for one server of the request.

    :ivar start: how many hosts it could have been: those left by the server before.
    :ivar in_flight: on how many of them something was in flight, and taken off.
    :ivar left: how many passed.
    :ivar best: the ten to try first.
    :ivar refused: the hosts on which Placement refused the claim.
    :ivar unfit: those that did not fit any more when it was their turn.
    """

    server: str | None
    start: int
    in_flight: int = 0
    stages: tuple[Stage, ...] = ()
    left: int = 0
    best: tuple[Weighed, ...] = ()
    refused: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What Placement said when it was asked again for the candidates that it did not have.

    :ivar found: the constraints without any one of which it has some.
    :ivar asked: how many were left out, one after the other, of how many there are.
    :ivar refusal: what it has against the query itself.
    :ivar passing: it had some by then, with all constraints in force.
    """

    found: tuple[str, ...] = ()
    asked: int = 0
    constraints: int = 0
    refusal: str | None = None
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The host of each server and how many alternates stand behind the first; or why there
    are none: ``refusal`` is what the caller is told, ``failure`` what an operator must mend."""

    hosts: tuple[str, ...] = ()
    alternates: int = 0
    refusal: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One decision. ``at`` is when it began (seconds since 1970), ``steps`` are seconds."""

    id: str
    at: float
    seed: int
    request_id: str | None
    global_request_id: str | None
    asked: Asked
    offer: Offer | None = None
    looks: tuple[Look, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    together_refused: bool = False
    inquiry: Inquiry | None = None


_RECORD = msgspec.json.Decoder(Record)


def to_json(record: Record) -> bytes:
    """The text that is kept."""
    return msgspec.json.encode(record)


def from_json(text: bytes | str) -> Record:
    """The record in a text.

    :raises ValueError: there is none in it.
    """
    return _RECORD.decode(text)
