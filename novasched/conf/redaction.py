# SPDX-License-Identifier: Apache-2.0
"""Remove secrets from texts without removing common words.

Errors of libraries quote texts that the library could not parse: a host name that is
half a password, since an ``@`` was not encoded, or a URL with credentials. A password
may also be a common word, such as ``nova`` in many test clouds, and the same word
occurs in names of loggers, in options and in lines that operators search for. So the
treatment depends on the origin of the text:

* Texts of libraries (:func:`hide`): each known secret is removed as a whole token,
  together with the pieces that a wrong parse makes of the secret.
* Texts of novasched (:func:`redact`): a known secret is removed where the context
  shows a secret: in a URL, in a header, as the value of an option. Elsewhere the secret
  is removed only if it is random (:func:`is_random`).

The secrets are known per process, like the log. nova.conf has the first secrets, and
the databases of the cells add more. Code that gets a secret must call :func:`learn`,
and code that makes a text of a library's error must call :func:`hide`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from urllib.parse import quote, quote_plus, unquote

HIDDEN = '***'
MIN_TOKEN_CHARACTERS = 4
"""Shorter pieces of a secret are not removed: such pieces occur in every text."""
MIN_RANDOM_CHARACTERS = 12
MAX_LINE_CHARACTERS = 200
"""Maximum length of a text on one line."""
MAX_SEARCHED_CHARACTERS = 10 * MAX_LINE_CHARACTERS
"""Length to which a text is cut before the search for secrets. Longer than a line,
since hiding a secret makes the text shorter."""
_TELLING = re.compile(
    r'(passw(or)?d|passphrase|secret|token|credentials?|connection|_key)$',
    re.IGNORECASE,
)
_PLAIN = ('true', 'false', 'none')
_CUTS = re.compile(r'[:@/#?$]')
_NOTHING = r'(?!)'
_PLAIN_SECRET = re.compile(r'[\w.-]+=*', re.ASCII)
_WORD = re.compile(r'[A-Za-z][a-z]{3,}|[A-Z]{4,}')
_HOST = re.compile(r'\A(\[[^]]*\]|[^:\[\]]*)(:[0-9]*)?')
# Users send texts of 100,000 characters. A pattern that reads up to a character such as
# ``@`` therefore begins only behind a character that the pattern does not read over.
# So each character is read once, and the search takes linear time.
_USERINFO = re.compile(r'(?<![^\s\'"])([\w+]+://)?[^\s\'"]+@')
_RUN_BEFORE_AT = re.compile(r'(?<![^\s\'"])[^\s\'"]+@')
_SCHEME = re.compile(r'(?<![\w+.-])[A-Za-z][\w+.-]*://')
_HEADER = re.compile(
    r'((?<![\w-])'
    r'(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret))'
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
"""A token is no part of a dotted name and no part of a name with hyphens."""


class Secrets:
    """A growing set of secrets, which can be removed from texts.

    :ivar words: the secrets.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.words = frozenset({''})
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Add secrets: the credentials of URLs, and all other values as a whole."""
        words = self.words.union(*map(_words, values)) - {''}
        if words == self.words:
            return

        forms = set(chain.from_iterable(map(_forms, words)))
        self._random = [form.lower() for form in forms if is_random(form)]
        any_form = _any_of(forms)
        tokens = _any_of(form for form in forms if len(form) >= MIN_TOKEN_CHARACTERS)
        self._in_url = re.compile(f':{any_form}@', re.IGNORECASE)
        self._named = re.compile(f'{_NAMED}{any_form}{_TOKEN_ENDS}', re.IGNORECASE)
        self._token = re.compile(f'{_TOKEN_BEGINS}{tokens}{_TOKEN_ENDS}', re.IGNORECASE)
        self.words = words

    def hide(self, text: object) -> str:
        """Return a text of a library without the secrets.

        The case of letters does not matter: libraries convert host names to lower case.
        """
        text = self._token.sub(HIDDEN, self.redact(str(text)))
        text = _USERINFO.sub(rf'\1{HIDDEN}@', text)
        return '\n'.join(map(_without_quoted_line, text.split('\n')))

    def redact(self, text: str) -> str:
        """Return a text of novasched without unmistakable secrets."""
        lowered = text.lower()
        for word in self._random:
            if word in lowered:
                text = re.sub(re.escape(word), HIDDEN, text, flags=re.IGNORECASE)

        if '@' in text:
            text = self._in_url.sub(f':{HIDDEN}@', text)
            text = _RUN_BEFORE_AT.sub(_without_userinfo, text)

        # The hints are cheap: most texts are long lists of hosts, which the patterns
        # need not read.
        if any(hint in lowered for hint in _NAMED_HINTS):
            text = self._named.sub(rf'\1{HIDDEN}', text)
        if any(hint in lowered for hint in _HEADER_HINTS):
            text = _HEADER.sub(rf'\1{HIDDEN}', text)
        return text


def _without_userinfo(run: re.Match[str]) -> str:
    """Hide user and password of a URL in a run of characters up to ``@``."""
    scheme = _SCHEME.search(run[0])
    if scheme is None:
        return run[0]
    return f'{run[0][: scheme.end()]}{HIDDEN}@'


def _without_quoted_line(line: str) -> str:
    """Hide the line of a file that an error quotes.

    oslo.config quotes lines that are no assignments, and such a line may contain a
    secret.
    """
    place = _PLACE_IN_FILE.search(line)
    if place is None:
        return line
    quote = _QUOTE.search(line, place.end())
    if quote is None:
        return line
    return f'{line[: quote.end()]}{HIDDEN}'


def is_telling(name: str, value: str) -> bool:
    """Return True if name or value of an option show that the value is secret."""
    looks_telling = '://' in value or _TELLING.search(name) is not None
    return looks_telling and value.lower() not in _PLAIN


def is_random(word: str) -> bool:
    """Return True for a secret that cannot occur in a text by chance.

    A random secret may be removed wherever it occurs. Short secrets and secrets made of
    words are not random: such a secret may be the name of something in the log.

    A random secret has at least 12 characters, the kind of character (lower case, upper
    case, digit, other) changes at least at every fourth character, and less than two
    thirds are words. Such a secret has about 40 random bits.
    """
    size = len(word)
    kind_changes = 0
    for kind, next_kind in pairwise(map(_kind, word)):
        if kind != next_kind:
            kind_changes += 1
    size_of_words = sum(map(len, _WORD.findall(word)))
    return (
        size >= MIN_RANDOM_CHARACTERS
        and 4 * kind_changes >= size
        and 3 * size_of_words < 2 * size
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
    """Return the spellings of a secret in texts: plain, in a URL, between quotes."""
    quoted = {repr(word)[1:-1], json.dumps(word)[1:-1]}
    return {word, quote(word), quote(word, safe=''), quote_plus(word), *quoted}


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words; without words it matches nothing."""
    # The longest first, so that no shorter word matches the beginning of a longer one.
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    pattern = '|'.join(map(re.escape, longest_first))
    return f'(?:{pattern or _NOTHING})'


