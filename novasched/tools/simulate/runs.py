# SPDX-License-Identifier: Apache-2.0
"""Runs of many requests: until no more fit, or all requests of a file; the use of the
hosts afterwards; and the results, for people and for machines."""

import dataclasses
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from novasched.observe.records import render
from novasched.observe.records.record import Record, Rejections
from novasched.scheduler.errors import BadPlugin, BadRequest, MetricMissing
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.tools import explain
from novasched.tools.shadow.messages import Recorded
from novasched.tools.simulate.simulator import SimulatedDecision, Simulator
from novasched.tools.simulate.sources import Entries


def used_mb(host: Host) -> int:
    """The memory (MiB) that is in use, with what the host keeps for itself."""
    return host.total_usable_ram_mb - host.free_ram_mb


def used_share(host: Host) -> float:
    """The part of the memory that is in use; more than 1 where it is overcommitted."""
    if host.total_usable_ram_mb:
        return used_mb(host) / host.total_usable_ram_mb
    return 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """All hosts in a few numbers. Deviations are standard deviations over the hosts.

    :ivar touched: the hosts that run more instances than before.
    :ivar empty: those that run none.
    """

    hosts: int
    touched: int
    empty: int
    servers_deviation: float
    ram_deviation_mb: float
    fullest: str
    fullest_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """All hosts before some requests and after them."""

    before: Sequence[Host]
    after: Sequence[Host]

    @property
    def spread(self) -> Spread:
        """The use of the hosts afterwards. Some may have come or gone meanwhile."""
        if not self.after:
            return Spread(0, 0, 0, 0.0, 0.0, '', 0.0)
        servers = Counter({host.uuid: host.num_instances for host in self.before})
        fullest = max(self.after, key=used_share)
        return Spread(
            hosts=len(self.after),
            touched=sum(host.num_instances > servers[host.uuid] for host in self.after),
            empty=sum(not host.num_instances for host in self.after),
            servers_deviation=statistics.pstdev(
                host.num_instances for host in self.after
            ),
            ram_deviation_mb=statistics.pstdev(map(used_mb, self.after)),
            fullest=fullest.host,
            fullest_share=used_share(fullest),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Change):
    """Number of placed instances by host, and the decision that refused the next; None
    where no more were requested."""

    placed: Mapping[str, int]
    refused: SimulatedDecision | None

    @property
    def fit(self) -> int:
        return sum(self.placed.values())

    @property
    def refusal(self) -> Record | None:
        """The record of the decision that refused one."""
        if self.refused:
            return self.refused.record(self.fit)
        return None


