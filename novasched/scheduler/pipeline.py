# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

Filters keep the order of the hosts. Weighing sorts the hosts, best first, and keeps the
order of hosts of equal weight. Only this module logs verdicts.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any, overload

import numpy as np

from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.decision import FilterResult, Ranking
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import BatchFilter, CandidateFilter, judge
from novasched.scheduler.host_table import HostTable, Numbers
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.host_list import HostList, Rows
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data, Enabled
from novasched.scheduler.ports import Needs
from novasched.scheduler.requested_hosts import keep_requested_hosts
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weights import no_clock, weigh

FILTERS = logging.getLogger('nova.filters')
MANAGER = logging.getLogger('nova.scheduler.manager')
MAX_LOGGED_REASONS = 3
"""Reasons in the log when a filter leaves no host."""

EXPLAINED_HOSTS = 10
"""The number of best hosts whose weight is explained by the contributions of
weighers."""
EXPLAINED_INSTANCES = 3
"""The number of instances of a request whose best hosts are explained."""

SIZE_LIMITS = ('vcpu', 'memory_mb', 'disk_gb')
"""The limits of a chosen host that are integers."""

BEST = 100
"""The number of hosts that are sorted by weight. The remaining hosts are only sorted
when a caller asks for them."""


def _check_limits(limits: Mapping[str, Any]) -> None:
    """Check that limits can be sent as nova's SchedulerLimits.

    :raises Exception: a limit has a value of another type.
    """
    for name in SIZE_LIMITS:
        if limits.get(name) is not None:
            int(limits[name])

    topology = limits.get(fitting.LIMITS)
    if topology is not None:
        float(topology.cpu_allocation_ratio)
        float(topology.ram_allocation_ratio)


class BestFirst(HostList):
    """Hosts by weight, the greatest weight first. Hosts of equal weight keep their
    order.

    Mostly a caller looks at a few of very many hosts, so that the hosts behind the
    front are only sorted on demand.

    :ivar front: positions of the first hosts in the weighed list, including all hosts
        of equal weight. The draw among the best hosts changes the order of the front.
    """

    def __init__(self, hosts: HostList, sums: Numbers, number: int) -> None:
        """:param number: the minimum number of hosts in front."""
        super().__init__(hosts.base, hosts.order)
        self._losses = -sums
        number = min(number, len(hosts))
        last = np.partition(self._losses, number - 1)[number - 1]
        positions = np.flatnonzero(self._losses <= last)
        order = np.argsort(self._losses[positions], kind='stable')
        self.front: list[int] = positions[order].tolist()

    @cached_property
    def behind(self) -> Rows:
        """The positions of the hosts behind the front."""
        return np.argsort(self._losses, kind='stable')[len(self.front) :]

    @property
    def order(self) -> Rows:
        positions = np.append(self.front, self.behind)
        order: Rows = self._order[positions]
        return order

    def __len__(self) -> int:
        return len(self._losses)

    def __iter__(self) -> Iterator[Host]:
        yield from self.base.hosts[self._order[self.front]].tolist()
        if len(self.front) < len(self):
            yield from self.base.hosts[self._order[self.behind]].tolist()

    @overload
    def __getitem__(self, index: int) -> Host: ...
    @overload
    def __getitem__(self, index: slice) -> list[Host]: ...
    def __getitem__(self, index: int | slice) -> Any:
        front = self.front
        if isinstance(index, int) and 0 <= index < len(front):
            return self.base.hosts[self._order[front[index]]]
        return super().__getitem__(index)


