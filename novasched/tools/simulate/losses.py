# SPDX-License-Identifier: Apache-2.0
"""Loses hosts, and looks for other places for their servers: which find none, and
why."""

import json
from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

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
class Outcome:
    """Fate of a server: its new host, or the reason why it finds none, with the record
    of the decision if there was one. ``decided`` is False where its request is not
    known."""

    evacuee: Evacuee
    host: str | None = None
    why: str = ''
    record: Record | None = None
    decided: bool = True

    @property
    def flavor(self) -> str:
        """The name of its flavor, if it is known."""
        request = self.evacuee.request
        if isinstance(request, Request):
            return request.flavor.name
        return ''


@dataclass(frozen=True, slots=True)
class Loss:
    """Fates of the servers of hosts that are lost."""

    name: str
    hosts: Collection[str]
    outcomes: Sequence[Outcome]

    @property
    def unplaced(self) -> Sequence[Outcome]:
        """The servers that find no place."""
        return [each for each in self.outcomes if each.decided and each.host is None]

    @property
    def unknown(self) -> Sequence[Outcome]:
        """The servers of which it cannot be told."""
        return [each for each in self.outcomes if not each.decided]

    @property
    def places(self) -> Counter[str]:
        """The new hosts, with the number of servers that each gets."""
        return Counter(each.host for each in self.outcomes if each.host is not None)

    @property
    def states(self) -> Counter[str]:
        """The states in which nova evacuates no server, with the number of servers in
        each."""
        return Counter(
            each.evacuee.state
            for each in self.outcomes
            if each.evacuee.state not in EVACUABLE
        )


def members(
    kind: str, hosts: Iterable[Host], default_zone: str | None
) -> Mapping[str, set[str]]:
    """The names of the hosts of each host, aggregate or zone, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for host in hosts:
        if kind == 'host':
            names = [host.host]
        elif kind == 'aggregate':
            names = [each.name for each in host.aggregates]
        else:
            names = [host.zone(default_zone) or '']
        for name in names:
            found[name].add(host.host)
    return found


def named(
    wanted: Sequence[str], hosts: Sequence[Host], default_zone: str | None
) -> set[str]:
    """The names of the hosts that are lost with all of these (``KIND=NAME``).

    :raises Unusable: there is no such host, aggregate or zone.
    """
    lost: set[str] = set()
    for text in wanted:
        kind, _, name = text.partition('=')
        known = members(kind, hosts, default_zone)
        if name not in known:
            raise Unusable(f'{text}: no {kind} of that name has hosts')
        lost |= known[name]
    return lost


def lose(
    simulator: Simulator,
    name: str,
    hosts: Collection[str],
    evacuees: Iterable[Evacuee],
    whereabouts: Mapping[str, str],
) -> Loss:
    """Evacuate the servers of hosts, and take it back; see :func:`evacuate`."""
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
    :param whereabouts: the hosts of all servers, by UUID.
    :raises NovaschedError: Placement or a database is away.
    """
    ignored = tuple(sorted(hosts))
    outcomes = []
    moved: dict[str, str] = {}
    for each in evacuees:
        where = ChainMap(moved, whereabouts)  # type: ignore[arg-type]
        outcome = _evacuated(simulator, each, ignored, where)
        if outcome.host is not None:
            moved[each.uuid] = outcome.host
        outcomes.append(outcome)
    return Loss(name, hosts, outcomes)


def _evacuated(
    simulator: Simulator,
    evacuee: Evacuee,
    ignored: tuple[str, ...],
    where: Mapping[str, str],
) -> Outcome:
    request = evacuee.request
    if isinstance(request, str):
        return Outcome(evacuee, why=request, decided=False)
    if group := request.instance_group:
        hosts = frozenset(where[uuid] for uuid in group.members if uuid in where)
        request = replace(request, instance_group=replace(group, hosts=hosts))
    try:
        decided = simulator.decide_as_it_is(replace(request, ignore_hosts=ignored))
    except (BadRequest, BadPlugin, MetricMissing) as error:  # of this request alone
        return Outcome(evacuee, why=str(error))
    if decided.decision.hosts:
        return Outcome(evacuee, decided.decision.hosts[0])
    record = decided.record(0)
    return Outcome(evacuee, why=render.headline(record), record=record)


