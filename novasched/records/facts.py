# SPDX-License-Identifier: Apache-2.0
"""What a record says, fact by fact: the same for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from novasched.records.account import STEPS
from novasched.records.causes import DETAILED, Causes
from novasched.records.record import Look, Record, Stage, Weighed

REASONS = 2
"""So many reasons of a filter are told."""


def of(record: Record) -> Iterator[tuple[str, str]]:
    """What was asked, offered and chosen: names, and texts that are empty where there is
    nothing to say."""
    asked, offer = record.asked, record.offer
    if record.at:
        yield 'decided', f'{when(record)}, request {record.request_id}'
    yield 'servers', some(asked.servers)
    yield 'asked', _asked(record)
    yield 'also', '; '.join(_conditions(record))
    if offer and offer.asked:
        known = f' of {offer.total:,}' if offer.total else ''
        away = f'; {offer.elsewhere:,} candidates on hosts that no cell shows'
        text = f'{offer.candidates:,} candidates on {offer.hosts:,}{known} hosts'
        yield 'Placement', text + (away if offer.elsewhere else '')
    if record.inquiry is not None and record.inquiry.asked:
        tried, every = record.inquiry.asked, record.inquiry.constraints
        yield 'asked again', f'without each of {tried} of {every} constraints'
    if record.result.refusal is not None:
        yield 'refused', record.result.refusal or '(no reason given to the caller)'
    yield 'chosen', some(record.result.hosts)
    steps = [f'{name} {record.steps[name] * 1e3:.1f}' for name in STEPS if name in record.steps]
    total = sum(record.steps.values()) * 1e3
    if steps:
        yield 'time', f'{total:.1f} ms: {", ".join(steps)}; seed {record.seed}'
    else:
        yield 'seed', str(record.seed)


def when(record: Record) -> str:
    """When the decision began."""
    return f'{datetime.fromtimestamp(record.at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC'


def why_not(record: Record, host: str, causes: Causes | None) -> list[str]:
    """What there was against a host, or against each of its nodes."""
    chosen = record.result.hosts.count(host)
    said = [f'chosen for {chosen} of {record.asked.count} servers'] if chosen else []
    for look in record.looks:
        said += ['Placement refused the claim'] if host in look.refused else []
        said += ['another request was faster'] if host in look.unfit else []
    found = causes.against(host) if causes else []
    if found or said:
        return [*said, *found]
    if record.offer is None:
        return ['the request was refused before any host was looked at']
    if record.offer.asked and not record.offer.candidates:
        return ['Placement offered no host at all']
    if causes is None:
        return [f'not kept; it is of the newest {DETAILED} decisions alone']
    if record.offer.asked:
        return ['Placement did not offer it, or there is no such host']
    return ['there is no such host']


def told_of(record: Record) -> Look | None:
    """The look that decided: the last one of a refusal, else the first."""
    if not record.looks:
        return None
    return record.looks[0 if record.result.hosts else -1]


def troubles(look: Look) -> Iterator[tuple[str, str]]:
    """What other requests and Placement took from it: names and texts, as :func:`of`."""
    if look.in_flight:
        yield 'in flight', f'to {look.in_flight:,} hosts, taken off'
    if look.refused:
        yield 'claims', f'refused on {some(look.refused)}'
    if look.unfit:
        yield 'too late', f'on {some(look.unfit)}'


def reasons(stage: Stage) -> list[str]:
    """Why hosts dropped out, the commonest reasons first, and the others as one."""
    shown = [f'{cause.hosts:,}: {cause.reason}' for cause in stage.causes[:REASONS]]
    rest = sum(cause.hosts for cause in stage.causes[REASONS:])
    return [*shown, f'{rest:,}: other reasons'] if rest else shown


def telling(best: Sequence[Weighed]) -> list[str]:
    """The weighers that tell these hosts apart most, or else add most, in front."""
    added: dict[str, list[float]] = {}
    for each in best:
        for share in each.shares:
            added.setdefault(share.weigher, []).append(share.added)
    names = [name for name, values in added.items() if any(values)]
    return sorted(names, key=lambda name: _spread(added[name]), reverse=True)


def weighed(host: Weighed, names: Sequence[str]) -> list[str]:
    """The weight of a host, and what each of these weighers adds to it; what that was before it
    was multiplied, and as it came."""
    shares = {share.weigher: share for share in host.shares}
    told = (shares[name] for name in names)
    cells = [f'{each.added:.4g} ({each.normalised:.4g} of {each.raw:g})' for each in told]
    return [f'{host.weight:.4g}', *cells]


def some(names: Sequence[str]) -> str:
    """The first names, and how many others there are."""
    shown = ', '.join(names[:3])
    return f'{shown} and {len(names) - 3} others' if len(names) > 3 else shown


def _asked(record: Record) -> str:
    asked = record.asked
    size = f'{asked.vcpus} vCPUs, {asked.memory_mb} MiB, {asked.disk_gb} GiB'
    specs = ', '.join(f'{key}={value}' for key, value in asked.extra_specs.items())
    return f'{asked.count} x {asked.flavor or "flavor"} ({size}){f"; {specs}" if specs else ""}'


def _conditions(record: Record) -> Iterator[str]:
    asked = record.asked
    if asked.zone:
        yield f'zone {asked.zone}'
    if asked.policy:
        yield f'{asked.policy} group'
    if asked.destination:
        yield f'to {asked.destination}'
    yield from (f'hint {name}={value}' for name, value in asked.hints.items())
    for field in ('ignore_hosts', 'force_hosts', 'force_nodes'):
        if names := getattr(asked, field):
            yield f'{field} {some(names)}'


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return max(values) - min(values), max(map(abs, values))
