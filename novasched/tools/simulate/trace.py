# SPDX-License-Identifier: Apache-2.0
"""Play a trace: boots and deletions, on a virtual clock.

A trace is a file of JSON lines, one line for each request for instances::

    {"at": 0, "flavor": "m1.large", "lifetime": 86400}
    {"at": 2.5, "vcpus": 2, "memory_mb": 4096, "count": 3, "group": "web"}
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import msgspec

from novasched.observe.records import render
from novasched.rpc.decode import MAX_FLAVOR_SIZE, MAX_INSTANCES
from novasched.scheduler.errors import BadPlugin, BadRequest, MetricMissing
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from novasched.scheduler.weighers.fragmentation import (
    CELLS,
    demand_of_request,
    free_capacity,
    resource_name,
    usual_demands,
)
from novasched.scheduler.weighers.usable_capacity import FreeCapacity, Stranded
from novasched.tools.plan.rescue import Rescuer
from novasched.tools.simulate.evacuations import progress
from novasched.tools.simulate.simulation import RequestOptions, Simulation
from novasched.tools.simulate.sources import Unusable

MAX_USUAL_FLAVORS = 12
"""The flavors of a trace that count as usual, the most frequent flavors first."""

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_FLAVOR_SIZE)]
Number = Annotated[int, msgspec.Meta(ge=1, le=MAX_FLAVOR_SIZE)]


class TraceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request for instances.

    :ivar at: the time in seconds.
    :ivar flavor: the id or name of a flavor of the cloud; None for the sizes below.
    :ivar memory_mb: memory in MiB.
    :ivar root_gb: root disk in GiB.
    :ivar extra_specs: extra specs that are added to the flavor, or replace its own.
    :ivar count: the number of instances.
    :ivar lifetime: seconds until the instances are deleted; None to keep them.
    :ivar group: a server group of all requests with this name.
    """

    at: Seconds
    flavor: str | None = None
    vcpus: Number = 1
    memory_mb: Amount = 0
    root_gb: Amount = 0
    extra_specs: dict[str, str] = {}
    image_properties: dict[str, str] = {}
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_INSTANCES)] = 1
    lifetime: Seconds | None = None
    zone: str | None = None
    project: str | None = None
    group: str | None = None
    group_policy: Literal[
        'anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity'
    ] = 'anti-affinity'

    @property
    def kind(self) -> Hashable:
        """Equal for entries with equal flavors."""
        specs = tuple(sorted(self.extra_specs.items()))
        return self.flavor, self.vcpus, self.memory_mb, self.root_gb, specs


_decode = msgspec.json.Decoder(TraceEntry).decode


def read_trace(path: str) -> Sequence[TraceEntry]:
    """The entries of a file, in the order of their times.

    :raises Unusable: the file cannot be read, or a line is no entry.
    """
    entries = []
    try:
        with open(path, 'rb') as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    entries.append(_entry(path, number, line))
    except OSError as error:
        raise Unusable(f'{path}: {error.strerror}') from None
    if not entries:
        raise Unusable(f'{path}: there is no request in the file')
    return sorted(entries, key=lambda entry: entry.at)


def _entry(path: str, number: int, line: bytes) -> TraceEntry:
    try:
        return _decode(line)
    except ValueError as error:
        raise Unusable(f'{path}: line {number}: {error}') from None


def flavor_of(entry: TraceEntry, find: Callable[[str], Flavor | None]) -> Flavor:
    """The flavor of an entry, without the extra specs of the entry.

    :raises Unusable: the cloud has no such flavor.
    """
    if entry.flavor is None:
        return Flavor(
            vcpus=entry.vcpus, memory_mb=entry.memory_mb, root_gb=entry.root_gb
        )
    flavor = find(entry.flavor)
    if flavor is None:
        raise Unusable(f'there is no flavor of the id or name {entry.flavor}')
    return flavor


