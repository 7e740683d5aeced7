# SPDX-License-Identifier: Apache-2.0
"""Keeps passwords out of texts without taking words out of them.

Errors of libraries quote what they could not read: a host name that is half a password,
since somebody forgot to encode its ``@``, or a URL with credentials. A password may
also be a word, as ``nova`` is in many a test cloud, and words stand in loggers' names,
in options and in every other line that operators search for. So it depends on who has
made a text:

* Text of a library (:func:`hide`): each known secret goes, as a whole token, and so do
  the pieces of it that a wrong parse gives.
* Text of our own (:func:`redact`): a known secret goes where it stands as one, in a
  URL, in a header, as the value of an option; elsewhere only if it is random
  (:func:`is_random`).

What is known is the process's, as its log is: nova.conf says a part, and the databases
of the cells are told later. Whoever takes a secret in hand lets this module
:func:`learn` it, and whoever makes a text of a library's error has it :func:`hide`
them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from urllib.parse import quote, quote_plus, unquote

HIDDEN = '***'
MIN_TOKEN_CHARACTERS = 4
"""Shorter pieces stand in every text of a library."""
MIN_RANDOM_CHARACTERS = 12
MAX_LINE_CHARACTERS = 200
"""The length of a text that is kept on one line."""
MAX_SEARCHED_CHARACTERS = 10 * MAX_LINE_CHARACTERS
"""The length to which a text is cut before it is searched for secrets. The length
exceeds that of a line, since a hidden secret makes the text shorter."""
_TELLING = re.compile(
    r'(passw(or)?d|passphrase|secret|token|credentials?|connection|_key)$',
    re.IGNORECASE,
)
_PLAIN = ('true', 'false', 'none')
_CUTS = re.compile(r'[:@/#?$]')
_NOTHING = r'(?!)'
_WORD = re.compile(r'[A-Za-z][a-z]{3,}|[A-Z]{4,}')
_HOST = re.compile(r'\A(\[[^]]*\]|[^:\[\]]*)(:[0-9]*)?')
# Users send texts of 100,000 characters. A pattern that reads on to some character,
# such as ``@``, therefore begins only where the character in front is none that it
# reads over: so each character is read once.
_USERINFO = re.compile(r'(?<![^\s\'"])([\w+]+://)?[^\s\'"]+@')
_RUN_BEFORE_AT = re.compile(r'(?<![^\s\'"])[^\s\'"]+@')
_SCHEME = re.compile(r'(?<![\w+.-])[A-Za-z][\w+.-]*://')
_HEADER = re.compile(
    r'((?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret))'
    r'[\'"]?\s*[:=]\s*[\'"]?)[^\'"\r\n]+',
    re.IGNORECASE,
)
_HEADER_HINTS = ('authorization', 'cookie', 'x-')
_NAMED_HINTS = ('passw', 'passphrase', 'secret', 'token', 'credential', '_key')
_NAMED = (
    r'((?:passw(?:or)?d|passphrase|secret|token|credentials?|_key)'
    r'[\'"]?\s*[:=]\s*[\[({\'"]*)'
)
_PLACE_IN_FILE = re.compile(r'\bat (?:line |\S+:)\d+, ')
_QUOTE = re.compile(r': (?=[\'"])')
_TOKEN_BEGINS = r'(?<![\w-])(?<!\w\.)'
_TOKEN_ENDS = r'(?![\w-])(?!\.\w)'
"""A token is no part of a dotted name, nor of a name with hyphens."""


class Secrets:
    """Secrets, and how to take them out of a text; they only become more."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.words = frozenset({''})
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Never again show values that are secret as a whole, or hold credentials if
        they are URLs."""
        words = self.words.union(*map(_words, values)) - {''}
        if words == self.words:
            return
        forms = {form for word in words for form in _forms(word)}
        self._random = [form.lower() for form in forms if is_random(form)]
        every = _any_of(forms)
        tokens = _any_of(form for form in forms if len(form) >= MIN_TOKEN_CHARACTERS)
        self._in_url = re.compile(f':{every}@', re.IGNORECASE)
        self._named = re.compile(f'{_NAMED}{every}{_TOKEN_ENDS}', re.IGNORECASE)
        self._token = re.compile(f'{_TOKEN_BEGINS}{tokens}{_TOKEN_ENDS}', re.IGNORECASE)
        self.words = words

    def hide(self, text: object) -> str:
        """A library's text, or its error's, without them, in capitals or not: a host's
        name is often made small."""
        text = self._token.sub(HIDDEN, self.redact(str(text)))
        text = _USERINFO.sub(rf'\1{HIDDEN}@', text)
        return '\n'.join(map(_without_quoted_line, text.split('\n')))

    def redact(self, text: str) -> str:
        """A text of our own without what can be nothing but a secret."""
        small = text.lower()
        for word in self._random:
            if word in small:
                text = re.sub(re.escape(word), HIDDEN, text, flags=re.IGNORECASE)
        if '@' in text:
            text = self._in_url.sub(f':{HIDDEN}@', text)
            text = _RUN_BEFORE_AT.sub(_without_userinfo, text)
        # Most texts are long lists of hosts, through which no pattern needs to go.
        if any(hint in small for hint in _NAMED_HINTS):
            text = self._named.sub(rf'\1{HIDDEN}', text)
        if any(hint in small for hint in _HEADER_HINTS):
            text = _HEADER.sub(rf'\1{HIDDEN}', text)
        return text


def _without_userinfo(run: re.Match[str]) -> str:
    """A run of characters up to an ``@``, in which user and password of a URL are
    hidden."""
    scheme = _SCHEME.search(run[0])
    if scheme is None:
        return run[0]
    return f'{run[0][: scheme.end()]}{HIDDEN}@'


def _without_quoted_line(line: str) -> str:
    """A line of an error, in which a quoted line of a file is hidden. oslo.config
    quotes the lines that are no assignments: they may hold anything."""
    place = _PLACE_IN_FILE.search(line)
    if place is None:
        return line
    quote = _QUOTE.search(line, place.end())
    if quote is None:
        return line
    return f'{line[: quote.end()]}{HIDDEN}'


def is_telling(name: str, value: str) -> bool:
    """True for the name and value of an option that holds a secret, known or not."""
    looks_telling = '://' in value or _TELLING.search(name) is not None
    return looks_telling and value.lower() not in _PLAIN


def is_random(word: str) -> bool:
    """True for a secret that stands in no text by chance, so that it may be taken out
    wherever it is.

    Shorter ones, and those that are made of words, are names of something in some line
    that somebody searches for. One of 12 characters that change their kind (small,
    capital, digit, other) once in four or more often, and of which words are less than
    two thirds, has some 40 bits that nobody chose: it is in no other text by chance.
    """
    changes = sum(one != other for one, other in pairwise(map(_kind, word)))
    in_words = sum(map(len, _WORD.findall(word)))
    size = len(word)
    return (
        size >= MIN_RANDOM_CHARACTERS
        and 4 * changes >= size
        and 3 * in_words < 2 * size
    )


def _kind(character: str) -> int:
    if character.isdigit():
        return 0
    if character.islower():
        return 1
    if character.isupper():
        return 2
    return 3


def _forms(word: str) -> set[str]:
    """A secret as it stands in texts: in a URL, or between quotes."""
    quoted = {repr(word)[1:-1], json.dumps(word)[1:-1]}
    return {word, quote(word), quote(word, safe=''), quote_plus(word), *quoted}


def _any_of(words: Iterable[str]) -> str:
    """A pattern for each of the words, the longest first; of none it matches
    nothing."""
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return f'(?:{"|".join(map(re.escape, longest_first)) or _NOTHING})'


def _words(value: str) -> Iterator[str]:
    """The passwords in a URL, whatever is wrong with it; of several hosts there are
    several."""
    _, found, rest = value.partition('://')
    if not found:
        yield value
        return
    if '@' not in rest and all(map(_HOST.fullmatch, rest.partition('/')[0].split(','))):
        return
    yield from _password(rest)
    before, at, _ = rest.rpartition('@')
    hosts = [*before.split(',')[:-1], before.split(',')[-1] + at] if at else []
    for host in hosts:
        for password in _password(host):
            yield password
            yield from _CUTS.split(password)


def _password(host: str) -> Iterator[str]:
    """The text between user and host; of a host cut off in the middle, all that could
    be it."""
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


KNOWN = Secrets()
"""The secrets that the process has met."""
learn = KNOWN.learn
hide = KNOWN.hide
redact = KNOWN.redact


def cut(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis, in at most ``most`` characters."""
    if len(text) <= most:
        return text
    return f'{text[: most - 1]}…'


