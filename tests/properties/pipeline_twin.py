# SPDX-License-Identifier: Apache-2.0
"""Ranking done the plain way: one host after the other, everything anew for each server."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.narrowing import narrow, skips_filters
from novasched.weighers import Weigher

Reason = tuple[str, Host, str]


def ranked(
    hosts: Sequence[Host],
    request: Request,
    index: int,
    random: Random,
    filters: Sequence[Filter],
    weighers: Sequence[Weigher],
    settings: Settings,
) -> tuple[list[Host], list[Reason]]:
    """The hosts that are left, the first one to try in front; and why the others are not."""
    left, reasons = list(narrow(hosts, request)), []
    for each in () if skips_filters(request) else filters:
        if not left or not each.runs_for(index) or not each.applies(request):
            continue
        if request.is_rebuild and not each.on_rebuild:
            continue
        verdicts = [(host, each.reject(host, request)) for host in left]
        reasons += [(each.name, host, why) for host, why in verdicts if why is not None]
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
