# SPDX-License-Identifier: Apache-2.0
"""A decision in numbers, for whoever adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PLACED, REFUSED, FAILED = 'placed', 'refused', 'failed'
RESULTS = (PLACED, REFUSED, FAILED)
"""Every server has a host; there was none; something is to be mended by an operator."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A filter, or a field of the request that narrows: so many hosts came in, so many went
    out, after so many seconds."""

    name: str
    start: int
    end: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The decision. Everything but ``result``, ``servers`` and times is of the attempt that
    counts: where servers were tried together first, or without what turned out to be needed,
    that is the last one."""

    result: str
    servers: int = 0
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    stages: tuple[Passed, ...] = ()
    weighers: tuple[tuple[str, float], ...] = ()
    claims_refused: int = 0
