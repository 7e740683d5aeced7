# SPDX-License-Identifier: Apache-2.0
"""Messages between schedulers about their pending claims, as MessagePack.

Fields that a later release adds have defaults, and earlier releases skip them. Another
meaning of a field needs another exchange (``claims_exchange.py``).

Everybody with the password of RabbitMQ can send announcements. Each row of a message is
therefore checked when the message is heard. A row that no scheduler writes is refused,
and the other rows count.
"""

from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from novasched.scheduler.fitting import LIMITS
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.claim import PendingClaim, Stage
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host, Service
from novasched.scheduler.model.numa import (
    ANY_PAGES,
    GuestCell,
    GuestTopology,
    TopologyLimits,
)
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import InstanceGroup, Request
from novasched.scheduler.model.values import MAX_CPUS

MAX_MESSAGE_BYTES = 16 << 20
MAX_ROW_BYTES = 16 << 10
"""Maximum size of a row. A claim takes some hundred bytes, and a guest with 4,000
pinned vCPUs takes 12 KiB."""
MAX_ROWS = 20_000
"""Maximum number of rows in a message."""
MAX_ASKED = 1000
"""Maximum number of processes that a message asks."""
MAX_AMOUNT = 2**40
"""Maximum of every amount. No sum of pending amounts exceeds 64 bits."""
MAX_RATIO = 10.0**6
MAX_AGE_S = 10.0**9

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]


class Row(msgspec.Struct, omit_defaults=True):
    """A claim of a process, or a change of its state.

    ``number`` identifies the claim among those of the process. Memory is in MiB, disk
    in GiB; ``age`` are the seconds since the host was chosen. ``limits`` are the
    allocation ratios and networks with which the guest was fitted on its NUMA cells.
    """

    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    state: str = Stage.CHOSEN
    age: Annotated[float, Meta(ge=0.0, le=MAX_AGE_S)] = 0.0
    instance: str | None = None
    host: str = ''
    node: str = ''
    uuid: str = ''
    cell: str = ''
    project: str | None = None
    flavor: Count | None = None
    vcpus: Amount = 0
    memory_mb: Amount = 0
    disk_gb: Amount = 0
    group: str | None = None
    numa: GuestTopology | None = None
    pci: tuple[PciRequest, ...] = ()
    mappings: str = '{}'
    amounts: dict[str, dict[str, Amount]] = {}
    limits: TopologyLimits | None = None


RowType = TypeVar('RowType')


class Message(msgspec.Struct, Generic[RowType], omit_defaults=True):
    """A message of a process.

    ``number`` counts its messages with changes. ``whole``: the rows are all its pending
    claims. ``ask`` names processes that shall send all of theirs.
    """

    sender: Annotated[str, Meta(max_length=255)]
    number: Count
    rows: Annotated[list[RowType], Meta(max_length=MAX_ROWS)] = []
    whole: bool = False
    ask: Annotated[list[str], Meta(max_length=MAX_ASKED)] = []


class _Numbered(msgspec.Struct):
    number: int


encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(Message[msgspec.Raw]).decode
_decode_row = msgspec.msgpack.Decoder(Row).decode
_decode_number = msgspec.msgpack.Decoder(_Numbered).decode
_decode_mappings = msgspec.json.Decoder(dict[str, list[str]]).decode


def decode(text: bytes) -> Message[msgspec.Raw]:
    """Decode a message, but not its rows.

    :raises ValueError: no scheduler sends such a message.
    """
    if len(text) > MAX_MESSAGE_BYTES:
        raise ValueError(f'it has more than {MAX_MESSAGE_BYTES} bytes')
    try:
        return _decode_message(text)
    except RecursionError:
        raise ValueError('it is nested too deeply') from None


def decode_row(text: msgspec.Raw) -> Row:
    """Decode a row of another process.

    :raises ValueError: no scheduler announces such a claim.
    """
    if len(bytes(text)) > MAX_ROW_BYTES:
        raise ValueError(f'it has more than {MAX_ROW_BYTES} bytes')
    try:
        row = _decode_row(text)
        _decode_mappings(row.mappings)
    except RecursionError:
        raise ValueError('it is nested too deeply') from None
    if row.numa is not None:
        _check_topology(row.numa)
    if row.limits is not None:
        _check_limits(row.limits)
    for request in row.pci:
        _check('count of PCI devices', request.count, 0, MAX_AMOUNT)
    return row


def decode_number(text: msgspec.Raw) -> int:
    """Decode the number of a row of this process.

    :raises ValueError: it is not a row.
    """
    try:
        return _decode_number(text).number
    except RecursionError:
        raise ValueError('it is nested too deeply') from None


def _check_topology(topology: GuestTopology) -> None:
    if not topology.cells:
        raise ValueError('a NUMA topology without cells')
    for cell in topology.cells:
        _check_cell(cell)


def _check_cell(cell: GuestCell) -> None:
    _check('id of a NUMA cell', cell.id, 0, MAX_CPUS)
    _check('memory of a NUMA cell', cell.memory, 0, MAX_AMOUNT)
    for cpu in cell.cpuset | cell.pcpuset:
        _check('vCPU of a NUMA cell', cpu, 0, MAX_CPUS)
    if cell.pagesize is not None:
        _check('page size of a NUMA cell', cell.pagesize, ANY_PAGES, MAX_AMOUNT)


def _check_limits(limits: TopologyLimits) -> None:
    _check('CPU allocation ratio', limits.cpu_allocation_ratio, 0.0, MAX_RATIO)
    _check('RAM allocation ratio', limits.ram_allocation_ratio, 0.0, MAX_RATIO)


def _check(name: str, number: float, least: float, most: float) -> None:
    """Check the bounds of a number.

    :raises ValueError: it is beyond them, or NaN.
    """
    if not least <= number <= most:
        raise ValueError(f'{name} is not between {least} and {most}')


def row_of(claim: PendingClaim, is_claimed: bool, now: float) -> Row:
    """The row with all that other schedulers need to subtract a claim."""
    request = claim.request
    host = claim.host
    flavor = request.flavor
    group = request.instance_group
    candidate = claim.candidate
    mappings = '{}'
    if candidate and request.pci_requests:
        mappings = bytes(candidate.mappings).decode()
    return Row(
        number=claim.number,
        state=Stage.CLAIMED if is_claimed else Stage.CHOSEN,
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
        mappings=mappings,
        amounts={name: dict(each) for name, each in claim.amounts.items()},
        limits=claim.limits.get(LIMITS) if request.numa_topology else None,
    )


def claim_of(row: Row, now: float) -> PendingClaim:
    """The claim that another process has announced. The place of its guest on the NUMA
    cells is computed when the claim is subtracted, since it depends on the claims
    before."""
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
        limits={LIMITS: row.limits} if row.limits else {},
        since=now - row.age,
        amounts=row.amounts,
        number=row.number,
        is_ours=False,
    )
