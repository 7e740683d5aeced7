# SPDX-License-Identifier: Apache-2.0
"""The passwords and tokens of this run, which no file may show but those that hold
them."""

import re
import secrets

SHOWN = ('*.log', '*.jsonl')
"""What daemons and tools write for people to read."""

_ours: set[str] = set()


def a_secret():
    """One that is found in no text by chance, and means the same in every syntax."""
    return registered(secrets.token_hex(16))


def registered(secret):
    """The same, which from now on is one of this run's."""
    _ours.add(secret)
    return secret


def leaks(directory):
    """The lines below a directory that show one: the file and the line's number."""
    for path in sorted(each for pattern in SHOWN for each in directory.rglob(pattern)):
        with path.open(errors='replace') as lines:
            for number, line in enumerate(lines, 1):
                if any(secret in line for secret in _ours):
                    yield f'{path}:{number}'


def lines_showing_secret(text, word):
    """The lines in which a password, which is a word that stands elsewhere, too, is
    shown as one: in a URL, or between quotes, or after the name of what it is."""
    secret = re.escape(word)
    shown = re.compile(
        rf':{secret}@|[\'"]{secret}[\'"]|(passw\w*|token|secret)\W{{1,4}}{secret}(?![\w.-])',
        re.IGNORECASE,
    )
    return [line for line in text.splitlines() if shown.search(line)]
