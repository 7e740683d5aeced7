# SPDX-License-Identifier: Apache-2.0
"""The texts that nova's API database takes for equal."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collation:
    """Tells which texts a database takes for equal.

    :ivar key: two texts have the same key exactly if ``=`` takes them for equal.
    :ivar like_key: the same for ``LIKE``, which ignores the case on SQLite although
        ``=`` does not.
    """

    key: Callable[[str], str] = str
    like_key: Callable[[str], str] = str

    def starts_with(self, text: str, prefix: str) -> bool:
        """True if the text matches ``LIKE 'prefix%'``. LIKE compares character by
        character, and does not ignore trailing blanks."""
        return self.like_key(text[: len(prefix)]) == self.like_key(prefix)


EXACT = Collation()
"""Only identical texts are equal."""
