# SPDX-License-Identifier: Apache-2.0
"""nova's fitter and novasched's fitter, with the same guests on the same hosts, and the
guest cells of both for the same flavors and images."""

import itertools

import pytest

from novasched.scheduler.model.numa import CellFit, Fit
from novasched.scheduler.numa.fit import FitProblem
from tests.lab.numa_checker import numa_arguments, violations
from tests.parity.comparison import FAILS, SEED, Comparison, Difference
from tests.parity.dice import Dice
from tests.parity.known import KNOWN, explanation
from tests.parity.numa_cases import as_text, cases
from tests.parity.ours import guest_of

CASES = 20_000
CONSTRAINED = 5_000
"""Additional cases with networks or PCI devices near host cells."""

GUESTS = 4_000
EXTRA_SPECS = {
    'hw:numa_nodes': ('1', '2', '3'),
    'hw:cpu_policy': ('dedicated', 'mixed', 'shared'),
    'hw:cpu_thread_policy': ('prefer', 'isolate', 'require'),
    'hw:emulator_threads_policy': ('isolate', 'share'),
    'hw:mem_page_size': ('small', 'large', 'any', '2048', '1GB', '2MB', '2M'),
    'hw:cpu_dedicated_mask': ('0-1', '^0', '2'),
    'hw:cpu_realtime': ('yes',),
    'hw:cpu_realtime_mask': ('^0', '^0-1'),
    'resources:PCPU': ('4',),
    'resources:VCPU': ('4',),
    'trait:HW_CPU_HYPERTHREADING': ('required', 'forbidden'),
    'hw:pmem': ('X',),
}
UNEQUAL = {
    'hw:numa_nodes': ('2',),
    'hw:numa_cpus.0': ('0,1', '0-2'),
    'hw:numa_cpus.1': ('2,3', '3'),
    'hw:numa_mem.0': ('512', '1024'),
    'hw:numa_mem.1': ('512', '1024'),
}
IMAGE_PROPERTIES = {
    'hw_numa_nodes': ('1', '2'),
    'hw_cpu_policy': ('dedicated', 'shared'),
    'hw_cpu_thread_policy': ('isolate', 'prefer'),
    'hw_mem_page_size': ('2048', 'large'),
}

FITS = 'fits'
DOES_NOT_FIT = 'does not fit'
BREAKS_RULES = 'breaks rules'
CELLS = 'cells'
NO_CELLS = 'no cells'


@pytest.mark.parametrize(
    ('name', 'count', 'options'),
    [
        ('equal cells', CASES, {}),
        ('networks', CONSTRAINED, {'networks': True}),
        ('PCI devices', CONSTRAINED, {'pci': True}),
        ('unequal cells', CONSTRAINED, {'equal': False}),
    ],
)
def test_a_numa_guest_gets_the_same_cells_and_cpus_as_in_nova(
    name, count, options, hardware
):
    """A guest gets the same host cells, CPUs and pages from both fitters, or fits for
    neither. known.yaml lists the differences."""
    comparison = Comparison(hardware, 'fit', ours, fits, described=False)
    comparison.run(f'numa: {name}', cases(SEED, **options), count)


def fits(case, theirs, our):
    """The sides agree on host cells, CPUs and pages, or that the guest does not fit."""
    nova = theirs if theirs is None or 'error' in theirs else _fit(theirs)
    says = outcome(case, nova)
    says_ours = outcome(case, our)
    agree = nova == our or says == says_ours == DOES_NOT_FIT
    yield Difference(case, says, says_ours, theirs, our, agree)


def outcome(case, answer):
    if isinstance(answer, Fit):
        if violations(*numa_arguments(case), answer):
            return BREAKS_RULES
        return FITS
    if isinstance(answer, dict):
        return FAILS
    return DOES_NOT_FIT


