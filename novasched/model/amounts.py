# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that others report or ask for."""

from __future__ import annotations

import reprlib

MOST = 2**63 - 1
"""No database holds more; JSON does, and then there is no number with a fraction to compare it
with."""


def amount(name: str, value: object) -> int:
    """The whole number that a value has to be.

    :raises ValueError: it is none; says what has it.
    """
    if not isinstance(value, int) or abs(value) > MOST:
        raise ValueError(f'{name} is {reprlib.repr(value)}')
    return value
