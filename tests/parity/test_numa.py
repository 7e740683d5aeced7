# SPDX-License-Identifier: Apache-2.0
"""The same guests on the same hosts through nova's fitter and through ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from tests.parity.comparison import Difference, Figures
from tests.parity.numa_cases import Case, cases
from tests.properties.numa_checker import violations

BATCH = 500
CASES = 20_000
CONSTRAINED = 5_000
"""Cases with networks or PCI devices near host cells, on top."""

Check = Callable[[tuple[Figures, Sequence[Difference]]], None]
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
    seed: int,
    times: int,
    check: Check,
) -> None:
    """Guests go to the same host cells, CPUs and pages, or nowhere; where they do not, nova
    has reused what it found for another cell, and ours breaks no rule."""
    figures = Figures(f'numa: {name}')
    found: list[Difference] = []
    generated = list(cases(seed, count * times, **options))
    for start in range(0, len(generated), BATCH):
        batch = generated[start : start + BATCH]
        fitter.put('fit', batch)
        mine = [ours(case) for case in batch]
        for case, theirs, our in zip(batch, fitter.answers(), mine, strict=True):
            found += difference(case, theirs, our, figures)
    check((figures, found[:5]))


def difference(case: Case, theirs: Any, our: Fit | str, figures: Figures) -> list[Difference]:
    """What the two sides do not agree on, unless there is a reason for it."""
    figures.cases += 1
    nova = None if theirs is None or 'error' in theirs else _fit(theirs)
    figures.outcomes['fits' if nova else 'does not fit' if theirs is None else 'fails'] += 1
    mine = our if isinstance(our, Fit) else None
    if nova == mine and (theirs is None or nova is not None):
        return []
    reason = explanation(values(case), nova, mine)
    if reason is not None:
        figures.known[reason] += 1
        return []
    return [Difference(case, str(nova), str(our), theirs, our)]


def explanation(value: Value, nova: Fit | None, our: Fit | None) -> str | None:
    """Why the answers differ; None where there is no excuse."""
    guest = value[1]
    isolated = guest.emulator_threads_policy == 'isolate'
    if our is not None and violations(*value, our):
        return None
    wrong = violations(*value, nova) if nova is not None else []
    if isolated and 'a core that is not all free' in wrong:
        return 'emulator-threads-on-a-used-core'
    if wrong and len(guest.cells) > 1:
        return 'pins-of-another-cell'
    if our is None or wrong:
        return None
    if any(cell.pagesize and cell.pagesize < 0 for cell in guest.cells):
        return 'a-page-size-sticks'
    unequal = len({(len(cell.cpuset), len(cell.pcpuset), cell.memory) for cell in guest.cells}) > 1
    if (unequal or isolated) and len(guest.cells) > 1:
        return 'a-verdict-on-another-cell'
    return None


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
        pci_fits=(lambda ids: sum(near.get(i, 0) for i in ids) >= wanted) if wanted else None,
        pci_cells=near,
        packing=case['packing'],
    )


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
