# SPDX-License-Identifier: Apache-2.0
"""Take PCI devices for a request from the pools of a host.

nova-compute applies the same rules when the instance arrives. So the order of the steps
is the order of ``nova.pci.stats.PciDeviceStats``, even where another order would find
more devices: a pool that the NUMA policy prefers is kept although a later step finds
the pool unfit. Requests are served in order, from the first usable pools.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from novasched.scheduler.model.pci import (
    PHYSICAL,
    VDPA,
    VIRTUAL,
    DeviceChoice,
    PciRequest,
    Pool,
    Pools,
)
from novasched.scheduler.model.values import is_true

REQUIRED = 'required'
LEGACY = 'legacy'
SOCKET = 'socket'
REMOTE_MANAGED = 'remote_managed'
LIVE_MIGRATABLE = 'live_migratable'
IN_PLACEMENT = frozenset(('resource_class', 'traits', 'rp_uuids'))
"""Properties of a device spec that only Placement evaluates."""

UNKNOWN_SOCKETS: Mapping[int, int | None] = {}

Mappings = Mapping[str, Collection[str]]
"""Resource providers by suffix of the request group, as Placement maps the groups
(microversion 1.34)."""


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """The constraints on the devices of an instance beside the request.

    :ivar cells: host cells of the guest; empty without a NUMA topology.
    :ivar sockets: socket of every cell of the host; None if the socket is unknown.
    :ivar providers: resource providers, repeated for each allocated device; empty if
        Placement does not allocate the devices.
    """

    cells: frozenset[int] = frozenset()
    sockets: Mapping[int, int | None] = field(default_factory=dict)
    providers: tuple[str, ...] = ()


def providers_of(request: PciRequest, mappings: Mappings | None) -> tuple[str, ...]:
    """Return the resource provider of each device of the request.

    Placement has a request group for each device; the name of the group begins with the
    id of the request. Without mappings, a request keeps the providers of an earlier
    claim (``rp_uuids``). Devices of ports are not in Placement.
    """
    if request.is_for_port:
        return ()
    if not mappings:
        if request.spec:
            rp_uuids = request.spec[0].get('rp_uuids')
            if rp_uuids:
                return tuple(rp_uuids.split(','))
        return ()
    name = request.request_id
    if not name:
        return ()

    providers = []
    for group, group_providers in mappings.items():
        if group.startswith(name) and group_providers:
            providers.append(next(iter(group_providers)))
    return tuple(providers)


def usable(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools | str:
    """Return the pools that can serve the request, the preferred pool first.

    A string says in one line why there are too few devices.
    """
    for step, words in _STEPS:
        pools = step(pools, request, source)
        count = _device_count(pools)
        if count < request.count or not pools:
            return f'PCI {request.label}: {count} of {request.count} devices {words}'
    return pools


def _device_count(pools: Pools) -> int:
    return sum(pool.count for pool in pools)


def _with_properties(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep pools with all properties of any spec, compared without regard to case."""
    specs = []
    for spec in request.spec:
        properties = {}
        for name, value in spec.items():
            if name not in IN_PLACEMENT:
                properties[name] = _lower(value)
        specs.append(properties)

    return tuple(pool for pool in pools if _matches_any(pool, specs))


def _matches_any(pool: Pool, specs: Iterable[Mapping[str, str | int | None]]) -> bool:
    for spec in specs:
        if all(_lower(pool.get(name)) == value for name, value in spec.items()):
            return True
    return False


def _lower(value: str | int | None) -> str | int | None:
    if isinstance(value, str):
        return value.lower()
    return value


