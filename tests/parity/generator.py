# SPDX-License-Identifier: Apache-2.0
"""Random cases, made of themes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put

Theme = Callable[[Dice, Case], None]


def cases(
    seed: int, themes: Sequence[Theme], hosts: int, noise: Sequence[Theme] = ()
) -> Iterator[Case]:
    """Cases without end, the same ones for the same seed; other themes come in at times."""
    for number in itertools.count():
        dice = Dice(f'{seed} {number}')
        case: Case = {'hosts': [{} for _ in range(hosts)], 'request': {}}
        others = dice.some(noise, 2) if dice.maybe(0.1) else []
        for theme in (*others, *themes, circumstances):
            theme(dice, case)
        yield case


def circumstances(dice: Dice, case: Case) -> None:
    """Now and then it is a rebuild, or another server of the same request."""
    if dice.maybe(0.05):
        put(case, 'request', 'scheduler_hints', _nova_check_type=['rebuild'])
    if dice.maybe(0.05):
        case['index'] = 1
