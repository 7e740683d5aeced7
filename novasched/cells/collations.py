# SPDX-License-Identifier: Apache-2.0
"""The collations of nova's API database, as the database itself applies them.

MySQL and MariaDB compare texts by weights: most collations ignore the case, accents and
trailing blanks. The database computes the weights, and novasched compares the weights.
PostgreSQL and SQLite compare texts exactly.
"""

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import sqlalchemy as sa

from novasched.cells.database import Database
from novasched.scheduler.model.collation import EXACT, Collation

MAX_TEXTS = 4096
"""Number of texts of requests whose weights are kept. Texts of printable ASCII
characters do not count, unless the collation has contractions."""
PRINTABLE_ASCII = ''.join(map(chr, range(ord(' '), ord('~') + 1)))
EVERY_PAIR = ''.join(map(''.join, product(PRINTABLE_ASCII, repeat=2)))
"""A text with each pair of printable ASCII characters."""

_LOWER_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _lower_ascii(text: str) -> str:
    return text.translate(_LOWER_ASCII)


SQLITE = Collation(like_key=_lower_ascii)
"""LIKE of SQLite ignores the case of ASCII letters, although ``=`` does not."""


def has_weights(dialect: sa.Dialect) -> bool:
    """True if the database compares texts by weights."""
    return dialect.name == 'mysql'


def without_weights(dialect: sa.Dialect) -> Collation:
    """The collation of a database without weights."""
    if dialect.name == 'sqlite':
        return SQLITE
    return EXACT


def weights(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """The weights of the texts in a column, as hexadecimal digits."""
    return sa.func.hex(sa.func.weight_string(column))


@dataclass(frozen=True, slots=True)
class TextWeights:
    """The weights of texts in a collation of MySQL or MariaDB.

    :ivar of_characters: the weights of printable ASCII characters, by code point. None
        if the weights of a text are not the weights of its characters in a row, as in
        collations with contractions or several levels.
    :ivar blank: the weights of a blank if trailing blanks do not count; else empty.
    :ivar of_text: asks the database for the weights of a text. None if the character
        set has no such text.
    """

    of_characters: Mapping[int, str] | None
    blank: str
    of_text: Callable[[str], str | None]

    def collation(self, stored: Mapping[str, str]) -> Collation:
        """The collation.

        :param stored: the weights of texts in the database, by text.
        """

        def key(text: str) -> str:
            if not self.blank:
                return self._weights(text, stored)
            # The end of weights of several levels does not show a blank.
            weights = self._weights(text.rstrip(' '), stored)
            # Other characters may have the weights of a blank, such as U+00A0 in
            # utf8mb4_unicode_ci.
            while weights.endswith(self.blank):
                weights = weights.removesuffix(self.blank)
            return weights

        return Collation(key, key)

    def _weights(self, text: str, stored: Mapping[str, str]) -> str:
        if self.of_characters and text.isascii() and text.isprintable():
            return text.translate(self.of_characters)
        if text in stored:
            return stored[text]
        found = self.of_text(text)
        if found is None:
            # Equal to itself only: the text is not in the form of weights.
            return text
        return found


def learn(api: Database, connection: sa.Connection, name: str) -> TextWeights:
    """Ask a MySQL or MariaDB server for the weights of a collation.

    Weights of texts that are neither stored nor printable ASCII are read from the API
    database when they are first used, which may raise DatabaseUnavailable.

    :param name: the collation, which begins with its character set, as in
        ``utf8mb3_general_ci``.
    """
    texts = [*PRINTABLE_ASCII, EVERY_PAIR]
    converted = [_converted(text, name) for text in texts]
    columns = [weights(column) for column in converted]
    pads_blanks = _converted('a', name) == _converted('a ', name)
    *by_character, of_every_pair, pads = connection.execute(
        sa.select(*columns, pads_blanks)
    ).one()

    of_characters = dict(zip(map(ord, PRINTABLE_ASCII), by_character, strict=True))
    blank = ''
    if pads:
        blank = of_characters[ord(' ')]

    @lru_cache(MAX_TEXTS)
    def of_text(text: str) -> str | None:
        def read(connection: sa.Connection) -> str | None:
            return _read_weights(connection, text, name)

        return api.read(read)

    if EVERY_PAIR.translate(of_characters) != of_every_pair:
        # Contractions such as "ch", or weights of several levels.
        return TextWeights(None, blank, of_text)
    return TextWeights(of_characters, blank, of_text)


def _read_weights(connection: sa.Connection, text: str, name: str) -> str | None:
    """The weights of a text; None if the character set has no such text."""
    converted = _converted(text, name)
    # The server replaces characters that the character set lacks with question marks.
    restored = sa.func.hex(_in_charset(converted, 'utf8mb4'))
    row = connection.execute(sa.select(weights(converted), restored)).one()
    if row[1] != _hex(text):
        return None
    return str(row[0])


def _converted(text: str, name: str) -> sa.ColumnElement[str]:
    """A text as the value of a column with a collation.

    The text travels as hexadecimal digits: the character set of the connection may lack
    characters of the text.
    """
    unicode = _in_charset(sa.func.unhex(_hex(text)), 'utf8mb4')
    charset, _, _ = name.partition('_')
    return sa.collate(_in_charset(unicode, charset), name)


def _hex(text: str) -> str:
    # A lone surrogate may arrive in JSON. The server does not restore it.
    return text.encode(errors='surrogatepass').hex().upper()


def _in_charset(column: sa.ColumnElement[Any], charset: str) -> sa.ColumnElement[str]:
    """``CONVERT(column USING charset)``."""
    return sa.func.convert(column.op('USING')(sa.literal_column(charset)))
