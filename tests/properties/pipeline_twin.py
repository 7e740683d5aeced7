# SPDX-License-Identifier: Apache-2.0
"""Ranking done the plain way: one host after the other, everything anew for each instance."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from novasched.conf.settings import Settings
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import CandidateFilter
from novasched.scheduler.fitting import mappings_of
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.requested_hosts import narrowed
from novasched.scheduler.weighers import Weigher

Reason = tuple[str, Host, str]


def ranked(
    hosts: Sequence[Host],
    request: Request,
    index: int,
    random: Random,
    filters: Sequence[Filter],
    weighers: Sequence[Weigher],
    settings: Settings,
    offers: dict[str, Sequence[Candidate]],
) -> tuple[list[Host], list[Reason]]:
    """The hosts that are left, the first one to try in front; and why the others are not. The
    candidates that are left of the offers replace them."""
    left, reasons = list(hosts), []
    for _, kept in narrowed(hosts, request):
        left = list(kept)
    for each in () if request.skips_filters else filters:
        if not left or not each.applies(request) or (index and each.scope is Scope.REQUEST):
            continue
        if request.is_rebuild and not each.on_rebuild:
            continue
        verdicts = [(host, _reason(each, host, request, offers)) for host in left]
        reasons += [(type(each).__name__, host, why) for host, why in verdicts if why is not None]
        left = [host for host, why in verdicts if why is None]
    if not left:
        return [], reasons
    weights = [0.0] * len(left)
    for weigher in weighers if len(left) > 1 else ():
        added = _added(weigher, left, request)
        weights = [weight + each for weight, each in zip(weights, added, strict=True)]
    order = sorted(zip(weights, left, strict=True), key=lambda each: each[0], reverse=True)
    if settings.shuffle_best_same_weighed_hosts:
        best = [each for each in order if each[0] == order[0][0]]
        random.shuffle(best)
        order[: len(best)] = best
    best_first = [host for _, host in order]
    drawn = best_first.pop(random.randrange(min(settings.host_subset_size, len(best_first))))
    return [drawn, *best_first], reasons


def _reason(
    each: Filter, host: Host, request: Request, offers: dict[str, Sequence[Candidate]]
) -> str | None:
    if not isinstance(each, CandidateFilter):
        return each.reject(host, request)
    reasons = [
        each.reject_candidate(host, request, mappings_of(request, candidate))
        for candidate in offers[host.uuid]
    ]
    if None not in reasons:
        return reasons[0]
    pairs = zip(offers[host.uuid], reasons, strict=True)
    offers[host.uuid] = [candidate for candidate, reason in pairs if reason is None]
    return None


def _added(weigher: Weigher, hosts: Sequence[Host], request: Request) -> list[float]:
    scales = [_scale(weigher, host) for host in hosts]
    if not weigher.applies(request) or not any(scales):
        return [0.0] * len(hosts)
    raw = []
    for host in hosts:
        value = weigher.weigh(host, request)
        value = value if weigher.minval is None else max(value, weigher.minval)
        raw.append(value if weigher.maxval is None else min(value, weigher.maxval))
    low = min(raw) if weigher.minval is None else weigher.minval
    high = max(raw) if weigher.maxval is None else weigher.maxval
    shares = [(value - low) / (high - low) if low != high else 0.0 for value in raw]
    return [share * scale for share, scale in zip(shares, scales, strict=True)]


def _scale(weigher: Weigher, host: Host) -> float:
    try:
        return weigher.scale(host)
    except ValueError:
        return weigher.default_scale