def usual_guests_of(
    entries: Sequence[TraceEntry],
    find: Callable[[str], Flavor | None],
    capacity: Mapping[Hashable, float],
) -> UsualGuests:
    """The most frequent flavors of a trace.

    :param capacity: the capacity of the cloud.
    :raises Unusable: the cloud lacks a flavor.
    """
    numbers = Counter[Hashable]()
    first_of: dict[Hashable, TraceEntry] = {}
    for entry in entries:
        numbers[entry.kind] += entry.count
        first_of.setdefault(entry.kind, entry)

    guests = []
    for kind, number in numbers.most_common(MAX_USUAL_FLAVORS):
        entry = first_of[kind]
        flavor = flavor_of(entry, find)
        specs = {**flavor.extra_specs, **entry.extra_specs}
        guests.append(UsualGuest(replace(flavor, extra_specs=specs), number))
    return UsualGuests(tuple(guests), capacity)


@dataclass(frozen=True, slots=True)
class Moment:
    """The cloud at a moment of a trace. Shares are of the capacity that was free at the
    beginning.

    :ivar at: the time in seconds.
    :ivar offered: by resource, the share that the instances would use if none had been
        refused.
    :ivar in_use: by resource, the share in use.
    :ivar servers: the number of instances.
    :ivar refused: the number of instances refused so far.
    :ivar stranded: by resource, the free capacity that no usual guest can use.
    :ivar fitting: for each usual flavor, the number of instances that still fit.
    """

    at: float
    offered: Mapping[str, float]
    in_use: Mapping[str, float]
    servers: int
    refused: int
    stranded: Mapping[str, Stranded]
    fitting: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a trace under a configuration.

    :ivar asked: the number of instances.
    :ivar refusals: the number of refused instances by flavor and headline.
    :ivar rescued: the number of instances that got room by moves of others.
    :ivar moves: the number of these moves.
    """

    name: str
    moments: Sequence[Moment]
    asked: int
    refusals: Counter[tuple[str, str]]
    rescued: int = 0
    moves: int = 0

    @property
    def refused(self) -> int:
        """The number of instances refused."""
        return self.refusals.total()


@dataclass(order=True, slots=True)
class _End:
    """The end of the instances of an entry.

    :ivar number: the number of the entry, for a definite order.
    :ivar servers: the UUIDs of the placed instances and of their compute nodes.
    :ivar sizes: the amounts of the instances, also of refused ones.
    """

    at: float
    number: int
    servers: Sequence[tuple[str, str]] = field(compare=False)
    sizes: Counter[Hashable] = field(compare=False)


@dataclass(slots=True)
class _Counts:
    """The counts of a trace so far.

    :ivar asked: the number of requested instances.
    :ivar servers: the number of instances that exist.
    :ivar offered: the amounts of the instances that would exist if none had been
        refused.
    """

    asked: int = 0
    servers: int = 0
    offered: Counter[Hashable] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)


class TracePlayer:
    """Plays a trace in a simulation.

    :param usual: the usual guests of the trace.
    :param rescuer: makes room for refused requests; None to refuse them.
    """

    def __init__(
        self,
        simulation: Simulation,
        usual: UsualGuests,
        rescuer: Rescuer | None = None,
    ) -> None:
        self._simulation = simulation
        self._rescuer = rescuer
        self._simulator = simulation.simulator
        # The report has no weights.
        self._simulator.leave_out_weights()
        self._usual = usual
        self._demands = usual_demands(usual)
        self._requests: dict[Hashable, Request] = {}
        self._ends: list[_End] = []
        self._counts = _Counts()
        self._at_first = self._free_now()

    def play(self, name: str, entries: Sequence[TraceEntry], moments: int) -> Played:
        """Play the entries of a trace. On a terminal, a progress bar is shown.

        :param moments: the number of moments to report, each after the same number of
            entries.
        :raises Unusable: the cloud lacks a flavor of the trace.
        """
        reported = []
        due = 1
        for number, entry in enumerate(progress(entries, name), 1):
            self._end_until(entry.at)
            self._boot(number, entry)
            if number * moments >= due * len(entries):
                due += 1
                reported.append(self._moment(entry.at))
        counts = self._counts
        played = Played(name, reported, counts.asked, Counter(counts.refusals))
        if self._rescuer is not None:
            played = replace(
                played, rescued=self._rescuer.rescued, moves=self._rescuer.moves
            )
        return played

    def _boot(self, number: int, entry: TraceEntry) -> None:
        """Place the instances of an entry, or refuse them."""
        request = self._simulator.anew(self._request(entry))
        sizes = Counter[Hashable]()
        for name, size in demand_of_request(request).sizes.items():
            sizes[name] = int(size) * entry.count
        counts = self._counts
        counts.offered.update(sizes)
        counts.asked += entry.count

        flavor = request.flavor.label
        servers: list[tuple[str, str]] = []
        try:
            outcome = self._simulator.decide(request)
        except (BadRequest, BadPlugin, MetricMissing) as error:
            # Errors of this request alone; further requests are decided.
            counts.refusals[flavor, str(error)] += entry.count
        else:
            selections = [row[0] for row in outcome.decision.selections]
            uuids = request.instance_uuids or ()
            # Without selections after a refusal.
            for uuid, chosen in zip(uuids, selections, strict=False):
                servers.append((uuid, chosen.compute_node_uuid))
            if self._rescuer is not None and servers:
                self._rescuer.placed(request, selections)
            elif self._rescuer is not None:
                for server in self._rescuer.rescue(request):
                    servers.append((server.uuid, server.node_uuid))
            if not servers:
                headline = render.headline(outcome.record(number))
                counts.refusals[flavor, headline] += entry.count

        counts.servers += len(servers)
        if entry.lifetime is not None:
            end = _End(entry.at + entry.lifetime, number, servers, sizes)
            heapq.heappush(self._ends, end)

    def _end_until(self, moment: float) -> None:
        """Delete the instances whose time is over."""
        while self._ends and self._ends[0].at <= moment:
            end = heapq.heappop(self._ends)
            self._counts.offered.subtract(end.sizes)
            self._counts.servers -= len(end.servers)
            for uuid, node in end.servers:
                if self._rescuer is not None:
                    self._rescuer.delete(uuid, node)
                else:
                    self._simulator.delete(uuid, node)

    def _request(self, entry: TraceEntry) -> Request:
        """The request of an entry; the same for equal entries."""
        properties = tuple(sorted(entry.image_properties.items()))
        where = entry.zone, entry.project, entry.group, entry.group_policy
        key = entry.kind, entry.count, properties, where
        if key not in self._requests:
            self._requests[key] = self._new_request(entry)
        return self._requests[key]

    def _new_request(self, entry: TraceEntry) -> Request:
        flavor = flavor_of(entry, self._simulation.find_flavor)
        options = RequestOptions(
            count=entry.count,
            project=entry.project,
            zone=entry.zone,
            extra_specs=entry.extra_specs,
            image_properties=entry.image_properties,
        )
        request = self._simulation.new_request(flavor, options)
        if entry.group is None:
            return request
        group_uuid = f'simulated-{entry.group}'
        group = ServerGroup(
            uuid=group_uuid, name=entry.group, policy=entry.group_policy
        )
        hints = {**request.scheduler_hints, 'group': (group_uuid,)}
        return replace(request, instance_group=group, scheduler_hints=hints)

    def _free_now(self) -> FreeCapacity:
        """The free capacity, as far as the usual guests need it."""
        hosts = self._simulator.hosts
        return free_capacity(hosts, self._demands.demands, self._offer_of_devices())

    def _offer_of_devices(self) -> Candidates | None:
        """The candidates of a usual guest with devices: they tell the free devices.
        None if no usual guest has devices."""
        for guest, demand in zip(
            self._usual.guests, self._demands.demands, strict=True
        ):
            if any(part.kind != CELLS for part in demand.parts):
                request = self._simulation.new_request(guest.flavor, RequestOptions())
                return self._simulator.placement.candidates(request)
        return None

    def _moment(self, at: float) -> Moment:
        free = self._free_now()
        offered = {}
        in_use = {}
        stranded = {}
        for name, amount in self._demands.stranded(free).items():
            text = resource_name(name)
            stranded[text] = amount
            capacity = float(self._at_first.total_of(name).sum())
            if capacity > 0:
                offered[text] = self._counts.offered[name] / capacity
                in_use[text] = 1 - amount.free / capacity

        fitting = {}
        numbers = self._demands.whole_guests(free).sum(axis=1).tolist()
        for guest, number in zip(self._usual.guests, numbers, strict=True):
            fitting[guest.flavor.label] = int(number)
        return Moment(
            at=at,
            offered=offered,
            in_use=in_use,
            servers=self._counts.servers,
            refused=self._counts.refusals.total(),
            stranded=stranded,
            fitting=fitting,
        )