def until_full(simulator: Simulator, request: Request, most: int) -> Filled:
    """Place instances like those of a request until one is refused, or ``most`` are
    there.

    :raises BadRequest: such a request claims nothing, so that any number of them fits.
    """
    if request.is_rebuild:
        raise BadRequest('a rebuild takes nothing, so that it can be repeated for ever')
    before = simulator.hosts
    placed: Counter[str] = Counter()
    refused: SimulatedDecision | None = None
    while refused is None and placed.total() + request.count <= most:
        outcome = simulator.decide(simulator.anew(request))
        placed.update(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refused = outcome
    after = simulator.hosts
    return Filled(
        placed=dict(placed.most_common()), refused=refused, before=before, after=after
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Change):
    """Results of the requests under one configuration.

    :ivar answers: the hosts of each request's instances; none where it was refused.
    :ivar refusals: the first lines of refusals, with the number of each.
    :ivar probe: the number of instances of the reference flavor that fit afterwards.
    """

    name: str
    answers: Sequence[tuple[str, ...]]
    refusals: Counter[str]
    probe: int | None

    @property
    def servers(self) -> int:
        return sum(map(len, self.answers))


def replay(
    name: str,
    simulator: Simulator,
    entries: Sequence[Recorded],
    probe: Request | None,
    most: int,
) -> Run:
    """Decide all requests, one after the other."""
    before = simulator.hosts
    answers: list[tuple[str, ...]] = []
    refusals: Counter[str] = Counter()
    past: dict[str, set[str]] = defaultdict(set)
    for number, entry in enumerate(entries):
        try:
            # For new instances: those of then may be there.
            outcome = simulator.decide(simulator.anew(without_the_past(entry, past)))
        except (BadRequest, BadPlugin, MetricMissing) as error:  # of this request alone
            answers.append(())
            refusals[str(error)] += 1
            continue
        answers.append(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refusals[render.headline(outcome.record(number))] += 1
    after = simulator.hosts
    fits = until_full(simulator, probe, most).fit if probe else None
    return Run(
        name=name,
        answers=answers,
        refusals=refusals,
        before=before,
        after=after,
        probe=fits,
    )


def without_the_past(entry: Recorded, past: dict[str, set[str]]) -> Request:
    """The request whose group is not where earlier requests, which go elsewhere this
    time, put it then.

    :param past: the hosts that earlier requests got, by the UUID of their group; added
        to.
    """
    group = entry.request.instance_group
    if group is None or group.uuid is None:
        return entry.request
    hosts = group.hosts - past[group.uuid]
    past[group.uuid].update(entry.hosts or ())
    return replace(entry.request, instance_group=replace(group, hosts=hosts))


ROWS = 10
REASONS = 5
"""Numbers of hosts and of reasons for refusals that are shown."""


def decided_as_text(
    record: Record, host: str | None, rejections: Rejections | None
) -> str:
    """As ``explain``; the hosts of several instances, too."""
    text = explain.as_text(record, 0, host, rejections)
    counts = Counter(record.result.hosts)
    if host or counts.total() < 2:
        return text
    rows = ((name, f'{number:,}') for name, number in counts.most_common())
    return f'{text}\n{explain.table_of(("host", "servers"), rows)}'


def filled_as_json(filled: Filled, name: str) -> str:
    """``{"flavor", "fit", "placed": {host: number}, "stopped_by", "beyond", "full",
    "spread", "refusal"}``; the last is the record of the decision that refused one."""
    refused = filled.refused
    refusal = filled.refusal
    report = {
        'flavor': name,
        'fit': filled.fit,
        'placed': filled.placed,
        'stopped_by': refusal and render.headline(refusal),
        'beyond': refused.beyond if refused else 0,
        'full': dict(refused.full) if refused else {},
        'spread': dataclasses.asdict(filled.spread),
        'refusal': refusal and msgspec.to_builtins(refusal),
    }
    return json.dumps(report, indent=2)


def filled_as_text(filled: Filled, name: str) -> str:
    """The number that fit, their hosts, and the reason against more."""
    hosts = len(filled.placed)
    refused = filled.refused
    refusal = filled.refusal
    where = f', on {hosts:,} of {filled.spread.hosts:,} hosts' if hosts else ''
    least = '' if refused else 'at least '
    lines = [f'{least}{filled.fit:,} more {name} fit{where}', '']
    if hosts:
        lines += [*_placed(filled), '']
    if refused is None or refusal is None:
        return '\n'.join([*lines, 'No more were tried.'])
    lines.append(f'Then: {explain.as_text(refusal, 0, None, None)}')
    for lacks, number in refused.full.items():
        lines.append(f'Full by then: {number:,} candidates lack {lacks}.')
    if refused.beyond:
        lines.append(
            f'{refused.beyond:,} more candidates were beyond [scheduler]'
            ' max_placement_results. Placement picks which; the number may be another'
            ' one.'
        )
    return '\n'.join(lines)


def _placed(filled: Filled) -> list[str]:
    before = {host.host: f'{used_share(host):.0%}' for host in filled.before}
    after = {host.host: f'{used_share(host):.0%}' for host in filled.after}
    rows = (
        (host, f'+{number:,}', before.get(host, ''), after.get(host, ''))
        for host, number in list(filled.placed.items())[:ROWS]
    )
    rest = len(filled.placed) - ROWS
    found = filled.spread
    return [
        explain.table_of(('host', 'servers', 'memory before', 'memory after'), rows),
        *([f'and {rest:,} other hosts'] if rest > 0 else []),
        (
            f'Standard deviation over all hosts: {found.servers_deviation:.2f} servers,'
            f' {found.ram_deviation_mb:,.0f} MiB; empty hosts: {found.empty:,}.'
        ),
    ]


def replayed_as_json(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """``{"requests", "skipped", "unread", "runs": [{name, placed, refused, refusals,
    spread, probe, answers}], "elsewhere"}``."""
    report = {
        'requests': len(entries.requests),
        'skipped': dict(entries.skipped),
        'unread': list(entries.unread),
        'probe': probe,
        'elsewhere': _elsewhere(runs),
        'runs': [
            {
                'name': each.name,
                'servers': each.servers,
                'refused': each.refusals.total(),
                'refusals': dict(each.refusals.most_common()),
                'spread': dataclasses.asdict(each.spread),
                'probe': each.probe,
                'answers': each.answers,
            }
            for each in runs
        ],
    }
    return json.dumps(report, indent=2)


def replayed_as_text(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """The runs side by side, and what they refused below."""
    names = f'of {len(entries.requests):,} requests', *(each.name for each in runs)
    spreads = [each.spread for each in runs]
    rows = {
        'servers placed': [f'{each.servers:,}' for each in runs],
        'requests refused': [f'{each.refusals.total():,}' for each in runs],
        'hosts touched': [f'{each.touched:,} of {each.hosts:,}' for each in spreads],
        'empty hosts left': [f'{each.empty:,}' for each in spreads],
        'deviation of servers': [f'{each.servers_deviation:.2f}' for each in spreads],
        'deviation of used memory': [
            f'{each.ram_deviation_mb:,.0f} MiB' for each in spreads
        ],
        'fullest host': [
            f'{each.fullest} ({each.fullest_share:.0%})' for each in spreads
        ],
    }
    if probe:
        rows[f'{probe} that fit then'] = [f'{each.probe or 0:,}' for each in runs]
    lines = [
        explain.table_of(names, ((label, *cells) for label, cells in rows.items()))
    ]
    if len(runs) > 1:
        lines.append(f'{_elsewhere(runs):,} requests get other hosts.')
    for each in runs:
        for reason, number in each.refusals.most_common(REASONS):
            lines.append(f'Refused {each.name}: {number:,}: {reason}')
    lines += [
        f'Skipped: {number:,}: {why}' for why, number in entries.skipped.most_common()
    ]
    lines += [f'Not read: {why}' for why in entries.unread[:REASONS]]
    return '\n'.join(lines)


def _elsewhere(runs: Sequence[Run]) -> int:
    """The number of requests that the first and the last run answer differently."""
    pairs = zip(runs[0].answers, runs[-1].answers, strict=True)
    return sum(Counter(one) != Counter(other) for one, other in pairs)
