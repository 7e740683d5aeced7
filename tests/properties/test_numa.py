# SPDX-License-Identifier: Apache-2.0
"""The fitter against its dumb twin and its checker."""

import copy
import itertools
import json
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.scheduler.model.numa import (
    CellFit,
    Fit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Pages,
    TopologyLimits,
)
from novasched.scheduler.numa import parse
from novasched.scheduler.numa.fit import consume_cells, fit, misfit
from novasched.scheduler.numa.plain_fit import fits_plainly, is_plain
from novasched.scheduler.numa.search import Search
from tests.lab.numa_checker import cell_violations, network_violations, violations

PHYSNETS = frozenset(('net0', 'net1'))
SIZES = (4, 2048, 1048576)


@st.composite
def host_cells(draw, cores, threads, old):
    """The first cell of a host, with some CPUs and pages taken. Few choices are drawn,
    each of many things at once, for it is they that take the time of these tests."""
    siblings = [
        frozenset(range(core * threads, (core + 1) * threads)) for core in range(cores)
    ]
    cpus = frozenset().union(*siblings)
    shared = draw(st.sampled_from((0, *range(cores + 1), (cores + 1) // 2)))
    cpuset = cpus if old else frozenset().union(*siblings[:shared])
    pcpuset = cpus if old else cpus - cpuset
    memory, used = draw(st.sampled_from(MEMORY))
    sizes = draw(st.sampled_from(((), (), (4,), (4, 2048), SIZES)))
    taken = draw(st.just(0) | st.integers(0, (1 << len(cpus)) - 1))
    physnets, tunneled = draw(st.sampled_from(NETWORKS))
    named = (
        siblings,
        siblings,
        siblings if threads > 1 else [],
        siblings[1:] or siblings,
    )
    return HostCell(
        id=0,
        cpuset=cpuset,
        pcpuset=pcpuset,
        memory=memory,
        cpu_usage=draw(st.integers(0, 2)),
        memory_usage=used,
        pinned_cpus=frozenset(cpu for cpu in pcpuset if taken >> cpu & 1),
        siblings=tuple(draw(st.sampled_from(named))),
        mempages=tuple(draw(pages(size, memory)) for size in sizes),
        socket=draw(st.integers(0, 1)),
        physnets=physnets,
        tunneled=tunneled,
    )


MEMORY = tuple(itertools.product((2048, 2048, 512, 2), (0, 1, 256)))
NETWORKS = tuple(
    (frozenset(near), tunneled)
    for near in ((), ('net0',), ('net1',), PHYSNETS)
    for tunneled in (False, True)
)


def pages(size, memory):
    """Pages for about the memory of a cell."""
    totals = (memory * 1024 // size, memory * 1024 // size + 1)
    return st.sampled_from(
        [
            Pages(size, total, used, reserved)
            for total in totals
            for used in (0, total // 4, total // 2)
            for reserved in (0, 1)
        ]
    )


@st.composite
def hosts(draw, most):
    """A host of up to so many cells, of up to four kinds."""
    cores, threads = draw(
        st.sampled_from(((1, 1), (4, 1), (3, 2), (3, 2), (2, 3), (1, 4)))
    )
    old = draw(st.booleans())
    count = draw(st.integers(1, most))
    cell = host_cells(cores, threads, old)
    kinds = [draw(cell) for _ in range(draw(st.integers(1, min(4, count))))]
    spare = count - len(kinds)
    kinds += draw(st.lists(st.sampled_from(kinds), min_size=spare, max_size=spare))
    return HostTopology(
        tuple(moved(cell, i, cores * threads) for i, cell in enumerate(kinds))
    )


def moved(cell, number, cpus):
    """The cell at another place on its host, each cell of which has so many CPUs."""

    def there(each):
        return frozenset(cpu + number * cpus for cpu in each)

    return replace(
        cell,
        id=number,
        cpuset=there(cell.cpuset),
        pcpuset=there(cell.pcpuset),
        pinned_cpus=there(cell.pinned_cpus),
        siblings=tuple(map(there, cell.siblings)),
    )


@st.composite
def guests(draw, most):
    """A guest of up to so many cells, of one kind or two, or no two alike."""
    count = draw(st.integers(1, most))
    kinds = draw(st.sampled_from((1, 1, 2, count)))
    policy = draw(st.sampled_from((None, 'shared', 'dedicated', 'mixed')))
    cells = [draw(guest_cells(number, policy)) for number in range(min(kinds, count))]
    emulator = draw(st.sampled_from((None, None, 'share', 'isolate')))
    return GuestTopology(tuple(cells[i % len(cells)] for i in range(count)), emulator)


@st.composite
def pairs(draw, most):
    """A host, and a guest that mostly has no more cells."""
    host = draw(hosts(most))
    return host, draw(guests(draw(st.sampled_from((len(host.cells),) * 9 + (most,)))))


@st.composite
def guest_cells(draw, number, policy):
    """A guest cell of a policy."""
    vcpus = draw(st.sampled_from((1, 1, 2, 3)))
    dedicated = {'dedicated': vcpus, 'mixed': draw(st.integers(0, vcpus))}.get(
        str(policy), 0
    )
    start = 10 * number
    return GuestCell(
        id=number,
        cpuset=frozenset(range(start + dedicated, start + vcpus)),
        pcpuset=frozenset(range(start, start + dedicated)),
        memory=draw(st.sampled_from((2, 2, 1, 256, 1024))),
        pagesize=draw(st.sampled_from((None,) * 6 + (0, -1, -2, -3, -3, *SIZES, 8))),
        cpu_policy=policy,
        cpu_thread_policy=draw(st.sampled_from((None, 'prefer', 'require', 'isolate'))),
    )


RATIOS = st.sampled_from((0.5, 1.0, 1.5, 2.0))
LIMITS = st.none() | st.builds(
    TopologyLimits,
    RATIOS,
    RATIOS,
    st.just(frozenset()) | st.frozensets(st.sampled_from(sorted(PHYSNETS))),
    st.booleans(),
)
DEVICES = st.none() | st.tuples(
    st.dictionaries(st.integers(0, 3), st.integers(0, 3)), st.integers(1, 3)
)
"""Free devices near host cells, and how many are wanted."""


def fits(host, guest, limits, pci_fits=None):
    """The fitter's dumb twin: whether any choice of host cells, pages and CPUs is
    without fault."""
    known: dict[tuple[int, int], bool] = {}

    def pair(i, cell):
        emulator_cpus = int(i == 0 and guest.emulator_threads_policy == 'isolate')
        if (i, cell.id) not in known:
            known[i, cell.id] = any(
                not cell_violations(cell, guest.cells[i], emulator_cpus, limits, place)
                for place in places(cell, guest.cells[i], emulator_cpus)
            )
        return known[i, cell.id]

    return bool(guest.cells) and any(
        all(pair(i, cell) for i, cell in enumerate(chosen))
        and not list(network_violations(host, list(chosen), limits))
        and (pci_fits is None or pci_fits([cell.id for cell in chosen]))
        for chosen in itertools.permutations(host.cells, len(guest.cells))
    )


def places(host, guest, emulator_cpus):
    """Every page size, every set of CPUs."""
    sizes = [pages.size_kb for pages in host.mempages] if guest.pagesize else [None]
    pinned = guest.cpu_policy in ('dedicated', 'mixed')
    count = len(guest.pcpuset) if pinned else 0
    for size in sizes:
        for cpus in itertools.combinations(sorted(host.pcpuset), count):
            if pinned:
                pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False))
            else:
                pins = ()
            for emulators in itertools.combinations(
                sorted(host.pcpuset), emulator_cpus if pinned else 0
            ):
                yield CellFit(host.id, pins, frozenset(emulators), size)


@settings(max_examples=800)
@given(pairs(4), LIMITS, DEVICES, st.booleans())
def test_the_fit_is_that_of_the_dumb_twin(pair, limits, devices, packing):
    """A guest fits where trying everything finds a fit; the fit breaks no rule, and
    changes nothing that was given. Who asks for the reason alone is told the same."""
    host, guest = pair
    near, wanted = devices or ({}, 0)
    pci_fits = pci_check = None
    if devices:

        def pci_fits(ids):
            return sum(near.get(i, 0) for i in ids) >= wanted

        def pci_check(ids):
            if pci_fits(ids):
                return None
            return 'devices'

    before = copy.deepcopy((host, guest, limits))
    found = fit(host, guest, limits, pci_check, near, packing)
    reason = misfit(host, guest, limits, pci_check, near, packing)
    assert (host, guest, limits) == before
    assert reason == (None if isinstance(found, Fit) else found)
    assert isinstance(found, Fit) == fits(host, guest, limits, pci_fits)
    if isinstance(found, Fit):
        assert not violations(host, guest, limits, found)
        assert pci_fits is None or pci_fits([place.host_cell for place in found.cells])
    else:
        assert found
        assert '\n' not in found


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.none() | hosts(4), RATIOS, RATIOS), max_size=4),
    st.lists(
        st.one_of(guest_cells(0, x) for x in (None, 'mixed', 'dedicated')), max_size=3
    ),
    st.sampled_from((None, 'isolate')),
    st.booleans(),
)
def test_who_fits_plainly_fits(asked, cells, emulator, without):
    """Many hosts at once are told what each is told alone; nothing is left open where
    the cells of the guest are alike."""
    if without:
        emulator = None
        cells = [replace(cell, pagesize=None, cpu_thread_policy=None) for cell in cells]
    guest = GuestTopology(tuple(cells), emulator)
    if not is_plain(guest):
        wishes = [
            cell.pagesize or cell.cpu_thread_policy not in (None, 'prefer')
            for cell in cells
        ]
        assert not cells or emulator or any(wishes)
        return
    topologies = [host for host, *_ in asked]
    cpus, ram = (np.array([each[i] for each in asked], float) for i in (1, 2))
    found = fits_plainly(topologies, guest, cpus, ram).tolist()
    for (host, *ratios), plainly in zip(asked, found, strict=True):
        fits = host is not None and misfit(host, guest, TopologyLimits(*ratios)) is None
        assert (
            fits
            if plainly
            else not fits or len({replace(cell, id=0) for cell in cells}) > 1
        )


