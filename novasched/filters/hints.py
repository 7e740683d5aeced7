# SPDX-License-Identifier: Apache-2.0
"""Scheduler hints, which arrive as one value or several."""

from __future__ import annotations

from novasched.model.request import Request


def is_given(request: Request, name: str) -> bool:
    """Whether a hint says anything: one empty text does not."""
    return request.hint(name) not in ((), ('',))


def single(request: Request, name: str, default: str = '') -> str:
    """The value of a hint that takes one.

    :raises ValueError: it has several.
    """
    values = request.hint(name) or (default,)
    if len(values) > 1:
        raise ValueError(f'{name} takes one value, not {len(values)}')
    return values[0]
