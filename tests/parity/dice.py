# SPDX-License-Identifier: Apache-2.0
"""Seeded random values, and random cases made of themes. A theme is a function. It adds
a subject to the hosts, the request or the configuration of a case."""

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
"""Awkward texts that every reader of numbers must survive."""


class Dice(Random):
    """A Random with choices from tables, and with probabilities."""

    def maybe(self, chance: float = 0.5) -> bool:
        """True with a probability."""
        return self.random() < chance

    def one(self, *options: Value) -> Value:
        return self.choice(options)

    def some(
        self, options: Sequence[Value], most: int = 3, least: int = 0
    ) -> list[Value]:
        """A few of the options, without repetition."""
        return self.sample(options, min(len(options), self.randint(least, most)))

    def each(
        self,
        table: Mapping[str, Sequence[Any]],
        chance: float = 1.0,
        odd: Collection[Any] = (),
    ) -> dict[str, Any]:
        """An option of every row.

        :param chance: the probability of a row.
        :param odd: options that are left out in nine of ten calls.
        """
        excluded = odd if odd and self.maybe(0.9) else ()
        chosen = {}
        for name, options in table.items():
            if chance == 1.0 or self.maybe(chance):
                usual = [option for option in options if option not in excluded]
                chosen[name] = self.choice(usual)
        return chosen

    def few(
        self, table: Mapping[str, Sequence[Any]], most: int = 3, least: int = 0
    ) -> dict[str, Any]:
        """An option of a few rows."""
        names = self.some(list(table), most, least)
        return {name: self.choice(table[name]) for name in names}

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
        """The text of a number. With the probability ``odd`` the text is no number, and
        in one of a hundred calls the number is not finite."""
        if self.maybe(0.01):
            return self.one(*ENDLESS_TEXTS)
        if self.maybe(odd):
            return self.one(*ODD_TEXTS)
        return self.one(*NUMBER_TEXTS)

    def joined(self, options: Sequence[str], most: int = 3) -> str:
        """A comma-separated list of a few options, with blanks here and there."""
        parts = []
        for option in self.some(options, most, 1):
            parts.append(self.one('{}', '{}', ' {}', '{} ').format(option))
        return ','.join(parts) + self.one('', '', '', ',')


@dataclass
class Draft:
    """A case while themes add to it, in the terms of descriptions.py."""

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
        """Set properties of the image, and add an image if there is none."""
        image = self.request.setdefault('image', {})
        image.setdefault('properties', {}).update(properties)

    def hint(self, **values: Any) -> None:
        self.request.setdefault('scheduler_hints', {}).update(values)

    def set(self, group: str, **options: Any) -> None:
        """Set options of nova.conf."""
        self.config.setdefault(group, {}).update(options)


Theme = Callable[[Dice, Any], None]


def cases(
    seed: int, themes: Sequence[Theme], hosts: int, noise: Sequence[Theme] = ()
) -> Iterator[Case]:
    """Endless cases, the same cases for the same seed.

    :param noise: themes of which a few are added to one of ten cases.
    """
    for number in itertools.count():
        dice = Dice(f'{seed} {number}')
        draft = Draft(
            [{'row': {}, 'service': {}, 'aggregates': []} for _ in range(hosts)]
        )
        added = dice.some(noise, 2) if dice.maybe(0.1) else []
        for theme in (*added, *themes, circumstances):
            theme(dice, draft)
        yield vars(draft)


def circumstances(dice: Dice, draft: Draft) -> None:
    """Make a case a rebuild now and then, or a later instance of its request."""
    if dice.maybe(0.05):
        draft.hint(_nova_check_type=['rebuild'])
    if dice.maybe(0.05):
        draft.index = 1