def printable(text: str) -> str:
    """The text with escapes for unprintable characters: control characters, which may
    be commands to a terminal, line breaks, and changes of the direction of writing.

    A text with unprintable characters is also cut, since users send long texts.
    """
    if text.isprintable():
        return text
    return ''.join(map(_escaped, cut(text, MAX_SEARCHED_CHARACTERS)))


def printable_lines(text: str) -> str:
    """A text of several lines, each of which :func:`printable` returns."""
    if text.isprintable():
        return text
    return '\n'.join(map(printable, text.split('\n')))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode('unicode_escape').decode()


def one_line(text: str) -> str:
    """A text of our own on one line, of a length that can be kept, without secrets and
    without unprintable characters."""
    return one_line_each([text])[text]


def one_line_each(texts: Iterable[str]) -> dict[str, str]:
    """Each of many texts as :func:`one_line` has it; secrets are searched once."""
    every = list(dict.fromkeys(texts))
    lines = redact('\n'.join(map(_searched, every))).split('\n')
    shown = [cut(line, MAX_LINE_CHARACTERS) for line in lines]
    return dict(zip(every, shown, strict=True))


def _searched(text: str) -> str:
    """The part of a text that is searched for secrets. The rest would not be shown.
    Texts of users are cut before any pattern reads them."""
    return printable(' '.join(cut(text, MAX_SEARCHED_CHARACTERS).split()))
