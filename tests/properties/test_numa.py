# SPDX-License-Identifier: Apache-2.0
"""The NUMA fit against a brute-force model and a checker of the rules."""

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
from novasched.scheduler.numa.fit import FitProblem, consume_cells, give_back_cells
from novasched.scheduler.numa.plain_fit import fits_plainly, is_plain
from novasched.scheduler.numa.search import Search
from tests.lab.numa_checker import cell_violations, network_violations, violations

PHYSNETS = frozenset(('net0', 'net1'))
SIZES = (4, 2048, 1048576)


@st.composite
def host_cells(draw, cores, threads, old):
    """The first cell of a host, with some CPUs and pages taken.

    Drawing takes most of the time of the tests. The strategy draws seldom, and a drawn
    value decides several things at once.
    """
    siblings = []
    for core in range(cores):
        siblings.append(frozenset(range(core * threads, (core + 1) * threads)))
    cpus = frozenset().union(*siblings)

    shared = draw(st.sampled_from((0, *range(cores + 1), (cores + 1) // 2)))
    cpuset = cpus if old else frozenset().union(*siblings[:shared])
    pcpuset = cpus if old else cpus - cpuset

    memory, used = draw(st.sampled_from(MEMORY))
    sizes = draw(st.sampled_from(((), (), (4,), (4, 2048), SIZES)))
    taken = draw(st.just(0) | st.integers(0, (1 << len(cpus)) - 1))
    physnets, tunneled = draw(st.sampled_from(NETWORKS))
    reported_siblings = (
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
        siblings=tuple(draw(st.sampled_from(reported_siblings))),
        mempages=tuple(draw(pages(size, memory)) for size in sizes),
        socket=draw(st.integers(0, 1)),
        physnets=physnets,
        tunneled=tunneled,
    )


MEMORY = tuple(itertools.product((2048, 2048, 512, 2), (0, 1, 256)))
NETWORKS = tuple(
    itertools.product(
        (frozenset(), frozenset({'net0'}), frozenset({'net1'}), PHYSNETS),
        (False, True),
    )
)
"""Physical networks near a cell, and True for tunnelled networks."""


def pages(size, memory):
    """Pages for about the memory of a cell."""
    count = memory * 1024 // size
    choices = []
    for total in (count, count + 1):
        for used in (0, total // 4, total // 2):
            for reserved in (0, 1):
                choices.append(Pages(size, total, used, reserved))
    return st.sampled_from(choices)


@st.composite
def hosts(draw, max_cells):
    """A host of up to ``max_cells`` cells, of up to four kinds."""
    cores, threads = draw(
        st.sampled_from(((1, 1), (4, 1), (3, 2), (3, 2), (2, 3), (1, 4)))
    )
    old = draw(st.booleans())

    count = draw(st.integers(1, max_cells))
    a_cell = host_cells(cores, threads, old)
    cells = [draw(a_cell) for _ in range(draw(st.integers(1, min(4, count))))]
    spare = count - len(cells)
    cells += draw(st.lists(st.sampled_from(cells), min_size=spare, max_size=spare))

    numbered = []
    for number, cell in enumerate(cells):
        numbered.append(renumbered(cell, number, cores * threads))
    return HostTopology(tuple(numbered))


def renumbered(cell, number, cpus_per_cell):
    """The cell with another number, and with the CPUs of the cell of that number."""

    def shifted(cpus):
        return frozenset(cpu + number * cpus_per_cell for cpu in cpus)

    return replace(
        cell,
        id=number,
        cpuset=shifted(cell.cpuset),
        pcpuset=shifted(cell.pcpuset),
        pinned_cpus=shifted(cell.pinned_cpus),
        siblings=tuple(map(shifted, cell.siblings)),
    )


@st.composite
def guests(draw, max_cells):
    """A guest of up to ``max_cells`` cells: all equal, of two kinds, or all
    different."""
    count = draw(st.integers(1, max_cells))
    kinds = draw(st.sampled_from((1, 1, 2, count)))
    policy = draw(st.sampled_from((None, 'shared', 'dedicated', 'mixed')))
    cells = [draw(guest_cells(number, policy)) for number in range(min(kinds, count))]
    emulator = draw(st.sampled_from((None, None, 'share', 'isolate')))
    return GuestTopology(tuple(cells[i % len(cells)] for i in range(count)), emulator)


@st.composite
def pairs(draw, max_cells):
    """A host, and a guest that mostly has no more cells than the host."""
    host = draw(hosts(max_cells))
    max_guest_cells = draw(st.sampled_from((len(host.cells),) * 9 + (max_cells,)))
    return host, draw(guests(max_guest_cells))


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
"""Free devices near host cells, and the number of requested devices."""


def fits(host, guest, limits, pci_fits=None):
    """The brute-force model of the fit: True if any choice of host cells, pages and
    CPUs breaks no rule."""
    verdicts: dict[tuple[int, int], bool] = {}

    def cell_fits(number, cell):
        if (number, cell.id) not in verdicts:
            verdicts[number, cell.id] = guest_cell_fits(guest, number, cell, limits)
        return verdicts[number, cell.id]

    def is_right(chosen):
        for number, cell in enumerate(chosen):
            if not cell_fits(number, cell):
                return False
        if list(network_violations(host, list(chosen), limits)):
            return False
        return pci_fits is None or pci_fits([cell.id for cell in chosen])

    if not guest.cells:
        return False
    return any(map(is_right, itertools.permutations(host.cells, len(guest.cells))))


def guest_cell_fits(guest, number, cell, limits):
    """True if any fit of a cell of the guest into a host cell breaks no rule."""
    guest_cell = guest.cells[number]
    emulator_cpus = int(number == 0 and guest.emulator_threads_policy == 'isolate')
    for cell_fit in cell_fits_of(cell, guest_cell, emulator_cpus):
        if not cell_violations(cell, guest_cell, emulator_cpus, limits, cell_fit):
            return True
    return False


def cell_fits_of(host, guest, emulator_cpus):
    """The guest cell in the host cell, for every page size and every set of CPUs."""
    sizes = [None]
    if guest.pagesize:
        sizes = [pages.size_kb for pages in host.mempages]
    is_pinned = guest.cpu_policy in ('dedicated', 'mixed')
    if not is_pinned:
        emulator_cpus = 0
    count = len(guest.pcpuset) if is_pinned else 0

    for size in sizes:
        for cpus in itertools.combinations(sorted(host.pcpuset), count):
            pins = ()
            if is_pinned:
                pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False))
            for emulators in itertools.combinations(
                sorted(host.pcpuset), emulator_cpus
            ):
                yield CellFit(host.id, pins, frozenset(emulators), size)


@settings(max_examples=400)
@given(pairs(4), LIMITS, DEVICES, st.booleans())
def test_a_guest_fits_where_the_brute_force_model_finds_a_fit(
    pair, limits, devices, packing
):
    """A guest fits where the brute-force model finds a fit. The fit breaks no rule and
    changes no argument. ``misfit`` has the reason of ``fit``."""
    host, guest = pair
    near, requested = devices or ({}, 0)
    pci_fits = pci_check = None
    if devices:

        def pci_fits(ids):
            return sum(near.get(i, 0) for i in ids) >= requested

        def pci_check(ids):
            if pci_fits(ids):
                return None
            return 'devices'

    before = copy.deepcopy((host, guest, limits))
    problem = FitProblem(host, guest, limits, pci_check, near, packing)
    result = problem.fit()
    reason = problem.misfit()

    assert (host, guest, limits) == before
    assert isinstance(result, Fit) == fits(host, guest, limits, pci_fits)
    if isinstance(result, Fit):
        assert reason is None
        assert not violations(host, guest, limits, result)
        host_cells_used = [cell_fit.host_cell for cell_fit in result.cells]
        assert pci_fits is None or pci_fits(host_cells_used)
    else:
        assert reason == result
        assert result
        assert '\n' not in result


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.none() | hosts(4), RATIOS, RATIOS), max_size=4),
    st.lists(
        guest_cells(0, None) | guest_cells(0, 'mixed') | guest_cells(0, 'dedicated'),
        max_size=3,
    ),
    st.sampled_from((None, 'isolate')),
    st.booleans(),
)
def test_the_plain_fit_finds_only_hosts_that_fit(
    hosts_and_ratios, cells, emulator, is_simple
):
    """The plain fit answers for many hosts at once as the fit answers for a single
    host. Where all cells of the guest are equal, the plain fit finds every host that
    fits."""
    if is_simple:
        emulator = None
        cells = list(map(without_constraints, cells))
    guest = GuestTopology(tuple(cells), emulator)

    if not is_plain(guest):
        assert not cells or emulator or any(map(has_constraint, cells))
        return

    topologies = []
    cpu_ratios = []
    ram_ratios = []
    for host, cpu_ratio, ram_ratio in hosts_and_ratios:
        topologies.append(host)
        cpu_ratios.append(cpu_ratio)
        ram_ratios.append(ram_ratio)
    verdicts = fits_plainly(
        topologies, guest, np.array(cpu_ratios, float), np.array(ram_ratios, float)
    ).tolist()

    for (host, *ratios), fits_here in zip(hosts_and_ratios, verdicts, strict=True):
        fits = False
        if host is not None:
            problem = FitProblem(host, guest, TopologyLimits(*ratios))
            fits = problem.misfit() is None
        if fits_here:
            assert fits
        else:
            assert not fits or has_unequal_cells(cells)