def lose_each(
    simulator: Simulator,
    lost: Mapping[str, Collection[str]],
    evacuees: Sequence[Evacuee],
    whereabouts: Mapping[str, str],
) -> list[Loss]:
    """Lose each of several, alone and from the same beginning; the worst first: that
    which leaves most servers without a place, then that which has most servers."""
    by_host: dict[str, list[tuple[int, Evacuee]]] = defaultdict(list)
    for each in enumerate(evacuees):
        by_host[each[1].host].append(each)
    losses = []
    for name, hosts in progress(sorted(lost.items()), 'lost'):
        numbered = sorted(
            (each for host in hosts for each in by_host.get(host, ())),
            key=itemgetter(0),
        )
        losses.append(
            lose(simulator, name, hosts, [each for _, each in numbered], whereabouts)
        )
    losses.sort(key=lambda each: (-len(each.unplaced), -len(each.outcomes), each.name))
    return losses


def lost_as_json(loss: Loss) -> str:
    """``{"name", "hosts", "servers", "placed", "unplaced", "unknown", "moves":
    [{server, flavor, state, from, to, known, why, record}]}``: counts, and the servers
    in the order in which they move; ``why`` and the record are of those that find no
    place."""
    moves = [
        {
            'server': each.evacuee.uuid,
            'flavor': each.flavor,
            'state': each.evacuee.state,
            'from': each.evacuee.host,
            'to': each.host,
            'known': each.decided,
            'why': each.why,
            'record': each.record and msgspec.to_builtins(each.record),
        }
        for each in loss.outcomes
    ]
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
    """The servers without a place, with the reasons; where the others go; what is not
    known."""
    count = len(loss.outcomes)
    unplaced = loss.unplaced
    of = '' if len(loss.hosts) == 1 else f', with {len(loss.hosts):,} hosts'
    lines = [
        f'Without {loss.name}{of}: {loss.places.total():,} of {count:,} servers find a'
        f' place, {len(unplaced):,} {"does" if len(unplaced) == 1 else "do"} not.'
    ]
    if unplaced:
        rows = [
            (each.evacuee.uuid, each.flavor, each.evacuee.host, each.why)
            for each in unplaced
        ]
        names = 'no place for', 'flavor', 'of host', 'why not'
        lines += ['', explain.table_of(names, rows[:ROWS], reasons='why not')]
        if len(rows) > ROWS:
            lines.append(f'and {len(rows) - ROWS:,} other servers')
    if loss.places:
        before = {host.host: host for host in hosts}
        places = [
            (name, f'+{number:,}', f'{used_share(before[name]):.0%}')
            for name, number in loss.places.most_common(ROWS)
        ]
        lines += [
            '',
            explain.table_of(('new host', 'servers', 'memory before'), places),
        ]
        if len(loss.places) > ROWS:
            lines.append(f'and {len(loss.places) - ROWS:,} other hosts')
    lines += [
        f'Not known: {number:,}: {why}'
        for why, number in Counter(each.why for each in loss.unknown).items()
    ]
    lines += [
        f'{number:,} servers are {state or "in no state"}: nova evacuates none in that'
        ' state.'
        for state, number in loss.states.most_common()
    ]
    return '\n'.join(lines)


def worst_as_json(kind: str, losses: Sequence[Loss]) -> str:
    """``{"kind", "lost", "holds", "losses": [{name, hosts, servers, placed, unplaced,
    unknown, refusals: {why: number}}]}``, the worst first. ``holds`` is the number of
    those after which every server finds a place."""
    report = {
        'kind': kind,
        'lost': len(losses),
        'holds': sum(not each.unplaced for each in losses),
        'losses': [
            {
                **_summary(each),
                'refusals': dict(Counter(x.why for x in each.unplaced).most_common()),
            }
            for each in losses
        ],
    }
    return json.dumps(report, indent=2)


def worst_as_text(kind: str, losses: Sequence[Loss]) -> str:
    """The number that can be lost alone, and the worst of the others."""
    bad = [each for each in losses if each.unplaced]
    good = len(losses) - len(bad)
    lines = [
        f'Of {len(losses):,} {kind}s, each lost alone, {good:,} '
        f'{"leaves" if good == 1 else "leave"} no server without a place.'
    ]
    rows = [
        (
            each.name,
            f'{len(each.outcomes):,}',
            f'{len(each.unplaced):,}',
            Counter(x.why for x in each.unplaced).most_common(1)[0][0],
        )
        for each in bad[:ROWS]
    ]
    if rows:
        names = kind, 'servers', 'without a place', 'most often why'
        lines += ['', explain.table_of(names, rows, reasons='most often why')]
    if len(bad) > ROWS:
        lines.append(f'and {len(bad) - ROWS:,} other {kind}s')
    unknown = Counter(x.why for each in losses for x in each.unknown)
    lines += [
        f'Not known: {number:,} servers: {why}' for why, number in unknown.items()
    ]
    return '\n'.join(lines)
