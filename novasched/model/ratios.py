# SPDX-License-Identifier: Apache-2.0
"""Options that list ``name=ratio``, such as ``[metrics] weight_setting``."""

from __future__ import annotations

from collections.abc import Iterable

Ratios = tuple[tuple[str, float], ...]


def parse(setting: Iterable[str]) -> tuple[Ratios, tuple[str, ...]]:
    """The ratios of an option in their order, and its elements that are none."""
    good: list[tuple[str, float]] = []
    bad: list[str] = []
    for element in setting:
        name, _, text = element.partition('=')
        try:
            ratio = float(text)
        except ValueError:
            bad.append(element)
            continue
        if name:
            good.append((name, ratio))
        else:
            bad.append(element)
    return tuple(good), tuple(bad)
