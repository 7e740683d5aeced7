# SPDX-License-Identifier: Apache-2.0
"""Chance with a seed, and random cases made of themes: functions that add one matter to
what they are given, to its hosts, its request or the configuration."""

import itertools
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from tests.lab.descriptions import Case

Value = TypeVar('Value')

NUMBER_TEXTS = (
    '0',
    '1',
    '2',
    '3',
    '5',
    '8',
    '50',
    '-1',
    '1.5',
    '2.0',
    '1e2',
    ' 4 ',
    '+3',
    '007',
    '1_0',
)
ODD_TEXTS = (
    '',
    ' ',
    'abc',
    '5x',
    '5,6',
    ',',
    '0x10',
    'None',
    '1.2.3',
    '--1',
    'true',
    '½',
)
ENDLESS_TEXTS = ('inf', '-inf', '1e400', 'nan')
"""Awkward values that every reader of text must survive."""


class Dice(Random):
    """A Random that also says how often."""

    def maybe(self, chance: float = 0.5) -> bool:
        """True so often."""
        return self.random() < chance

    def one(self, *options: Value) -> Value:
        return self.choice(options)

    def some(
        self, options: Sequence[Value], most: int = 3, least: int = 0
    ) -> list[Value]:
        """A few of the options, each once."""
        return self.sample(options, min(len(options), self.randint(least, most)))

    def each(
        self,
        table: Mapping[str, Sequence[Any]],
        chance: float = 1.0,
        odd: Collection[Any] = (),
    ) -> dict[str, Any]:
        """One option of each row, which is there so often; the odd ones are rare."""
        rare = odd if odd and self.maybe(0.9) else ()
        return {
            name: self.choice([each for each in options if each not in rare])
            for name, options in table.items()
            if chance == 1.0 or self.maybe(chance)
        }

    def few(
        self, table: Mapping[str, Sequence[Any]], most: int = 3, least: int = 0
    ) -> dict[str, Any]:
        """One option of each of a few rows."""
        return {
            name: self.choice(table[name])
            for name in self.some(list(table), most, least)
        }

    def around(self, limit: int) -> int:
        """A number near a limit, or far from it."""
        return self.one(
            limit - 1,
            limit,
            limit,
            limit + 1,
            0,
            2 * limit,
            self.randint(0, 4 * limit + 4),
        )

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.getrandbits(128), version=4))

    def number_text(self, odd: float = 0.2) -> str:
        """A text that is a number, or, so often, one that is none; rarely one without
        end."""
        if self.maybe(0.01):
            return self.one(*ENDLESS_TEXTS)
        if self.maybe(odd):
            return self.one(*ODD_TEXTS)
        return self.one(*NUMBER_TEXTS)

    def joined(self, options: Sequence[str], most: int = 3) -> str:
        """A comma list of some options, with blanks here and there."""
        parts = [
            self.one('{}', '{}', ' {}', '{} ').format(each)
            for each in self.some(options, most, 1)
        ]
        return ','.join(parts) + self.one('', '', '', ',')


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
        self.request.setdefault('flavor', {}).setdefault('extra_specs', {}).update(
            specs
        )

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
    """Cases without end, the same ones for the same seed; other themes come in at
    times."""
    for number in itertools.count():
        dice = Dice(f'{seed} {number}')
        draft = Draft(
            [{'row': {}, 'service': {}, 'aggregates': []} for _ in range(hosts)]
        )
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