def without_constraints(cell):
    """The guest cell without a page size and a thread policy."""
    return replace(cell, pagesize=None, cpu_thread_policy=None)


def has_unequal_cells(cells):
    """True if guest cells differ in more than the number."""
    return len({replace(cell, id=0) for cell in cells}) > 1


def has_constraint(cell):
    """True for a guest cell with a page size or a strict thread policy."""
    return bool(cell.pagesize) or cell.cpu_thread_policy not in (None, 'prefer')


@settings(max_examples=300)
@given(pairs(16), LIMITS)
def test_a_fit_breaks_no_rule_and_the_used_cpus_are_not_free(pair, limits):
    """On hosts of any size, the CPUs that a guest takes are not free afterwards, nor
    are the other threads of an isolated core."""
    host, guest = pair
    result = FitProblem(host, guest, limits).fit()
    if not isinstance(result, Fit):
        return
    assert not violations(host, guest, limits, result)

    before = copy.deepcopy(host)
    consumed = consume_cells(host, result, guest)

    assert host == before
    assert give_back_cells(consumed, result, guest) == before
    free = set()
    for cell in consumed.cells:
        free |= cell.free_pcpus
    cores = []
    for cell in host.cells:
        cores += cell.siblings
    for guest_cell, cell_fit in zip(guest.cells, result.cells, strict=True):
        assert not free & cell_fit.cpus
        if guest_cell.cpu_thread_policy == 'isolate':
            for core in cores:
                if core & cell_fit.cpus:
                    assert not free & core

    second = FitProblem(consumed, guest, limits).fit()
    assert isinstance(second, str) or not violations(consumed, guest, limits, second)


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


