# SPDX-License-Identifier: Apache-2.0
"""The format of announcements: messages of schedulers about pending claims, in
MessagePack.

A later release may add fields with defaults. Earlier releases skip unknown fields. To
change the meaning of a field, change the name of the exchange (``claims_exchange.py``).

Every holder of the RabbitMQ password can send announcements. Therefore every row of a
message is checked when the message arrives. An invalid row is refused, and the rest of
the message counts.
"""

import math
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
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.model.values import MAX_CPUS

MAX_MESSAGE_BYTES = 16 << 20
MAX_ROW_BYTES = 16 << 10
"""Maximum size of a row. A usual claim takes a few hundred bytes. A claim of a guest
with 4,000 pinned vCPUs takes 12 KiB."""
MAX_ROWS = 20_000
"""Maximum number of rows in a message."""
MAX_ASKED = 1000
"""Maximum number of schedulers that a message asks."""
MAX_AMOUNT = 2**40
"""Maximum of an amount. Sums of pending amounts then fit into 64 bits."""
MAX_RATIO = 10.0**6
MAX_AGE_S = 10.0**9

MAX_VCPUS = 4096
"""Maximum number of vCPUs in a row. KVM has no larger guests."""
MAX_PARTS = 1024
"""Maximum number of NUMA cells, providers, amounts, PCI devices, properties of devices
and networks in a row, all together. A guest with 64 devices, each a provider of its own
with two properties, has about 400."""
CLAIM_BYTES = 2560
"""Memory of a pending claim beside its texts, vCPUs and parts."""
VCPU_BYTES = 100
"""Maximum memory of a vCPU in a set, in a sparse set of large numbers."""
PART_BYTES = 300
"""Maximum memory of a part: a dict with an item."""
MAX_CLAIM_BYTES = 256 << 20
"""Maximum memory of the pending claims of all peers, as :func:`memory_of` estimates.
Enough for 20,000 guests with 64 pinned vCPUs each."""

Uuid = Annotated[
    str, Meta(pattern=r'^[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\Z')
]
"""A text that a column of UUIDs can hold: the readers of the databases look for
instances of claims (``cells/cell_host_cache.py``)."""
Name = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Age = Annotated[float, Meta(ge=0.0, le=MAX_AGE_S)]


class Row(msgspec.Struct, omit_defaults=True):
    """A pending claim, or a change of its state.

    Memory is in MiB, disk in GiB.

    :ivar number: identifies the claim among all claims of the sender.
    :ivar age: seconds since the host was chosen.
    :ivar claimed_age: seconds since the request of the claim was answered; None before,
        and in rows of earlier releases.
    :ivar instance: UUID of the instance. None in a row that only changes the state.
    :ivar uuid: UUID of the compute node.
    :ivar limits: the allocation ratios and networks with which the guest was fitted on
        its NUMA cells.
    """

    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    state: str = Stage.CHOSEN
    age: Age = 0.0
    claimed_age: Age | None = None
    instance: Uuid | None = None
    host: Name = ''
    node: Name = ''
    uuid: Uuid = ''
    cell: Uuid = ''
    project: Name | None = None
    flavor: Count | None = None
    vcpus: Amount = 0
    memory_mb: Amount = 0
    disk_gb: Amount = 0
    group: Uuid | None = None
    numa: GuestTopology | None = None
    pci: tuple[PciRequest, ...] = ()
    mappings: str = '{}'
    amounts: dict[str, dict[str, Amount]] = {}
    limits: TopologyLimits | None = None


RowType = TypeVar('RowType')


