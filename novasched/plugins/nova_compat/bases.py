# SPDX-License-Identifier: Apache-2.0
"""The classes and functions of nova that plugins build on, by nova's names.

They work on whatever has nova's attributes, and are used where nova is not installed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from novasched.scheduler import weights
from novasched.scheduler.filters.operators import satisfies

LOG = logging.getLogger('nova.scheduler.utils')


class BaseFilter:
    """``nova.filters.BaseFilter``: anything can be filtered, and everything passes."""

    run_filter_once_per_request = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        return True

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterable[Any]:
        return (each for each in filter_obj_list if self._filter_one(each, spec_obj))

    def run_filter_for_index(self, index: int) -> bool:
        """True if the filter runs for that instance of a request (0 is the first)."""
        return index == 0 or not self.run_filter_once_per_request


class BaseHostFilter(BaseFilter):
    """``nova.scheduler.filters.BaseHostFilter``."""

    RUN_ON_REBUILD = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        sits_out = request_is_rebuild(spec_obj) and not self.RUN_ON_REBUILD
        return sits_out or self.host_passes(obj, spec_obj)

    def host_passes(self, host_state: Any, filter_properties: Any) -> Any:
        """True if the host can take the instance; for a plugin to define."""
        raise NotImplementedError


class CandidateFilterMixin:
    """``nova.scheduler.filters.CandidateFilterMixin``."""

    def filter_candidates(self, host_state: Any, filter_func: Callable[[Any], Any]) -> list[Any]:
        """Leave a host those allocation candidates alone that a function accepts."""
        host_state.allocation_candidates = list(
            filter(filter_func, host_state.allocation_candidates)
        )
        return list(host_state.allocation_candidates)


class WeighedObject:
    """``nova.weights.WeighedObject``: a host state in ``obj``, and its weight."""

    def __init__(self, obj: Any, weight: float) -> None:
        self.obj = obj
        self.weight = weight

    def __repr__(self) -> str:
        return f'{type(self).__name__} [host: {self.obj}, weight: {self.weight}]'


class WeighedHost(WeighedObject):
    """``nova.scheduler.weights.WeighedHost``."""

    def to_dict(self) -> dict[str, Any]:
        """The weight, and the name of the host."""
        return {'weight': self.weight, 'host': self.obj.host}


class BaseWeigher:
    """``nova.weights.BaseWeigher``."""

    minval: float | None = None
    maxval: float | None = None

    def weight_multiplier(self, host_state: Any) -> float:
        """The factor of the weigher's weight on a host."""
        return 1.0

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError

    def weigh_objects(
        self, weighed_obj_list: Iterable[WeighedObject], weight_properties: Any
    ) -> list[float]:
        """The raw weights, between ``minval`` and ``maxval``."""
        low = float('-inf') if self.minval is None else self.minval
        high = float('inf') if self.maxval is None else self.maxval
        raw = (self._weigh_object(each.obj, weight_properties) for each in weighed_obj_list)
        return [min(max(weight, low), high) for weight in raw]


class BaseHostWeigher(BaseWeigher):
    """``nova.scheduler.weights.BaseHostWeigher``."""


def normalize(
    weight_list: Sequence[float], minval: float | None = None, maxval: float | None = None
) -> list[float]:
    """``nova.weights.normalize``."""
    return weights.normalised(weight_list, minval, maxval) if weight_list else []


def request_is_rebuild(spec_obj: Any) -> bool:
    """``nova.scheduler.utils.request_is_rebuild``."""
    hints = getattr(spec_obj, 'scheduler_hints', None) or {}
    return bool(hints.get('_nova_check_type') == ['rebuild'])


def get_weight_multiplier(host_state: Any, multiplier_name: str, multiplier_config: float) -> float:
    """``nova.scheduler.utils.get_weight_multiplier``: the least number that the host's
    aggregates give, or else the option's."""
    values = aggregate_values_from_key(host_state, multiplier_name)
    try:
        return float(validate_num_values(values, multiplier_config, cast_to=float))
    except ValueError as error:
        LOG.warning("Could not decode '%s' weight multiplier: %s", multiplier_name, error)
        return multiplier_config


def aggregate_values_from_key(host_state: Any, key_name: str) -> set[str]:
    """``nova.scheduler.filters.utils.aggregate_values_from_key``."""
    metadata = [each.metadata for each in host_state.aggregates]
    return {each[key_name] for each in metadata if key_name in each}


def aggregate_metadata_get_by_host(host_state: Any, key: str | None = None) -> dict[str, set[str]]:
    """``nova.scheduler.filters.utils.aggregate_metadata_get_by_host``: all that the host's
    aggregates say, values split at commas; with a key, those aggregates alone that have it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in host_state.aggregates:
        if key is None or key in each.metadata:
            for name, value in each.metadata.items():
                found[name].update(part.strip() for part in value.split(','))
    return found


def validate_num_values(
    vals: Collection[Any],
    default: Any = None,
    cast_to: Callable[[Any], Any] = int,
    based_on: Callable[[Iterable[Any]], Any] = min,
) -> Any:
    """``nova.scheduler.filters.utils.validate_num_values``.

    :raises ValueError: a value is no number.
    """
    return based_on([cast_to(each) for each in vals]) if vals else default


def instance_uuids_overlap(host_state: Any, uuids: str | Iterable[str]) -> bool:
    """``nova.scheduler.filters.utils.instance_uuids_overlap``."""
    wanted = [uuids] if isinstance(uuids, str) else uuids
    return any(each in host_state.instances for each in wanted)


def match(value: str | None, req: str) -> bool:
    """``nova.scheduler.filters.extra_specs_ops.match``."""
    return value is not None and satisfies(value, req)


class ServiceGroupApi:
    """``nova.servicegroup.API``, as far as the service of a host state goes."""

    def service_is_up(self, member: Any) -> bool:
        """True if the service was up when its host was read."""
        return not member['forced_down']
