# SPDX-License-Identifier: Apache-2.0
"""Parse values of users and compute hosts: amounts, flags, lists of CPUs."""

import reprlib
from collections.abc import Sequence

from novasched.conf.redaction import cut

MAX_AMOUNT = 2**63 - 1
"""Largest amount: the largest BIGINT of a database. Larger integers, as JSON allows,
cannot be converted to floating point numbers."""
MAX_CPUS = 65536
"""Limit of CPU numbers, so that a list of CPUs cannot exhaust the memory."""
MAX_NAMED_CPUS = 4 * MAX_CPUS
"""Limit of the CPUs in a list, repetitions included, which bounds the parse time."""
MAX_CPU_RANGES = 4096
"""Limit of the ranges in a list, which bounds the parse time. KVM has guests of at most
4096 CPUs."""

MAX_SHOWN_NAMES = 3
"""Number of names to show of a list. Users send lists of unlimited length."""
MAX_NAME_CHARACTERS = 100
"""Maximum length of a shown name."""

_TRUE = frozenset(('1', 't', 'true', 'on', 'y', 'yes'))


def amount(name: str, value: object) -> int:
    """Return the value if it is a whole number.

    :param name: the field, for the error.
    :raises ValueError: the value is no whole number, or too large.
    """
    if not isinstance(value, int) or abs(value) > MAX_AMOUNT:
        raise ValueError(f'{name} is {reprlib.repr(value)}')
    return value


def is_true(value: object) -> bool:
    """Return True for the true values of oslo.utils' ``bool_from_string``."""
    return str(value).strip().lower() in _TRUE


def first_names(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the remaining names."""
    first_names = names[:MAX_SHOWN_NAMES]
    text = ', '.join(cut(name, MAX_NAME_CHARACTERS) for name in first_names)
    remaining = len(names) - len(first_names)
    if not remaining:
        return text
    return f'{text} and {remaining} others'


def cpu_set(text: str) -> set[int]:
    """Parse a list of CPUs such as ``'0-3,^2,8'``; exclusions apply in any position.

    :raises ValueError: the text is no list of CPUs.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    named = 0
    rules = text.split(',', MAX_CPU_RANGES)
    if len(rules) > MAX_CPU_RANGES:
        raise ValueError(f'more than {MAX_CPU_RANGES} ranges of CPUs are named')

    for rule in map(str.strip, rules):
        if not rule:
            continue

        first, dash, last = rule.removeprefix('^').partition('-')
        low = int(first)
        high = low
        if dash:
            high = int(last)
        if not low <= high < MAX_CPUS:
            raise ValueError(f'{rule} is no range of CPUs')

        named += high - low + 1
        if named > MAX_NAMED_CPUS:
            raise ValueError(
                f'more than {MAX_NAMED_CPUS} CPUs are named, some of them repeatedly'
            )
        if rule.startswith('^'):
            excluded.update(range(low, high + 1))
        else:
            included.update(range(low, high + 1))
    return included - excluded
