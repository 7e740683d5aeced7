# SPDX-License-Identifier: Apache-2.0
"""Two answers to one request: whether they are the same, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.narrowing import narrow, skips_filters
from novasched.pipeline import Pipeline
from novasched.shadow.decision import Decision, Look
from novasched.shadow.recording import Hosts
from novasched.weighing import Column

NOTHING = '(none)'


@dataclass(frozen=True, slots=True)
class Difference:
    """The first server of a request that the two answers send to different hosts."""

    server: str | None
    recorded: str
    ours: str
    why: str


def compare(recorded: Hosts, decision: Decision) -> Difference | None:
    """None for the same hosts; the servers of one request may have swapped theirs."""
    left, right = Counter(recorded), Counter(decision.hosts)
    if left == right:
        return None
    theirs = next((x for x in recorded if x in left - right), NOTHING)
    ours = next((x for x in decision.hosts if x in right - left), NOTHING)
    index = decision.hosts.index(ours) if ours != NOTHING else len(decision.looks) - 1
    look = _look(decision, max(index, 0))
    server = look.request.instance_uuid if look else None
    return Difference(server, theirs, ours, _why(theirs, ours, look, decision))


def _look(decision: Decision, index: int) -> Look | None:
    """What the server of that index could choose from."""
    return next((each for each in decision.looks if each.index == index), None)


def _why(theirs: str, ours: str, look: Look | None, decision: Decision) -> str:
    if theirs == NOTHING:
        return 'the request was refused then'
    if look is None:
        return decision.refusal or 'no host was looked at'
    if not any(host.host == theirs for host in look.hosts):
        return 'Placement offers no candidate there, or no cell has the host any more'
    left = narrow(look.hosts, look.request)
    if not any(host.host == theirs for host in left):
        return 'the request itself rules the host out'
    if not skips_filters(look.request):
        left, reason = _filtered(left, theirs, look, decision.pipeline)
        if reason is not None:
            return reason
    kept = next(host for host in left if host.host == theirs)
    best = next((host for host in left if host.host == ours), None)
    if best is None:
        return decision.refusal or 'ours is not among the hosts that are left'
    return _outweighed(left, kept, best, look.request, decision.pipeline)


def _filtered(
    left: Sequence[Host], theirs: str, look: Look, pipeline: Pipeline
) -> tuple[Sequence[Host], str | None]:
    """The hosts that the filters leave, or which of them rejects a host, and its reason."""
    for each in pipeline.filters:
        spared = look.request.is_rebuild and not each.on_rebuild
        if spared or not each.runs_for(look.index) or not each.applies(look.request):
            continue
        verdicts = list(zip(left, each.reject_all(left, look.request), strict=True))
        left = [host for host, why in verdicts if why is None]
        if not any(host.host == theirs for host in left):
            reasons = [why for host, why in verdicts if host.host == theirs]
            return left, f'{each.name} rejects it: {reasons[0]}'
    return left, None


def _outweighed(
    hosts: Sequence[Host], theirs: Host, ours: Host, request: Request, pipeline: Pipeline
) -> str:
    """The weighers that tell the two apart, the one that matters most first."""
    places = {host.uuid: place for place, host in enumerate(hosts)}
    here, there = places[ours.uuid], places[theirs.uuid]
    parts = []
    for weigher in pipeline.weighers:
        if not weigher.applies(request):
            continue
        column = Column(weigher, hosts, [weigher.scale(host) for host in hosts], request)
        gain = column.added[here] - column.added[there]
        if gain:
            raw = f'{column.raw[here]:g} against {column.raw[there]:g}'
            parts.append((abs(gain), f'{weigher.name} {gain:+.3g} ({raw})'))
    if not parts:
        return 'both weigh the same, so that their order is up to chance'
    return 'ours weighs differently: ' + ', '.join(text for _, text in sorted(parts)[::-1])