@pytest.mark.parametrize(
    'known',
    [known for known in KNOWN if known.of == ('numa',)],
    ids=lambda known: known.id,
)
def test_a_small_example_shows_each_known_numa_difference(known, hardware):
    """A few CPUs suffice for an example of an intended difference. No second intended
    difference covers the example."""
    assert known.smallest
    case = small_case(known.smallest)

    [theirs] = hardware.ask('fit', [case])
    our = ours(case)

    nova_outcome = outcome(case, theirs and _fit(theirs))
    our_outcome = outcome(case, our)
    assert nova_outcome == known.smallest['nova']
    assert our_outcome == known.smallest['ours']
    assert explanation('numa', case, nova_outcome, our_outcome) == known.id


def small_case(example):
    host = []
    for number, cell in enumerate(example['host']):
        pages = cell.get('mempages', {}).items()
        host.append(
            {
                'id': number,
                'memory': 8,
                'siblings': [[cpu] for cpu in cell['pcpuset']],
                **cell,
                'mempages': [
                    {'size_kb': size, 'total': total} for size, total in pages
                ],
            }
        )
    usual = {
        'cpuset': [], 'memory': 1, 'pagesize': None, 'cpu_policy': 'dedicated',
        'cpu_thread_policy': None,
    }  # fmt: skip
    guest = [{'id': i, **usual, **cell} for i, cell in enumerate(example['guest'])]
    emulator = example.get('emulator_threads_policy')
    return {
        'host': as_text({'cells': host}),
        'guest': {'cells': guest, 'emulator_threads_policy': emulator},
        'packing': False,
    }


def ours(case):
    pci = case.get('pci', {})
    near = {int(cell): count for cell, count in pci.get('near', {}).items()}
    wanted = pci.get('count', 0)
    return FitProblem(
        *numa_arguments(case),
        pci_check=(lambda ids: _lack(near, wanted, ids)) if wanted else None,
        pci_cells=near,
        packing=case['packing'],
    ).fit()


def _lack(near, wanted, ids):
    missing = wanted - sum(near.get(i, 0) for i in ids)
    if missing > 0:
        return f'{missing} devices'
    return None


def _fit(answer):
    cells = []
    for cell, pins, reserved, pagesize in answer:
        pairs = sorted((int(vcpu), cpu) for vcpu, cpu in (pins or {}).items())
        cells.append(CellFit(cell, tuple(pairs), frozenset(reserved), pagesize))
    return Fit(tuple(cells))


def test_a_flavor_and_image_give_the_same_guest_cells_as_in_nova(hardware):
    """Both sides find the same guest cells for a flavor and an image. Flavors and
    images that nova-api refuses do not count."""
    dice = Dice(SEED)
    flavors = (a_flavor(dice) for _ in itertools.count())
    comparison = Comparison(
        hardware, 'cells', lambda x: guest_of(**x), guests, described=False
    )
    outcomes = comparison.run('guest cells', flavors, GUESTS).outcomes
    assert min(outcomes[CELLS], outcomes[NO_CELLS]) > GUESTS // 20


def guests(case, theirs, mine):
    """The sides agree on the guest cells."""
    if theirs and 'error' in theirs:
        yield Difference(case, FAILS, FAILS, theirs, mine, agree=True)
        return
    says = CELLS if theirs else NO_CELLS
    says_ours = CELLS if mine else NO_CELLS
    yield Difference(case, says, says_ours, theirs, mine, theirs == mine)


def a_flavor(dice):
    """A flavor of a few vCPUs with a few extra specs, and sometimes an image with
    properties."""
    specs = dice.few(EXTRA_SPECS, *[dice.one(0, 1, 1, 2, 2, 3)] * 2)
    if dice.maybe(0.1):
        specs |= dice.each(UNEQUAL)
    sizes = dice.each({'vcpus': (2, 4, 4, 6), 'memory_mb': (1024, 1536)})
    image = dice.few(IMAGE_PROPERTIES, 1) if dice.maybe() else {}
    return {'flavor': {**sizes, 'extra_specs': specs}, 'image': image}
