# SPDX-License-Identifier: Apache-2.0
"""Filters that judge one host for all that are alike, allocation candidates, or all hosts at once;
the values that aggregates give to a metadata key; and :func:`judge`, by which the pipeline asks
any filter about many hosts.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple, TypeVar

from novasched.scheduler import plugin as plugins
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.fitting import mappings_of
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pci.pools import Mappings, providers_of
from novasched.scheduler.plugin import equivalence_classes

Key = Sequence[Callable[[Host], object]]

NOTHING_OFFERED = 'Placement offers nothing on it'
NOT_ASKED: Sequence[Candidate | None] = (None,)
"""The candidates of a host where Placement is not asked."""

MAX_REQUEST_KEYS, MAX_KEYS_PER_HOST = 4, 4
"""Verdicts are kept for so many kinds of requests, and for so many times as many kinds of
hosts as there are hosts."""

Reasons = dict[Hashable, str | None]
Number = TypeVar('Number', int, float)
UNKNOWN = 'not judged yet'


def attributes(*names: str) -> Key:
    """The key of a filter that depends on these attributes of a host."""
    return tuple(map(attrgetter, names))


class KeyedFilter(Filter):
    """Judges one host for all those of which it sees the same."""

    def key(self, request: Request) -> Key:
        """Functions of a host that give all of it that the verdict depends on."""
        raise NotImplementedError

    def request_key(self, request: Request) -> Hashable | None:
        """All of the request that the verdict depends on, where verdicts are worth keeping for
        later requests; None where they are not."""
        return None


class AggregatesFilter(KeyedFilter):
    """Sees nothing of a host but the aggregates that it is in."""

    scope = Scope.REQUEST

    def key(self, request: Request) -> Key:
        return attributes('aggregates')


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


class CandidateFilter(KeyedFilter):
    """Drops the allocation candidates that do not fit. A host that has none left is rejected,
    for the reason that the first of them does not fit."""

    scope = Scope.HOST

    def reject(self, host: Host, request: Request) -> str | None:
        return self.reject_candidate(host, request, None)

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        """The reason why candidates with these mappings do not fit; None if they do."""
        raise NotImplementedError


class Verdicts(NamedTuple):
    """For each host None or the reason against it, and the candidates that are left of those
    that Placement offers; None where it was not asked."""

    reasons: Sequence[str | None]
    candidates: Candidates | None = None


class BatchFilter(Filter):
    """Judges all hosts in one call, since they are compared with each other."""

    def judge(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Verdicts:
        """The verdict on each host, in their order."""
        raise NotImplementedError

    def runs_for(self, index: int) -> bool:
        """Tell whether the filter runs for that instance of a request (0 is the first)."""
        return True

    def reject(self, host: Host, request: Request) -> str | None:
        (reason,) = self.judge([host], request, None).reasons
        return reason


@dataclass(slots=True)
class VerdictCache:
    """Verdicts of keyed filters that hold for later requests, too: all that they depend on is
    their key. Requests at the same time may use one cache."""

    _reasons: dict[Hashable, Reasons] = field(default_factory=dict)

    def reasons(self, kind: type[Filter], request_key: Hashable, hosts: int) -> Reasons:
        """The verdicts of a filter on such requests by the key of the host, to be added to."""
        key = kind, request_key
        reasons = self._reasons.get(key)
        if reasons is None or len(reasons) > MAX_KEYS_PER_HOST * hosts:
            if len(self._reasons) >= MAX_REQUEST_KEYS:
                self._reasons.clear()
            reasons = self._reasons[key] = {}
        return reasons


def judge(
    plugin: Filter,
    hosts: Sequence[Host],
    request: Request,
    candidates: Candidates | None,
    cache: VerdictCache,
) -> Verdicts:
    """The verdicts of a filter on hosts, in their order, and the candidates that it leaves."""
    if isinstance(plugin, BatchFilter):
        return plugin.judge(hosts, request, candidates)
    if isinstance(plugin, CandidateFilter) and request.pci_requests:
        return _judge_candidates(plugin, hosts, request, candidates)
    if isinstance(plugin, KeyedFilter):
        reasons = _shared_reasons(plugin, hosts, request, cache)
    else:
        reasons = [plugin.reject(host, request) for host in hosts]
    if plugins.CHECK_SCOPES:
        plugins.check_scope(plugin.scope, hosts, reasons, request, plugin.reject)
    if isinstance(plugin, CandidateFilter) and candidates is not None:
        reasons = [
            reason if candidates.get(host.uuid, NOT_ASKED) else NOTHING_OFFERED
            for host, reason in zip(hosts, reasons, strict=True)
        ]
    return Verdicts(reasons, candidates)


def _shared_reasons(
    plugin: KeyedFilter, hosts: Sequence[Host], request: Request, cache: VerdictCache
) -> list[str | None]:
    """The verdict on each host; hosts with the same key share it."""
    request_key = plugin.request_key(request)
    columns = [list(map(value, hosts)) for value in plugin.key(request)]
    if request_key is None:
        keys = equivalence_classes(columns)
        one_of_each = dict(zip(keys, hosts, strict=True))
        known = {key: plugin.reject(host, request) for key, host in one_of_each.items()}
        return list(map(known.__getitem__, keys))
    keys = list(zip(*columns, strict=True))
    known = cache.reasons(type(plugin), request_key, len(hosts))
    reasons = list(map(known.get, keys, repeat(UNKNOWN)))
    if UNKNOWN in reasons:
        for key, host, reason in zip(keys, hosts, reasons, strict=True):
            if reason is UNKNOWN and key not in known:
                known[key] = plugin.reject(host, request)
        reasons = list(map(known.__getitem__, keys))
    return reasons


def _judge_candidates(
    plugin: CandidateFilter, hosts: Sequence[Host], request: Request, candidates: Candidates | None
) -> Verdicts:
    """Judge each candidate of each host; alike ones of alike hosts share their verdict."""
    offered: Candidates = candidates or {}
    columns = [list(map(value, hosts)) for value in plugin.key(request)]
    known: Reasons = {}
    reasons: list[str | None] = []
    narrowed: dict[str, Sequence[Candidate]] = {}
    for host, kind in zip(hosts, equivalence_classes(columns), strict=True):
        verdicts = []
        for candidate in offered.get(host.uuid, NOT_ASKED):
            mappings = mappings_of(request, candidate)
            key = kind, *[providers_of(each, mappings) for each in request.pci_requests]
            if key not in known:
                known[key] = plugin.reject_candidate(host, request, mappings)
            verdicts.append(known[key])
        if None in verdicts:
            reasons.append(None)
            if any(verdicts):
                pairs = zip(offered[host.uuid], verdicts, strict=True)
                narrowed[host.uuid] = [each for each, reason in pairs if reason is None]
        else:
            reasons.append(verdicts[0] if verdicts else NOTHING_OFFERED)
    return Verdicts(reasons, {**offered, **narrowed} if narrowed else candidates)