@settings(max_examples=500)
@given(pairs(16), LIMITS)
def test_a_fit_breaks_no_rule_and_keeps_what_it_takes(pair, limits):
    """On hosts of any size; nobody else gets what a guest takes, nor what it keeps from
    others."""
    host, guest = pair
    found = fit(host, guest, limits)
    if not isinstance(found, Fit):
        return
    assert not violations(host, guest, limits, found)
    before = copy.deepcopy(host)
    left = consume_cells(host, found, guest)
    assert host == before
    free = frozenset().union(*(cell.free_pcpus for cell in left.cells))
    cores = [core for cell in host.cells for core in cell.siblings]
    for wanted, place in zip(guest.cells, found.cells, strict=True):
        assert not free & place.cpus
        if wanted.cpu_thread_policy == 'isolate':
            assert not any(free & core for core in cores if core & place.cpus)
    again = fit(left, guest, limits)
    assert isinstance(again, str) or not violations(left, guest, limits, again)


KEYS = (
    'nova_object.data',
    'nova_object.name',
    'nova_object.version',
    'cells',
    'id',
    'cpus',
    'mem',
    'total',
    'cpuset',
    'memory',
)


@settings(max_examples=500)
@given(
    st.text()
    | st.recursive(
        st.none()
        | st.integers()
        | st.text()
        | st.sampled_from(('1.2', 'NUMATopology', '0-3')),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
        max_leaves=12,
    ).map(json.dumps)
)
def test_any_text_is_a_topology_or_says_why_not(text):
    """Whatever a host reports, the error is a ValueError of one line."""
    try:
        cells = parse.host_topology(text).cells
    except ValueError as error:
        words = str(error)
    else:
        words = 'read'
        assert cells
    assert '\n' not in words


@settings(max_examples=500)
@given(
    st.lists(st.integers(0, 31), min_size=1, max_size=5),
    st.lists(st.integers(1, 31), max_size=3),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
    st.integers(0, 5),
)
def test_the_search_finds_the_first_of_all_permutations(
    masks, constraints, worth, least
):
    """With constraints, and acceptance of choices that are worth enough together; host
    cells that are worth the same and in the same masks stand for each other."""

    def accepts(mask):
        return sum(value for i, value in enumerate(worth) if mask >> i & 1) >= least

    def right(choice):
        mask = sum(1 << i for i in choice)
        accepted = all(each >> i & 1 for each, i in zip(masks, choice, strict=True))
        return accepted and all(need & mask for need in constraints) and accepts(mask)

    all_masks = (*masks, *constraints)
    kinds = [(tuple(mask >> i & 1 for mask in all_masks), worth[i]) for i in range(5)]
    expected = next(filter(right, itertools.permutations(range(5), len(masks))), None)
    assert Search(masks, tuple(constraints), accepts, kinds).first(31) == expected
