# SPDX-License-Identifier: Apache-2.0
"""Runs of many requests, until a request is refused or through all requests of a file,
and reports of the results and of the use of the hosts."""

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
    """The memory in use in MiB, including memory reserved for the host."""
    return host.total_usable_ram_mb - host.free_ram_mb


def used_share(host: Host) -> float:
    """The share of memory in use; more than 1 on an overcommitted host."""
    if host.total_usable_ram_mb:
        return used_mb(host) / host.total_usable_ram_mb
    return 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers of hosts, and standard deviations over all hosts.

    :ivar touched: number of hosts with more instances than before.
    :ivar empty: number of hosts without instances.
    """

    hosts: int
    touched: int
    empty: int
    servers_deviation: float
    ram_deviation_mb: float
    fullest: str
    fullest_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsChange:
    """All hosts before and after requests."""

    before: Sequence[Host]
    after: Sequence[Host]

    @property
    def spread(self) -> Spread:
        """The use of the hosts afterwards. Hosts may have come or gone meanwhile."""
        if not self.after:
            return Spread(0, 0, 0, 0.0, 0.0, '', 0.0)

        servers_before = Counter(
            {host.uuid: host.num_instances for host in self.before}
        )
        servers = [host.num_instances for host in self.after]
        touched = 0
        for host in self.after:
            if host.num_instances > servers_before[host.uuid]:
                touched += 1
        fullest = max(self.after, key=used_share)
        return Spread(
            hosts=len(self.after),
            touched=touched,
            empty=servers.count(0),
            servers_deviation=statistics.pstdev(servers),
            ram_deviation_mb=statistics.pstdev(map(used_mb, self.after)),
            fullest=fullest.host,
            fullest_share=used_share(fullest),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(HostsChange):
    """Result of a request that was repeated.

    :ivar placed: number of placed instances by host.
    :ivar refused: the decision that refused the last request; None if the limit of
        instances was reached first.
    """

    placed: Mapping[str, int]
    refused: SimulatedDecision | None

    @property
    def fit(self) -> int:
        return sum(self.placed.values())

    @property
    def refusal(self) -> Record | None:
        """The record of ``refused``."""
        if self.refused is None:
            return None
        return self.refused.record(self.fit)


def until_full(simulator: Simulator, request: Request, most: int) -> Filled:
    """Repeat a request for new instances until a request is refused, or until ``most``
    instances are placed.

    :raises BadRequest: the request is for a rebuild, and would never be refused.
    """
    if request.is_rebuild:
        why = 'a rebuild claims no resources, so it can be repeated without end'
        raise BadRequest(why)

    before = simulator.hosts
    placed: Counter[str] = Counter()
    refused: SimulatedDecision | None = None
    while refused is None and placed.total() + request.count <= most:
        outcome = simulator.decide(simulator.anew(request))
        placed.update(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refused = outcome

    return Filled(
        placed=dict(placed.most_common()),
        refused=refused,
        before=before,
        after=simulator.hosts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(HostsChange):
    """Results of all requests under a configuration.

    :ivar answers: the hosts of the instances of each request; empty if the request was
        refused.
    :ivar refusals: headlines of refusals, with the number of each.
    :ivar probe: number of instances of the reference flavor that fit afterwards; None
        without a reference flavor.
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
    """Decide all requests, one after the other.

    :param probe: a request for an instance of the reference flavor.
    :param most: limit of ``Run.probe``.
    """
    before = simulator.hosts
    answers: list[tuple[str, ...]] = []
    refusals: Counter[str] = Counter()
    recorded_hosts: dict[str, set[str]] = defaultdict(set)
    for number, entry in enumerate(entries):
        try:
            request = without_the_past(entry, recorded_hosts)
            # The recorded instances may exist, so the request is for new instances.
            outcome = simulator.decide(simulator.anew(request))
        except (BadRequest, BadPlugin, MetricMissing) as error:
            # Errors of this request alone; further requests are decided.
            answers.append(())
            refusals[str(error)] += 1
            continue
        answers.append(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refusals[render.headline(outcome.record(number))] += 1

    after = simulator.hosts
    fit = None
    if probe:
        fit = until_full(simulator, probe, most).fit
    return Run(
        name=name,
        answers=answers,
        refusals=refusals,
        before=before,
        after=after,
        probe=fit,
    )


def without_the_past(entry: Recorded, recorded_hosts: dict[str, set[str]]) -> Request:
    """The request with a server group without the recorded hosts of earlier requests,
    since a replay may place the earlier requests on other hosts.

    :param recorded_hosts: recorded hosts of earlier requests by UUID of their group;
        the hosts of this request are added.
    """
    group = entry.request.instance_group
    if group is None or group.uuid is None:
        return entry.request

    hosts = group.hosts - recorded_hosts[group.uuid]
    recorded_hosts[group.uuid].update(entry.hosts or ())
    return replace(entry.request, instance_group=replace(group, hosts=hosts))


ROWS = 10
"""Maximum number of hosts or servers in a table."""

REASONS = 5
"""Maximum number of reasons for refusals in a report."""


def decided_as_text(
    record: Record, host: str | None, rejections: Rejections | None
) -> str:
    """The report of ``explain``, followed by the hosts if there are several
    instances."""
    text = explain.as_text(record, 0, host, rejections)
    counts = Counter(record.result.hosts)
    if host or counts.total() < 2:
        return text

    rows = [(name, f'{number:,}') for name, number in counts.most_common()]
    return f'{text}\n{explain.table_of(("host", "servers"), rows)}'


def filled_as_json(filled: Filled, name: str) -> str:
    """``{"flavor", "fit", "placed": {host: number}, "stopped_by", "beyond", "full",
    "spread", "refusal"}``; ``refusal`` is the record of the refusal."""
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
    """The number of instances that fit, their hosts, and the reason of the refusal."""
    hosts = len(filled.placed)
    refused = filled.refused
    refusal = filled.refusal
    title = f'{filled.fit:,} more {name} fit'
    if hosts:
        title += f', on {hosts:,} of {filled.spread.hosts:,} hosts'
    if refused is None:
        title = f'at least {title}'
    lines = [title, '']
    if hosts:
        lines += [*_placed(filled), '']
    if refused is None or refusal is None:
        return '\n'.join([*lines, 'No more were tried.'])

    lines.append(f'Then: {explain.as_text(refusal, 0, None, None)}')
    for resources, number in refused.full.items():
        lines.append(f'Full by then: {number:,} candidates lack {resources}.')
    if refused.beyond:
        lines.append(
            f'{refused.beyond:,} more candidates were beyond [scheduler]'
            ' max_placement_results. Placement chooses the candidates, so the number'
            ' may differ.'
        )
    return '\n'.join(lines)


def _placed(filled: Filled) -> list[str]:
    before = {host.host: f'{used_share(host):.0%}' for host in filled.before}
    after = {host.host: f'{used_share(host):.0%}' for host in filled.after}
    rows = []
    for host, number in list(filled.placed.items())[:ROWS]:
        rows.append((host, f'+{number:,}', before.get(host, ''), after.get(host, '')))
    names = ('host', 'servers', 'memory before', 'memory after')
    lines = [explain.table_of(names, rows)]

    rest = len(filled.placed) - ROWS
    if rest > 0:
        lines.append(f'and {rest:,} other hosts')
    spread = filled.spread
    lines.append(
        f'Standard deviation over all hosts: {spread.servers_deviation:.2f} servers,'
        f' {spread.ram_deviation_mb:,.0f} MiB; empty hosts: {spread.empty:,}.'
    )
    return lines


def replayed_as_json(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """``{"requests", "skipped", "unread", "runs": [{name, placed, refused, refusals,
    spread, probe, answers}], "elsewhere"}``."""
    results = []
    for run in runs:
        result = {
            'name': run.name,
            'servers': run.servers,
            'refused': run.refusals.total(),
            'refusals': dict(run.refusals.most_common()),
            'spread': dataclasses.asdict(run.spread),
            'probe': run.probe,
            'answers': run.answers,
        }
        results.append(result)
    report = {
        'requests': len(entries.requests),
        'skipped': dict(entries.skipped),
        'unread': list(entries.unread),
        'probe': probe,
        'elsewhere': _elsewhere(runs),
        'runs': results,
    }
    return json.dumps(report, indent=2)


def replayed_as_text(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """A table with a column for each run, and the refusals below the table."""
    names = [f'of {len(entries.requests):,} requests']
    table: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        names.append(run.name)
        spread = run.spread
        fullest = f'{spread.fullest} ({spread.fullest_share:.0%})'
        table['servers placed'].append(f'{run.servers:,}')
        table['requests refused'].append(f'{run.refusals.total():,}')
        table['hosts touched'].append(f'{spread.touched:,} of {spread.hosts:,}')
        table['empty hosts left'].append(f'{spread.empty:,}')
        table['deviation of servers'].append(f'{spread.servers_deviation:.2f}')
        deviation = f'{spread.ram_deviation_mb:,.0f} MiB'
        table['deviation of used memory'].append(deviation)
        table['fullest host'].append(fullest)
        if probe:
            table[f'{probe} that fit then'].append(f'{run.probe or 0:,}')
    rows = [(label, *cells) for label, cells in table.items()]
    lines = [explain.table_of(names, rows)]

    if len(runs) > 1:
        lines.append(f'{_elsewhere(runs):,} requests get other hosts.')
    for run in runs:
        for reason, number in run.refusals.most_common(REASONS):
            lines.append(f'Refused {run.name}: {number:,}: {reason}')
    for reason, number in entries.skipped.most_common():
        lines.append(f'Skipped: {number:,}: {reason}')
    for reason in entries.unread[:REASONS]:
        lines.append(f'Not read: {reason}')
    return '\n'.join(lines)


def _elsewhere(runs: Sequence[Run]) -> int:
    """The number of requests with different hosts in the first and the last run."""
    pairs = zip(runs[0].answers, runs[-1].answers, strict=True)
    return sum(Counter(first) != Counter(last) for first, last in pairs)
