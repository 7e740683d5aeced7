# SPDX-License-Identifier: Apache-2.0
"""What a record says in a line: so many hosts, and why not those."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from novasched.records import words
from novasched.records.account import Account
from novasched.records.record import Record

NOT_OFFERED = 'not offered by Placement'
LEFT_OUT = 'in other cells'
REFUSED, UNFIT, UNTRIED = 'claimed by others', 'taken by others meanwhile', 'not tried'
FIT = 'fit'


def tally(record: Record) -> Counter[str]:
    """Every host, counted once, by what became of it."""
    counts: Counter[str] = Counter()
    if record.offer is None:
        return counts
    if away := record.offer.total - record.offer.hosts:
        counts[NOT_OFFERED if record.offer.asked else LEFT_OUT] = away
    for look in record.looks:
        for stage in look.stages:
            for cause in stage.causes:
                counts[words.of(stage.name, cause.reason)] += cause.hosts
    left = record.looks[-1].left if record.looks else record.offer.hosts
    if record.looks and record.result.refusal is not None:
        refused, unfit = len(record.looks[-1].refused), len(record.looks[-1].unfit)
        counts.update({REFUSED: refused, UNFIT: unfit, UNTRIED: left - refused - unfit})
    else:
        counts[FIT] += left
    return +counts


def headline(record: Record) -> str:
    """The first line, in the manner of ``0 of 5,000 hosts: 3,120 lack free memory``."""
    if record.result.hosts:
        return _placed(record)
    if record.result.failure:
        return f'Not decided: {record.result.failure}'
    if record.offer is None:
        return f'Refused before Placement was asked: {record.result.refusal or "no reason"}'
    if not record.offer.candidates and record.offer.asked:
        return _unoffered(record)
    counts = tally(record)
    why = ', '.join(f'{number:,} {word}' for word, number in counts.most_common())
    which = ''
    if record.asked.count > 1:
        which = f' for server {max(len(record.looks), 1)} of {record.asked.count}'
    return f'0 of {_hosts(counts.total())}{which}: {why or "there is none"}'


def entry(record: Record) -> str:
    """When it was, what it was about, and the first line."""
    when = datetime.fromtimestamp(record.at, timezone.utc)
    servers = record.asked.servers
    some = f'{servers[0]}{" ..." if len(servers) > 1 else ""}' if servers else 'no server'
    return f'{when:%Y-%m-%d %H:%M:%S} UTC {record.request_id} {some}: {headline(record)}'


def detailed(reason: str, account: Account) -> str:
    """The reason of a refusal with the first line behind it, for the caller."""
    return ' '.join(filter(None, (reason, f'{headline(account.record("", 0.0))}.')))


def _placed(record: Record) -> str:
    counts = tally(record)
    hosts = record.result.hosts
    total = record.offer.total if record.offer else 0
    fit = counts.pop(FIT, 0)
    why = ''.join(f', {number:,} {word}' for word, number in counts.most_common())
    where = hosts[0] if len(hosts) == 1 else f'{len(hosts)} servers on {len({*hosts})} hosts'
    return f'{where}: {fit:,} of {_hosts(total)} fit{why}'


def _unoffered(record: Record) -> str:
    found = record.inquiry
    line = 'Placement offers no host'
    if found is None:
        return line
    if found.refusal:
        return f'{line}: it refuses the query: {found.refusal}'
    if found.passing:
        return f'{line}; asked again, it did'
    if found.found:
        return f'{line}, but would without {" or without ".join(found.found)}'
    if found.asked:
        return f'{line}, whichever one of {found.asked} constraints is left out'
    return line


def _hosts(number: int) -> str:
    return f'{number:,} host{"" if number == 1 else "s"}'
