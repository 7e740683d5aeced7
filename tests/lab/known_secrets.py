# SPDX-License-Identifier: Apache-2.0
"""The passwords and tokens of this run. No log of the run may show a secret."""

import re
import secrets

LOG_PATTERNS = ('*.log', '*.jsonl')
"""Files that daemons and tools write for people to read."""

_secrets: set[str] = set()


def a_secret():
    """A new secret. No text contains the secret by chance, and no syntax needs
    quotes."""
    return registered(secrets.token_hex(16))


def registered(secret):
    """Remember a secret of this run, and return the secret."""
    _secrets.add(secret)
    return secret


def leaks(directory):
    """The lines of logs below a directory that show a secret, as FILE:LINE."""
    paths = []
    for pattern in LOG_PATTERNS:
        paths += directory.rglob(pattern)

    for path in sorted(paths):
        with path.open(errors='replace') as lines:
            for number, line in enumerate(lines, 1):
                if any(secret in line for secret in _secrets):
                    yield f'{path}:{number}'


def lines_showing_secret(text, word):
    """The lines in which a word stands as a password: in a URL, between quotes, or after
    ``password``, ``token`` or ``secret``. The word may stand elsewhere, too."""
    secret = re.escape(word)
    in_url = rf':{secret}@'
    in_quotes = rf'[\'"]{secret}[\'"]'
    after_name = rf'(passw\w*|token|secret)\W{{1,4}}{secret}(?![\w.-])'
    leak = re.compile(f'{in_url}|{in_quotes}|{after_name}', re.IGNORECASE)
    return [line for line in text.splitlines() if leak.search(line)]
