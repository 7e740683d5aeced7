# SPDX-License-Identifier: Apache-2.0
"""Which pools of a host serve a PCI request.

nova-compute judges again by the same rules when the server arrives, so the order of the
steps is nova's even where another one would find more: a pool that the NUMA policy
prefers is not given up when a later step finds it unfit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from novasched.model.pci import PHYSICAL, VDPA, PciRequest, Pools
from novasched.model.texts import is_true

REQUIRED, LEGACY, SOCKET = 'required', 'legacy', 'socket'
REMOTE_MANAGED = 'remote_managed'
LIVE_MIGRATABLE = 'live_migratable'
IN_PLACEMENT = frozenset(('resource_class', 'traits', 'rp_uuids'))
"""What a spec says to Placement and not to us."""

Mappings = Mapping[str, Collection[str]]
"""Suffix of each request group to the providers that serve it, as Placement maps them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server's devices are to come from.

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
        return tuple(known.split(',')) if known else ()
    name = request.request_id
    if not name:
        return ()
    serving = [given for group, given in mappings.items() if group.startswith(name)]
    return tuple(next(iter(given)) for given in serving if given)


def usable(pools: Pools, request: PciRequest, place: Place) -> Pools | str:
    """The pools that can serve a request, the one to take from first in front; or why
    there are too few devices, in one line."""
    for step, what in _STEPS:
        pools = step(pools, request, place)
        found = _devices(pools)
        if found < request.count or not pools:
            return f'PCI {request.label}: {found} of {request.count} devices {what}'
    return pools


def within_reach(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """All that a guest might find that gets some of the cells of a place. A guest on more
    cells may find less, as it settles for what is near before it looks at the rest."""
    for step, _ in _STEPS:
        pools = (_reached if step is _near else step)(pools, request, place)
    return pools


def stays_near(request: PciRequest) -> bool:
    """Whether no device may be on a cell that the guest does not get."""
    return (request.numa_policy or LEGACY) in (REQUIRED, LEGACY)


def _devices(pools: Pools) -> int:
    return sum(pool.count for pool in pools)


def _with_properties(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """Those that have all properties of one of the specs, in capitals or not."""
    specs = [
        {name: _plain(value) for name, value in spec.items() if name not in IN_PLACEMENT}
        for spec in request.spec
    ]
    return tuple(
        pool
        for pool in pools
        if any(all(_plain(pool.get(x)) == value for x, value in spec.items()) for spec in specs)
    )


def _plain(value: str | int | None) -> str | int | None:
    return value.lower() if isinstance(value, str) else value


def _near(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """Those that the request's NUMA policy allows. Each policy is content with what a
    stricter one finds, if that is enough; ``legacy`` also takes devices whose cell is not
    known, any other policy (``preferred``) takes all, the nearer ones first."""
    cells = place.cells
    if not cells:
        return pools
    policy = request.numa_policy or LEGACY
    within = tuple(pool for pool in pools if pool.numa_node in cells)
    if policy == REQUIRED or _devices(within) >= request.count:
        return within
    if policy == SOCKET:
        near = _on_their_sockets(place)
        return tuple(pool for pool in pools if pool.numa_node in near)
    loosely = tuple(pool for pool in pools if pool.numa_node is None or pool.numa_node in cells)
    if policy == LEGACY or _devices(loosely) >= request.count:
        return loosely
    return (*loosely, *(p for p in pools if p.numa_node is not None and p.numa_node not in cells))


def _reached(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """Those that the NUMA policy could allow a guest that gets some of the cells."""
    policy = request.numa_policy or LEGACY
    if not place.cells or policy not in (REQUIRED, LEGACY, SOCKET):
        return pools
    near: set[int | None] = {*place.cells}
    if policy == SOCKET:
        near |= _on_their_sockets(place)
    elif policy == LEGACY:
        near.add(None)
    return tuple(pool for pool in pools if pool.numa_node in near)


def _on_their_sockets(place: Place) -> set[int]:
    """The host cells on the sockets that the guest's cells are on; none if a cell of the
    host does not say which socket it is on."""
    if None in place.sockets.values():
        return set()
    sockets = {place.sockets[cell] for cell in place.cells if cell in place.sockets}
    return {cell for cell, socket in place.sockets.items() if socket in sockets}


def _without_physical(pools: Pools, request: PciRequest, place: Place) -> Pools:
    return _if_asked(pools, request, PHYSICAL)


def _without_vdpa(pools: Pools, request: PciRequest, place: Place) -> Pools:
    return _if_asked(pools, request, VDPA)


def _if_asked(pools: Pools, request: PciRequest, kind: str) -> Pools:
    """Devices of some kinds go only to those who ask for that kind."""
    if any(spec.get('dev_type') == kind for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if pool.tags.get('dev_type') != kind)


def _without_remote(pools: Pools, request: PciRequest, place: Place) -> Pools:
    if any(is_true(spec.get(REMOTE_MANAGED)) for spec in request.spec):
        return pools
    return tuple(pool for pool in pools if not is_true(pool.tags.get(REMOTE_MANAGED)))


def _allocated(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """Those of the providers that Placement named, as far as they can give what it
    allocated; none unless each of these providers can."""
    if not place.providers:
        return pools
    wanted = Counter(place.providers)
    able = tuple(p for p in pools if 0 < wanted[p.tags.get('rp_uuid') or ''] <= p.count)
    return able if len({p.tags['rp_uuid'] for p in able}) == len(wanted) else ()


def _migratable(pools: Pools, request: PciRequest, place: Place) -> Pools:
    """Those that live-migrate, or that do not, if every spec says which is wanted."""
    for wanted in ('true', 'false'):
        if all(spec.get(LIVE_MIGRATABLE) == wanted for spec in request.spec):
            return tuple(pool for pool in pools if pool.tags.get(LIVE_MIGRATABLE) == wanted)
    return pools


_Step = Callable[[Pools, PciRequest, Place], Pools]
_STEPS: tuple[tuple[_Step, str], ...] = (
    (_with_properties, 'are of that kind'),
    (_near, 'are where its NUMA policy wants them'),
    (_without_physical, 'are not physical functions'),
    (_without_vdpa, 'are not vDPA devices'),
    (_without_remote, 'are not managed remotely'),
    (_allocated, 'are those that Placement allocates'),
    (_migratable, 'can live-migrate as the request says'),
)
"""What each step keeps, in words that follow ``n of m devices``."""
