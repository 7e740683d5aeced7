# SPDX-License-Identifier: Apache-2.0
"""Base classes for filters of many hosts, helpers for aggregate metadata, and
:func:`judge`, with which the pipeline asks a filter about hosts.

The base classes: a :class:`KeyedFilter` judges one host for all equivalent hosts, a
:class:`CandidateFilter` judges allocation candidates, and a :class:`BatchFilter` judges
all hosts in one call.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import filterfalse
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from novasched.conf.redaction import MAX_SEARCHED_CHARACTERS, cut
from novasched.scheduler import plugin as plugins
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.fitting import device_layout, mappings_of
from novasched.scheduler.model.candidate import Candidate, Candidates, LazySequence
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pci.pools import Mappings, providers_of
from novasched.scheduler.plugin import equivalence_classes

Key = Sequence[Callable[[Host], object]]

NOTHING_OFFERED = 'Placement offers nothing on it'

Number = TypeVar('Number', int, float)

Plainly: TypeAlias = NDArray[np.bool_] | None
"""For each host, True if the host passes. False decides nothing."""


def attributes(*names: str) -> Key:
    """The key of a filter whose verdict depends on attributes of a host."""
    return tuple(map(attrgetter, names))


class KeyedFilter(Filter):
    """Judges one host for all hosts with an equal key."""

    def key(self, request: Request) -> Key:
        """Functions of a host. The verdict depends on no more of a host than the values
        of these functions."""
        raise NotImplementedError

    def passes_plainly(self, hosts: Sequence[Host], request: Request) -> Plainly:
        """The hosts that a cheap check of all hosts at once passes; :meth:`reject`
        judges the rest. ``None``: there is no such check for the request."""
        return None


class AggregatesFilter(KeyedFilter):
    """A filter whose verdict depends only on the aggregates of a host."""

    scope = Scope.REQUEST

    def key(self, request: Request) -> Key:
        return attributes('aggregates')


def split_values(values: Iterable[str]) -> frozenset[str]:
    """The elements of metadata values that are lists separated by commas."""
    elements: set[str] = set()
    for value in values:
        elements.update(map(str.strip, value.split(',')))
    return frozenset(elements)


def smallest(
    host: Host, key: str, option: Number, kind: Callable[[str], Number]
) -> Number:
    """The least number that the aggregates of a host give to a metadata key.

    :param option: the answer if the key is not set, or a value is not a number; nova
        then falls back to the option, too.
    """
    values = []
    for aggregate in host.aggregates:
        if key in aggregate.metadata:
            values.append(aggregate.metadata[key])

    if not values:
        return option
    try:
        return min(map(kind, values))
    except ValueError:
        return option


class CandidateFilter(KeyedFilter):
    """Drops the allocation candidates that do not fit.

    A host without a fitting candidate is rejected, with the reason against the first
    candidate. A request without PCI devices has its hosts judged by :meth:`reject`.
    """

    scope = Scope.HOST

    def key_beside_devices(self, request: Request) -> Key:
        """The key without the PCI devices of the host."""
        raise NotImplementedError

    def key(self, request: Request) -> Key:
        return (*self.key_beside_devices(request), attrgetter('pci_stats'))

    def reject(self, host: Host, request: Request) -> str | None:
        return self.reject_candidate(host, request, None)

    def may_fit(self, host: Host, request: Request) -> bool:
        """False if a request for devices fits the host with no devices at all. Then the
        first candidate stands for all candidates."""
        return True

    def reject_candidate(
        self, host: Host, request: Request, mappings: Mappings | None
    ) -> str | None:
        """The reason why candidates with these provider mappings do not fit; ``None``
        if the candidates fit."""
        raise NotImplementedError


class Verdicts(NamedTuple):
    """Verdicts on a list of hosts.

    ``reasons`` has the reason against each host, or ``None``. ``candidates`` are the
    remaining allocation candidates, or ``None`` for a request that does not ask
    Placement.
    """

    reasons: Sequence[str | None]
    candidates: Candidates | None = None


class BatchFilter(Filter):
    """Judges all hosts in one call, for filters that compare hosts with each other."""

    def judge(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Verdicts:
        """The verdicts on the hosts, in the order of the hosts."""
        raise NotImplementedError

    def runs_for(self, index: int) -> bool:
        """Tell whether the filter runs for an instance of a request.

        :param index: the number of the instance; 0 is the first.
        """
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
    """Ask a filter about hosts.

    :param candidates: Placement's allocation candidates as earlier filters left them;
        ``None`` for a request that does not ask Placement.
    """
    if isinstance(plugin, BatchFilter):
        verdicts = plugin.judge(hosts, request, candidates)
    elif (
        isinstance(plugin, CandidateFilter)
        and request.pci_requests
        and candidates is not None
    ):
        # Without PCI requests, candidates do not matter to the verdict on a host.
        verdicts = _judge_candidates(plugin, hosts, request, candidates)
    else:
        if isinstance(plugin, KeyedFilter):
            reasons = _judge_by_key(plugin, hosts, request)
        else:
            reasons = [plugin.reject(host, request) for host in hosts]
        if plugins.CHECK_SCOPES:
            plugins.check_scope(plugin.scope, hosts, reasons, request, plugin.reject)
        verdicts = Verdicts(reasons, candidates)

    # A filter may quote a text of any length that a user sent, and records show no more
    # than MAX_SEARCHED_CHARACTERS of a reason.
    longest = max(map(len, filter(None, verdicts.reasons)), default=0)
    if longest > MAX_SEARCHED_CHARACTERS:
        verdicts = _with_short_reasons(verdicts)
    return verdicts


def _with_short_reasons(verdicts: Verdicts) -> Verdicts:
    """The verdicts with cut reasons. Equal reasons become one object."""
    short: dict[str, str] = {}
    for reason in filter(None, verdicts.reasons):
        if reason not in short:
            short[reason] = cut(reason, MAX_SEARCHED_CHARACTERS)
    reasons = [reason and short[reason] for reason in verdicts.reasons]
    return Verdicts(reasons, verdicts.candidates)


def _judge_by_key(
    plugin: KeyedFilter, hosts: Sequence[Host], request: Request
) -> list[str | None]:
    """The reasons of a filter against hosts. The filter is asked about one host of each
    key, and hosts with equal keys share the reason."""
    reasons: list[str | None] = [None] * len(hosts)
    undecided: Sequence[int] = range(len(hosts))
    passing = plugin.passes_plainly(hosts, request)
    if passing is not None:
        undecided = np.flatnonzero(~passing).tolist()

    judged = [hosts[i] for i in undecided]
    columns = [list(map(value, judged)) for value in plugin.key(request)]
    keys = equivalence_classes(columns)
    representatives = dict(zip(keys, judged, strict=True))
    reason_of: dict[Hashable, str | None] = {}
    for key, host in representatives.items():
        reason_of[key] = plugin.reject(host, request)

    for i, key in zip(undecided, keys, strict=True):
        reasons[i] = reason_of[key]
    return reasons


def _judge_candidates(
    plugin: CandidateFilter,
    hosts: Sequence[Host],
    request: Request,
    candidates: Candidates,
) -> Verdicts:
    """Judge the candidates of hosts, up to the first fitting candidate of each host.
    The other candidates are judged at the first look, which few hosts get.

    Candidates with corresponding devices on hosts with equal devices and equal keys
    share a verdict: a cloud has few kinds of hosts.
    """
    key = plugin.key_beside_devices(request)
    columns = [list(map(value, hosts)) for value in key]
    host_keys: Sequence[Hashable] = [()] * len(hosts)
    if columns:
        host_keys = equivalence_classes(columns)
    layout_numbers: dict[Hashable, int] = {}
    may_fit_of: dict[Hashable, bool] = {}
    verdict_of: dict[Hashable, str | None] = {}
    reasons: list[str | None] = []
    remaining: dict[str, Sequence[Candidate]] = {}

    for host, host_key in zip(hosts, host_keys, strict=True):
        layout, numbers = device_layout(host)
        kind = host_key, layout_numbers.setdefault(layout, len(layout_numbers))
        reason_against = partial(
            _reason_against, plugin, host, request, kind, numbers, verdict_of
        )
        offered = candidates.get(host.uuid, ())
        if not offered:
            reasons.append(NOTHING_OFFERED)
            continue
        if kind not in may_fit_of:
            may_fit_of[kind] = plugin.may_fit(host, request)
        fitting = LazySequence(filterfalse(reason_against, offered))
        if may_fit_of[kind] and fitting:
            reasons.append(None)
            remaining[host.uuid] = fitting
        else:
            reasons.append(reason_against(offered[0]))

    return Verdicts(reasons, candidates.narrowed(remaining))


def _reason_against(
    plugin: CandidateFilter,
    host: Host,
    request: Request,
    kind: Hashable,
    numbers: Mapping[str, int],
    verdict_of: dict[Hashable, str | None],
    candidate: Candidate,
) -> str | None:
    """The reason of a filter against a candidate of a host.

    :param kind: equal for hosts with equal devices and equal keys.
    :param numbers: the number of each provider of devices of the host.
    :param verdict_of: the reasons so far; gets the reason.
    """
    mappings = mappings_of(request, candidate)
    devices = []
    for pci_request in request.pci_requests:
        providers = providers_of(pci_request, mappings)
        # A provider without free devices has no number.
        devices.append(tuple(map(numbers.get, providers, providers)))
    candidate_key = (kind, *devices)
    if candidate_key not in verdict_of:
        verdict_of[candidate_key] = plugin.reject_candidate(host, request, mappings)
    return verdict_of[candidate_key]
