# SPDX-License-Identifier: Apache-2.0
"""The pools of a host's PCI devices: those that serve a request, and those that it
leaves.

nova-compute judges again by the same rules when the instance arrives, so the order of
the steps is nova's (``nova.pci.stats.PciDeviceStats``) even where another one would
find more: a pool that the NUMA policy prefers is not given up when a later step finds
it unfit. Requests are served in their order, each from the pools that come first.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from novasched.scheduler.model.pci import (
    PHYSICAL,
    VDPA,
    VIRTUAL,
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
"""Properties of a spec that are for Placement alone."""

UNKNOWN_SOCKETS: Mapping[int, int | None] = {}

Mappings = Mapping[str, Collection[str]]
"""Suffix of each request group to the providers that serve it, as Placement maps
them."""


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """The constraints on an instance's devices from outside of its request.

    ``cells`` are the host cells that the guest gets, none if it has no NUMA topology;
    ``sockets`` has the socket of every cell of the host, None where it is not known;
    ``providers`` are Placement's providers, each as often as it gives a device, none if
    Placement was not asked for the devices.
    """

    cells: frozenset[int] = frozenset()
    sockets: Mapping[int, int | None] = field(default_factory=dict)
    providers: tuple[str, ...] = ()


def providers_of(request: PciRequest, mappings: Mappings | None) -> tuple[str, ...]:
    """The provider of each device, one group for each, named after the request.

    A request that knows its providers already (``rp_uuids``) keeps to them where there
    are no mappings. Devices of ports are not in Placement.
    """
    if request.is_for_port:
        return ()
    if not mappings:
        known = request.spec[0].get('rp_uuids') if request.spec else None
        if known:
            return tuple(known.split(','))
        return ()
    name = request.request_id
    if not name:
        return ()
    serving = [given for group, given in mappings.items() if group.startswith(name)]
    return tuple(next(iter(given)) for given in serving if given)


def usable(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools | str:
    """The pools that can serve a request, the one to take from first in front; or why
    there are too few devices, in one line."""
    for step, words in _STEPS:
        pools = step(pools, request, source)
        found = _devices(pools)
        if found < request.count or not pools:
            return f'PCI {request.label}: {found} of {request.count} devices {words}'
    return pools


def _devices(pools: Pools) -> int:
    return sum(pool.count for pool in pools)


def _with_properties(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep those that have all properties of one of the specs, whatever their case."""
    specs = [
        {
            name: _plain(value)
            for name, value in spec.items()
            if name not in IN_PLACEMENT
        }
        for spec in request.spec
    ]
    return tuple(
        pool
        for pool in pools
        if any(
            all(_plain(pool.get(x)) == value for x, value in spec.items())
            for spec in specs
        )
    )


def _plain(value: str | int | None) -> str | int | None:
    if isinstance(value, str):
        return value.lower()
    return value


