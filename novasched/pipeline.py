# SPDX-License-Identifier: Apache-2.0
"""The enabled filters and weighers, run in order over all hosts of a request.

The one place that logs verdicts. Filters see the hosts in the order given and keep
it; weighing sorts them, best first, and keeps the order of hosts of equal weight.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from novasched.errors import blaming
from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.narrowing import narrow, skips_filters
from novasched.records.account import FILTERS as FILTERING
from novasched.records.account import WEIGHERS as WEIGHING
from novasched.records.looks import UNSEEN, Unseen
from novasched.records.reasons import told
from novasched.weighers import Weigher
from novasched.weighing import Weighing, Weights

FILTERS = logging.getLogger('nova.filters')
REASONS = 3
"""How many reasons are told when a filter leaves no host."""

MANAGER = logging.getLogger('nova.scheduler.manager')


class Pipeline:
    """Narrows, filters, weighs and draws."""

    def __init__(
        self,
        settings: Settings,
        filters: Sequence[Filter],
        weighers: Sequence[Weigher],
        remembers: bool = False,
    ) -> None:
        self.settings = settings
        self.filters = tuple(filters)
        self.weighers = tuple(weighers)
        self.remembers = remembers
        self._weighing = Weighing(self.weighers, remembers)
        self._ranked: Sequence[Host] = ()

    def reads_instances(self, request: Request) -> bool:
        """Whether anything enabled looks at the servers on each host."""
        plugins: tuple[Filter | Weigher, ...] = (*self.filters, *self.weighers)
        return any(each.reads_instances and _applies(each, request) for each in plugins)

    def reads_images(self, request: Request) -> bool:
        """Whether a weigher looks at the images of these servers."""
        return any(each.reads_images and _applies(each, request) for each in self.weighers)

    def for_request(self, memory: dict[str, Any]) -> Pipeline:
        """The pipeline for one request, which remembers from one server to the next what
        cannot have changed; plugins that remember start afresh in it."""
        filters = [each.for_request(memory) for each in self.filters]
        weighers = [each.for_request(memory) for each in self.weighers]
        return type(self)(self.settings, filters, weighers, remembers=True)

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        look: Unseen = UNSEEN,
    ) -> list[Host]:
        """The hosts that can take the server in hand, the one to try first in front.

        :param index: how many servers of this request are placed already.
        :param look: hears of the hosts that cannot, and of what the others weigh.
        """
        look.begins()
        left = narrow(hosts, request, look)
        # Where all hosts are ignored the log blames no filter.
        if not skips_filters(request) and (left or not request.ignore_hosts):
            left = self._filter(left, request, index, look)
        look.did(FILTERING)
        MANAGER.debug('Filtered %s', left)
        if not left:
            return []
        ranked = self._draw(self._weigh(left, request, look), random, look)
        look.did(WEIGHING)
        if self.remembers:
            self._ranked = ranked
        return ranked

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

    def _filter(
        self, hosts: Sequence[Host], request: Request, index: int, look: Unseen
    ) -> Sequence[Host]:
        FILTERS.debug('Starting with %d host(s)', len(hosts))
        changed = self._changed(hosts)
        results: list[str] = []
        for each in self.filters:
            if not each.runs_for(index):
                continue
            started = len(hosts)
            rejected: dict[int, str] = {}
            judged = changed if each.once_per_host else hosts
            if _runs(each, request):
                rejected = _rejected(each, judged, request)
                if rejected:
                    hosts, changed = _without(hosts, rejected), _without(changed, rejected)
            look.passed(each.name, judged, rejected, started)
            results.append(f'{each.name}: (start: {started}, end: {len(hosts)})')
            if not hosts:
                FILTERS.info('Filter %s returned 0 hosts', each.name)
                _log_reasons(each.name, rejected.values())
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

    def _changed(self, hosts: Sequence[Host]) -> Sequence[Host]:
        """Those of the hosts that are not what they were for the server before."""
        if len(hosts) != len(self._ranked):
            return hosts
        return [h for h, before in zip(hosts, self._ranked, strict=True) if h is not before]

    def _weigh(self, hosts: Sequence[Host], request: Request, look: Unseen) -> _Weighed:
        """The hosts with their weights, best first."""
        return _Weighed(hosts, self._weighing.weigh(hosts, request, look))

    def _draw(self, weighed: _Weighed, random: Random, look: Unseen) -> list[Host]:
        """Break ties and draw the first host, as the operator has it."""
        order = weighed.order
        if self.settings.shuffle_best_same_weighed_hosts:
            best = order[: weighed.ties()]
            random.shuffle(best)
            order[: len(best)] = best
        MANAGER.debug('Weighed %s', weighed)
        drawn = random.randrange(min(self.settings.host_subset_size, len(order)))
        order.insert(0, order.pop(drawn))
        look.ranked(weighed.hosts, order, weighed.weights)
        return [weighed.hosts[i] for i in order]


def _applies(each: Filter | Weigher, request: Request) -> bool:
    with blaming(each.name):
        return each.applies(request)


def _runs(each: Filter, request: Request) -> bool:
    """Few filters judge the host of a rebuild, and none judges what it has no rule for."""
    return (each.on_rebuild or not request.is_rebuild) and _applies(each, request)


def _rejected(each: Filter, hosts: Sequence[Host], request: Request) -> dict[int, str]:
    """The reasons of a filter for rejecting hosts, by the identity of these."""
    with blaming(each.name):
        verdicts = each.reject_all(hosts, request)
        if verdicts.count(None) == len(verdicts) == len(hosts):
            return {}
        rejected = {
            id(host): why for host, why in zip(hosts, verdicts, strict=True) if why is not None
        }
    if FILTERS.isEnabledFor(logging.DEBUG):
        for host in hosts:
            if id(host) in rejected:
                FILTERS.debug('%s rejected %s: %s', each.name, host, told(rejected[id(host)]))
    return rejected


def _without(hosts: Sequence[Host], some: Container[int]) -> list[Host]:
    """The hosts but for some, given by identity."""
    return [host for host in hosts if id(host) not in some]


def _log_reasons(name: str, reasons: Iterable[str]) -> None:
    """Say of the filter that left no host what it had against them, the commonest first."""
    why = Counter(reasons)
    common = why.most_common(REASONS)
    for reason, count in common:
        FILTERS.info('%s rejected %d host(s): %s', name, count, told(reason))
    others = why.total() - sum(count for _, count in common)
    if others:
        FILTERS.info('%s rejected %d host(s) for other reasons', name, others)


class _Weighed:
    """Hosts, their weights, and their order: the best first, and as they came where they
    weigh the same. Becomes text only when the log wants it."""

    def __init__(self, hosts: Sequence[Host], weights: Weights) -> None:
        self.hosts = hosts
        self.weights = weights
        self.order = sorted(range(len(hosts)), key=weights.sums.__getitem__, reverse=True)

    def __iter__(self) -> Iterator[tuple[float, Host]]:
        return ((self.weights.sums[i], self.hosts[i]) for i in self.order)

    def ties(self) -> int:
        """How many hosts weigh as much as the best."""
        sums = self.weights.sums
        return sums.count(sums[self.order[0]])

    def __str__(self) -> str:
        texts = (f'WeighedHost [host: {host}, weight: {weight}]' for weight, host in self)
        return f'[{", ".join(texts)}]'