def _words(value: str) -> Iterator[str]:
    """Yield the secrets in a value: the passwords of a URL, or the whole value.

    The URL may be malformed. A URL with several hosts has several passwords.
    """
    _, is_url, rest = value.partition('://')
    if not is_url:
        yield value
        return

    hosts_alone = rest.partition('/')[0].split(',')
    if '@' not in rest and all(map(_HOST.fullmatch, hosts_alone)):
        return

    yield from _password(rest)
    before, at, _ = rest.rpartition('@')
    if not at:
        return
    hosts = before.split(',')
    hosts[-1] += at
    for host in hosts:
        for password in _password(host):
            yield password
            # A wrong parse cuts a password at characters that were not encoded.
            yield from _CUTS.split(password)


def _password(host: str) -> Iterator[str]:
    """Yield the password in ``user:password@host``, as written and decoded.

    ``host`` may be cut off in the middle. Then all text that may belong to the password
    counts.
    """
    credentials, at, _ = host.rpartition('@')
    if at:
        user, colon, password = credentials.partition(':')
        if not colon:
            password = user
    else:
        password = host.partition(':')[2].partition('/')[0]
        # Digits are the port.
        if password.isdigit():
            password = ''

    if password:
        yield password
        yield unquote(password)


class PlainSecret:
    """A random secret with the same spelling in every text.

    :param word: the secret; only the padding at the end may differ in a URL.
    """

    def __init__(self, word: str) -> None:
        self._word = word.rstrip('=')

    def redact(self, text: str) -> str:
        """Return a text without the secret."""
        return text.replace(self._word, HIDDEN)

    hide = redact


