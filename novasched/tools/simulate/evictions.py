# SPDX-License-Identifier: Apache-2.0
"""Which servers would have to leave a host for a request to fit there. Nothing is
claimed, and no server leaves."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from novasched.observe.records import render
from novasched.observe.records.diagnosis import APART, BEYOND, Lacking
from novasched.placement import query
from novasched.placement.api import PlacementApi
from novasched.scheduler.decision import Decision
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import Request
from novasched.tools import explain
from novasched.tools.simulate.departures import NESTED, Trial, read_provider, wanted
from novasched.tools.simulate.evacuations import EvacuationReader, Evacuee, progress
from novasched.tools.simulate.runs import ROWS
from novasched.tools.simulate.simulator import SimulatedDecision, Simulator

MAX_SERVERS = 4
SHOWN = 5
"""Servers that leave one host together, and hosts that are shown."""
PINNED = 'have pinned CPUs or NUMA cells'
DEVICES = 'have PCI devices'
OTHERS = 'do not match --evictable'


@dataclass(frozen=True, slots=True)
class Eviction:
    """Servers without which the request fits on their host."""

    host: str
    servers: Sequence[Evacuee]

    @property
    def memory_mb(self) -> int:
        return sum(wanted(each).flavor.memory_mb for each in self.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """Result for a request, of which ``decided`` says why it is refused now.

    :ivar found: the hosts where few servers suffice; the fewest first, then the least
        memory.
    :ivar tried: no more servers of one host were tried together.
    :ivar more: the names of hosts where more would have to go.
    :ivar rejected: numbers of hosts on which none helps, by the reason.
    :ivar kept: numbers of servers of hosts that were looked at that may not go, by the
        reason.
    """

    decided: SimulatedDecision
    found: Sequence[Eviction] = ()
    tried: int = 0
    more: Sequence[str] = ()
    rejected: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Evictor:
    """Looks for servers that could go.

    :ivar lacks: finds out what hosts lack that Placement does not offer.
    :ivar specs: extra specs of the flavors of servers that may go.
    """

    simulator: Simulator
    lacks: Callable[[Decision], Lacking]
    reader: EvacuationReader
    api: PlacementApi
    specs: Mapping[str, str]

    def evict(self, request: Request, enough: int = ROWS) -> Evictions:
        """Find what has to go for a request for one server. Once ``enough`` hosts are
        found, no more servers of the others are tried than left those.

        :raises BadRequest: the request is not for one new server.
        :raises NovaschedError: Placement or a database is away.
        """
        if request.is_rebuild or request.count != 1:
            raise BadRequest(
                '--evict needs a request for one server that is new or moves'
            )
        simulator = self.simulator
        simulator.read_all()
        with simulator.trial():
            decided = simulator.decide(request)
        if decided.decision.hosts or decided.decision.narrowed is None:
            return Evictions(decided=decided)
        rejected = Counter[str]()
        kept = Counter[str]()
        trials = []
        for trial in self._trials(decided, rejected, kept):
            everything = trial.why_not(trial.servers)
            # Without all that may go each amount is at its greatest.
            if everything and (not everything[1] or everything == trial.unmended):
                rejected[everything[0]] += 1
            else:
                trials.append((trial, everything))
        found: list[Eviction] = []
        tried = 0
        while trials and tried < MAX_SERVERS and len(found) < enough:
            tried += 1
            left = []
            for trial, why in progress(trials, f'hosts without {tried}'):
                if servers := trial.smallest(tried):
                    found.append(Eviction(trial.host.host, servers))
                else:
                    left.append((trial, why))
            trials = left
        rejected.update(why[0] for _, why in trials if why)
        return Evictions(
            decided=decided,
            found=sorted(found, key=lambda x: (len(x.servers), x.memory_mb, x.host)),
            tried=tried,
            more=[trial.host.host for trial, why in trials if why is None],
            rejected=rejected,
            kept=kept,
        )

    def _trials(
        self, decided: SimulatedDecision, rejected: Counter[str], kept: Counter[str]
    ) -> list[Trial]:
        """The hosts that filters reject, or that lack amounts alone; the others are
        counted."""
        simulator = self.simulator
        decision = decided.decision
        request = decision.narrowed or decision.request
        lacks = self.lacks(decision)
        whole = BEYOND if decided.beyond else APART
        flats = [
            each.flat
            for each in query.build_all(
                replace(request, unlimited=False), simulator.settings
            )
        ]
        amounts = [each.amounts for each in flats if each]
        offered = simulator.placement.candidates(request)
        pipeline = simulator.pipeline.for_request()
        if request.instance_group:
            members = request.instance_group.members
        else:
            members = frozenset()
        hosts = simulator.hosts
        located = {
            uuid: host for host in hosts for uuid in host.instances.keys() & members
        }
        begun: list[Trial] = []
        for host in hosts:
            trial = Trial(host, request, pipeline, located=located)
            its = lacks.get(host.uuid)
            if its is None:
                begun.append(replace(trial, candidates=offered[host.uuid]))
            elif other := next(
                (each for each in its or [whole] if not each.is_amount), None
            ):
                rejected[other.words] += 1
            elif len(amounts) < len(flats):
                rejected[NESTED] += 1
            else:
                begun.append(replace(trial, amounts=amounts))
        servers = self._servers({each.host.host for each in begun}, kept)
        trials = []
        for each in progress(begun, 'hosts read'):
            uuid = each.host.uuid
            own = [servers[x] for x in each.host.instances if x in servers]
            provider = read_provider(self.api, uuid) if each.amounts else None
            trials.append(replace(each, servers=own, provider=provider))
        return trials

    def _servers(
        self, hosts: Collection[str], kept: Counter[str]
    ) -> Mapping[str, Evacuee]:
        """The servers of these hosts that may go, by UUID; the others are counted."""
        found: dict[str, Evacuee] = {}
        for each in self.reader.on(hosts):
            if why := self._kept(each):
                kept[why] += 1
            else:
                found[each.uuid] = each
        return found

    def _kept(self, evacuee: Evacuee) -> str | None:
        """Why a server may not go."""
        request = evacuee.request
        if isinstance(request, str):
            return request
        if self.specs.items() - request.flavor.extra_specs.items():
            return OTHERS
        if request.numa_topology is not None:
            return PINNED
        if request.pci_requests:
            return DEVICES
        return None


def as_json(found: Evictions) -> str:
    """``{"headline", "host", "tried", "evictions": [{host, memory_mb, servers: [{uuid,
    flavor, memory_mb, project}]}], "more", "rejected", "kept"}``; ``host`` is the one
    on which the request fits at once, if it does."""
    hosts = found.decided.decision.hosts
    evictions = [
        {
            'host': each.host,
            'memory_mb': each.memory_mb,
            'servers': [
                {
                    'uuid': server.uuid,
                    'flavor': wanted(server).flavor.name,
                    'memory_mb': wanted(server).flavor.memory_mb,
                    'project': wanted(server).project_id,
                }
                for server in each.servers
            ],
        }
        for each in found.found
    ]
    report = {
        'headline': render.headline(found.decided.record(0)),
        'host': hosts[0] if hosts else None,
        'tried': found.tried,
        'evictions': evictions,
        'more': found.more,
        'rejected': dict(found.rejected.most_common()),
        'kept': dict(found.kept.most_common()),
    }
    return json.dumps(report, indent=2)


def as_text(found: Evictions) -> str:
    """The hosts with the fewest servers that would have to go, and what is said of the
    others."""
    lines = [render.headline(found.decided.record(0)), '']
    if found.decided.decision.hosts:
        return '\n'.join([*lines, 'It fits: nothing has to go.'])
    number = len(found.found)
    if number:
        rows = [
            (
                each.host,
                f'{len(each.servers):,}',
                f'{each.memory_mb:,} MiB',
                '\n'.join(
                    f'{x.uuid} {wanted(x).flavor.name}'.rstrip() for x in each.servers
                ),
            )
            for each in found.found[:SHOWN]
        ]
        names = 'it fits on', 'without servers', 'of memory', 'which'
        lines.append(explain.table_of(names, rows, reasons='which'))
        if number > SHOWN:
            lines.append(f'and on {number - SHOWN:,} other hosts')
    else:
        lines.append('On no host does it fit without a few servers.')
    if found.more:
        count = len(found.more)
        what = f'more than {found.tried:,}'
        line = f'{what} servers would have to leave each of {count:,} other hosts.'
        lines.append(line.capitalize())
    if found.rejected:
        rejected = ', '.join(f'{n:,} {why}' for why, n in found.rejected.most_common())
        lines.append(f'Hosts that no eviction helps: {rejected}')
    lines += [
        f'Servers that may not go: {n:,}: {why}' for why, n in found.kept.most_common()
    ]
    return '\n'.join(lines)
