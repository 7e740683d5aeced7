# SPDX-License-Identifier: Apache-2.0
"""The same guests on the same hosts through nova's fitter and through ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from novasched.scheduler.model.numa import CellFit, Fit
from novasched.scheduler.numa.fit import fit
from tests.lab.numa_checker import numa_arguments, violations
from tests.lab.reports import a_numa_topology, an_object
from tests.parity.child import Nova
from tests.parity.comparison import FAILS, Comparison, Difference, Figures
from tests.parity.conftest import Compare
from tests.parity.known import Known, explanation, load
from tests.parity.numa_cases import Case, cases

CASES = 20_000
CONSTRAINED = 5_000
"""Cases with networks or PCI devices near host cells, on top."""

FITS, DOES_NOT_FIT, BREAKS_RULES = 'fits', 'does not fit', 'breaks rules'


@pytest.mark.parametrize(
    ('name', 'count', 'options'),
    [
        ('equal cells', CASES, {}),
        ('networks', CONSTRAINED, {'networks': 1.0}),
        ('PCI devices', CONSTRAINED, {'pci': True}),
        ('unequal cells', CONSTRAINED, {'equal': False}),
    ],
)
def test_the_fit_is_that_of_nova(
    name: str,
    count: int,
    options: dict[str, Any],
    hardware: Nova,
    seed: int,
    times: int,
    compare: Compare,
) -> None:
    """Guests go to the same host cells, CPUs and pages, or nowhere; what differs is listed in
    known.yaml."""
    comparison = Comparison(hardware, 'fit', ours, fits, described=False)
    compare(comparison, f'numa: {name}', cases(seed, count * times, **options))


def fits(case: Case, theirs: Any, our: Fit | str, figures: Figures) -> Iterator[Difference]:
    """The same host cells, CPUs and pages, or none on both sides."""
    nova = theirs if theirs is None or 'error' in theirs else _fit(theirs)
    says, says_ours = outcome(case, nova), outcome(case, our)
    figures.cases += 1
    figures.outcomes[says] += 1
    if nova != our and not says == says_ours == DOES_NOT_FIT:
        yield Difference(case, says, says_ours, theirs, our)


def outcome(case: Case, answer: Fit | str | dict[str, str] | None) -> str:
    if isinstance(answer, Fit):
        return BREAKS_RULES if violations(*numa_arguments(case), answer) else FITS
    return FAILS if isinstance(answer, dict) else DOES_NOT_FIT


@pytest.mark.parametrize(
    'known', [each for each in load() if each.of == ('numa',)], ids=lambda each: each.id
)
def test_the_smallest_example(known: Known, hardware: Nova, intended: Sequence[Known]) -> None:
    """An intended difference can be seen on a handful of CPUs; it is known by no other name."""
    assert known.smallest
    case = small_case(known.smallest)
    [theirs], our = hardware.ask('fit', [case]), ours(case)
    says = outcome(case, theirs and _fit(theirs)), outcome(case, our)
    assert says == (known.smallest['nova'], known.smallest['ours'])
    assert explanation(intended, 'numa', case, *says) == known.id


def small_case(example: Mapping[str, Any]) -> Case:
    host = []
    for number, cell in enumerate(example['host']):
        mempages = [
            an_object('NUMAPagesTopology', size_kb=size, total=total, used=0, reserved=0)
            for size, total in cell.get('mempages', {}).items()
        ]
        usual = {
            'id': number, 'cpuset': [], 'memory': 8, 'memory_usage': 0, 'cpu_usage': 0,
            'pinned_cpus': [], 'siblings': [[cpu] for cpu in cell['pcpuset']], 'socket': 0,
        }  # fmt: skip
        host.append(an_object('NUMACell', **{**usual, **cell, 'mempages': mempages}))
    usual = {
        'cpuset': [], 'memory': 1, 'pagesize': None, 'cpu_policy': 'dedicated',
        'cpu_thread_policy': None,
    }  # fmt: skip
    guest = [{'id': i, **usual, **cell} for i, cell in enumerate(example['guest'])]
    emulator = example.get('emulator_threads_policy')
    return {
        'host': a_numa_topology(*host),
        'guest': {'cells': guest, 'emulator_threads_policy': emulator},
        'packing': False,
    }


def ours(case: Case) -> Fit | str:
    near = {int(cell): count for cell, count in case.get('pci', {}).get('near', {}).items()}
    wanted = case.get('pci', {}).get('count', 0)
    return fit(
        *numa_arguments(case),
        pci_check=(lambda ids: _lack(near, wanted, ids)) if wanted else None,
        pci_cells=near,
        packing=case['packing'],
    )


def _lack(near: Mapping[int, int], wanted: int, ids: Sequence[int]) -> str | None:
    missing = wanted - sum(near.get(i, 0) for i in ids)
    return f'{missing} devices' if missing > 0 else None


def _fit(answer: list[Any]) -> Fit:
    return Fit(
        tuple(
            CellFit(
                cell,
                tuple(sorted((int(vcpu), cpu) for vcpu, cpu in (pins or {}).items())),
                frozenset(reserved),
                pagesize,
            )
            for cell, pins, reserved, pagesize in answer
        )
    )
