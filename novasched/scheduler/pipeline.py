# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

The one place that logs verdicts. Filters see the hosts in the order given and keep
it; weighing sorts them, best first, and keeps the order of hosts of equal weight.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import compress
from random import Random
from typing import Any, overload

import numpy as np

from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.decision import FilterResult, Ranking
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import BatchFilter, judge
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.ports import Needs
from novasched.scheduler.requested_hosts import keep_requested_hosts
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weights import HostTable, Numbers, no_clock, weigh

FILTERS = logging.getLogger('nova.filters')
MANAGER = logging.getLogger('nova.scheduler.manager')
MAX_LOGGED_REASONS = 3
"""Reasons in the log when a filter leaves no host."""

EXPLAINED_HOSTS = 10
EXPLAINED_INSTANCES = 3
"""The best hosts of the first instances of a request are explained by the parts of
their weight."""

SIZE_LIMITS = ('vcpu', 'memory_mb', 'disk_gb')
"""The limits of a chosen host that are whole numbers."""

BEST = 100
"""Hosts that are sorted by their weight; the others are where somebody asks for
them."""


def _check_limits(limits: Mapping[str, Any]) -> None:
    """Check that limits can be sent as nova's SchedulerLimits.

    :raises Exception: a limit has a value of another type.
    """
    for name in SIZE_LIMITS:
        if limits.get(name) is not None:
            int(limits[name])
    if (topology := limits.get(fitting.LIMITS)) is not None:
        float(topology.cpu_allocation_ratio)
        float(topology.ram_allocation_ratio)


class BestFirst(Sequence[Host]):
    """Hosts by their weights, the greatest first, equal ones in the order given. Of
    very many few are looked at: the others are sorted, and looked up, where one asks
    for them.

    :ivar front: the places of the first ones, all of equal weight included; whoever
        draws puts them in another order.
    """

    def __init__(self, hosts: Sequence[Host], sums: Numbers, number: int) -> None:
        """``number`` are in front at the least."""
        self._hosts = hosts
        self._losses = -sums
        number = min(number, len(hosts))
        last = np.partition(self._losses, number - 1)[number - 1]
        places = np.flatnonzero(self._losses <= last)
        if len(places) < number:  # some weights are no numbers
            places = np.arange(len(hosts))
        self.front = places[np.argsort(self._losses[places], kind='stable')].tolist()

    @cached_property
    def order(self) -> list[int]:
        """The places of all hosts."""
        order: list[int] = np.argsort(self._losses, kind='stable').tolist()
        return [*self.front, *order[len(self.front) :]]

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Host]:
        yield from map(self._hosts.__getitem__, self.front)
        if len(self.front) < len(self._hosts):
            yield from map(self._hosts.__getitem__, self.order[len(self.front) :])

    @overload
    def __getitem__(self, index: int) -> Host: ...
    @overload
    def __getitem__(self, index: slice) -> list[Host]: ...
    def __getitem__(self, index: int | slice) -> Host | list[Host]:
        if isinstance(index, slice):
            return list(self)[index]
        order = self.front if 0 <= index < len(self.front) else self.order
        return self._hosts[order[index]]