class Pipeline:
    """Filters and weighs hosts, and draws among the best hosts.

    :param clock: a monotonic clock in seconds.
    :ivar explained_hosts: the number of best hosts whose weight a ranking explains.
    :ivar explained_instances: the number of instances whose ranking has explanations.
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
        # Shared with the pipelines of requests, so that each weigher is logged once.
        self._failing_weighers: set[str] = set()
        self._decision = object()

    def for_request(self) -> 'Pipeline':
        """The pipeline for one request. Plugins with a state start afresh."""
        pipeline = copy(self)
        pipeline._decision = object()

        enabled: list[Enabled[Any]] = [*self.filters, *self.weighers]
        for_request = []
        # Plugins of one request share the state of the first plugin with a state.
        first = None
        for plugin in enabled:
            fresh = plugin.for_one_request(first)
            for_request.append(fresh)
            if first is None and fresh is not plugin:
                first = fresh.plugin

        count = len(self.filters)
        pipeline.filters = tuple(for_request[:count])
        pipeline.weighers = tuple(for_request[count:])
        return pipeline

    def needs(self, request: Request) -> Needs:
        """The data that filters and weighers need for a request."""
        running: list[Enabled[Any]] = []
        running += [filter_ for filter_ in self.filters if _judges(filter_, request)]
        running += [weigher for weigher in self.weighers if weigher.applies(request)]

        data: set[Data] = set()
        named: set[str] = set()
        for enabled in running:
            data.update(enabled.plugin.reads)
            with enabled:
                uuids = enabled.plugin.needed_instances(request)
            if uuids is None:
                data.add(Data.INSTANCES)
            else:
                named.update(uuids)

        if Data.INSTANCES in data:
            # Among all instances are those of each flavor, and those that are named.
            data.discard(Data.FLAVORS)
            named.clear()

        located: Collection[str] = ()
        if request.instance_group and Data.MEMBERS in data:
            located = request.instance_group.members
        return Needs(frozenset(data), named, located)

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        candidates: Candidates | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, best first, and the reasons
        against the rejected hosts."""
        ranking = self.filter(hosts, request, index, candidates)
        return self.weigh(ranking, request, index, random)

    def filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None = None,
    ) -> Ranking:
        """The hosts that can take the current instance, in the same order.

        :param index: the number of instances of the request that are placed already.
        :param candidates: Placement's offer, without the candidates that filters have
            dropped for earlier instances; None if Placement was not asked.
        """
        ranking = Ranking(hosts, candidates=candidates)
        if request.names_hosts:
            kept, results = keep_requested_hosts(hosts, request, self.clock)
            ranking = replace(ranking, hosts=kept, filters=tuple(results))

        # If the request ignores all hosts, the log blames no filter.
        ignores_all = bool(request.ignore_hosts and not ranking.hosts)
        if not (request.skips_filters or ignores_all):
            ranking = self._filter(ranking, request, index)
        MANAGER.debug('Filtered %s', ranking.hosts)
        return ranking

    def weigh(
        self, ranking: Ranking, request: Request, index: int, random: Random
    ) -> Ranking:
        """The hosts of a ranking, sorted by weight. The first host is drawn among the
        best hosts (``[filter_scheduler] host_subset_size`` and
        ``shuffle_best_same_weighed_hosts``)."""
        hosts = HostList.of(ranking.hosts)
        if not hosts:
            return ranking

        with self._table() as table:
            offered = ranking.candidates
            weights = weigh(self.weighers, hosts, request, self.clock, table, offered)
            if weights.failing_weighers:
                self._log_failing_weighers(weights.failing_weighers)

            number = BEST
            if request.count > 1:
                # Each instance takes hosts from the front of the ranking before.
                number = len(hosts)
            number = max(number, self.settings.host_subset_size)
            best_first = BestFirst(hosts, weights.sums, number)
            front = best_first.front
            # nova shuffles before the draw, so that both options work together.
            if self.settings.shuffle_best_same_weighed_hosts:
                _shuffle_best(front, weights.sums, random)
            # As in nova, the log has the order before the draw.
            if MANAGER.isEnabledFor(logging.DEBUG):
                _log_weights(hosts, weights.sums.tolist(), best_first)
            drawn = random.randrange(min(self.settings.host_subset_size, len(front)))
            front.insert(0, front.pop(drawn))

        explained: list[int] = []
        if index < self.explained_instances:
            explained = front[: self.explained_hosts]
        return replace(
            ranking,
            hosts=best_first,
            weighers=tuple(weights.seconds),
            best=weights.explained(explained, [hosts[i] for i in explained]),
        )

    def _log_failing_weighers(self, names: Sequence[str]) -> None:
        """Log each weigher with a raw weight of NaN or infinity once."""
        for name in names:
            if name in self._failing_weighers:
                continue
            self._failing_weighers.add(name)
            MANAGER.warning(
                '%s gives hosts weights that are NaN or infinite. A host without a'
                ' weight counts like the host that the weigher prefers least. Further'
                ' such weights of this weigher are not logged.',
                name,
            )

    def limits(self, host: Host, request: Request) -> dict[str, Any]:
        """The limits that the filters set for a chosen host. A later filter overrides
        the limits of an earlier filter.

        :raises BadPlugin: a limit cannot be sent to nova-compute.
        """
        limits: dict[str, Any] = {}
        for filter_ in self.filters:
            # A filter without limits need not be called, nor waited for.
            if type(filter_.plugin).limits is Filter.limits:
                continue
            if not _judges(filter_, request):
                continue
            with filter_:
                limits_of_filter = filter_.plugin.limits(host, request)
                # Limits are encoded only after the host has been claimed.
                _check_limits(limits_of_filter)
                limits.update(limits_of_filter)
        return limits

    @contextmanager
    def _table(self) -> Iterator[HostTable]:
        """The table that all requests share. A new table while another request uses the
        shared table."""
        try:
            table = self._tables.pop()
        except IndexError:
            table = HostTable()
        table.request = self._decision
        yield table
        # The error of a plugin drops the table: a column may be half written.
        self._tables.append(table)

    def _filter(self, ranking: Ranking, request: Request, index: int) -> Ranking:
        """The ranking after the filters that run for an instance."""
        FILTERS.debug('Starting with %d host(s)', len(ranking.hosts))
        if index == 0:
            # Answers without a key are valid for one try.
            self._decision = object()

        hosts = HostList.of(ranking.hosts)
        candidates = ranking.candidates
        results: list[FilterResult] = []
        with self._table() as table:
            for filter_ in self.filters:
                if not _runs_for(filter_, index):
                    continue

                hosts, candidates, result = self._after(
                    filter_, hosts, request, candidates, table
                )
                results.append(result)
                if not hosts:
                    _log_last(result)
                    break
                FILTERS.debug('Filter %s returned %d host(s)', result.name, len(hosts))

        if not hosts:
            counts = []
            for result in results:
                counts.append(
                    f'{result.name}: (start: {result.start}, end: {result.end})'
                )
            FILTERS.info(
                'Filtering removed all hosts for the request with instance ID '
                "'%s'. Filter results: %s",
                request.instance_uuid,
                counts,
            )
        return replace(
            ranking,
            hosts=hosts,
            candidates=candidates,
            filters=(*ranking.filters, *results),
        )

    def _after(
        self,
        filter_: Enabled[Filter],
        hosts: HostList,
        request: Request,
        candidates: Candidates | None,
        table: HostTable,
    ) -> tuple[HostList, Candidates | None, FilterResult]:
        """The hosts and the candidates that a filter leaves, and its verdicts."""
        began = self.clock()
        start = len(hosts)
        rejected: Sequence[int] = ()
        reasons: Sequence[str] = ()
        if _judges(filter_, request):
            with filter_:
                rejected, reasons, candidates = judge_changed(
                    filter_, hosts, request, candidates, table
                )

        rejected_hosts: tuple[Host, ...] = ()
        if rejected:
            passes = np.ones(start, bool)
            passes[rejected] = False
            rejected_hosts = tuple(hosts.where(~passes))
            hosts = hosts.where(passes)
            _log_rejected(filter_.name, rejected_hosts, reasons)

        seconds = self.clock() - began
        result = FilterResult(
            filter_.name, start, rejected_hosts, tuple(reasons), seconds
        )
        return hosts, candidates, result