def _near(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep those that the request's NUMA policy allows. Each policy is content with
    what a stricter one finds, if that is enough; ``legacy`` also takes devices whose
    cell is not known, any other policy (``preferred``) takes all, the nearer ones
    first."""
    cells = source.cells
    if not cells:
        return pools
    policy = request.numa_policy or LEGACY
    within = tuple(pool for pool in pools if pool.numa_node in cells)
    if policy == REQUIRED or _devices(within) >= request.count:
        return within
    if policy == SOCKET:
        near = _on_their_sockets(source)
        return tuple(pool for pool in pools if pool.numa_node in near)
    loosely = tuple(
        pool for pool in pools if pool.numa_node is None or pool.numa_node in cells
    )
    if policy == LEGACY or _devices(loosely) >= request.count:
        return loosely
    return (
        *loosely,
        *(p for p in pools if p.numa_node is not None and p.numa_node not in cells),
    )


def _reached(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep those that the NUMA policy could allow a guest that gets some of the
    cells."""
    policy = request.numa_policy or LEGACY
    if not source.cells or policy not in (REQUIRED, LEGACY, SOCKET):
        return pools
    near: set[int | None] = {*source.cells}
    if policy == SOCKET:
        near |= _on_their_sockets(source)
    elif policy == LEGACY:
        near.add(None)
    return tuple(pool for pool in pools if pool.numa_node in near)


def _on_their_sockets(source: DeviceSource) -> set[int]:
    """The host cells on the sockets that the guest's cells are on; none if a cell of
    the host does not say which socket it is on."""
    if None in source.sockets.values():
        return set()
    sockets = {source.sockets[cell] for cell in source.cells if cell in source.sockets}
    return {cell for cell, socket in source.sockets.items() if socket in sockets}


def _if_asked(
    kind: str, pools: Pools, request: PciRequest, source: DeviceSource
) -> Pools:
    """Keep devices of that kind for requests that name it."""
    if any(spec.get('dev_type') == kind for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if pool.tags.get('dev_type') != kind)


def _without_remote(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    if any(is_true(spec.get(REMOTE_MANAGED)) for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if not is_true(pool.tags.get(REMOTE_MANAGED)))


def _allocated(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep those of Placement's providers that have as many devices as it allocated;
    none unless each of these providers has."""
    if not source.providers:
        return pools
    wanted = Counter(source.providers)
    able = tuple(p for p in pools if 0 < wanted[p.tags.get('rp_uuid') or ''] <= p.count)
    if len({p.tags['rp_uuid'] for p in able}) == len(wanted):
        return able
    return ()


def _migratable(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools:
    """Keep those that live-migrate, or that do not, if every spec names one of the
    two."""
    for wanted in ('true', 'false'):
        if all(spec.get(LIVE_MIGRATABLE) == wanted for spec in request.spec):
            return tuple(
                pool for pool in pools if pool.tags.get(LIVE_MIGRATABLE) == wanted
            )
    return pools


_Step = Callable[[Pools, PciRequest, DeviceSource], Pools]
_STEPS: tuple[tuple[_Step, str], ...] = (
    (_with_properties, 'are of that kind'),
    (_near, 'are where its NUMA policy wants them'),
    (partial(_if_asked, PHYSICAL), 'are not physical functions'),
    (partial(_if_asked, VDPA), 'are not vDPA devices'),
    (_without_remote, 'are not managed remotely'),
    (_allocated, 'are those that Placement allocates'),
    (_migratable, 'can live-migrate as the request says'),
)
"""The steps, each with words that follow ``n of m devices``."""


def consume(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None = None,
    cells: Iterable[int] = (),
    sockets: Mapping[int, int | None] = UNKNOWN_SOCKETS,
) -> Pools | str:
    """The pools after an instance took its devices; or why it cannot have them, in one
    line.

    :param mappings: which providers serve which request group of the candidate.
    :param cells: the host cells of the guest, if it has a NUMA topology.
    :param sockets: the socket of each cell of the host.
    """
    cell_ids = frozenset(cells)
    for request in requests:
        source = DeviceSource(cell_ids, sockets, providers_of(request, mappings))
        left = _after(pools, request, source)
        if isinstance(left, str):
            return left
        pools = left
    return pools


def out_of_reach(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None,
    cells: Iterable[int],
    most: int,
    sockets: Mapping[int, int | None],
) -> str | None:
    """The reason that no guest on ``most`` of the cells can have its devices, in one
    line; None if one might."""
    cell_ids = frozenset(cells)
    near: set[int] = set()
    wanted = 0
    for request in requests:
        source = DeviceSource(cell_ids, sockets, providers_of(request, mappings))
        # A guest on more cells may find less: it settles for what is near before the
        # rest.
        found = pools
        for step, _ in _STEPS:
            found = (_reached if step is _near else step)(found, request, source)
        # True if no device may be on a cell that the guest does not get.
        bound = (request.numa_policy or LEGACY) in (REQUIRED, LEGACY)
        best = _devices_on(found, most if bound else len(found))
        if not found or best < request.count:
            return (
                f'PCI {request.label}: {best} of {request.count} devices are within'
                ' reach'
            )
        if bound:
            near.update(map(id, found))
            wanted += len(source.providers) or request.count
    best = _devices_on((pool for pool in pools if id(pool) in near), most)
    if best < wanted:
        return f'{best} of {wanted} PCI devices are within reach'
    return None


def _devices_on(pools: Iterable[Pool], most: int) -> int:
    """The most devices that there are on that many cells, and on no known cell."""
    counted: Counter[int | None] = Counter()
    for pool in pools:
        counted[pool.numa_node] += pool.count
    anywhere = counted.pop(None, 0)
    return anywhere + sum(sorted(counted.values(), reverse=True)[:most])


def _after(pools: Pools, request: PciRequest, source: DeviceSource) -> Pools | str:
    found = usable(pools, request, source)
    if isinstance(found, str):
        return found
    if source.providers and (split := _in_several_pools(pools)):
        return f'PCI provider {split} has devices in several pools'
    wanted = Counter(source.providers)
    missing = wanted.total() or request.count
    for pool in found:
        at = next((i for i, each in enumerate(pools) if each is pool), None)
        if at is None:
            continue  # it went with a relative
        if wanted:
            taken = wanted[str(pool.tags['rp_uuid'])]
        else:
            taken = min(missing, pool.count)
        pools = tuple(_without(pools, at, taken))
        missing -= taken
        if missing <= 0:
            return pools
    return f'PCI {request.label}: taking some excludes {missing} more'


def _without(pools: Pools, at: int, taken: int) -> Iterator[Pool]:
    """The pools without ``taken`` devices of one, and without those that go with these.
    A pool that has no devices left is dropped."""
    for i, pool in enumerate(pools):
        if i == at:
            if pool.count > taken:
                yield replace(pool, count=pool.count - taken)
        elif not (taken and _goes_with(pool, pools[at])):
            yield pool


def _goes_with(one: Pool, other: Pool) -> bool:
    """True if one pool has the parent of another's devices, or their children. A
    physical function cannot be given away together with its virtual ones; the pools of
    both have the address of the physical one."""
    address = one.tags.get('address')
    if not address or address != other.tags.get('address'):
        return False
    kinds = {one.tags.get('dev_type'), other.tags.get('dev_type')}
    return PHYSICAL in kinds and not kinds.isdisjoint((VIRTUAL, VDPA))


def _in_several_pools(pools: Pools) -> str | None:
    """A provider that has more than one pool, so that it is unknown whose devices
    Placement gave."""
    counted = Counter(pool.tags['rp_uuid'] for pool in pools if 'rp_uuid' in pool.tags)
    return next((str(rp) for rp, times in counted.items() if times > 1), None)