class Message(msgspec.Struct, Generic[RowType], omit_defaults=True):
    """A message of a scheduler.

    :ivar sender: the name of the scheduler.
    :ivar number: the number of messages with changes that the scheduler has sent, and
        of changes that the scheduler has not announced.
    :ivar whole: the rows are all pending claims of the scheduler.
    :ivar ask: names of schedulers that have to send all pending claims.
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
    """Decode a message without its rows.

    :raises ValueError: the message is invalid.
    """
    if len(text) > MAX_MESSAGE_BYTES:
        raise ValueError(f'more than {MAX_MESSAGE_BYTES} bytes')
    try:
        return _decode_message(text)
    except RecursionError:
        raise ValueError('nested too deeply') from None


def decode_row(text: msgspec.Raw) -> Row:
    """Decode a row of another scheduler.

    :raises ValueError: the row is invalid.
    """
    if len(bytes(text)) > MAX_ROW_BYTES:
        raise ValueError(f'more than {MAX_ROW_BYTES} bytes')
    try:
        row = _decode_row(text)
        _decode_mappings(row.mappings)
    except RecursionError:
        raise ValueError('nested too deeply') from None

    if row.numa is not None:
        _check_topology(row.numa)
    if row.limits is not None:
        _check_limits(row.limits)
    for request in row.pci:
        _check('count of PCI devices', request.count, 0, MAX_AMOUNT)
    _check('number of vCPUs', _vcpus(row), 0, MAX_VCPUS)
    _check('number of cells, providers and devices', _parts(row), 0, MAX_PARTS)
    return row


def memory_of(row: Row, text: msgspec.Raw) -> int:
    """An estimate of the memory of the claim of a row, in bytes, rather too large.

    :param text: the encoded row.
    """
    values = VCPU_BYTES * _vcpus(row) + PART_BYTES * _parts(row)
    return CLAIM_BYTES + len(bytes(text)) + values


def _vcpus(row: Row) -> int:
    """The number of vCPUs in the NUMA cells of a row."""
    number = 0
    if row.numa is not None:
        for cell in row.numa.cells:
            number += len(cell.cpuset) + len(cell.pcpuset)
    return number


def _parts(row: Row) -> int:
    """The number of values in the collections of a row, without vCPUs."""
    number = len(row.amounts) + sum(map(len, row.amounts.values()))
    for request in row.pci:
        number += 1 + len(request.spec) + sum(map(len, request.spec))
    if row.numa is not None:
        number += len(row.numa.cells)
    if row.limits is not None and row.limits.physnets is not None:
        number += len(row.limits.physnets)
    return number


def decode_number(text: msgspec.Raw) -> int:
    """Decode only the number of a row.

    :raises ValueError: the row is invalid.
    """
    try:
        return _decode_number(text).number
    except RecursionError:
        raise ValueError('nested too deeply') from None


def _check_topology(topology: GuestTopology) -> None:
    if not topology.cells:
        raise ValueError('NUMA topology without cells')
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

    :raises ValueError: the number is out of bounds, or NaN.
    """
    # Every comparison with NaN is false.
    if not least <= number <= most:
        raise ValueError(f'{name} is not between {least} and {most}')


def row_of(claim: PendingClaim, claimed_at: float, now: float) -> Row:
    """The row of a claim, with all values that another scheduler needs to subtract the
    claim from its host.

    :param claimed_at: when the request of the claim was answered; infinite before.
    """
    request = claim.request
    host = claim.host
    flavor = request.flavor

    state = Stage.CHOSEN
    claimed_age = None
    if claimed_at < math.inf:
        state = Stage.CLAIMED
        claimed_age = max(0.0, now - claimed_at)
    group = None
    if request.instance_group:
        group = request.instance_group.uuid

    # The mappings tell which devices the guest gets, and the limits on which NUMA cells
    # the guest fits. Without devices or NUMA cells no scheduler reads these fields.
    mappings = '{}'
    if claim.candidate and request.pci_requests:
        mappings = bytes(claim.candidate.mappings).decode()
    limits = None
    if request.numa_topology:
        limits = claim.limits.get(LIMITS)
    amounts = {}
    for provider, resources in claim.amounts.items():
        amounts[provider] = dict(resources)

    return Row(
        number=claim.number,
        state=state,
        age=max(0.0, now - claim.since),
        claimed_age=claimed_age,
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
        group=group,
        numa=request.numa_topology,
        pci=request.pci_requests,
        mappings=mappings,
        amounts=amounts,
        limits=limits,
    )


def claim_of(row: Row, now: float) -> PendingClaim:
    """The claim that another scheduler has announced.

    The claim has no fit on the NUMA cells of the host. The fit depends on earlier
    claims, and is computed when the claim is subtracted from the host.
    """
    group = None
    if row.group:
        group = ServerGroup(row.group)
    limits = {}
    if row.limits:
        limits[LIMITS] = row.limits
    request = Request(
        flavor=Flavor('', '', row.flavor, row.vcpus, row.memory_mb, row.disk_gb),
        instance_uuids=(row.instance or '',),
        instance_uuid=row.instance,
        project_id=row.project,
        instance_group=group,
        numa_topology=row.numa,
        pci_requests=row.pci,
    )
    return PendingClaim(
        host=Host(row.host, row.node, row.uuid, row.cell, Service(row.host)),
        request=request,
        candidate=Candidate({}, msgspec.Raw(row.mappings.encode())),
        fit=None,
        limits=limits,
        since=now - row.age,
        amounts=row.amounts,
        number=row.number,
        is_ours=False,
    )
