# SPDX-License-Identifier: Apache-2.0
"""Columns of compute_nodes that are long, and that few requests look at."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

LOG = logging.getLogger('nova.scheduler.host_manager')
TEXTS = 10_000
"""Of so many texts it is remembered what they say."""

Value = TypeVar('Value')


@dataclass(slots=True)
class _Reading(Generic[Value]):
    value: Value
    why_not: str | None = None


class Report(Generic[Value]):
    """A column whose text is read when somebody looks at the host, once for all hosts that
    report the same, so that these share the value. One that cannot be read counts as
    absent, and the log names the first host that reports it."""

    def __init__(self, column: str, parse: Callable[[str], Value], absent: Value) -> None:
        self._column = column
        self._parse = parse
        self._absent = absent
        self._reading = lru_cache(TEXTS)(self._read)

    def of(self, row: Any) -> Callable[[], Value]:
        """The value in a row of compute_nodes, for whoever asks."""
        text = getattr(row, self._column)
        return partial(self._value, text, row.hypervisor_hostname)

    def _value(self, text: str | None, node: str) -> Value:
        if text is None:
            return self._absent
        reading = self._reading(text)
        if reading.why_not is not None:
            LOG.warning(
                'Column %s of compute node %s cannot be read: %s',
                self._column,
                node,
                reading.why_not,
            )
            reading.why_not = None
        return reading.value

    def _read(self, text: str) -> _Reading[Value]:
        try:
            return _Reading(self._parse(text))
        except (ValueError, RecursionError) as error:
            return _Reading(self._absent, str(error))
