# SPDX-License-Identifier: Apache-2.0
"""The texts of records, for terminals, the page, logs and callers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from itertools import islice

from novasched.conf.redaction import one_line
from novasched.observe.records.from_decision import record_of
from novasched.observe.records.record import (
    MAX_REJECTIONS_KEPT,
    AttemptRecord,
    Diagnosis,
    ReasonCount,
    Record,
    Rejections,
    RejectionStage,
)
from novasched.scheduler.decision import STEPS, CandidateCounts, Decision, HostWeight
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.values import first_names

DISABLED = 'disabled'
DOWN = 'down'
PHRASES = {
    'chance_scheduler': 'disabled or down',
    'requested_destination': 'not the requested destination',
    'ignore_hosts': 'ignored by the request',
    'force_hosts': 'not forced by the request',
    'force_nodes': 'not forced by the request',
}
"""The words for stages that are not filters. A filter has its own ``phrase``."""


def phrase(stage: str, reason: str) -> str:
    """The words for hosts that a stage rejects."""
    if stage == 'ComputeFilter':
        # One filter, two facts that operators tell apart.
        if reason.startswith(DISABLED):
            return DISABLED
        return DOWN
    return PHRASES.get(stage) or _phrase_of_filter(stage) or f'rejected by {stage}'


@cache
def _phrase_of_filter(name: str) -> str:
    """The phrase of an installed filter, or an empty text.

    A record may come from a machine with other plugins, and a filter that is enabled by
    its import path has no entry point.
    """
    entries = sorted(
        entry_points(group='novasched.filters', name=name),
        key=lambda entry: not entry.value.startswith('novasched.'),
    )
    if not entries:
        return ''
    try:
        return str(getattr(entries[0].load(), 'phrase', ''))
    except Exception:
        # The package of a plugin may fail to import on this machine.
        return ''


NOT_OFFERED = 'not offered by Placement'
LEFT_OUT = 'in other cells'
REFUSED = 'refused by Placement'
UNFIT = 'taken by others meanwhile'
UNTRIED = 'not tried'
FIT = 'fit'


def tally(record: Record) -> Counter[str]:
    """The number of hosts by outcome. Every host counts once."""
    counts: Counter[str] = Counter()
    offer = record.counts
    if offer is None:
        return counts

    # Hosts that the filters never saw.
    away = offer.total - offer.hosts
    if record.diagnosis and record.diagnosis.lacking:
        for stage in record.diagnosis.lacking:
            counts[stage.name] += stage.start - stage.end
        away = record.diagnosis.lacking[-1].end
    if offer.asked:
        counts[NOT_OFFERED] += away
    else:
        counts[LEFT_OUT] += away

    # Hosts that a filter rejected.
    passed = offer.hosts
    for attempt in record.attempts:
        passed = attempt.passed
        for stage in attempt.stages:
            for rejection in stage.rejections:
                counts[phrase(stage.name, rejection.reason)] += rejection.hosts

    # Hosts that passed all filters. A request that was refused all the same lost them.
    if record.attempts and record.result.refusal is not None:
        refused = len(record.attempts[-1].refused)
        unfit = len(record.attempts[-1].unfit)
        counts[REFUSED] += refused
        counts[UNFIT] += unfit
        counts[UNTRIED] += passed - refused - unfit
    else:
        counts[FIT] += passed
    return +counts


def headline(record: Record) -> str:
    """The first line, such as ``0 of 5,000 hosts: 3,120 lack free memory``."""
    result = record.result
    offer = record.counts
    counts = tally(record)
    if result.hosts:
        return _placed(record, counts)
    if result.failure:
        return f'Not decided: {result.failure}'
    if offer is None:
        return f'Refused before Placement was asked: {result.refusal or "no reason"}'

    diagnosis = record.diagnosis or Diagnosis()
    if not offer.candidates and offer.asked and not diagnosis.lacking:
        return _unoffered(diagnosis)

    which = ''
    if record.request.count > 1:
        which = f' for server {max(len(record.attempts), 1)} of {record.request.count}'
    return f'0 of {_hosts(counts.total())}{which}: {_listed(counts) or "there is none"}'


def _placed(record: Record, counts: Counter[str]) -> str:
    hosts = record.result.hosts
    where = hosts[0]
    if len(hosts) > 1:
        where = f'{len(hosts)} servers on {len(set(hosts))} hosts'

    fit = counts.pop(FIT, 0)
    total = 0
    if record.counts is not None:
        total = record.counts.total
    line = f'{where}: {fit:,} of {_hosts(total)} fit'
    if counts:
        line += f', {_listed(counts)}'
    return line


def entry(record: Record) -> str:
    """The line of a record in a list: moment, request, instance and headline."""
    servers = record.request.instance_uuids or ()
    if not servers:
        subject = 'no server'
    elif len(servers) == 1:
        subject = servers[0]
    else:
        subject = f'{servers[0]} ...'
    return f'{when(record)} {record.request_id} {subject}: {headline(record)}'


def explained(decision: Decision) -> str:
    """The headline of a refusal, for the caller (``[novasched] fault_detail``)."""
    return f'{headline(record_of(decision, "", 0.0))}.'


def _unoffered(diagnosis: Diagnosis) -> str:
    line = 'Placement offers no host'
    if diagnosis.refusal:
        return f'{line}: it refuses the query: {diagnosis.refusal}'
    if diagnosis.relaxations:
        return f'{line}, but would without {" or without ".join(diagnosis.relaxations)}'
    return line


def _listed(counts: Counter[str]) -> str:
    return ', '.join(f'{number:,} {words}' for words, number in counts.most_common())


def _hosts(number: int) -> str:
    if number == 1:
        return '1 host'
    return f'{number:,} hosts'


MAX_SHOWN_REASONS = 2
"""Reasons that are listed for a filter."""

MAX_SHOWN_ITEMS = 20
"""Extra specs and scheduler hints that are listed for a request."""

NAME_FIELDS = ('ignore_hosts', 'force_hosts', 'force_nodes')


def facts(record: Record) -> Iterator[tuple[str, str]]:
    """The facts of a record as rows of name and text."""
    request = record.request
    offer = record.counts
    if record.at:
        yield 'decided', f'{when(record)}, request {record.request_id}'
    if request.instance_uuids:
        yield 'servers', first_names(request.instance_uuids)
    yield 'asked', _size(request)
    if conditions := '; '.join(_conditions(request)):
        yield 'also', conditions

    if offer and offer.asked:
        yield 'Placement', _offered(offer)
    if record.outdated is not None:
        yield 'remembered', f'candidates were out of date: {record.outdated}'
    if record.diagnosis is not None and record.diagnosis.queries:
        yield (
            'diagnosis',
            f'{record.diagnosis.queries} queries to Placement about'
            f' {record.diagnosis.constraints} constraints',
        )
        if record.diagnosis.nearest:
            nearest = record.diagnosis.nearest[:MAX_SHOWN_REASONS]
            yield 'nearest', '; '.join(map(_but_for, nearest))

    if record.result.refusal is not None:
        yield 'refused', _refusal(record.result.refusal, offer)
    if record.result.hosts:
        yield 'chosen', first_names(record.result.hosts)

    steps = []
    for name in STEPS:
        if name in record.steps:
            steps.append(f'{name} {record.steps[name] * 1e3:.1f}')
    if steps:
        total = sum(record.steps.values()) * 1e3
        yield 'time', f'{total:.1f} ms: {", ".join(steps)}; seed {record.seed}'
    else:
        yield 'seed', str(record.seed)


def _refusal(reason: str, offer: CandidateCounts | None) -> str:
    """The reason of a refusal, or the event behind a refusal without a reason.

    As in nova, NoValidHost has an empty reason if Placement offers no candidates. The
    record has no text that ``[novasched] fault_detail`` appends for the caller, since
    the headline is the same text.
    """
    if reason:
        return reason
    if offer is not None and offer.asked and not offer.candidates:
        return 'Placement offered no allocation candidates'
    return 'No valid host was found'


def _offered(offer: CandidateCounts) -> str:
    text = f'{offer.candidates:,} candidates on {offer.hosts:,}'
    if offer.total:
        text += f' of {offer.total:,}'
    text += ' hosts'
    if offer.elsewhere:
        text += f'; {offer.elsewhere:,} candidates on hosts that no cell shows'
    if offer.age is not None:
        text += f', as it was asked {offer.age:.1f} s before'
    return text


def when(record: Record) -> str:
    """The moment at which the decision began."""
    return f'{datetime.fromtimestamp(record.at, UTC):%Y-%m-%d %H:%M:%S} UTC'


def why_not(record: Record, host: str, rejections: Rejections | None) -> list[str]:
    """The reasons against a host, or against each node of the host."""
    reasons = []
    chosen = record.result.hosts.count(host)
    if chosen:
        reasons.append(f'chosen for {chosen} of {record.request.count} servers')
    for attempt in record.attempts:
        if host in attempt.refused:
            reasons.append('Placement refused the claim')
        if host in attempt.unfit:
            reasons.append('another request was faster')
    if rejections is not None:
        reasons += rejections.against(host)
    if reasons:
        return reasons

    if record.counts is None:
        return ['the request was refused before any host was looked at']
    if record.counts.asked and not record.counts.candidates:
        return ['Placement offered no host at all']
    if rejections is None:
        return [
            f'not kept; it is of the newest {MAX_REJECTIONS_KEPT}, and under load of'
            ' fewer'
        ]
    if record.counts.asked:
        return ['Placement did not offer it, or there is no such host']
    return ['there is no such host']


def attempts(record: Record) -> list[tuple[int, AttemptRecord]]:
    """The attempts with their numbers from 0. The attempt that decided comes first: the
    last attempt of a refusal, or the first attempt of a placement."""
    numbered = list(enumerate(record.attempts))
    if record.result.hosts:
        return numbered
    return numbered[-1:] + numbered[:-1]


def troubles(attempt: AttemptRecord) -> Iterator[tuple[str, str]]:
    """The hosts lost to other requests and to Placement, as rows of name and text."""
    if attempt.pending:
        yield 'pending', f'claims on {attempt.pending:,} hosts, subtracted'
    if attempt.refused:
        yield 'claims', f'refused on {first_names(attempt.refused)}'
    if attempt.unfit:
        yield 'too late', f'on {first_names(attempt.unfit)}'


def reasons(stage: RejectionStage) -> list[str]:
    """The most frequent reasons of a stage, and the sum of the remaining reasons."""
    listed = stage.rejections[:MAX_SHOWN_REASONS]
    lines = [f'{rejection.hosts:,}: {rejection.reason}' for rejection in listed]
    rest = sum(rejection.hosts for rejection in stage.rejections[MAX_SHOWN_REASONS:])
    if rest:
        lines.append(f'{rest:,}: other reasons')
    return lines


def telling_weighers(best: Sequence[HostWeight]) -> list[str]:
    """The weighers with an effect, and the weighers without a finite raw weight. The
    weigher whose contributions differ most among these hosts comes first; among equals,
    the weigher that contributes most."""
    contributions: dict[str, list[float]] = {}
    shown = set()
    for host in best:
        for share in host.shares:
            contributions.setdefault(share.weigher, []).append(share.added)
            if share.added or share.raw is None:
                shown.add(share.weigher)
    names = [name for name in contributions if name in shown]
    return sorted(names, key=lambda name: _spread(contributions[name]), reverse=True)


def weight_cells(host: HostWeight, names: Sequence[str]) -> list[str]:
    """The weight of a host, and the contribution of each weigher with the normalised
    and the raw value."""
    shares = {share.weigher: share for share in host.shares}
    cells = [f'{host.weight:.4g}']
    for name in names:
        share = shares[name]
        raw = raw_weight(share.raw)
        cells.append(f'{share.added:.4g} ({share.normalised:.4g} of {raw})')
    return cells


def raw_weight(raw: float | None) -> str:
    """The words for a raw weight, which is None if the weigher answered NaN or
    infinity."""
    if raw is None:
        return 'no finite number'
    return f'{raw:g}'


def asked_for(request: Request) -> str:
    """The number of instances, and the name of the flavor."""
    return f'{request.count} x {one_line(request.flavor.name) or "flavor"}'


def _size(request: Request) -> str:
    flavor = request.flavor
    disk_gb = flavor.ephemeral_gb
    if not request.is_bfv:  # the root disk of the others is a volume
        disk_gb += flavor.root_gb
    size = f'{flavor.vcpus} vCPUs, {flavor.memory_mb} MiB, {disk_gb} GiB'

    specs = []
    for key, value in islice(flavor.extra_specs.items(), MAX_SHOWN_ITEMS):
        specs.append(f'{one_line(key)}={one_line(value)}')
    if specs:
        size += f'; {", ".join(specs)}'
    return f'{asked_for(request)} ({size})'


def _but_for(constraint: ReasonCount) -> str:
    return f'{_hosts(constraint.hosts)} but for {constraint.reason}'


def _conditions(request: Request) -> Iterator[str]:
    """The conditions of a request beside its size."""
    if request.availability_zone:
        yield f'zone {one_line(request.availability_zone)}'
    if request.instance_group and request.instance_group.policy:
        yield f'{one_line(request.instance_group.policy)} group'
    if destination := request.requested_destination:
        names = ' '.join(filter(None, (destination.host, destination.node)))
        if names:
            yield f'to {one_line(names)}'
    for name, values in islice(request.scheduler_hints.items(), MAX_SHOWN_ITEMS):
        yield f'hint {one_line(name)}={one_line(", ".join(values))}'
    for field in NAME_FIELDS:
        if names := getattr(request, field):
            yield f'{field} {first_names(names)}'


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return max(values) - min(values), max(map(abs, values))
