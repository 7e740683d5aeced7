# SPDX-License-Identifier: Apache-2.0
"""The host cells of a guest, and the reasons of a refusal."""

import pytest

from novasched.scheduler.model.numa import Fit, Pages, TopologyLimits
from novasched.scheduler.numa.fit import FitProblem, consume_cells
from tests.lab.topologies import a_cell, a_guest, a_host, a_pinned, a_shared


def cells_of(verdict):
    """Return the ids of the host cells, or the reason of the refusal."""
    if isinstance(verdict, Fit):
        return [place.host_cell for place in verdict.cells]
    return verdict


def refuse_unless_cell_0(ids):
    if 0 in ids:
        return None
    return 'none'


def refuse_single_cell(ids):
    if len(ids) == 1:
        return 'none'
    return None


@pytest.mark.parametrize(
    ('host', 'guest', 'verdict'),
    [
        (
            a_host(a_cell(threads=1), a_cell(1, threads=1)),
            a_guest(a_pinned(1, cpu_thread_policy='require')),
            'guest cell 0 fits no host cell: '
            'host cells 0, 1 lack threads, which are required',
        ),
        (a_host(a_cell()), a_guest(), 'the guest has no cells'),
        (
            a_host(a_cell()),
            a_guest(a_shared(), a_shared()),
            'the guest has 2 cells, the host 1',
        ),
        (a_host(), a_guest(a_shared()), 'the guest has 1 cells, the host 0'),
        (
            a_host(a_cell()),
            a_guest(a_pinned(1, cpu_policy='odd')),
            'guest cell 0 has an unknown CPU policy: odd',
        ),
        (
            a_host(a_cell()),
            a_guest(a_pinned(1, cpu_thread_policy='odd')),
            'guest cell 0 has an unknown thread policy: odd',
        ),
        (
            a_host(a_cell()),
            a_guest(a_shared(cpu_policy='mixed', cpu_thread_policy='isolate')),
            'guest cell 0 has no dedicated CPU to isolate',
        ),
        (
            a_host(a_cell()),
            a_guest(a_shared(cpu_policy='mixed'), emulator='isolate'),
            'guest cell 0 has no dedicated CPU to run emulator threads beside',
        ),
        (
            a_host(a_cell()),
            a_guest(a_shared(memory=4097)),
            'guest cell 0 fits no host cell: host cell 0 lacks 1 MiB of memory',
        ),
        (
            a_host(a_cell(memory_usage=4000)),
            a_guest(a_pinned(1)),
            'guest cell 0 fits no host cell: host cell 0 lacks 160 MiB of memory',
        ),
        (
            a_host(a_cell()),
            a_guest(a_shared(9)),
            'guest cell 0 fits no host cell: host cell 0 lacks 1 CPUs',
        ),
        (
            a_host(a_cell(), a_cell(1, pinned_cpus=frozenset({8, 9}))),
            a_guest(a_pinned(9)),
            'guest cell 0 fits no host cell: '
            'host cells 0, 1 lack at least 1 free dedicated CPUs',
        ),
        (
            a_host(a_cell(cores=1), a_cell(1)),
            a_guest(a_shared(8), a_shared(8)),
            'guest cells 0, 1 fit too few host cells: 1',
        ),
        (
            a_host(a_cell()),
            a_guest(a_shared(pagesize=2048)),
            'guest cell 0 fits no host cell: host cell 0 lacks pages of 2048 KiB',
        ),
        (
            a_host(a_cell(mempages=(Pages(2048, 100),))),
            a_guest(a_shared(pagesize=2048)),
            'guest cell 0 fits no host cell: host cell 0 lacks 28 pages of 2048 KiB',
        ),
    ],
)
def test_a_refusal_names_the_cells_and_the_missing_resource(host, guest, verdict):
    """The reason names the guest cell, the host cells and the resource in one line."""
    assert FitProblem(host, guest).fit() == verdict


LACKS = 'guest cell 0 fits no host cell: host cell 0 lacks'
RED = frozenset({'red'})


@pytest.mark.parametrize(
    ('cells', 'guest', 'limits', 'verdict'),
    [
        ([a_cell(cpu_usage=7)], a_shared(1), (1.0, 1.0), [0]),
        (
            [a_cell(cpu_usage=7)],
            a_shared(2),
            (1.0, 1.0),
            f'{LACKS} 1 CPUs within the allocation ratio',
        ),
        ([a_cell(cpu_usage=7)], a_shared(2), (1.5, 1.0), [0]),
        (
            [a_cell(memory_usage=4000)],
            a_shared(memory=97),
            (1.0, 1.0),
            f'{LACKS} 1 MiB of memory within the allocation ratio',
        ),
        ([a_cell(memory_usage=4000)], a_shared(memory=97), (1.0, 1.5), [0]),
        (
            [a_cell(memory_usage=4000, cpu_usage=8)],
            a_pinned(1, memory=96),
            (0.5, 0.5),
            [0],
        ),
        ([a_cell(0), a_cell(1, physnets=RED)], a_shared(), (1.0, 1.0, RED), [1]),
        (
            [a_cell(0, tunneled=True), a_cell(1, physnets=RED)],
            a_shared(),
            (1.0, 1.0, (), True),
            [0],
        ),
        ([a_cell(0), a_cell(1)], a_shared(), (1.0, 1.0, RED, True), [0]),
        (
            [a_cell(0), a_cell(1, memory=1, physnets=RED)],
            a_shared(),
            (1.0, 1.0, RED),
            'the guest fits no host cell near physical network red: 1',
        ),
        (
            [a_cell(0, tunneled=True), a_cell(1, physnets=RED)],
            a_shared(),
            (1.0, 1.0, RED, True),
            'no choice of host cells is near all of '
            'physical network red, tunneled networks',
        ),
    ],
)
def test_ratios_and_networks_limit_the_host_cells_of_a_guest(
    cells, guest, limits, verdict
):
    """Allocation ratios apply to shared guest cells only. A guest gets a host cell near
    each network, unless the network is near no host cell."""
    fitted = FitProblem(a_host(*cells), a_guest(guest), TopologyLimits(*limits)).fit()

    assert cells_of(fitted) == verdict