class Pipeline:
    """Narrows, filters, weighs and draws.

    :param clock: seconds, from any moment on.
    :ivar explained_hosts: of so many hosts the ranking has the parts of their weight,
        for ``explained_instances`` instances of a request.
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
        self._tables: deque[HostTable] = deque(maxlen=1)
        self._decision = object()

    def for_request(self) -> 'Pipeline':
        """The pipeline for one request: plugins that remember start afresh in it."""
        first = None
        pipeline = copy(self)
        pipeline._decision = object()
        plugins: list[Enabled[Any]] = [*self.filters, *self.weighers]
        own = []
        for each in plugins:
            own.append(each.for_one_request(first))
            if first is None and own[-1] is not each:
                first = own[-1].plugin
        count = len(self.filters)
        pipeline.filters = tuple(own[:count])
        pipeline.weighers = tuple(own[count:])
        return pipeline

    def needed_instances(self, request: Request) -> Needs:
        """The instances on hosts that filters and weighers need for a request."""
        filters = [each for each in self.filters if _judges(each, request)]
        weighers = [each for each in self.weighers if each.applies(request)]
        running: list[Enabled[Any]] = [*filters, *weighers]

        named: set[str] = set()
        needs_all = False
        for enabled in running:
            with enabled:
                uuids = enabled.plugin.needed_instances(request)
            if uuids is None:
                needs_all = True
            else:
                named.update(uuids)

        located: Collection[str] = ()
        group = request.instance_group
        if group and any(enabled.plugin.locates_members for enabled in running):
            located = group.members
        reads_flavors = any(enabled.plugin.reads_flavors for enabled in running)
        return Needs(
            instances=needs_all,
            images=any(enabled.plugin.reads_images for enabled in weighers),
            named=() if needs_all else named,
            located=located,
            flavors=reads_flavors and not needs_all,
        )

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        candidates: Candidates | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, best first, and why others
        cannot."""
        ranking = self.filter(hosts, request, index, candidates)
        return self.weigh(ranking, request, index, random)

    def filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, in the order given.

        :param index: how many instances of this request are placed already.
        :param candidates: Placement's offer, as the filters left it for the instance
            before; None where it was not asked.
        """
        results: list[FilterResult] = []
        if request.names_hosts:
            hosts, results = keep_requested_hosts(hosts, request, self.clock)
        # Where all hosts are ignored the log blames no filter.
        if not request.skips_filters and (hosts or not request.ignore_hosts):
            hosts, candidates = self._filter(hosts, request, index, candidates, results)
        MANAGER.debug('Filtered %s', hosts)
        return Ranking(hosts, tuple(results), candidates=candidates)

    def weigh(
        self, ranking: Ranking, request: Request, index: int, random: Random
    ) -> Ranking:
        """The same hosts, weighed and drawn, the one to try first in front."""
        hosts = ranking.hosts
        if not hosts:
            return ranking
        with self._table() as table:
            offered = ranking.candidates
            weights = weigh(self.weighers, hosts, request, self.clock, table, offered)
            settings = self.settings
            number = len(hosts) if request.count > 1 else BEST
            best_first = BestFirst(
                hosts, weights.sums, max(number, settings.host_subset_size)
            )
            order = best_first.front
            if settings.shuffle_best_same_weighed_hosts:
                best = order[: np.count_nonzero(weights.sums == weights.sums[order[0]])]
                random.shuffle(best)
                order[: len(best)] = best
            if MANAGER.isEnabledFor(logging.DEBUG):
                sums = weights.sums.tolist()
                texts = [
                    f'WeighedHost [host: {hosts[i]}, weight: {sums[i]}]'
                    for i in best_first.order
                ]
                MANAGER.debug('Weighed %s', f'[{", ".join(texts)}]')
            drawn = random.randrange(min(settings.host_subset_size, len(order)))
            order.insert(0, order.pop(drawn))
            if request.count > 1:
                table.expect(best_first, table.rows(hosts)[order])
        if index < self.explained_instances:
            explained = order[: self.explained_hosts]
        else:
            explained = ()
        return replace(
            ranking,
            hosts=best_first,
            weighers=tuple(weights.seconds),
            best=tuple([weights.explain(i, hosts[i]) for i in explained]),
        )

    def limits(self, host: Host, request: Request) -> dict[str, Any]:
        """The limits that the filters set for a chosen host; a later one overrides.

        :raises BadPlugin: a limit cannot be sent to nova-compute.
        """
        limits: dict[str, Any] = {}
        for each in self.filters:
            # Filters without limits of their own are not asked, nor waited for.
            if type(each.plugin).limits is Filter.limits:
                continue
            if _judges(each, request):
                with each:
                    made = each.plugin.limits(host, request)
                    # Limits are encoded only after the host has been claimed.
                    _check_limits(made)
                    limits.update(made)
        return limits

    @contextmanager
    def _table(self) -> Iterator[HostTable]:
        """The table that all requests share; one of its own where another holds
        that."""
        try:
            table = self._tables.pop()
        except IndexError:
            table = HostTable()
        table.request = self._decision
        yield table
        self._tables.append(table)

    def _filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None,
        results: list[FilterResult],
    ) -> tuple[Sequence[Host], Candidates | None]:
        """The hosts that pass every filter, and the candidates that are left of them;
        the verdicts of each filter are added to the results."""
        FILTERS.debug('Starting with %d host(s)', len(hosts))
        if index == 0:
            self._decision = object()
        counts: list[str] = []
        with self._table() as table:
            rows = table.rows(hosts)
            for each in self.filters:
                if isinstance(each.plugin, BatchFilter):
                    with each:
                        runs = each.plugin.runs_for(index)
                else:
                    runs = index == 0 or each.plugin.scope is not Scope.REQUEST
                if not runs:
                    continue
                began = self.clock()
                start = len(hosts)
                rejected: Sequence[int] = ()
                reasons: Sequence[str] = ()
                if _judges(each, request):
                    with each:
                        rejected, reasons, candidates = judge_changed(
                            each, hosts, request, candidates, table
                        )
                gone = tuple([hosts[i] for i in rejected])
                if rejected:
                    left = np.ones(start, bool)
                    left[rejected] = False
                    rows = rows[left]
                    hosts = list(compress(hosts, left))
                    table.expect(hosts, rows)
                    _log_rejected(each.name, gone, reasons)
                seconds = self.clock() - began
                results.append(
                    FilterResult(each.name, start, gone, tuple(reasons), seconds)
                )
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


def judge_changed(
    filter_: Enabled[Any],
    hosts: Sequence[Host],
    request: Request,
    candidates: Candidates | None,
    table: HostTable,
) -> tuple[Sequence[int], Sequence[str], Candidates | None]:
    """The places of the hosts that a filter rejects, the reasons, and the candidates
    that it leaves. It is asked about those hosts alone of which the table does not have
    its verdict."""
    plugin = filter_.plugin
    if isinstance(plugin, BatchFilter) or plugin.scope is Scope.INSTANCE:
        reasons, candidates = judge(plugin, hosts, request, candidates)
        rejected = [i for i, reason in enumerate(reasons) if reason is not None]
        return rejected, [reasons[i] or '' for i in rejected], candidates
    key = plugin.request_key(request)
    rows = table.rows(hosts)
    column, stale = table.column((type(plugin), key), rows, bool, key is not None)
    if len(stale):
        changed = stale.tolist()
        asked = [table.hosts[row] for row in changed]
        reasons, candidates = judge(plugin, asked, request, candidates)
        column.values[stale] = [reason is not None for reason in reasons]
        if column.reasons or reasons.count(None) < len(reasons):
            table.keep_reasons(column, changed, reasons)
        column.fresh[stale] = True
    at = np.flatnonzero(column.values[rows])
    return at.tolist(), [column.reasons[row] for row in rows[at].tolist()], candidates


def _judges(each: Enabled[Filter], request: Request) -> bool:
    """Few filters judge the host of a rebuild, none forced hosts or what it has no rule
    for."""
    skips = request.skips_filters or (request.is_rebuild and not each.plugin.on_rebuild)
    return not skips and each.applies(request)


def _log_rejected(name: str, hosts: Sequence[Host], reasons: Sequence[str]) -> None:
    if FILTERS.isEnabledFor(logging.DEBUG):
        for host, why in zip(hosts, reasons, strict=True):
            FILTERS.debug('%s rejected %s: %s', name, host, one_line(why))


def _log_reasons(result: FilterResult) -> None:
    """Log the reasons of the filter that left no host, the commonest first."""
    counts = Counter(result.reasons)
    common = counts.most_common(MAX_LOGGED_REASONS)
    for reason, count in common:
        FILTERS.info('%s rejected %d host(s): %s', result.name, count, one_line(reason))
    others = counts.total() - sum(count for _, count in common)
    if others:
        FILTERS.info('%s rejected %d host(s) for other reasons', result.name, others)
