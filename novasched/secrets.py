# SPDX-License-Identifier: Apache-2.0
"""Keeps passwords out of texts that other people's code has made.

Errors of libraries quote what they could not read: a host name that is half a password,
since somebody forgot to encode its ``@``, or a URL with credentials. So the secrets that
are known are looked for in such texts, whole and in the pieces that a wrong parse gives.

What is known is the process's, as its log is: nova.conf says a part, and the databases of
the cells are told later. Whoever takes a secret in hand lets this module :func:`learn` it,
and whoever makes a text of a library's error has it :func:`hide` them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

HIDDEN = '***'
LEAST = 4
"""Shorter pieces are no secret, and stand in every text."""
LONG = 8
"""A secret of this length is looked for within words too."""

_TELLING = re.compile(
    r'(passw(or)?d|passphrase|secret|token|credentials?|connection|_key)$', re.IGNORECASE
)
_PLAIN = ('true', 'false', 'none')
_CUTS = re.compile(r'[:@/#?$]')
# Only from the beginning of a word on: long texts without a space are read once.
_USERINFO = re.compile(r'(?<![^\s\'"])([\w+]+://)?[^\s\'"]+@')
_QUOTED_LINE = re.compile(r"(\bat (?:line |\S+:)\d+, [^\n]*?: )(['\"]).*")
"""A line of a file as oslo.config quotes it when it is no assignment: it may hold anything."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets, and how to take them out of a text."""

    words: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Iterable[str]) -> Secrets:
        """Those in values that are secret as a whole, or hold credentials if they are URLs."""
        words = {word for value in values for word in _words(value)}
        return cls(frozenset(word for word in words if len(word) >= LEAST))

    def hide(self, text: str) -> str:
        """The text without them, in capitals or not: a host's name is often made small."""
        small = text.lower()
        found = [word for word in self.words if word.lower() in small]
        for word in sorted(found, key=len, reverse=True):
            pattern = re.escape(word)
            if len(word) < LONG:
                pattern = rf'(?<!\w){pattern}(?!\w)'
            text = re.sub(pattern, HIDDEN, text, flags=re.IGNORECASE)
        return _QUOTED_LINE.sub(rf'\1{HIDDEN}', _USERINFO.sub(rf'\1{HIDDEN}@', text))


class Known:
    """The secrets that the process has met; they only become more."""

    def __init__(self) -> None:
        self.secrets = Secrets()

    def learn(self, values: Iterable[str]) -> None:
        """Never again show those in values, as :meth:`Secrets.of` finds them."""
        self.secrets = Secrets(self.secrets.words | Secrets.of(values).words)

    def hide(self, text: object) -> str:
        """A text, or an error's, without what is known."""
        return self.secrets.hide(str(text))


KNOWN = Known()
learn, hide = KNOWN.learn, KNOWN.hide


def is_telling(name: str, value: str) -> bool:
    """Whether an option of that name and value holds a secret, known or not."""
    if value.lower() in _PLAIN:
        return False
    return '://' in value or _TELLING.search(name) is not None


def _words(value: str) -> Iterator[str]:
    """The passwords in a URL, whatever is wrong with it; of several hosts there are several."""
    _, found, rest = value.partition('://')
    if not found:
        yield value
        return
    yield from _password(rest)
    before, at, _ = rest.rpartition('@')
    hosts = [*before.split(',')[:-1], before.split(',')[-1] + at] if at else []
    for host in hosts:
        for password in _password(host):
            yield password
            yield from _CUTS.split(password)


def _password(host: str) -> Iterator[str]:
    """What stands between user and host; of a host cut off in the middle, all that could."""
    credentials, at, _ = host.rpartition('@')
    user, colon, password = (credentials if at else host).partition(':')
    if at:
        password = password if colon else user
    else:
        password = password.partition('/')[0]
        password = '' if password.isdigit() else password
    if password:
        yield password
        yield unquote(password)
