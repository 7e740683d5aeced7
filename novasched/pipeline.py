# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

The one place that logs verdicts. Filters see the hosts in the order given and keep
it; weighing sorts them, best first, and keeps the order of hosts of equal weight.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random
from typing import Any

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.narrowing import narrow, skips_filters
from novasched.weighers import Weigher

FILTERS = logging.getLogger('nova.filters')
MANAGER = logging.getLogger('nova.scheduler.manager')
WEIGHTS = logging.getLogger('nova.scheduler.utils')


class Pipeline:
    """Narrows, filters, weighs and draws."""

    def __init__(
        self, settings: Settings, filters: Sequence[Filter], weighers: Sequence[Weigher]
    ) -> None:
        self.settings = settings
        self.filters = tuple(filters)
        self.weighers = tuple(weighers)

    def reads_instances(self, request: Request) -> bool:
        """Whether anything enabled looks at the servers on each host."""
        return any(f.reads_instances and f.applies(request) for f in self.filters) or any(
            w.reads_instances for w in self.weighers
        )

    def rank(
        self, hosts: Sequence[Host], request: Request, index: int, random: Random
    ) -> list[Host]:
        """The hosts that can take the server in hand, the one to try first in front.

        :param index: how many servers of this request are placed already.
        """
        left = narrow(hosts, request)
        if not skips_filters(request):
            left = self._filter(left, request, index)
        MANAGER.debug('Filtered %s', left)
        if not left:
            return []
        return self._draw(self._weigh(left, request), random)

    def limits(self, host: Host, request: Request) -> dict[str, Any]:
        """The limits that the filters set for a chosen host; a later one overrides."""
        if skips_filters(request):
            return {}
        return {
            name: value
            for each in self.filters
            if each.applies(request)
            for name, value in each.limits(host, request).items()
        }

    def _filter(self, hosts: Sequence[Host], request: Request, index: int) -> Sequence[Host]:
        FILTERS.debug('Starting with %d host(s)', len(hosts))
        results: list[str] = []
        for each in self.filters:
            if index and each.once_per_request:
                continue
            started = len(hosts)
            if not (request.is_rebuild and not each.on_rebuild) and each.applies(request):
                hosts = _accepted(each, hosts, request)
            results.append(f'{each.name}: (start: {started}, end: {len(hosts)})')
            if not hosts:
                FILTERS.info('Filter %s returned 0 hosts', each.name)
                break
            FILTERS.debug('Filter %s returned %d host(s)', each.name, len(hosts))
        if not hosts:
            FILTERS.info(
                'Filtering removed all hosts for the request with instance ID '
                "'%s'. Filter results: %s",
                request.instance_uuid,
                results,
            )
        return hosts

    def _weigh(self, hosts: Sequence[Host], request: Request) -> list[tuple[float, Host]]:
        """The hosts with their weights, best first."""
        weights = [0.0] * len(hosts)
        for weigher in self.weighers if len(hosts) > 1 else ():
            raw = [_clamped(weigher, weigher.weigh(host, request)) for host in hosts]
            scale = weigher.sign * getattr(self.settings, weigher.multiplier)
            for i, share in enumerate(normalised(raw, weigher.minval, weigher.maxval)):
                weights[i] += share * _multiplier(weigher, hosts[i], scale)
        order = sorted(range(len(hosts)), key=weights.__getitem__, reverse=True)
        return [(weights[i], hosts[i]) for i in order]

    def _draw(self, weighed: list[tuple[float, Host]], random: Random) -> list[Host]:
        """Break ties and draw the first host, as the operator has it."""
        if self.settings.shuffle_best_same_weighed_hosts:
            ties = sum(weight == weighed[0][0] for weight, _ in weighed)
            best = weighed[:ties]
            random.shuffle(best)
            weighed = best + weighed[ties:]
        MANAGER.debug('Weighed %s', _Weighed(weighed))
        hosts = [host for _, host in weighed]
        drawn = random.randrange(min(self.settings.host_subset_size, len(hosts)))
        return [hosts[drawn], *hosts[:drawn], *hosts[drawn + 1 :]]


def normalised(
    raw: Sequence[float], minval: float | None = None, maxval: float | None = None
) -> list[float]:
    """Each value's place between the least and the greatest, 0 to 1; all 0 if equal."""
    low = min(raw) if minval is None else minval
    high = max(raw) if maxval is None else maxval
    if low == high:
        return [0.0] * len(raw)
    width = high - low
    return [(value - low) / width for value in raw]


def _accepted(each: Filter, hosts: Sequence[Host], request: Request) -> list[Host]:
    kept = []
    for host in hosts:
        why_not = each.reject(host, request)
        if why_not is None:
            kept.append(host)
        else:
            FILTERS.debug('%s rejected %s: %s', each.name, host, why_not)
    return kept


def _clamped(weigher: Weigher, value: float) -> float:
    if weigher.minval is not None:
        value = max(value, weigher.minval)
    if weigher.maxval is not None:
        value = min(value, weigher.maxval)
    return value


def _multiplier(weigher: Weigher, host: Host, default: float) -> float:
    """The weigher's multiplier for a host: its aggregates override the option, the
    smallest number first; a value that is no number leaves the option in force."""
    values = host.metadata(weigher.multiplier) if host.aggregates else None
    if not values:
        return default
    try:
        return weigher.sign * min(float(value) for value in values)
    except ValueError as error:
        WEIGHTS.warning("Could not decode '%s' weight multiplier: %s", weigher.multiplier, error)
        return default


class _Weighed:
    """A ranking that becomes text only when the log wants it."""

    def __init__(self, weighed: list[tuple[float, Host]]) -> None:
        self.weighed = weighed

    def __str__(self) -> str:
        texts = (f'WeighedHost [host: {host}, weight: {weight}]' for weight, host in self.weighed)
        return f'[{", ".join(texts)}]'
