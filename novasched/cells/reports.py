# SPDX-License-Identifier: Apache-2.0
"""Columns of compute_nodes that are long, and that few requests look at."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

LOG = logging.getLogger('nova.scheduler.host_manager')

Value = TypeVar('Value')


Key = tuple[int, int]
"""What stands for a text, which is long: its length and its hash, which Python keeps secret."""


@dataclass
class _Reading(Generic[Value]):
    key: Key
    value: Value
    why_not: str | None = None


class _Lazily(Generic[Value]):
    """A value that is looked for when somebody first asks."""

    __slots__ = ('_known', '_node', '_read', '_text')

    def __init__(
        self, read: Callable[[str | None, str], Value], text: str | None, node: str
    ) -> None:
        self._read = read
        self._text = text
        self._node = node
        self._known: list[Value] = []

    def __call__(self) -> Value:
        if not self._known:
            self._known.append(self._read(self._text, self._node))
            self._text = None
        return self._known[0]


class Report(Generic[Value]):
    """A column whose text is read when somebody looks at the host, once for all hosts that
    report the same, so that these share the value. One that cannot be read counts as
    absent, and the log names the first host that reports it.

    Remembered is what each compute node reported last: a limit on their number would, with
    one node more than that, forget each text just before it is needed again.
    """

    def __init__(self, column: str, parse: Callable[[str], Value], absent: Value) -> None:
        self._column = column
        self._parse = parse
        self._absent = absent
        self._latest: dict[str, _Reading[Value]] = {}
        self._by_text: WeakValueDictionary[Key, _Reading[Value]] = WeakValueDictionary()

    def of(self, row: Any) -> Callable[[], Value]:
        """The value in a row of compute_nodes, for whoever asks."""
        return _Lazily(self.value, getattr(row, self._column), row.hypervisor_hostname)

    def value(self, text: str | None, node: str) -> Value:
        """What a text says that a compute node reports."""
        if text is None:
            return self._absent
        key = len(text), hash(text)
        reading = self._latest.get(node)
        if reading is None or reading.key != key:
            reading = self._by_text.get(key) or self._read(key, text)
            self._latest[node] = reading
        if reading.why_not is not None:
            LOG.warning(
                'Column %s of compute node %s cannot be read: %s',
                self._column,
                node,
                reading.why_not,
            )
            reading.why_not = None
        return reading.value

    def _read(self, key: Key, text: str) -> _Reading[Value]:
        try:
            reading = _Reading(key, self._parse(text))
        except (ValueError, RecursionError) as error:
            reading = _Reading(key, self._absent, str(error))
        self._by_text[key] = reading
        return reading
