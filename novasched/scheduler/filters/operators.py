# SPDX-License-Identifier: Apache-2.0
"""The operators of flavor extra specs, such as ``'>= 4'``, ``'<in> avx2'`` and
``'<or> a <or> b'``.

A requirement without an operator is compared as text. As in nova, ``=`` means at least,
and words after the operand are ignored.
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
    """True if the value of a host meets a requirement.

    :raises ValueError: value or operand of a numeric operator is not a number.
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
    """True if the value of a host meets a requirement; False on an operand or a value
    that should be a number."""
    try:
        return satisfies(value, requirement)
    except ValueError:
        return False
