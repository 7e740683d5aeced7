# SPDX-License-Identifier: Apache-2.0
"""Devices are neither made nor lost, and taken only where a plain look finds them."""

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
def test_the_books_balance(pools, requests, where):
    """No pool grows or falls below 0, and so much is taken as was asked or allocated,
    but for relatives of what was taken, which go too; what was given is as before."""
    before = copy.deepcopy((pools, requests, where))
    after = consume(pools, requests, *where, SOCKETS)
    assert (pools, requests, where) == before
    if isinstance(after, str):
        assert '\n' not in after
        return
    kinds = Counter()
    for pool in pools:
        kinds[repr(replace(pool, count=0))] += pool.count
    for pool in after:
        assert pool.count >= 0
        kinds[repr(replace(pool, count=0))] -= pool.count
    assert min(kinds.values(), default=0) >= 0
    mappings = where[0] or {}
    asked = 0
    for request in requests:
        groups = [name for name in mappings if name.startswith(request.request_id)]
        asked += len(groups) or request.count
    taken = total(pools) - total(after)
    related = any('address' in pool.tags for pool in pools)
    assert taken >= asked if related else taken == asked


def twin(pools, requests, cells):
    """Whether single devices can be given out one request after the other, the nearest
    and first ones first; for requests that Placement does not serve."""
    devices = [pool for pool in pools for _ in range(pool.count)]
    sockets = {SOCKETS[cell] for cell in cells}
    for request in requests:

        def fits(device, request=request):
            return any(
                all(
                    str(device.get(key)).lower() == value.lower()
                    for key, value in spec.items()
                )
                for spec in request.spec
            )

        suited = [device for device in devices if fits(device)]
        near = [device for device in suited if device.numa_node in cells]
        near_socket = [
            device for device in suited if SOCKETS.get(device.numa_node) in sockets
        ]
        maybe_near = [device for device in suited if device.numa_node in {None, *cells}]
        allowed = {
            'required': [near],
            'socket': [near, near_socket],
            'legacy': [near, maybe_near],
            'preferred': [near, maybe_near, suited],
        }[request.numa_policy or 'legacy']
        if not cells:
            allowed = [suited]
        chosen = next(
            (each for each in allowed if len(each) >= request.count), allowed[-1]
        )
        if not any(spec.get('dev_type') == 'type-PF' for spec in request.spec):
            chosen = [
                device for device in chosen if device.tags['dev_type'] != 'type-PF'
            ]
        if len(chosen) < request.count:
            return False
        if cells and request.numa_policy == 'preferred':
            chosen = sorted(chosen, key=lambda device: device not in maybe_near)
        for device in chosen[: request.count]:
            devices.remove(device)
    return True


UNRELATED = POOLS.map(
    lambda pools: tuple(
        replace(pool, tags={**pool.tags, 'address': f'{i}'})
        for i, pool in enumerate(pools)
    )
)


@settings(max_examples=500)
@given(UNRELATED, REQUESTS, st.frozensets(st.integers(0, 2), max_size=2))
def test_as_its_twin(pools, requests, cells):
    """Counted pools answer as devices that are dealt out one by one."""
    left = consume(pools, requests, None, cells, SOCKETS)
    assert isinstance(left, tuple) is twin(pools, requests, cells)


@settings(max_examples=500)
@given(POOLS, REQUESTS, WHERE, st.integers(1, 3))
def test_hope_is_not_given_up_too_early(pools, requests, where, most):
    """While a guest on some of the cells can have its devices, the cells together are
    said to be promising."""
    mappings, _ = where
    for cells in itertools.combinations(SOCKETS, most):
        if isinstance(consume(pools, requests, mappings, cells, SOCKETS), tuple):
            assert (
                out_of_reach(pools, requests, mappings, SOCKETS, most, SOCKETS) is None
            )
