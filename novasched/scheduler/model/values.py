# SPDX-License-Identifier: Apache-2.0
"""Values as people and compute hosts write them: amounts, flags, lists of CPUs."""

import reprlib
from collections.abc import Sequence

from novasched.conf.redaction import cut

MAX_AMOUNT = 2**63 - 1
"""No database holds more; JSON does, and then there is no number with a fraction to
compare it with."""
MAX_CPUS = 65536
"""No machine has more, and a list that names more must not fill the memory."""
MAX_NAMED_CPUS = 4 * MAX_CPUS
"""A list that names all CPUs again and again must not fill the time."""

MAX_SHOWN_NAMES = 3
"""Number of names that are shown of a list. Users send lists of any length."""
MAX_NAME_CHARACTERS = 100
"""Length to which a shown name is cut."""

_TRUE = frozenset(('1', 't', 'true', 'on', 'y', 'yes'))


def amount(name: str, value: object) -> int:
    """The whole number that a value has to be.

    :raises ValueError: it is none; names the field.
    """
    if not isinstance(value, int) or abs(value) > MAX_AMOUNT:
        raise ValueError(f'{name} is {reprlib.repr(value)}')
    return value


def is_true(value: object) -> bool:
    """True for a text, or a value that was one, that says yes, as oslo.utils reads
    it."""
    return str(value).strip().lower() in _TRUE


def some(names: Sequence[str]) -> str:
    """The first names of a list, and the number of the other names."""
    first = names[:MAX_SHOWN_NAMES]
    shown = ', '.join(cut(name, MAX_NAME_CHARACTERS) for name in first)
    others = len(names) - len(first)
    if not others:
        return shown
    return f'{shown} and {others} others'


def cpu_set(text: str) -> set[int]:
    """The CPUs of a list such as ``'0-3,^2,8'``; exceptions may stand anywhere.

    :raises ValueError: it is no such list.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    named = 0
    for rule in filter(None, map(str.strip, text.split(','))):
        first, dash, last = rule.removeprefix('^').partition('-')
        low = int(first)
        high = int(last) if dash else low
        if not low <= high < MAX_CPUS:
            raise ValueError(f'{rule} is no range of CPUs')
        named += high - low + 1
        if named > MAX_NAMED_CPUS:
            raise ValueError(
                f'more than {MAX_NAMED_CPUS} CPUs are named, some of them repeatedly'
            )
        (excluded if rule.startswith('^') else included).update(range(low, high + 1))
    return included - excluded
