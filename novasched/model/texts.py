# SPDX-License-Identifier: Apache-2.0
"""Flags and lists of CPUs, as people write them in extra specs and image properties."""

from __future__ import annotations

MOST_CPUS = 65536
"""No machine has so many, and a list that names one must not fill our memory."""

MOST_NAMED = 4 * MOST_CPUS
"""A list that names all CPUs again and again must not fill our time."""

_TRUE = frozenset(('1', 't', 'true', 'on', 'y', 'yes'))


def is_true(value: object) -> bool:
    """Whether a text, or a value that was one, says yes; any other text says no."""
    return str(value).strip().lower() in _TRUE


def cpu_set(text: str) -> set[int]:
    """The CPUs of a list such as ``'0-3,^2,8'``; what is left out may stand anywhere.

    :raises ValueError: it is no such list.
    """
    taken: set[int] = set()
    dropped: set[int] = set()
    named = 0
    for rule in filter(None, map(str.strip, text.split(','))):
        first, dash, last = rule.removeprefix('^').partition('-')
        low = int(first)
        high = int(last) if dash else low
        if not low <= high < MOST_CPUS:
            raise ValueError(f'{rule} is no range of CPUs')
        named += high - low + 1
        if named > MOST_NAMED:
            raise ValueError(f'more than {MOST_NAMED} CPUs are named, some of them repeatedly')
        (dropped if rule.startswith('^') else taken).update(range(low, high + 1))
    return taken - dropped