def _near(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep pools that the NUMA policy of the request allows.

    ``required`` takes devices of the guest's cells. Each other policy takes the same
    devices if there are enough. Otherwise ``socket`` takes devices of cells on the
    guest's sockets, ``legacy`` adds devices of unknown cells, and ``preferred`` adds
    all devices, the nearer devices first.
    """
    cells = source.cells
    if not cells:
        return pools

    policy = request.numa_policy or LEGACY
    near = _on_cells(pools, cells)
    if policy == REQUIRED or _device_count(near) >= request.count:
        return near
    if policy == SOCKET:
        return _on_cells(pools, _cells_on_guest_sockets(source))

    cells_or_unknown = {*cells, None}
    not_far = _on_cells(pools, cells_or_unknown)
    if policy == LEGACY or _device_count(not_far) >= request.count:
        return not_far
    far = tuple(pool for pool in pools if pool.numa_node not in cells_or_unknown)
    return not_far + far


def _reachable(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep pools that the NUMA policy may allow a guest on a subset of the cells."""
    policy = request.numa_policy or LEGACY
    if not source.cells or policy not in (REQUIRED, LEGACY, SOCKET):
        return pools

    near: set[int | None] = {*source.cells}
    if policy == SOCKET:
        near |= _cells_on_guest_sockets(source)
    elif policy == LEGACY:
        near.add(None)
    return _on_cells(pools, near)


def _on_cells(pools: Pools, cells: Collection[int | None]) -> Pools:
    return tuple(pool for pool in pools if pool.numa_node in cells)


def _cells_on_guest_sockets(source: DeviceSource) -> set[int]:
    """Return the host cells on the sockets of the guest's cells.

    Empty if the socket of any cell of the host is unknown.
    """
    if None in source.sockets.values():
        return set()
    sockets = {source.sockets[cell] for cell in source.cells if cell in source.sockets}
    return {cell for cell, socket in source.sockets.items() if socket in sockets}


def _if_requested(
    dev_type: str, pools: Pools, request: PciRequest, source: DeviceSource
) -> Pools:
    """Keep devices of a type only for requests that name the type."""
    if any(spec.get('dev_type') == dev_type for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if pool.tags.get('dev_type') != dev_type)


def _without_remote(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep remote-managed devices (off-path backends) only where requested."""
    if any(is_true(spec.get(REMOTE_MANAGED)) for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if not is_true(pool.tags.get(REMOTE_MANAGED)))


def _allocated(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep pools of the allocated providers.

    Every provider must have as many devices as Placement allocated from the provider;
    otherwise no pool is kept.
    """
    if not source.providers:
        return pools

    allocated = Counter(source.providers)
    sufficient = []
    for pool in pools:
        provider = pool.tags.get('rp_uuid') or ''
        if 0 < allocated[provider] <= pool.count:
            sufficient.append(pool)

    if len({pool.tags['rp_uuid'] for pool in sufficient}) == len(allocated):
        return tuple(sufficient)
    return ()


def _migratable(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep live-migratable or other devices, if every spec names the same choice."""
    for choice in ('true', 'false'):
        if all(spec.get(LIVE_MIGRATABLE) == choice for spec in request.spec):
            return tuple(
                pool for pool in pools if pool.tags.get(LIVE_MIGRATABLE) == choice
            )
    return pools


_Step = Callable[[Pools, PciRequest, DeviceSource], Pools]
_STEPS: tuple[tuple[_Step, str], ...] = (
    (_with_properties, 'are of that kind'),
    (_near, 'are where its NUMA policy wants them'),
    (partial(_if_requested, PHYSICAL), 'are not physical functions'),
    (partial(_if_requested, VDPA), 'are not vDPA devices'),
    (_without_remote, 'are not managed remotely'),
    (_allocated, 'are those that Placement allocates'),
    (_migratable, 'can live-migrate as the request says'),
)
"""The steps, with the words that follow ``n of m devices`` in the reason."""


def consume(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None = None,
    cells: Iterable[int] = (),
    sockets: Mapping[int, int | None] = UNKNOWN_SOCKETS,
) -> Pools | str:
    """Return the pools after an instance took its devices.

    A string says in one line why the instance cannot have the devices.

    :param mappings: providers by request group of the allocation candidate.
    :param cells: host cells of the guest; empty without a NUMA topology.
    :param sockets: socket of each cell of the host.
    """
    cell_ids = frozenset(cells)
    for request in requests:
        source = DeviceSource(cell_ids, sockets, providers_of(request, mappings))
        remaining = _take(pools, request, source)
        if isinstance(remaining, str):
            return remaining
        pools = remaining
    return pools


def out_of_reach(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None,
    cells: Iterable[int],
    max_cells: int,
    sockets: Mapping[int, int | None],
) -> str | None:
    """Return why no guest on ``max_cells`` of the cells can have its devices.

    The reason is a line of text; None if some choice of cells may have the devices.
    """
    cell_ids = frozenset(cells)
    bound_pools: set[int] = set()
    bound_count = 0
    for request in requests:
        source = DeviceSource(cell_ids, sockets, providers_of(request, mappings))

        # The NUMA step runs with _reachable: a guest on more cells may find fewer
        # devices, since near devices are taken before the remaining devices.
        reachable = pools
        for step, _ in _STEPS:
            if step is _near:
                step = _reachable
            reachable = step(reachable, request, source)

        # A policy is bound if no device may be on a cell that the guest does not get.
        policy = request.numa_policy or LEGACY
        is_bound = policy in (REQUIRED, LEGACY)
        cell_count = max_cells if is_bound else len(reachable)
        count = _devices_on(reachable, cell_count)
        if not reachable or count < request.count:
            return (
                f'PCI {request.label}: {count} of {request.count} devices are within '
                'reach'
            )
        if is_bound:
            bound_pools.update(map(id, reachable))
            bound_count += len(source.providers) or request.count

    count = _devices_on((pool for pool in pools if id(pool) in bound_pools), max_cells)
    if count < bound_count:
        return f'{count} of {bound_count} PCI devices are within reach'
    return None


@dataclass(frozen=True, slots=True)
class _DevicesOfRequest:
    """The devices of a host for a request, before the NUMA policy is considered.

    :ivar of_kind: the pools with the properties of the request.
    :ivar usable: the pools among these that the other steps leave.
    :ivar may_be_fewer: an earlier request may take some of the devices.
    """

    request: PciRequest
    of_kind: Pools
    usable: Pools
    may_be_fewer: bool

    def near(self, source: DeviceSource) -> Mapping[str, int] | None:
        """Return the ranks of the providers whose devices the request may get beside
        host cells; None if there are too few devices."""
        # Of a smaller number of near devices, the policy may also allow far devices.
        step = _reachable if self.may_be_fewer else _near
        allowed = {*map(id, step(self.of_kind, self.request, source))}
        ranks = {}
        count = 0
        for pool in self.usable:
            if id(pool) not in allowed:
                continue
            count += pool.count
            provider = pool.tags.get('rp_uuid')
            if provider is not None:
                ranks[provider] = _rank(pool, source)
        if count < self.request.count:
            return None
        return ranks


def device_choices(
    pools: Pools,
    requests: Iterable[PciRequest],
    cell_sets: Iterable[Collection[int]] = ((),),
    sockets: Mapping[int, int | None] = UNKNOWN_SOCKETS,
) -> Iterator[DeviceChoice]:
    """Yield the devices that a guest may get, for each set of host cells where the
    devices suffice. A choice among these devices may be impossible all the same.

    :param cell_sets: sets of host cells for the guest; see :func:`consume`.
    :param sockets: see :func:`consume`.
    """
    devices = [*_devices_of_requests(pools, requests)]
    seen = []
    for cells in cell_sets:
        source = DeviceSource(frozenset(cells), sockets)
        choice = {}
        for of_request in devices:
            ranks = of_request.near(source)
            if ranks is None:
                break
            request = of_request.request
            if request.request_id and not request.is_for_port:
                choice[request.request_id] = ranks
        else:
            if choice not in seen:
                seen.append(choice)
                yield choice


def _devices_of_requests(
    pools: Pools, requests: Iterable[PciRequest]
) -> Iterator[_DevicesOfRequest]:
    anywhere = DeviceSource()
    # A pool by its object, and the relatives of a pool by the address of their parent.
    earlier: set[int | str] = set()
    for request in requests:
        of_kind = _with_properties(pools, request, anywhere)
        keys: set[int | str] = {*map(id, of_kind)}
        keys.update(filter(None, [pool.tags.get('address') for pool in of_kind]))
        usable = of_kind
        for step, _ in _STEPS:
            if step is not _near:
                usable = step(usable, request, anywhere)
        yield _DevicesOfRequest(request, of_kind, usable, not keys.isdisjoint(earlier))
        earlier |= keys


def _rank(pool: Pool, source: DeviceSource) -> int:
    """Return 0 for devices on the cells of the guest, 1 for devices on an unknown cell,
    2 for devices on other cells."""
    if pool.numa_node is None:
        return 1
    if pool.numa_node in source.cells:
        return 0
    return 2


def _devices_on(pools: Iterable[Pool], max_cells: int) -> int:
    """Return the largest number of devices on ``max_cells`` cells.

    Devices of unknown cells count in addition.
    """
    counts: Counter[int | None] = Counter()
    for pool in pools:
        counts[pool.numa_node] += pool.count
    unknown = counts.pop(None, 0)
    largest_first = sorted(counts.values(), reverse=True)
    return unknown + sum(largest_first[:max_cells])


def _take(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools | str:
    """Return the pools without the devices of a request, or why there are too few."""
    usable_pools = usable(pools, request, source)
    if isinstance(usable_pools, str):
        return usable_pools
    if source.providers and (provider := _provider_of_several_pools(pools)):
        return f'PCI provider {provider} has devices in several pools'

    allocated = Counter(source.providers)
    missing = allocated.total() or request.count
    for pool in usable_pools:
        index = _index_of(pool, pools)
        if index is None:
            continue  # the pool was dropped with a relative

        if allocated:
            count = allocated[str(pool.tags['rp_uuid'])]
        else:
            count = min(missing, pool.count)
        pools = tuple(_without(pools, index, count))
        missing -= count
        if missing <= 0:
            return pools

    return f'PCI {request.label}: taking some excludes {missing} more'


def _index_of(pool: Pool, pools: Pools) -> int | None:
    """Return the index of the object, since several pools may be equal."""
    for index, candidate in enumerate(pools):
        if candidate is pool:
            return index
    return None


def _without(pools: Pools, index: int, count: int) -> Iterator[Pool]:
    """Yield the pools after ``count`` devices of one pool were taken.

    Parents and children of taken devices are dropped, and the pool if it is empty.
    """
    for i, pool in enumerate(pools):
        if i == index:
            if pool.count > count:
                yield replace(pool, count=pool.count - count)
        elif not (count and _are_parent_and_child(pool, pools[index])):
            yield pool


def _are_parent_and_child(pool: Pool, other_pool: Pool) -> bool:
    """Return True if the physical function of one pool has the functions of the other.

    A physical function cannot be assigned together with its virtual functions. Both
    pools have the address of the physical function.
    """
    address = pool.tags.get('address')
    if not address or address != other_pool.tags.get('address'):
        return False
    kinds = {pool.tags.get('dev_type'), other_pool.tags.get('dev_type')}
    return PHYSICAL in kinds and not kinds.isdisjoint((VIRTUAL, VDPA))


def _provider_of_several_pools(pools: Pools) -> str | None:
    """Return a provider with more than one pool, None if there is none.

    The pool of the allocated devices is ambiguous for such a provider.
    """
    pool_counts = Counter(
        pool.tags['rp_uuid'] for pool in pools if 'rp_uuid' in pool.tags
    )
    for provider, count in pool_counts.items():
        if count > 1:
            return str(provider)
    return None
