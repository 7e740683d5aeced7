# SPDX-License-Identifier: Apache-2.0
"""Values that the aggregates of a host have under a metadata key."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from novasched.scheduler.model.host import Host

Number = TypeVar('Number', int, float)


def parts(values: Iterable[str]) -> frozenset[str]:
    """The elements of values that are lists with commas."""
    return frozenset(part.strip() for value in values for part in value.split(','))


def smallest(host: Host, key: str, option: Number, kind: Callable[[str], Number]) -> Number:
    """The least of the numbers that the host's aggregates give to a key; the option
    where there is none, or where one of them is no number."""
    values = [each.metadata[key] for each in host.aggregates if key in each.metadata]
    if not values:
        return option
    try:
        return min(kind(value) for value in values)
    except ValueError:
        return option
