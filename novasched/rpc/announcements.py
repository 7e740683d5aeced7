# SPDX-License-Identifier: Apache-2.0
"""Messages between schedulers about their pending claims, as MessagePack.

Fields that a later release adds have defaults, and are skipped by earlier ones; another meaning of
those that are there needs another exchange (``peers.py``).
"""

import math

import msgspec

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.claim import PendingClaim, State
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host, Service
from novasched.scheduler.model.numa import GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import InstanceGroup, Request


class Row(msgspec.Struct, omit_defaults=True):
    """A claim of a process, which counts them, or what has become of the one of that number. Memory
    is in MiB, disk in GiB; ``age`` are the seconds since it was chosen."""

    number: int
    state: str = State.CHOSEN
    age: float = 0.0
    instance: str | None = None
    host: str = ''
    node: str = ''
    uuid: str = ''
    cell: str = ''
    project: str | None = None
    flavor: int | None = None
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    group: str | None = None
    numa: GuestTopology | None = None
    pci: tuple[PciRequest, ...] = ()
    mappings: str = '{}'
    amounts: dict[str, dict[str, int]] = {}


class Message(msgspec.Struct, omit_defaults=True):
    """One of a process.

    ``number`` counts its messages with changes. ``whole``: these rows are all its pending claims.
    ``ask`` names processes that shall send all of theirs.
    """

    sender: str
    number: int
    rows: list[Row] = []
    whole: bool = False
    ask: list[str] = []


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode


def row_of(claim: PendingClaim, now: float) -> Row:
    """Everything that others need to know of a claim."""
    request, host, flavor = claim.request, claim.host, claim.request.flavor
    group, candidate = request.instance_group, claim.candidate
    devices = request.pci_requests and candidate is not None
    return Row(
        number=claim.number,
        state=State.CHOSEN if claim.claimed == math.inf else State.CLAIMED,
        age=max(0.0, now - claim.since),
        instance=request.instance_uuid,
        host=host.host,
        node=host.nodename,
        uuid=host.uuid,
        cell=host.cell_uuid,
        project=request.project_id,
        flavor=flavor.id,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.root_gb + flavor.ephemeral_gb,
        group=group.uuid if group else None,
        numa=request.numa_topology,
        pci=request.pci_requests,
        mappings=bytes(candidate.mappings).decode() if candidate and devices else '{}',
        amounts={name: dict(each) for name, each in claim.amounts.items()},
    )


def claim_of(row: Row, order: float, now: float) -> PendingClaim:
    """The claim that another process has told of. Its place on the cells of the host is found out
    where it is subtracted: it depends on the claims before."""
    size = row.vcpus, row.memory_mb, row.disk_gb
    request = Request(
        flavor=Flavor('', '', row.flavor, *size),
        instance_uuids=(row.instance or '',),
        instance_uuid=row.instance,
        project_id=row.project,
        instance_group=InstanceGroup(row.group) if row.group else None,
        numa_topology=row.numa,
        pci_requests=row.pci,
    )
    return PendingClaim(
        host=Host(row.host, row.node, row.uuid, row.cell, Service(row.host)),
        request=request,
        candidate=Candidate({}, msgspec.Raw(row.mappings.encode())),
        place=None,
        limits={},
        since=now - row.age,
        amounts=row.amounts,
        number=row.number,
        order=order,
        is_ours=False,
    )
