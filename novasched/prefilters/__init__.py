# SPDX-License-Identifier: Apache-2.0
"""Prefilters: a request is made more precise before Placement is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from novasched.model.host import Aggregate
from novasched.model.request import Request
from novasched.model.settings import Settings


class Aggregates(Protocol):
    """What prefilters may look up (``cells/aggregates.py``)."""

    def having(self, key: str, value: str) -> Sequence[Aggregate]:
        """The aggregates whose metadata says ``value`` for ``key``."""


class Prefilter:
    """Takes a request and returns it, or a narrower one.

    :raises NoValidHost: the request can be refused without asking Placement.
    """

    def __init__(self, settings: Settings, aggregates: Aggregates) -> None:
        self.settings = settings
        self.aggregates = aggregates

    def __call__(self, request: Request) -> Request:
        raise NotImplementedError
