# SPDX-License-Identifier: Apache-2.0
"""Chance with a seed, and the awkward values that every reader of text must survive."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

Value = TypeVar('Value')

NUMBER_TEXTS = (
    '0', '1', '2', '3', '5', '8', '50', '-1', '1.5', '2.0', '1e2', ' 4 ', '+3', '007', '1_0',
)  # fmt: skip
ODD_TEXTS = ('', ' ', 'abc', '5x', '5,6', ',', '0x10', 'None', '1.2.3', '--1', 'true', '½')
ENDLESS_TEXTS = ('inf', '-inf', '1e400', 'nan')


class Dice(Random):
    """A Random that also says how often."""

    def maybe(self, chance: float = 0.5) -> bool:
        """True so often."""
        return self.random() < chance

    def one(self, *options: Value) -> Value:
        return self.choice(options)

    def some(self, options: Sequence[Value], most: int = 3, least: int = 0) -> list[Value]:
        """A few of the options, each once."""
        return self.sample(options, min(len(options), self.randint(least, most)))

    def each(
        self, table: Mapping[str, Sequence[Any]], chance: float = 1.0, odd: Collection[Any] = ()
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
        return {name: self.choice(table[name]) for name in self.some(list(table), most, least)}

    def around(self, limit: int) -> int:
        """A number near a limit, or far from it."""
        return self.one(
            limit - 1, limit, limit, limit + 1, 0, 2 * limit, self.randint(0, 4 * limit + 4)
        )

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.getrandbits(128), version=4))

    def number_text(self, odd: float = 0.2) -> str:
        """A text that is a number, or, so often, one that is none; rarely one without end."""
        if self.maybe(0.01):
            return self.one(*ENDLESS_TEXTS)
        return self.one(*ODD_TEXTS) if self.maybe(odd) else self.one(*NUMBER_TEXTS)

    def joined(self, options: Sequence[str], most: int = 3) -> str:
        """A comma list of some options, with blanks here and there."""
        parts = [
            self.one('{}', '{}', ' {}', '{} ').format(each) for each in self.some(options, most, 1)
        ]
        return ','.join(parts) + self.one('', '', '', ',')
