# SPDX-License-Identifier: Apache-2.0
"""Loses hosts, evacuates their servers, and reports the servers without a new host."""

import json
from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from novasched.observe.records import render
from novasched.observe.records.record import Record
from novasched.scheduler.errors import BadPlugin, BadRequest, MetricMissing
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.tools import explain
from novasched.tools.simulate.evacuations import EVACUABLE, Evacuee, progress
from novasched.tools.simulate.runs import ROWS, used_share
from novasched.tools.simulate.simulator import Simulator
from novasched.tools.simulate.sources import Unusable


@dataclass(frozen=True, slots=True)
class EvacueeResult:
    """Result for a server.

    :ivar host: the new host; None without a place.
    :ivar why: the reason against all hosts.
    :ivar record: the record of the refusal.
    :ivar decided: False if the server's request is unknown.
    """

    evacuee: Evacuee
    host: str | None = None
    why: str = ''
    record: Record | None = None
    decided: bool = True

    @property
    def flavor(self) -> str:
        """The name of the flavor; empty if the server's request is unknown."""
        request = self.evacuee.request
        if isinstance(request, Request):
            return request.flavor.name
        return ''


@dataclass(frozen=True, slots=True)
class Loss:
    """Results for the servers of lost hosts."""

    name: str
    hosts: Collection[str]
    outcomes: Sequence[EvacueeResult]

    @property
    def unplaced(self) -> Sequence[EvacueeResult]:
        """The servers without a new host."""
        return [each for each in self.outcomes if each.decided and each.host is None]

    @property
    def unknown(self) -> Sequence[EvacueeResult]:
        """The servers whose request is unknown."""
        return [each for each in self.outcomes if not each.decided]

    @property
    def places(self) -> Counter[str]:
        """The number of servers on each new host."""
        return Counter(each.host for each in self.outcomes if each.host is not None)

    @property
    def reasons(self) -> Counter[str]:
        """The reasons against hosts, with the number of servers for each."""
        return Counter(outcome.why for outcome in self.unplaced)

    @property
    def states(self) -> Counter[str]:
        """The number of servers in each state in which nova evacuates no server."""
        states = Counter(outcome.evacuee.state for outcome in self.outcomes)
        for state in EVACUABLE:
            del states[state]
        return states


def members(
    kind: str, hosts: Iterable[Host], default_zone: str | None
) -> Mapping[str, set[str]]:
    """The names of the hosts in each host, aggregate or zone, by its name.

    :param kind: ``host``, ``aggregate`` or ``zone``.
    """
    members_of: dict[str, set[str]] = defaultdict(set)
    for host in hosts:
        if kind == 'host':
            names = [host.host]
        elif kind == 'aggregate':
            names = [aggregate.name for aggregate in host.aggregates]
        else:
            names = [host.zone(default_zone) or '']
        for name in names:
            members_of[name].add(host.host)
    return members_of


def named(
    texts: Sequence[str], hosts: Sequence[Host], default_zone: str | None
) -> set[str]:
    """The names of all hosts in the arguments (``KIND=NAME``).

    :raises Unusable: no such host, aggregate or zone has hosts.
    """
    lost: set[str] = set()
    for text in texts:
        kind, _, name = text.partition('=')
        members_of = members(kind, hosts, default_zone)
        if name not in members_of:
            raise Unusable(f'{text}: no {kind} of that name has hosts')
        lost |= members_of[name]
    return lost


def lose(
    simulator: Simulator,
    name: str,
    hosts: Collection[str],
    evacuees: Iterable[Evacuee],
    whereabouts: Mapping[str, str],
) -> Loss:
    """Evacuate the servers of hosts (:func:`evacuate`), and undo the evacuation."""
    with simulator.trial():
        return evacuate(simulator, name, hosts, evacuees, whereabouts)


def evacuate(
    simulator: Simulator,
    name: str,
    hosts: Collection[str],
    evacuees: Iterable[Evacuee],
    whereabouts: Mapping[str, str],
) -> Loss:
    """Evacuate the servers of hosts one after the other.

    :param evacuees: the servers of these hosts.
    :param whereabouts: the host of each server in the cloud, by UUID.
    :raises NovaschedError: Placement or a database does not answer.
    """
    ignored_hosts = tuple(sorted(hosts))
    outcomes = []
    moved: dict[str, str] = {}
    for evacuee in evacuees:
        where = ChainMap(moved, whereabouts)  # type: ignore[arg-type]
        outcome = _evacuated(simulator, evacuee, ignored_hosts, where)
        if outcome.host is not None:
            moved[evacuee.uuid] = outcome.host
        outcomes.append(outcome)
    return Loss(name, hosts, outcomes)


def _evacuated(
    simulator: Simulator,
    evacuee: Evacuee,
    ignored_hosts: tuple[str, ...],
    where: Mapping[str, str],
) -> EvacueeResult:
    request = evacuee.request
    if isinstance(request, str):
        return EvacueeResult(evacuee, why=request, decided=False)

    group = request.instance_group
    if group is not None:
        hosts = frozenset(where[uuid] for uuid in group.members if uuid in where)
        request = replace(request, instance_group=replace(group, hosts=hosts))
    request = replace(request, ignore_hosts=ignored_hosts)
    try:
        outcome = simulator.decide_as_it_is(request)
    except (BadRequest, BadPlugin, MetricMissing) as error:
        # Errors of this request alone; further servers are decided.
        return EvacueeResult(evacuee, why=str(error))
    if outcome.decision.hosts:
        return EvacueeResult(evacuee, outcome.decision.hosts[0])

    record = outcome.record(0)
    return EvacueeResult(evacuee, why=render.headline(record), record=record)


