# SPDX-License-Identifier: Apache-2.0
"""The operators of flavor extra specs: ``'>= 4'``, ``'<in> avx2'``, ``'<or> a <or>
b'``.

A value that starts with none of them is compared as text. Like nova's, ``=`` means
at least, and words after the operand are ignored.
"""

import operator
from collections.abc import Callable

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    '=': operator.ge,
    '>=': operator.ge,
    '==': operator.eq,
    '!=': operator.ne,
    '<=': operator.le,
}
_TEXTS: dict[str, Callable[[str, str], bool]] = {
    's==': operator.eq,
    's!=': operator.ne,
    's<': operator.lt,
    's<=': operator.le,
    's>': operator.gt,
    's>=': operator.ge,
    '<in>': operator.contains,
}


def satisfies(value: str, requirement: str) -> bool:
    """True if a host's value meets a requirement.

    :raises ValueError: an operator on numbers is given something else.
    """
    op, *operands = requirement.split() or ['']
    if op == '<or>':
        return value in operands[::2]
    if op == '<all-in>':
        return bool(operands) and all(word in value for word in operands)
    if op in _NUMBERS:
        return bool(operands) and _NUMBERS[op](float(value), float(operands[0]))
    if op in _TEXTS:
        return bool(operands) and _TEXTS[op](value, operands[0])
    return value == requirement


def meets(value: str, requirement: str) -> bool:
    """The same, where a value or an operand that is no number meets nothing."""
    try:
        return satisfies(value, requirement)
    except ValueError:
        return False