def _runs_for(filter_: Enabled[Filter], index: int) -> bool:
    """True if a filter has to run for the instance at an index. The verdicts of a
    filter whose scope is the request stand for all instances."""
    if isinstance(filter_.plugin, BatchFilter):
        # Most filters have no rule of their own, and need not be called.
        if type(filter_.plugin).runs_for is BatchFilter.runs_for:
            return True
        with filter_:
            return filter_.plugin.runs_for(index)
    return index == 0 or filter_.plugin.scope is not Scope.REQUEST


def judge_changed(
    filter_: Enabled[Any],
    hosts: HostList,
    request: Request,
    candidates: Candidates | None,
    table: HostTable,
) -> tuple[Sequence[int], Sequence[str], Candidates | None]:
    """The indexes of the hosts that a filter rejects, the reasons, and the candidates
    that the filter leaves. The filter only judges hosts without a valid verdict in the
    table."""
    plugin = filter_.plugin
    if isinstance(plugin, BatchFilter) or plugin.scope is Scope.INSTANCE:
        reasons, candidates = judge(plugin, [*hosts], request, candidates)
        rejected = [i for i, reason in enumerate(reasons) if reason is not None]
        return rejected, [reasons[i] or '' for i in rejected], candidates

    # Without devices, the verdict of such a filter depends on the host alone.
    offer = None
    if isinstance(plugin, CandidateFilter) and request.pci_requests:
        offer = candidates

    key = plugin.request_key(request)
    lasting = key is not None and offer is None
    rows = table.rows(hosts)
    column, stale = table.column((type(plugin), key), rows, bool, lasting)
    if offer is not None:
        # The verdicts are about the candidates that the filter has left. An offer with
        # other candidates of a host, such as that of an earlier try, is judged again.
        stale = table.forget_changed(column, rows, offer.candidate_changes)

    if len(stale):
        changed = stale.tolist()
        changed_hosts = table.hosts[stale].tolist()
        reasons, candidates = judge(plugin, changed_hosts, request, candidates)
        column.values[stale] = [reason is not None for reason in reasons]
        if column.reasons or reasons.count(None) < len(reasons):
            table.keep_reasons(column, changed, reasons)
        column.fresh[stale] = True

    if offer is not None and candidates is not None:
        column.offer_version = candidates.candidate_changes.version

    indexes = np.flatnonzero(column.values[rows])
    reasons_against = [column.reasons[row] for row in rows[indexes].tolist()]
    return indexes.tolist(), reasons_against, candidates


