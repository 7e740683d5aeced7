# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

The one place that logs verdicts. Filters see the hosts in the order given and keep
it; weighing sorts them, best first, and keeps the order of hosts of equal weight.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.scheduler.decision import FilterResult, Ranking
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import BatchFilter, VerdictCache, judge
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.requested_hosts import narrow
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weights import Weights, no_clock, weigh

FILTERS = logging.getLogger('nova.filters')
MANAGER = logging.getLogger('nova.scheduler.manager')
MAX_LOGGED_REASONS = 3
"""Reasons in the log when a filter leaves no host."""

EXPLAINED_HOSTS, EXPLAINED_INSTANCES = 10, 3
"""The best hosts of the first instances of a request are explained by the parts of their weight."""


class Pipeline:
    """Narrows, filters, weighs and draws.

    :param clock: seconds, from any moment on.
    :ivar explained_hosts: of so many hosts the ranking has the parts of their weight, for
        ``explained_instances`` instances of a request.
    """

    def __init__(
        self,
        settings: Settings,
        filters: Sequence[Filter],
        weighers: Sequence[Weigher],
        clock: Callable[[], float] = no_clock,
    ) -> None:
        self.settings = settings
        self.filters = tuple(map(Enabled, filters))
        self.weighers = tuple(map(Enabled, weighers))
        self.clock = clock
        self.explained_hosts = EXPLAINED_HOSTS
        self.explained_instances = EXPLAINED_INSTANCES
        self._cache = VerdictCache()

    def for_request(self) -> 'Pipeline':
        """The pipeline for one request: plugins that remember start afresh in it."""
        first, pipeline = None, copy(self)
        plugins: list[Enabled[Any]] = [*self.filters, *self.weighers]
        own = []
        for each in plugins:
            own.append(each.for_one_request(first))
            if first is None and own[-1] is not each:
                first = own[-1].plugin
        count = len(self.filters)
        pipeline.filters, pipeline.weighers = tuple(own[:count]), tuple(own[count:])
        return pipeline

    def needed_instances(self, request: Request) -> tuple[Collection[str] | None, bool]:
        """The instances that the filters and weighers of a request look for on hosts, by UUID,
        None where one of them looks at all that are there; and True if their images are read."""
        named: set[str] = set()
        all_of_them = False
        filters = [each for each in self.filters if _judges(each, request)]
        weighers = [each for each in self.weighers if each.applies(request)]
        running: list[Enabled[Any]] = [*filters, *weighers]
        for each in running:
            with each:
                uuids = each.plugin.needed_instances(request)
            all_of_them = all_of_them or uuids is None
            named.update(uuids or ())
        images = any(each.plugin.reads_images for each in weighers)
        return None if all_of_them else named, images

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        candidates: Candidates | None = None,
        changed: Collection[str] | None = None,
        before: Weights | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, best first, and why others cannot."""
        ranking = self.filter(hosts, request, index, candidates, changed)
        return self.weigh(ranking, request, index, random, before, changed)[0]

    def filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None = None,
        changed: Collection[str] | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, in the order given.

        :param index: how many instances of this request are placed already.
        :param candidates: Placement's offer, as the filters left it for the instance before;
            None where it was not asked.
        :param changed: the UUIDs of hosts that are not what they were for the instance before;
            None where none was judged.
        """
        results: list[FilterResult] = []
        if request.names_hosts:
            hosts, results = narrow(hosts, request, self.clock)
        # Where all hosts are ignored the log blames no filter.
        if not request.skips_filters and (hosts or not request.ignore_hosts):
            hosts, candidates = self._filter(hosts, request, index, candidates, changed, results)
        MANAGER.debug('Filtered %s', hosts)
        return Ranking(hosts, tuple(results), candidates=candidates)

    def weigh(
        self,
        ranking: Ranking,
        request: Request,
        index: int,
        random: Random,
        before: Weights | None = None,
        changed: Collection[str] | None = None,
    ) -> tuple[Ranking, Weights | None]:
        """The same hosts, weighed and drawn, the one to try first in front; and their weights,
        which those for the next instance follow (``before``)."""
        hosts = ranking.hosts
        if not hosts:
            return ranking, None
        weights = weigh(self.weighers, hosts, request, self.clock, before, changed or ())
        sums = weights.sums
        order = sorted(range(len(hosts)), key=sums.__getitem__, reverse=True)
        if self.settings.shuffle_best_same_weighed_hosts:
            best = order[: sums.count(sums[order[0]])]
            random.shuffle(best)
            order[: len(best)] = best
        if MANAGER.isEnabledFor(logging.DEBUG):
            texts = [f'WeighedHost [host: {hosts[i]}, weight: {sums[i]}]' for i in order]
            MANAGER.debug('Weighed %s', f'[{", ".join(texts)}]')
        drawn = random.randrange(min(self.settings.host_subset_size, len(order)))
        order.insert(0, order.pop(drawn))
        explained = order[: self.explained_hosts] if index < self.explained_instances else ()
        ranking = replace(
            ranking,
            hosts=[hosts[i] for i in order],
            weighers=tuple(weights.seconds),
            best=tuple([weights.explain(i, hosts[i]) for i in explained]),
        )
        return ranking, weights

    def limits(self, host: Host, request: Request) -> dict[str, Any]:
        """The limits that the filters set for a chosen host; a later one overrides."""
        limits: dict[str, Any] = {}
        for each in self.filters:
            ask = getattr(each.plugin, 'limits', None)
            if ask is not None and _judges(each, request):
                with each:
                    limits.update(ask(host, request))
        return limits

    def _filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None,
        changed: Collection[str] | None,
        results: list[FilterResult],
    ) -> tuple[Sequence[Host], Candidates | None]:
        """The hosts that pass every filter, and the candidates that are left of them; the verdicts
        of each filter are added to the results."""
        FILTERS.debug('Starting with %d host(s)', len(hosts))
        new = hosts if changed is None else [host for host in hosts if host.uuid in changed]
        counts: list[str] = []
        for each in self.filters:
            if not _runs_for(each, index):
                continue
            began, start = self.clock(), len(hosts)
            rejected: dict[str, tuple[Host, str]] = {}
            if _judges(each, request):
                judged = new if each.plugin.scope is Scope.HOST else hosts
                with each:
                    reasons, candidates = judge(
                        each.plugin, judged, request, candidates, self._cache
                    )
                    rejected = _rejected(each.name, judged, reasons)
            if rejected:
                hosts = [host for host in hosts if host.uuid not in rejected]
                new = [host for host in new if host.uuid not in rejected]
            rejected_hosts, why = zip(*rejected.values(), strict=True) if rejected else ((), ())
            seconds = self.clock() - began
            results.append(FilterResult(each.name, start, rejected_hosts, why, seconds))
            counts.append(f'{each.name}: (start: {start}, end: {len(hosts)})')
            if not hosts:
                FILTERS.info('Filter %s returned 0 hosts', each.name)
                _log_reasons(results[-1])
                break
            FILTERS.debug('Filter %s returned %d host(s)', each.name, len(hosts))
        if not hosts:
            FILTERS.info(
                'Filtering removed all hosts for the request with instance ID '
                "'%s'. Filter results: %s",
                request.instance_uuid,
                counts,
            )
        return hosts, candidates


