# SPDX-License-Identifier: Apache-2.0
"""The same guests on the same hosts through nova's fitter and through ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from novasched.model.numa import (
    CellFit,
    Fit,
    GuestCell,
    GuestTopology,
    HostTopology,
    TopologyLimits,
)
from novasched.numa.fit import fit
from novasched.numa.parse import host_topology
from tests.parity.child import Nova
from tests.parity.comparison import FAILS, Difference, Figures
from tests.parity.conftest import Check
from tests.parity.known import Known, explanation, load
from tests.parity.numa_cases import Case, cases
from tests.properties.numa_checker import violations
from tests.reports import a_numa_topology, an_object

BATCH = 500
CASES = 20_000
CONSTRAINED = 5_000
"""Cases with networks or PCI devices near host cells, on top."""

FITS, DOES_NOT_FIT, BREAKS_RULES = 'fits', 'does not fit', 'breaks rules'

Value = tuple[HostTopology, GuestTopology, TopologyLimits | None]


@pytest.fixture(scope='module')
def fitter() -> Iterator[Nova]:
    """nova's fitter, in a child process."""
    side = Nova('numa_nova_side.py')
    yield side
    side.close()


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
    fitter: Nova,
    intended: Sequence[Known],
    seed: int,
    times: int,
    check: Check,
) -> None:
    """Guests go to the same host cells, CPUs and pages, or nowhere; what differs is listed in
    known.yaml."""
    figures = Figures(f'numa: {name}')
    found: list[Difference] = []
    generated = list(cases(seed, count * times, **options))
    for start in range(0, len(generated), BATCH):
        batch = generated[start : start + BATCH]
        fitter.put('fit', batch)
        mine = [ours(case) for case in batch]
        for case, theirs, our in zip(batch, fitter.answers(), mine, strict=True):
            found += difference(case, theirs, our, figures, intended)
    check((figures, found[:5]))


def difference(
    case: Case, theirs: Any, our: Fit | str, figures: Figures, intended: Sequence[Known]
) -> list[Difference]:
    """What the two sides do not agree on, unless it is meant."""
    nova = theirs if theirs is None or 'error' in theirs else _fit(theirs)
    says, says_ours = outcome(case, nova), outcome(case, our)
    figures.cases += 1
    figures.outcomes[says] += 1
    if nova == our or (says == says_ours == DOES_NOT_FIT):
        return []
    reason = explanation(intended, figures.name, case, says, says_ours)
    if reason is not None:
        figures.known[reason] += 1
        return []
    return [Difference(case, says, says_ours, theirs, our)]


def outcome(case: Case, answer: Fit | str | dict[str, str] | None) -> str:
    """In a word of known.yaml."""
    if isinstance(answer, Fit):
        return BREAKS_RULES if violations(*values(case), answer) else FITS
    return FAILS if isinstance(answer, dict) else DOES_NOT_FIT


@pytest.mark.parametrize(
    'known', [each for each in load() if each.of == ('numa',)], ids=lambda each: each.id
)
def test_the_smallest_example(known: Known, fitter: Nova, intended: Sequence[Known]) -> None:
    """An intended difference can be seen on a handful of CPUs; it is known by no other name."""
    assert known.smallest
    case = small_case(known.smallest)
    [theirs], our = fitter.ask('fit', [case]), ours(case)
    says = outcome(case, theirs and _fit(theirs)), outcome(case, our)
    assert says == (known.smallest['nova'], known.smallest['ours'])
    assert explanation(intended, 'numa', case, *says) == known.id


def small_case(example: Mapping[str, Any]) -> Case:
    """A case from an example of known.yaml."""
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


def values(case: Case) -> Value:
    """The case as we take it."""
    limits = case.get('limits')
    return (
        host_topology(case['host']),
        GuestTopology(
            tuple(map(_guest_cell, case['guest']['cells'])),
            case['guest']['emulator_threads_policy'],
        ),
        limits
        and TopologyLimits(
            limits['cpu'],
            limits['ram'],
            frozenset(limits.get('physnets', ())),
            limits.get('tunneled', False),
        ),
    )


def ours(case: Case) -> Fit | str:
    """Where we put the guest."""
    near = {int(cell): count for cell, count in case.get('pci', {}).get('near', {}).items()}
    wanted = case.get('pci', {}).get('count', 0)
    return fit(
        *values(case),
        pci_lack=(lambda ids: _lack(near, wanted, ids)) if wanted else None,
        pci_cells=near,
        packing=case['packing'],
    )


def _lack(near: Mapping[int, int], wanted: int, ids: Sequence[int]) -> str | None:
    missing = wanted - sum(near.get(i, 0) for i in ids)
    return f'{missing} devices' if missing > 0 else None


def _guest_cell(cell: Case) -> GuestCell:
    made = GuestCell(**cell)
    return replace(made, cpuset=frozenset(made.cpuset), pcpuset=frozenset(made.pcpuset))


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