@pytest.mark.parametrize(
    ('cells', 'options', 'chosen'),
    [
        ((a_cell(0, memory_usage=1), a_cell(1)), {}, [1]),
        (
            (a_cell(0, pinned_cpus=frozenset({0, 1})), a_cell(1, cpu_usage=4)),
            {'guest': a_guest(a_pinned(2))},
            [1],
        ),
        (
            (a_cell(0, cpu_usage=4), a_cell(1)),
            {'guest': a_guest(a_shared(), a_shared())},
            [0, 1],
        ),
        ((a_cell(0), a_cell(1, memory_usage=1)), {'packing': True}, [1]),
        ((a_cell(0), a_cell(1)), {'pci_cells': {0: 3}}, [1]),
        (
            (a_cell(0), a_cell(1)),
            {'pci_cells': {1: 3}, 'pci_check': lambda ids: None},
            [1],
        ),
        (
            (a_cell(0), a_cell(1)),
            {'pci_cells': {1: 3}, 'pci_check': refuse_unless_cell_0},
            [0],
        ),
        (
            (a_cell(0), a_cell(1)),
            {'pci_check': lambda ids: '2 devices'},
            'near the host cells that the guest fits (0, 1), 2 devices',
        ),
        (
            (a_cell(0), a_cell(1)),
            {'pci_check': refuse_single_cell},
            'near the host cells that the guest fits (0, 1), '
            'the PCI devices cannot be had',
        ),
    ],
)
def test_host_cells_are_preferred_by_devices_then_cpus_then_memory(
    cells, options, chosen
):
    """PCI devices count before CPUs, and CPUs before memory. For a pinned guest, CPUs
    are the free CPUs for pinning. ``packing`` prefers fuller cells. A guest that needs
    all cells gets the cells in the order of the host."""
    options = {'guest': a_guest(a_shared()), **options}

    assert cells_of(FitProblem(a_host(*cells), **options).fit()) == chosen


PAGES = (Pages(4, 1048576, used=10), Pages(2048, 100))


@pytest.mark.parametrize(
    ('guest', 'emulator', 'memory', 'cpus', 'pinned', 'pages'),
    [
        (a_shared(3), None, 256, 3, set(), [65546, 0]),
        (a_shared(3, pagesize=2048, memory=64), None, 64, 3, set(), [10, 32]),
        (a_pinned(3), None, 256, 0, {0, 1, 2}, [65546, 0]),
        (
            a_pinned(2, cpu_thread_policy='isolate'),
            None,
            256,
            0,
            {0, 1, 2, 3},
            [65546, 0],
        ),
        (
            a_pinned(2, cpuset=frozenset({7}), cpu_policy='mixed'),
            None,
            256,
            1,
            {0, 1},
            [65546, 0],
        ),
        (a_pinned(2), 'isolate', 256, 0, {0, 1, 2}, [65546, 0]),
    ],
)
def test_a_guest_consumes_memory_pages_and_cpus_of_the_host_cell(
    guest, emulator, memory, cpus, pinned, pages
):
    """A guest uses memory, pages and CPUs, also the siblings of isolated CPUs and the
    CPU for emulator threads."""
    host = a_host(a_cell(mempages=PAGES), a_cell(1, mempages=PAGES))
    topology = a_guest(guest, emulator=emulator)

    used, unused = consume_cells(host, FitProblem(host, topology).fit(), topology).cells

    assert (used.memory_usage, used.cpu_usage) == (memory, cpus)
    assert used.pinned_cpus == pinned
    assert [size.used for size in used.mempages] == pages
    assert unused == host.cells[1]


def test_pinned_cpus_cannot_be_taken_twice():
    """CPUs cannot be taken twice."""
    host = a_host(a_cell())
    guest = a_guest(a_pinned(2))
    place = FitProblem(host, guest).fit()
    fuller_host = consume_cells(host, place, guest)

    reason = r'host cell 0: CPUs \[0, 1\] are pinned already'
    with pytest.raises(ValueError, match=reason):
        consume_cells(fuller_host, place, guest)