KNOWN = Secrets()
"""The secrets that the process knows."""
learn = KNOWN.learn

_in_use: dict[object, Secrets | PlainSecret] = {}
"""The secrets of requests in progress."""


@contextmanager
def secret_in_use(secret: object) -> Iterator[None]:
    """Hide a secret in all texts of the process for a while, as the token of a caller
    while a plugin knows the token.

    :param secret: anything but a text is no secret.
    """
    if not isinstance(secret, str) or not secret:
        yield
        return

    # Most tokens are random, and take no time until a text is searched.
    in_use: Secrets | PlainSecret
    if _PLAIN_SECRET.fullmatch(secret) and is_random(secret):
        in_use = PlainSecret(secret)
    else:
        in_use = Secrets([secret])
    ticket = object()
    _in_use[ticket] = in_use
    try:
        yield
    finally:
        del _in_use[ticket]


def hide(text: object) -> str:
    """Return a text of a library without known secrets: see :meth:`Secrets.hide`."""
    hidden = KNOWN.hide(text)
    for secret in tuple(_in_use.values()):
        hidden = secret.hide(hidden)
    return hidden


def redact(text: str) -> str:
    """Return a text of novasched without known secrets: see :meth:`Secrets.redact`."""
    redacted = KNOWN.redact(text)
    for secret in tuple(_in_use.values()):
        redacted = secret.redact(redacted)
    return redacted


def cut(text: str, max_characters: int) -> str:
    """Return the text, cut with an ellipsis to at most ``max_characters``."""
    if len(text) <= max_characters:
        return text
    return f'{text[: max_characters - 1]}…'


def printable(text: str) -> str:
    """Return the text with escapes for unprintable characters.

    Unprintable are control characters, which may be commands to a terminal, line
    breaks, and changes of the direction of writing. A text with unprintable characters
    is also cut, since users send long texts.
    """
    if text.isprintable():
        return text
    return ''.join(map(_escaped, cut(text, MAX_SEARCHED_CHARACTERS)))


def printable_lines(text: str) -> str:
    """Apply :func:`printable` to each line of the text."""
    if text.isprintable():
        return text
    return '\n'.join(map(printable, text.split('\n')))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode('unicode_escape').decode()


def one_line(text: str) -> str:
    """Return a text of novasched on one line, cut, redacted and printable."""
    return one_line_each([text])[text]


def one_line_each(texts: Iterable[str]) -> dict[str, str]:
    """Return by text the line of :func:`one_line`, with a single search for secrets."""
    distinct_texts = list(dict.fromkeys(texts))
    redacted = redact('\n'.join(map(_searched, distinct_texts)))
    lines = [cut(line, MAX_LINE_CHARACTERS) for line in redacted.split('\n')]
    return dict(zip(distinct_texts, lines, strict=True))


def _searched(text: str) -> str:
    """Return the part of a text to search for secrets; the rest is never shown.

    Texts of users are cut before a pattern reads the text.
    """
    return printable(' '.join(cut(text, MAX_SEARCHED_CHARACTERS).split()))
