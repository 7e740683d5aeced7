# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

The one place that logs verdicts. Filters see the hosts in the order given and keep
it; weighing sorts them, best first, and keeps the order of hosts of equal weight.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from novasched.errors import blaming
from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.narrowing import narrow, skips_filters
from novasched.weighers import Weigher

FILTERS = logging.getLogger('nova.filters')
REASONS = 3
"""How many reasons are told when a filter leaves no host."""

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
        plugins: tuple[Filter | Weigher, ...] = (*self.filters, *self.weighers)
        return any(each.reads_instances and _applies(each, request) for each in plugins)

    def reads_images(self, request: Request) -> bool:
        """Whether a weigher looks at the images of these servers."""
        return any(each.reads_images and _applies(each, request) for each in self.weighers)

    def for_request(self, memory: dict[str, Any]) -> Pipeline:
        """The pipeline for one request: plugins that remember start afresh in it."""
        filters = [each.for_request(memory) for each in self.filters]
        weighers = [each.for_request(memory) for each in self.weighers]
        return type(self)(self.settings, filters, weighers)

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
        limits: dict[str, Any] = {}
        for each in self.filters:
            if _runs(each, request):
                with blaming(each.name):
                    limits.update(each.limits(host, request))
        return limits

    def _filter(self, hosts: Sequence[Host], request: Request, index: int) -> Sequence[Host]:
        FILTERS.debug('Starting with %d host(s)', len(hosts))
        results: list[str] = []
        for each in self.filters:
            if not each.runs_for(index):
                continue
            started = len(hosts)
            why: Counter[str] = Counter()
            if _runs(each, request):
                hosts, why = _accepted(each, hosts, request)
            results.append(f'{each.name}: (start: {started}, end: {len(hosts)})')
            if not hosts:
                FILTERS.info('Filter %s returned 0 hosts', each.name)
                _log_reasons(each.name, why)
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
            with blaming(weigher.name):
                added = _added_by(weigher, hosts, request)
            weights = list(map(operator.add, weights, added))
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


def _applies(each: Filter | Weigher, request: Request) -> bool:
    with blaming(each.name):
        return each.applies(request)


def _runs(each: Filter, request: Request) -> bool:
    """Few filters judge the host of a rebuild, and none judges what it has no rule for."""
    return (each.on_rebuild or not request.is_rebuild) and _applies(each, request)


def _accepted(
    each: Filter, hosts: Sequence[Host], request: Request
) -> tuple[list[Host], Counter[str]]:
    """The hosts that a filter accepts, and its reasons for the others, counted."""
    with blaming(each.name):
        verdicts = list(zip(hosts, each.reject_all(hosts, request), strict=True))
    kept = []
    why: Counter[str] = Counter()
    for host, reason in verdicts:
        if reason is None:
            kept.append(host)
            continue
        # What users wrote into a reason stays on one line of the log.
        reason = ' '.join(reason.split())
        why[reason] += 1
        FILTERS.debug('%s rejected %s: %s', each.name, host, reason)
    return kept, why


def _log_reasons(name: str, why: Counter[str]) -> None:
    """Say of the filter that left no host what it had against them, the commonest first."""
    told = why.most_common(REASONS)
    for reason, count in told:
        FILTERS.info('%s rejected %d host(s): %s', name, count, reason)
    others = why.total() - sum(count for _, count in told)
    if others:
        FILTERS.info('%s rejected %d host(s) for other reasons', name, others)


def _added_by(weigher: Weigher, hosts: Sequence[Host], request: Request) -> list[float]:
    """What a weigher adds to the weight of each host. One that does not apply, or whose
    scale is 0 on every host, is not asked."""
    scales = [_scale(weigher, host) for host in hosts] if weigher.applies(request) else []
    if not any(scales):
        return [0.0] * len(hosts)
    raw = weigher.weigh_all(hosts, request)
    shares = normalised(raw, weigher.minval, weigher.maxval)
    return [share * scale for share, scale in zip(shares, scales, strict=True)]


def _scale(weigher: Weigher, host: Host) -> float:
    """The weigher's scale on a host; metadata that is no number leaves the option in force."""
    try:
        return weigher.scale(host)
    except ValueError as error:
        WEIGHTS.warning("Could not decode '%s' weight multiplier: %s", weigher.multiplier, error)
        return weigher.default_scale


class _Weighed:
    """A ranking that becomes text only when the log wants it."""

    def __init__(self, weighed: list[tuple[float, Host]]) -> None:
        self.weighed = weighed

    def __str__(self) -> str:
        texts = (f'WeighedHost [host: {host}, weight: {weight}]' for weight, host in self.weighed)
        return f'[{", ".join(texts)}]'