def _runs_for(each: Enabled[Filter], index: int) -> bool:
    """Tell whether the filter judges the hosts for that instance of a request."""
    if isinstance(each.plugin, BatchFilter):
        with each:
            return each.plugin.runs_for(index)
    return index == 0 or each.plugin.scope is not Scope.REQUEST


def _judges(each: Enabled[Filter], request: Request) -> bool:
    """Few filters judge the host of a rebuild, none forced hosts or what it has no rule for."""
    skips = request.skips_filters or (request.is_rebuild and not each.plugin.on_rebuild)
    return not skips and each.applies(request)


def _rejected(
    name: str, hosts: Sequence[Host], reasons: Sequence[str | None]
) -> dict[str, tuple[Host, str]]:
    """The hosts that a filter rejects, by UUID, and its reasons."""
    if reasons.count(None) == len(reasons) == len(hosts):
        return {}
    pairs = zip(hosts, reasons, strict=True)
    rejected = {host.uuid: (host, why) for host, why in pairs if why is not None}
    if FILTERS.isEnabledFor(logging.DEBUG):
        for host, why in rejected.values():
            FILTERS.debug('%s rejected %s: %s', name, host, one_line(why))
    return rejected


def _log_reasons(result: FilterResult) -> None:
    """Log the reasons of the filter that left no host, the commonest first."""
    counts = Counter(result.reasons)
    common = counts.most_common(MAX_LOGGED_REASONS)
    for reason, count in common:
        FILTERS.info('%s rejected %d host(s): %s', result.name, count, one_line(reason))
    others = counts.total() - sum(count for _, count in common)
    if others:
        FILTERS.info('%s rejected %d host(s) for other reasons', result.name, others)
