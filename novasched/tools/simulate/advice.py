# SPDX-License-Identifier: Apache-2.0
"""Advice on multipliers: the settings under which the history of a cloud would have
filled the cloud best."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random

import msgspec

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.usual_guests import UsualGuests
from novasched.tools import explain
from novasched.tools.simulate.simulation import Simulation
from novasched.tools.simulate.trace import TraceEntry, TracePlayer

AS_IT_IS = 'as it is'
SETTINGS: Mapping[str, Mapping[str, str]] = {
    AS_IT_IS: {},
    'spreading': {
        'filter_scheduler.ram_weight_multiplier': '1.0',
        'filter_scheduler.cpu_weight_multiplier': '1.0',
        'filter_scheduler.disk_weight_multiplier': '1.0',
        'novasched.fragmentation_weight_multiplier': '0.0',
    },
    'stacking': {
        'filter_scheduler.ram_weight_multiplier': '-1.0',
        'filter_scheduler.cpu_weight_multiplier': '-1.0',
        'filter_scheduler.disk_weight_multiplier': '-1.0',
        'novasched.fragmentation_weight_multiplier': '0.0',
    },
    'usable capacity': {'novasched.fragmentation_weight_multiplier': '1000.0'},
}
"""The settings that are compared, each with its options by ``GROUP.NAME``."""
FURTHER_LOAD = 1.3
"""After the history, further usual servers ask for this share of the scarcest
resource."""
MIN_SERVERS = 5
"""Smaller projects do not count for the spreading."""
LEAST_GAIN = 0.005
"""Share of the capacity that another setting must use in addition to be proposed."""
MAX_FURTHER = 100_000
"""Maximum number of further servers."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The history under a setting.

    :ivar refused: the number of servers of the history that are refused.
    :ivar in_use: the share of the scarcest resource in use once the cloud is full.
    :ivar resource: the scarcest resource: the one in use most.
    :ivar on_a_host: the largest share of the servers of a project on one host, at the
        end of the history.
    :ivar in_a_domain: the same for failure domains; None without domains.
    """

    setting: str
    refused: int
    in_use: float
    resource: str
    on_a_host: float
    in_a_domain: float | None


def tried(
    setting: str,
    simulation: Simulation,
    entries: Sequence[TraceEntry],
    usual: UsualGuests,
    seed: int,
) -> Trial:
    """Play a history, and fill the cloud afterwards."""
    player = TracePlayer(simulation, usual)
    played = player.play(setting, entries, moments=1)
    hosts = simulation.simulator.hosts
    key = simulation.simulator.settings.failure_domain_key
    on_a_host = largest_share(hosts, lambda host: [host.host])
    in_a_domain = None
    if any(host.metadata(key) for host in hosts):
        in_a_domain = largest_share(hosts, lambda host: host.metadata(key))

    last = played.moments[-1]
    further = further_entries(entries, max(last.offered.values(), default=0.0), seed)
    if further:
        last = player.play(setting, further, moments=1).moments[-1]
    resource = max(last.in_use, key=lambda name: last.in_use[name])
    return Trial(
        setting,
        played.refused,
        last.in_use[resource],
        resource,
        on_a_host,
        in_a_domain,
    )


def largest_share(
    hosts: Iterable[Host], places_of: Callable[[Host], Iterable[str]]
) -> float:
    """The largest share of the servers of a project in one place.

    :param places_of: returns the places of a host.
    """
    servers = Counter[str]()
    in_place: dict[str, Counter[str]] = defaultdict(Counter)
    for host in hosts:
        of_host = Counter(
            instance.project_id
            for instance in host.instances.values()
            if instance.project_id
        )
        servers.update(of_host)
        for place in places_of(host):
            in_place[place].update(of_host)

    shares = [0.0]
    for numbers in in_place.values():
        for project, number in numbers.items():
            if servers[project] >= MIN_SERVERS:
                shares.append(number / servers[project])
    return max(shares)


def further_entries(
    entries: Sequence[TraceEntry], offered: float, seed: int
) -> Sequence[TraceEntry]:
    """Random entries of the servers that exist at the end of the history, again and for
    ever: as many as ask, with these servers, for about :data:`FURTHER_LOAD` of the
    scarcest resource.

    :param offered: the share that the history asks for at its end.
    """
    if not offered:
        return ()
    end = max(entry.at for entry in entries)
    present = []
    for entry in entries:
        if entry.lifetime is None or entry.at + entry.lifetime > end:
            present.append(entry)
    number = int(len(present) * max(0.0, FURTHER_LOAD - offered) / offered)
    chosen = Random(seed).choices(present, k=min(number, MAX_FURTHER))
    return [msgspec.structs.replace(entry, at=end, lifetime=None) for entry in chosen]


def best(results: Sequence[Trial]) -> Trial:
    """The setting with the fewest refusals, and then with the most capacity in use.
    Without a gain, the present setting stays."""
    present = results[0]
    fewest = min(result.refused for result in results)
    candidates = [result for result in results if result.refused == fewest]
    most = max(candidates, key=lambda result: result.in_use)
    if present.refused == fewest and most.in_use < present.in_use + LEAST_GAIN:
        return present
    return most


def as_json(results: Sequence[Trial], left_out: int) -> str:
    """``{"settings": [...], "left_out", "best", "options"}``; a setting has the fields
    of :class:`Trial`."""
    chosen = best(results).setting
    report = {
        'settings': [asdict(result) for result in results],
        'left_out': left_out,
        'best': chosen,
        'options': SETTINGS[chosen],
    }
    return json.dumps(report, indent=2)


def as_text(results: Sequence[Trial], left_out: int) -> str:
    """A table with a column for each setting, and the proposed lines for nova.conf."""
    table: dict[str, list[str]] = defaultdict(list)
    for result in results:
        table['servers of the history refused'].append(f'{result.refused:,}')
        in_use = f'{result.in_use:.1%} {result.resource}'
        table['in use once the cloud is full'].append(in_use)
        label = 'largest share of a project on a host'
        table[label].append(f'{result.on_a_host:.0%}')
        if result.in_a_domain is not None:
            label = 'largest share of a project in a domain'
            table[label].append(f'{result.in_a_domain:.0%}')
    rows = [(label, *cells) for label, cells in table.items()]
    lines = [explain.table_of(('', *(each.setting for each in results)), rows)]
    if left_out:
        why = 'their flavors ask for devices or traits'
        lines.append(f'{left_out:,} servers are left out: {why}.')

    chosen = best(results)
    if chosen.setting == AS_IT_IS:
        lines.append('No other setting fills the cloud better.')
        return '\n'.join(lines)
    lines += [f'Proposed: {chosen.setting}.', '']
    section = ''
    for name, value in SETTINGS[chosen.setting].items():
        group, _, option = name.partition('.')
        if group != section:
            section = group
            lines.append(f'[{section}]')
        lines.append(f'{option} = {value}')
    return '\n'.join(lines)
