# SPDX-License-Identifier: Apache-2.0
"""What is left of a host's pools once a server has its devices.

Requests are served in their order, each from the pools that come first, as nova-compute
does it; no other order is tried, for nova-compute would not find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from novasched.model.pci import PHYSICAL, VDPA, VIRTUAL, PciRequest, Pool, Pools
from novasched.pci.match import Mappings, Place, providers_of, stays_near, usable, within_reach

NOT_KNOWN: Mapping[int, int | None] = {}


def consume(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None = None,
    cells: Iterable[int] = (),
    sockets: Mapping[int, int | None] = NOT_KNOWN,
) -> Pools | str:
    """The pools after a server took its devices; or why it cannot have them, in one line.

    :param mappings: which providers serve which request group of the candidate.
    :param cells: the host cells of the guest, if it has a NUMA topology.
    :param sockets: the socket of each cell of the host.
    """
    where = frozenset(cells)
    for request in requests:
        place = Place(where, sockets, providers_of(request, mappings))
        left = _after(pools, request, place)
        if isinstance(left, str):
            return left
        pools = left
    return pools


def supports(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None = None,
    cells: Iterable[int] = (),
    sockets: Mapping[int, int | None] = NOT_KNOWN,
) -> bool:
    """Whether a server can have its devices; see :func:`consume`."""
    return not isinstance(consume(pools, requests, mappings, cells, sockets), str)


def out_of_reach(
    pools: Pools,
    requests: Iterable[PciRequest],
    mappings: Mappings | None,
    cells: Iterable[int],
    most: int,
    sockets: Mapping[int, int | None],
) -> str | None:
    """Why no guest that gets ``most`` of the cells can have its devices, in one line; None if
    one might."""
    where = frozenset(cells)
    near: set[int] = set()
    wanted = 0
    for request in requests:
        place = Place(where, sockets, providers_of(request, mappings))
        found = within_reach(pools, request, place)
        bound = stays_near(request)
        best = _devices(found, most if bound else len(found))
        if not found or best < request.count:
            return f'PCI {request.label}: {best} of {request.count} devices are within reach'
        if bound:
            near.update(map(id, found))
            wanted += len(place.providers) or request.count
    best = _devices((pool for pool in pools if id(pool) in near), most)
    return f'{best} of {wanted} PCI devices are within reach' if best < wanted else None


def _devices(pools: Iterable[Pool], most: int) -> int:
    """How many there are on so many cells, if these are the best, and on no known cell."""
    counted: Counter[int | None] = Counter()
    for pool in pools:
        counted[pool.numa_node] += pool.count
    anywhere = counted.pop(None, 0)
    return anywhere + sum(sorted(counted.values(), reverse=True)[:most])


def _after(pools: Pools, request: PciRequest, place: Place) -> Pools | str:
    found = usable(pools, request, place)
    if isinstance(found, str):
        return found
    if place.providers and (split := _in_several_pools(pools)):
        return f'PCI provider {split} has devices in several pools'
    wanted = Counter(place.providers)
    missing = wanted.total() or request.count
    for pool in found:
        at = next((i for i, each in enumerate(pools) if each is pool), None)
        if at is None:
            continue  # it went with a relative
        taken = wanted[str(pool.tags['rp_uuid'])] if wanted else min(missing, pool.count)
        pools = tuple(_without(pools, at, taken))
        missing -= taken
        if missing <= 0:
            return pools
    return f'PCI {request.label}: taking some excludes {missing} more'


def _without(pools: Pools, at: int, taken: int) -> Iterator[Pool]:
    """The pools without so many devices of one, and without what goes with these. A pool
    that has no devices left is none."""
    for i, pool in enumerate(pools):
        if i == at:
            if pool.count > taken:
                yield replace(pool, count=pool.count - taken)
        elif not (taken and _goes_with(pool, pools[at])):
            yield pool


def _goes_with(one: Pool, other: Pool) -> bool:
    """Whether one pool has the parent of another's devices, or their children. A physical
    function cannot be given away together with its virtual ones; the pools of both have
    the address of the physical one."""
    address = one.tags.get('address')
    if not address or address != other.tags.get('address'):
        return False
    kinds = {one.tags.get('dev_type'), other.tags.get('dev_type')}
    return PHYSICAL in kinds and not kinds.isdisjoint((VIRTUAL, VDPA))


def _in_several_pools(pools: Pools) -> str | None:
    """A provider that has more than one pool, so that nobody can say whose devices
    Placement gave."""
    counted = Counter(pool.tags['rp_uuid'] for pool in pools if 'rp_uuid' in pool.tags)
    return next((str(rp) for rp, times in counted.items() if times > 1), None)