@settings(max_examples=300)
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
def test_any_text_is_a_topology_or_an_error_of_a_single_line(text):
    """A text that is no topology raises a ValueError with a single line."""
    try:
        cells = parse.host_topology(text).cells
    except ValueError as error:
        message = str(error)
    else:
        message = ''
        assert cells
    assert '\n' not in message


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 31), min_size=1, max_size=5),
    st.lists(st.integers(1, 31), max_size=3),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
    st.integers(0, 5),
)
def test_the_search_finds_the_first_of_all_permutations(
    masks, constraints, worth, least
):
    """The search obeys constraints, and accepts choices of a minimal total worth. Host
    cells with the same worth and in the same masks are interchangeable."""

    def accepts(mask):
        total = 0
        for i, value in enumerate(worth):
            if mask >> i & 1:
                total += value
        return total >= least

    def is_right(choice):
        chosen = 0
        for mask, i in zip(masks, choice, strict=True):
            if not mask >> i & 1:
                return False
            chosen |= 1 << i
        for constraint in constraints:
            if not constraint & chosen:
                return False
        return accepts(chosen)

    all_masks = (*masks, *constraints)
    kinds = []
    for i in range(5):
        kinds.append((tuple(mask >> i & 1 for mask in all_masks), worth[i]))

    permutations = itertools.permutations(range(5), len(masks))
    expected = next(filter(is_right, permutations), None)
    assert Search(masks, tuple(constraints), accepts, kinds).first(31) == expected
