# SPDX-License-Identifier: Apache-2.0
"""PCI devices are neither created nor lost, and are consumed like single devices."""

import copy
import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.pci.pools import consume, out_of_reach

KINDS = ['type-PCI', 'type-PF', 'type-VF']
CELLS = st.none() | st.integers(0, 2)
PROVIDER = st.sampled_from(['A', 'B', 'C'])
POOLS = st.lists(
    st.builds(
        Pool,
        product_id=st.sampled_from(['p', 'q']),
        vendor_id=st.just('v'),
        count=st.integers(0, 3),
        numa_node=CELLS,
        tags=st.fixed_dictionaries(
            {'dev_type': st.sampled_from(KINDS)},
            optional={'rp_uuid': PROVIDER, 'address': st.sampled_from(['x', 'y'])},
        ),
    ),
    max_size=5,
).map(tuple)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        'product_id': st.sampled_from(['p', 'Q']),
        'dev_type': st.sampled_from(KINDS),
    },
)
REQUESTS = st.lists(
    st.builds(
        PciRequest,
        count=st.integers(1, 3),
        spec=st.lists(SPEC, min_size=1, max_size=2).map(tuple),
        alias_name=st.just('alias'),
        request_id=st.sampled_from(['r1', 'r2']),
        numa_policy=st.sampled_from(
            [None, 'legacy', 'preferred', 'required', 'socket']
        ),
    ),
    max_size=3,
)
MAPPINGS = st.none() | st.dictionaries(
    st.sampled_from(['', 'r1-0', 'r1-1', 'r2-0']), PROVIDER.map(lambda x: [x])
)
WHERE = st.tuples(MAPPINGS, st.frozensets(st.integers(0, 2), max_size=2))
SOCKETS = {0: 0, 1: 0, 2: 1}


def total(pools):
    return sum(pool.count for pool in pools)


@settings(max_examples=500)
@given(POOLS, REQUESTS, WHERE)
def test_pools_lose_the_requested_devices_and_never_grow(pools, requests, where):
    """No pool grows or falls below 0. The devices taken are as many as the requests ask
    for or Placement allocated. Devices related to a taken device are taken too. The
    arguments are unchanged."""
    before = copy.deepcopy((pools, requests, where))
    after = consume(pools, requests, *where, SOCKETS)

    assert (pools, requests, where) == before
    if isinstance(after, str):
        assert '\n' not in after
        return

    taken_of_kind = Counter()
    for pool in pools:
        taken_of_kind[repr(replace(pool, count=0))] += pool.count
    for pool in after:
        assert pool.count >= 0
        taken_of_kind[repr(replace(pool, count=0))] -= pool.count
    assert min(taken_of_kind.values(), default=0) >= 0

    mappings = where[0] or {}
    requested = 0
    for request in requests:
        groups = [name for name in mappings if name.startswith(request.request_id)]
        requested += len(groups) or request.count
    taken = total(pools) - total(after)
    if any('address' in pool.tags for pool in pools):
        assert taken >= requested
    else:
        assert taken == requested


def all_get_devices(pools, requests, cells):
    """A model of single devices: True if every request in turn gets its devices, the
    nearest and first devices first. The model is for requests that Placement does not
    serve."""
    devices = []
    for pool in pools:
        devices += [pool] * pool.count
    for request in requests:
        chosen = devices_for(request, devices, cells)
        if len(chosen) < request.count:
            return False
        for device in chosen[: request.count]:
            devices.remove(device)
    return True


def devices_for(request, devices, cells):
    """The devices that a request may have, the best device first."""
    sockets = {SOCKETS[cell] for cell in cells}
    suited = [device for device in devices if matches(device, request)]
    near = [device for device in suited if device.numa_node in cells]
    maybe_near = [device for device in suited if device.numa_node in {None, *cells}]
    near_socket = []
    for device in suited:
        if SOCKETS.get(device.numa_node) in sockets:
            near_socket.append(device)

    allowed = {
        'required': [near],
        'socket': [near, near_socket],
        'legacy': [near, maybe_near],
        'preferred': [near, maybe_near, suited],
    }[request.numa_policy or 'legacy']
    if not cells:
        allowed = [suited]
    chosen = allowed[-1]
    for choice in allowed:
        if len(choice) >= request.count:
            chosen = choice
            break

    if not asks_for_physical_function(request):
        chosen = [device for device in chosen if device.tags['dev_type'] != 'type-PF']
    if cells and request.numa_policy == 'preferred':
        chosen = sorted(chosen, key=lambda device: device not in maybe_near)
    return chosen


def asks_for_physical_function(request):
    return any(spec.get('dev_type') == 'type-PF' for spec in request.spec)


def matches(device, request):
    """True if a device has all the values of one of the specs of a request."""
    return any(has_values(device, spec) for spec in request.spec)


def has_values(device, spec):
    for key, value in spec.items():
        if str(device.get(key)).lower() != value.lower():
            return False
    return True


def unrelated(pools):
    """The pools, each with another address."""
    different = []
    for i, pool in enumerate(pools):
        different.append(replace(pool, tags={**pool.tags, 'address': f'{i}'}))
    return tuple(different)


UNRELATED = POOLS.map(unrelated)


@settings(max_examples=500)
@given(UNRELATED, REQUESTS, st.frozensets(st.integers(0, 2), max_size=2))
def test_pools_serve_requests_like_single_devices(pools, requests, cells):
    """Pools with counts serve the requests that single devices serve."""
    consumed = consume(pools, requests, None, cells, SOCKETS)
    assert isinstance(consumed, tuple) is all_get_devices(pools, requests, cells)


@settings(max_examples=500)
@given(POOLS, REQUESTS, WHERE, st.integers(1, 3))
def test_devices_that_some_cells_can_serve_are_not_out_of_reach(
    pools, requests, where, count
):
    """While a guest on some of the cells can have its devices, the devices are not out
    of reach of all cells together."""
    mappings, _ = where
    reason = out_of_reach(pools, requests, mappings, SOCKETS, count, SOCKETS)
    for cells in itertools.combinations(SOCKETS, count):
        if isinstance(consume(pools, requests, mappings, cells, SOCKETS), tuple):
            assert reason is None