def _judges(filter_: Enabled[Filter], request: Request) -> bool:
    """True if a filter judges hosts for a request. No filter judges forced hosts, and
    few filters judge the host of a rebuild (``Filter.on_rebuild``)."""
    if request.skips_filters:
        return False
    if request.is_rebuild and not filter_.plugin.on_rebuild:
        return False
    return filter_.applies(request)


def _shuffle_best(front: list[int], sums: Numbers, random: Random) -> None:
    """Shuffle the hosts whose weight equals the weight of the first host."""
    count = np.count_nonzero(sums == sums[front[0]])
    best = front[:count]
    random.shuffle(best)
    front[: len(best)] = best


def _log_weights(
    hosts: Sequence[Host], sums: Sequence[float], best_first: BestFirst
) -> None:
    texts = []
    for i in (*best_first.front, *best_first.behind.tolist()):
        texts.append(f'WeighedHost [host: {hosts[i]}, weight: {sums[i]}]')
    MANAGER.debug('Weighed %s', f'[{", ".join(texts)}]')


def _log_rejected(name: str, hosts: Sequence[Host], reasons: Sequence[str]) -> None:
    if FILTERS.isEnabledFor(logging.DEBUG):
        for host, reason in zip(hosts, reasons, strict=True):
            FILTERS.debug('%s rejected %s: %s', name, host, one_line(reason))


def _log_last(result: FilterResult) -> None:
    """Log the filter that left no host, with the most common reasons first."""
    FILTERS.info('Filter %s returned 0 hosts', result.name)
    counts = Counter(result.reasons)
    common = counts.most_common(MAX_LOGGED_REASONS)
    for reason, count in common:
        FILTERS.info('%s rejected %d host(s): %s', result.name, count, one_line(reason))
    others = counts.total() - sum(count for _, count in common)
    if others:
        FILTERS.info('%s rejected %d host(s) for other reasons', result.name, others)