def lose_each(
    simulator: Simulator,
    lost: Mapping[str, Collection[str]],
    evacuees: Sequence[Evacuee],
    whereabouts: Mapping[str, str],
) -> list[Loss]:
    """Lose each set of hosts alone, from the same beginning. The worst is first: most
    servers without a place, then most servers."""
    numbers_on = defaultdict[str, list[int]](list)
    for number, evacuee in enumerate(evacuees):
        numbers_on[evacuee.host].append(number)

    losses = []
    for name, hosts in progress(sorted(lost.items()), 'lost'):
        numbers: list[int] = []
        for host in hosts:
            numbers += numbers_on.get(host, ())
        # The order of evacuation is that of the sequence.
        on_hosts = [evacuees[number] for number in sorted(numbers)]
        losses.append(lose(simulator, name, hosts, on_hosts, whereabouts))
    losses.sort(key=lambda loss: (-len(loss.unplaced), -len(loss.outcomes), loss.name))
    return losses


def lost_as_json(loss: Loss) -> str:
    """``{"name", "hosts", "servers", "placed", "unplaced", "unknown", "moves":
    [{server, flavor, state, from, to, known, why, record}]}``.

    Numbers of servers, and the servers in the order of evacuation. Servers without a
    place have ``why`` and the record.
    """
    moves = []
    for outcome in loss.outcomes:
        record = outcome.record
        move = {
            'server': outcome.evacuee.uuid,
            'flavor': outcome.flavor,
            'state': outcome.evacuee.state,
            'from': outcome.evacuee.host,
            'to': outcome.host,
            'known': outcome.decided,
            'why': outcome.why,
            'record': record and msgspec.to_builtins(record),
        }
        moves.append(move)
    return json.dumps({**_summary(loss), 'moves': moves}, indent=2)


def _summary(loss: Loss) -> dict[str, object]:
    return {
        'name': loss.name,
        'hosts': sorted(loss.hosts),
        'servers': len(loss.outcomes),
        'placed': loss.places.total(),
        'unplaced': len(loss.unplaced),
        'unknown': len(loss.unknown),
    }


def lost_as_text(loss: Loss, hosts: Sequence[Host]) -> str:
    """The servers without a place with the reasons, the new hosts, and the servers
    whose request is unknown."""
    servers = len(loss.outcomes)
    placed = loss.places.total()
    unplaced = loss.unplaced
    title = loss.name
    if len(loss.hosts) != 1:
        title += f', with {len(loss.hosts):,} hosts'
    verb = 'does' if len(unplaced) == 1 else 'do'
    lines = [
        f'Without {title}: {placed:,} of {servers:,} servers find a place,'
        f' {len(unplaced):,} {verb} not.'
    ]

    if unplaced:
        names = ('no place for', 'flavor', 'of host', 'why not')
        rows = []
        for outcome in unplaced[:ROWS]:
            evacuee = outcome.evacuee
            rows.append((evacuee.uuid, outcome.flavor, evacuee.host, outcome.why))
        lines += ['', explain.table_of(names, rows, reasons='why not')]
        if len(unplaced) > ROWS:
            lines.append(f'and {len(unplaced) - ROWS:,} other servers')

    if loss.places:
        names_of_places = ('new host', 'servers', 'memory before')
        shares = {host.host: used_share(host) for host in hosts}
        places = []
        for name, number in loss.places.most_common(ROWS):
            places.append((name, f'+{number:,}', f'{shares[name]:.0%}'))
        lines += ['', explain.table_of(names_of_places, places)]
        if len(loss.places) > ROWS:
            lines.append(f'and {len(loss.places) - ROWS:,} other hosts')

    for why, number in Counter(outcome.why for outcome in loss.unknown).items():
        lines.append(f'Not known: {number:,}: {why}')
    for state, number in loss.states.most_common():
        lines.append(
            f'{number:,} servers are {state or "in no state"}: nova evacuates none in'
            ' that state.'
        )
    return '\n'.join(lines)


def worst_as_json(kind: str, losses: Sequence[Loss]) -> str:
    """``{"kind", "lost", "holds", "losses": [{name, hosts, servers, placed, unplaced,
    unknown, refusals: {why: number}}]}``, the worst first.

    ``holds`` counts the losses after which every server has a place.
    """
    rows = []
    for loss in losses:
        rows.append({**_summary(loss), 'refusals': dict(loss.reasons.most_common())})
    report = {
        'kind': kind,
        'lost': len(losses),
        'holds': sum(not loss.unplaced for loss in losses),
        'losses': rows,
    }
    return json.dumps(report, indent=2)


def worst_as_text(kind: str, losses: Sequence[Loss]) -> str:
    """The number of losses without consequences, and the worst of the remaining
    losses."""
    bad = [loss for loss in losses if loss.unplaced]
    good = len(losses) - len(bad)
    verb = 'leaves' if good == 1 else 'leave'
    lines = [
        f'Of {len(losses):,} {kind}s, each lost alone, {good:,} {verb} no server'
        ' without a place.'
    ]

    if bad:
        names = (kind, 'servers', 'without a place', 'most often why')
        rows = []
        for loss in bad[:ROWS]:
            servers = f'{len(loss.outcomes):,}'
            unplaced = f'{len(loss.unplaced):,}'
            [(why, _)] = loss.reasons.most_common(1)
            rows.append((loss.name, servers, unplaced, why))
        lines += ['', explain.table_of(names, rows, reasons='most often why')]
    if len(bad) > ROWS:
        lines.append(f'and {len(bad) - ROWS:,} other {kind}s')

    unknown: Counter[str] = Counter()
    for loss in losses:
        unknown.update(outcome.why for outcome in loss.unknown)
    for why, number in unknown.items():
        lines.append(f'Not known: {number:,} servers: {why}')
    return '\n'.join(lines)
