# SPDX-License-Identifier: Apache-2.0
"""Filters that judge one host for all that are alike, allocation candidates, or all
hosts at once; the values that aggregates give to a metadata key; and :func:`judge`, by
which the pipeline asks any filter about many hosts.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from novasched.conf.redaction import MAX_SEARCHED_CHARACTERS, cut
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

Number = TypeVar('Number', int, float)

Plainly: TypeAlias = NDArray[np.bool_] | None
"""For each host True if it passes; False says nothing."""


def attributes(*names: str) -> Key:
    """The key of a filter that depends on these attributes of a host."""
    return tuple(map(attrgetter, names))


class KeyedFilter(Filter):
    """Judges one host for all those of which it sees the same."""

    def key(self, request: Request) -> Key:
        """Functions of a host that give all of it that the verdict depends on."""
        raise NotImplementedError

    def passes_plainly(self, hosts: Sequence[Host], request: Request) -> Plainly:
        """The hosts that pass by a cheap look at all of them at once; the others are
        judged. None where there is none for the request."""
        return None


class AggregatesFilter(KeyedFilter):
    """Sees nothing of a host but the aggregates that it is in."""

    scope = Scope.REQUEST

    def key(self, request: Request) -> Key:
        return attributes('aggregates')


def parts(values: Iterable[str]) -> frozenset[str]:
    """The elements of values that are lists with commas."""
    return frozenset(part.strip() for value in values for part in value.split(','))


def smallest(
    host: Host, key: str, option: Number, kind: Callable[[str], Number]
) -> Number:
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
    """Drops the allocation candidates that do not fit. A host that has none left is
    rejected, for the reason that the first of them does not fit."""

    scope = Scope.HOST

    def reject(self, host: Host, request: Request) -> str | None:
        return self.reject_candidate(host, request, None)

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        """The reason why candidates with these mappings do not fit; None if they do."""
        raise NotImplementedError


class Verdicts(NamedTuple):
    """For each host None or the reason against it, and the candidates that are left of
    those that Placement offers; None where it was not asked."""

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
        """Tell whether the filter runs for that instance of a request (0 is the
        first)."""
        return True

    def reject(self, host: Host, request: Request) -> str | None:
        (reason,) = self.judge([host], request, None).reasons
        return reason


def judge(
    plugin: Filter,
    hosts: Sequence[Host],
    request: Request,
    candidates: Candidates | None,
) -> Verdicts:
    """The verdicts of a filter, in the order of the hosts, and the candidates that
    remain. Reasons are cut to the length that records can show: a filter may quote a
    user's text."""
    reasons: list[str | None] = [None] * len(hosts)
    if isinstance(plugin, BatchFilter):
        verdicts = plugin.judge(hosts, request, candidates)
    elif (
        isinstance(plugin, CandidateFilter)
        and request.pci_requests
        and candidates is not None
    ):
        verdicts = _judge_candidates(plugin, hosts, request, candidates)
    else:
        if isinstance(plugin, KeyedFilter):
            plainly = plugin.passes_plainly(hosts, request)
            left: Sequence[int] = range(len(hosts))
            if plainly is not None:
                left = np.flatnonzero(~plainly).tolist()
            alike = _judge_alike(plugin, [hosts[i] for i in left], request)
            for i, reason in zip(left, alike, strict=True):
                reasons[i] = reason
        else:
            reasons = [plugin.reject(host, request) for host in hosts]
        if plugins.CHECK_SCOPES:
            plugins.check_scope(plugin.scope, hosts, reasons, request, plugin.reject)
        verdicts = Verdicts(reasons, candidates)

    longest = max(map(len, filter(None, verdicts.reasons)), default=0)
    if longest > MAX_SEARCHED_CHARACTERS:
        verdicts = _with_short_reasons(verdicts)
    return verdicts


def _with_short_reasons(verdicts: Verdicts) -> Verdicts:
    """The verdicts with reasons that are cut. Equal reasons become one object."""
    short: dict[str, str] = {}
    for reason in filter(None, verdicts.reasons):
        if reason not in short:
            short[reason] = cut(reason, MAX_SEARCHED_CHARACTERS)
    reasons = [reason and short[reason] for reason in verdicts.reasons]
    return Verdicts(reasons, verdicts.candidates)


def _judge_alike(
    plugin: KeyedFilter, hosts: Sequence[Host], request: Request
) -> Iterable[str | None]:
    """The verdict on each host; alike ones share it."""
    keys = equivalence_classes(
        [list(map(value, hosts)) for value in plugin.key(request)]
    )
    one_of_each = dict(zip(keys, hosts, strict=True))
    known = {key: plugin.reject(host, request) for key, host in one_of_each.items()}
    return map(known.__getitem__, keys)


def _judge_candidates(
    plugin: CandidateFilter,
    hosts: Sequence[Host],
    request: Request,
    candidates: Candidates,
) -> Verdicts:
    """Judge each candidate of each host; alike ones of alike hosts share their
    verdict."""
    columns = [list(map(value, hosts)) for value in plugin.key(request)]
    known: dict[Hashable, str | None] = {}
    reasons: list[str | None] = []
    left: dict[str, Sequence[Candidate]] = {}
    for host, kind in zip(hosts, equivalence_classes(columns), strict=True):
        verdicts = []
        offered = candidates.get(host.uuid, ())
        for candidate in offered:
            mappings = mappings_of(request, candidate)
            key = kind, *[providers_of(each, mappings) for each in request.pci_requests]
            if key not in known:
                known[key] = plugin.reject_candidate(host, request, mappings)
            verdicts.append(known[key])
        if None in verdicts:
            reasons.append(None)
            if any(verdicts):
                passes = [reason is None for reason in verdicts]
                left[host.uuid] = [*compress(offered, passes)]
        else:
            reasons.append(verdicts[0] if verdicts else NOTHING_OFFERED)
    return Verdicts(reasons, candidates.narrowed(left))
