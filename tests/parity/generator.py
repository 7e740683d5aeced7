# SPDX-License-Identifier: Apache-2.0
"""Random cases and calls, made of themes: functions that add one matter to what they are given,
to its hosts, its request or the configuration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.descriptions import Case
from tests.parity.dice import Dice


@dataclass
class Draft:
    """A case while themes add to it, in the words of descriptions.py."""

    hosts: list[Case] = field(default_factory=list)
    request: Case = field(default_factory=dict)
    config: Case = field(default_factory=dict)
    index: int = 0

    def ask(self, **fields: Any) -> None:
        self.request.update(fields)

    def flavor(self, **fields: Any) -> None:
        self.request.setdefault('flavor', {}).update(fields)

    def extra_specs(self, specs: Mapping[str, str]) -> None:
        self.request.setdefault('flavor', {}).setdefault('extra_specs', {}).update(specs)

    def image(self, **properties: Any) -> None:
        """Properties of the image, which is there from now on."""
        image = self.request.setdefault('image', {})
        image.setdefault('properties', {}).update(properties)

    def hint(self, **values: Any) -> None:
        self.request.setdefault('scheduler_hints', {}).update(values)

    def set(self, group: str, **options: Any) -> None:
        """Options of nova.conf."""
        self.config.setdefault(group, {}).update(options)


Theme = Callable[[Dice, Any], None]


def cases(
    seed: int, themes: Sequence[Theme], hosts: int, noise: Sequence[Theme] = ()
) -> Iterator[Case]:
    """Cases without end, the same ones for the same seed; other themes come in at times."""
    for number in itertools.count():
        dice = Dice(f'{seed} {number}')
        draft = Draft([{'row': {}, 'service': {}, 'aggregates': []} for _ in range(hosts)])
        others = dice.some(noise, 2) if dice.maybe(0.1) else []
        for theme in (*others, *themes, circumstances):
            theme(dice, draft)
        yield vars(draft)


def circumstances(dice: Dice, draft: Draft) -> None:
    """Now and then it is a rebuild, or another instance of the same request."""
    if dice.maybe(0.05):
        draft.hint(_nova_check_type=['rebuild'])
    if dice.maybe(0.05):
        draft.index = 1
