# SPDX-License-Identifier: Apache-2.0
"""Records as texts, the same for terminals, pages, logs and callers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import entry_points

from novasched.observe.records.from_decision import NAME_FIELDS, record_of
from novasched.observe.records.record import (
    MAX_REJECTIONS_KEPT,
    AttemptRecord,
    Diagnosis,
    ReasonCount,
    Record,
    Rejections,
    RequestSummary,
    Stage,
)
from novasched.scheduler.decision import STEPS, Decision, HostWeight
from novasched.scheduler.model.values import some

DISABLED = 'disabled'
DOWN = 'down'
PHRASES = {
    'chance_scheduler': 'disabled or down',
    'requested_destination': 'not the requested destination',
    'ignore_hosts': 'ignored by the request',
    'force_hosts': 'not forced by the request',
    'force_nodes': 'not forced by the request',
}
"""Stages that are no filters; a filter has its own ``phrase``."""


def phrase(stage: str, reason: str) -> str:
    """The few words for the verdict of a filter, or of a field of the request."""
    if stage == 'ComputeFilter':
        if reason.startswith(DISABLED):
            return DISABLED
        return DOWN
    return PHRASES.get(stage) or _phrase_of_filter(stage) or f'rejected by {stage}'


@cache
def _phrase_of_filter(name: str) -> str:
    """The phrase of a filter that is installed here; a record may come from elsewhere,
    and a filter that is named by its import path has no entry point."""
    entries = sorted(
        entry_points(group='novasched.filters', name=name),
        key=lambda entry: not entry.value.startswith('novasched.'),
    )
    try:
        if entries:
            return str(getattr(entries[0].load(), 'phrase', ''))
        return ''
    except Exception:  # a plugin of another package that cannot be imported here
        return ''


NOT_OFFERED = 'not offered by Placement'
LEFT_OUT = 'in other cells'
REFUSED = 'claimed by others'
UNFIT = 'taken by others meanwhile'
UNTRIED = 'not tried'
FIT = 'fit'


def tally(record: Record) -> Counter[str]:
    """Every host, counted once, by what became of it."""
    counts: Counter[str] = Counter()
    if record.offer is None:
        return counts
    away = record.offer.total - record.offer.hosts
    if record.inquiry and (lacking := record.inquiry.lacking):
        counts.update({stage.name: stage.start - stage.end for stage in lacking})
        away = lacking[-1].end
    counts[NOT_OFFERED if record.offer.asked else LEFT_OUT] += away
    for attempt in record.looks:
        for stage in attempt.stages:
            for cause in stage.causes:
                counts[phrase(stage.name, cause.reason)] += cause.hosts
    left = record.looks[-1].left if record.looks else record.offer.hosts
    if record.looks and record.result.refusal is not None:
        refused = len(record.looks[-1].refused)
        unfit = len(record.looks[-1].unfit)
        counts.update({REFUSED: refused, UNFIT: unfit, UNTRIED: left - refused - unfit})
    else:
        counts[FIT] += left
    return +counts


def headline(record: Record) -> str:
    """The first line, in the manner of ``0 of 5,000 hosts: 3,120 lack free memory``."""
    result = record.result
    offer = record.offer
    counts = tally(record)
    if result.hosts:
        hosts = result.hosts
        fit = counts.pop(FIT, 0)
        if len(hosts) == 1:
            where = hosts[0]
        else:
            where = f'{len(hosts)} servers on {len({*hosts})} hosts'
        why = f', {_listed(counts)}' if counts else ''
        return f'{where}: {fit:,} of {_hosts(offer.total if offer else 0)} fit{why}'
    if result.failure:
        return f'Not decided: {result.failure}'
    if offer is None:
        return f'Refused before Placement was asked: {result.refusal or "no reason"}'
    inquiry = record.inquiry or Diagnosis()
    if not offer.candidates and offer.asked and not inquiry.lacking:
        return _unoffered(inquiry)
    which = ''
    if record.asked.count > 1:
        which = f' for server {max(len(record.looks), 1)} of {record.asked.count}'
    return f'0 of {_hosts(counts.total())}{which}: {_listed(counts) or "there is none"}'


def entry(record: Record) -> str:
    """Line of a list: the moment, the subject, and the headline."""
    servers = record.asked.servers
    if servers:
        subject = f'{servers[0]}{" ..." if len(servers) > 1 else ""}'
    else:
        subject = 'no server'
    return f'{when(record)} {record.request_id} {subject}: {headline(record)}'


def explained(decision: Decision) -> str:
    """The first line on a refusal, for the caller."""
    return f'{headline(record_of(decision, "", 0.0))}.'


def _unoffered(found: Diagnosis) -> str:
    line = 'Placement offers no host'
    if found.refusal:
        return f'{line}: it refuses the query: {found.refusal}'
    if found.passing:
        return f'{line}; asked again, it did'
    if found.found:
        return f'{line}, but would without {" or without ".join(found.found)}'
    return line


def _listed(counts: Counter[str]) -> str:
    return ', '.join(f'{number:,} {words}' for words, number in counts.most_common())


def _hosts(number: int) -> str:
    return f'{number:,} host{"" if number == 1 else "s"}'


MAX_SHOWN_REASONS = 2
"""Reasons of a filter that are shown."""


def facts(record: Record) -> Iterator[tuple[str, str]]:
    """Names and texts of facts of the request, the offer and the choice."""
    asked = record.asked
    offer = record.offer
    if record.at:
        yield 'decided', f'{when(record)}, request {record.request_id}'
    if asked.servers:
        yield 'servers', some(asked.servers)
    yield 'asked', _size(asked)
    if conditions := '; '.join(_conditions(asked)):
        yield 'also', conditions
    if offer and offer.asked:
        known = f' of {offer.total:,}' if offer.total else ''
        away = f'; {offer.elsewhere:,} candidates on hosts that no cell shows'
        text = f'{offer.candidates:,} candidates on {offer.hosts:,}{known} hosts'
        age = '' if offer.age is None else f', as it was asked {offer.age:.1f} s before'
        yield 'Placement', text + (away if offer.elsewhere else '') + age
    if record.outdated is not None:
        yield 'asked anew', f'what was offered before did not do: {record.outdated}'
    if record.inquiry is not None and record.inquiry.asked:
        tried = record.inquiry.asked
        every = record.inquiry.constraints
        yield 'asked why', f'{tried} questions to Placement about {every} constraints'
        if record.inquiry.nearest:
            yield (
                'nearest',
                '; '.join(map(_but_for, record.inquiry.nearest[:MAX_SHOWN_REASONS])),
            )
    if record.result.refusal is not None:
        yield 'refused', record.result.refusal or '(no reason given to the caller)'
    if record.result.hosts:
        yield 'chosen', some(record.result.hosts)
    steps = [
        f'{name} {record.steps[name] * 1e3:.1f}'
        for name in STEPS
        if name in record.steps
    ]
    if steps:
        total = sum(record.steps.values()) * 1e3
        yield 'time', f'{total:.1f} ms: {", ".join(steps)}; seed {record.seed}'
    else:
        yield 'seed', str(record.seed)


def when(record: Record) -> str:
    """The moment at which the decision began."""
    return f'{datetime.fromtimestamp(record.at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC'


def why_not(record: Record, host: str, rejections: Rejections | None) -> list[str]:
    """The reasons against a host, or against each of its nodes."""
    chosen = record.result.hosts.count(host)
    reasons = [f'chosen for {chosen} of {record.asked.count} servers'] if chosen else []
    for attempt in record.looks:
        reasons += ['Placement refused the claim'] if host in attempt.refused else []
        reasons += ['another request was faster'] if host in attempt.unfit else []
    reasons += rejections.against(host) if rejections else []
    if reasons:
        return reasons
    if record.offer is None:
        return ['the request was refused before any host was looked at']
    if record.offer.asked and not record.offer.candidates:
        return ['Placement offered no host at all']
    if rejections is None:
        return [
            f'not kept; it is of the newest {MAX_REJECTIONS_KEPT}, and under load of'
            ' fewer'
        ]
    if record.offer.asked:
        return ['Placement did not offer it, or there is no such host']
    return ['there is no such host']


def attempts(record: Record) -> list[tuple[int, AttemptRecord]]:
    """Each attempt with its number, from 0. In front is the one that decided: the last
    one of a refusal, else the first."""
    numbered = [*enumerate(record.looks)]
    if record.result.hosts:
        return numbered
    return numbered[-1:] + numbered[:-1]


def troubles(attempt: AttemptRecord) -> Iterator[tuple[str, str]]:
    """Names and texts of losses to other requests and to Placement."""
    if attempt.in_flight:
        yield 'in flight', f'to {attempt.in_flight:,} hosts, taken off'
    if attempt.refused:
        yield 'claims', f'refused on {some(attempt.refused)}'
    if attempt.unfit:
        yield 'too late', f'on {some(attempt.unfit)}'


def reasons(stage: Stage) -> list[str]:
    """The commonest reasons against hosts, and the others as one."""
    shown = [
        f'{cause.hosts:,}: {cause.reason}' for cause in stage.causes[:MAX_SHOWN_REASONS]
    ]
    rest = sum(cause.hosts for cause in stage.causes[MAX_SHOWN_REASONS:])
    if rest:
        return [*shown, f'{rest:,}: other reasons']
    return shown


def telling_weighers(best: Sequence[HostWeight]) -> list[str]:
    """The weighers that tell these hosts apart most, or else add most, in front."""
    added: dict[str, list[float]] = {}
    for each in best:
        for share in each.shares:
            added.setdefault(share.weigher, []).append(share.added)
    names = [name for name, values in added.items() if any(values)]
    return sorted(names, key=lambda name: _spread(added[name]), reverse=True)


def weight_cells(host: HostWeight, names: Sequence[str]) -> list[str]:
    """The weight of a host, and the share of each of these weighers: multiplied,
    normalised, and as it came."""
    shares = {share.weigher: share for share in host.shares}
    named = (shares[name] for name in names)
    cells = [
        f'{each.added:.4g} ({each.normalised:.4g} of {each.raw:g})' for each in named
    ]
    return [f'{host.weight:.4g}', *cells]


def _size(asked: RequestSummary) -> str:
    size = f'{asked.vcpus} vCPUs, {asked.memory_mb} MiB, {asked.disk_gb} GiB'
    specs = ', '.join(f'{key}={value}' for key, value in asked.extra_specs.items())
    return (
        f'{asked.count} x {asked.flavor or "flavor"}'
        f' ({size}){f"; {specs}" if specs else ""}'
    )


def _but_for(constraint: ReasonCount) -> str:
    return f'{_hosts(constraint.hosts)} but for {constraint.reason}'


def _conditions(asked: RequestSummary) -> Iterator[str]:
    if asked.zone:
        yield f'zone {asked.zone}'
    if asked.policy:
        yield f'{asked.policy} group'
    if asked.destination:
        yield f'to {asked.destination}'
    yield from (f'hint {name}={value}' for name, value in asked.hints.items())
    for field in NAME_FIELDS:
        if names := getattr(asked, field):
            yield f'{field} {some(names)}'


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return max(values) - min(values), max(map(abs, values))
