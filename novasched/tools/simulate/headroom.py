# SPDX-License-Identifier: Apache-2.0
"""Headroom of zones or aggregates: the number of servers with room there after the loss
of the fullest host, as one number for an alert."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.tools import explain
from novasched.tools.simulate.evacuations import Evacuee, progress
from novasched.tools.simulate.losses import evacuate
from novasched.tools.simulate.runs import until_full, used_share
from novasched.tools.simulate.simulator import Simulator

METRIC = 'novasched_headroom_servers'
HELP = (
    'Servers of the flavor that still fit once the fullest host is lost; '
    'below 0, servers of that host without a place.'
)


@dataclass(frozen=True, slots=True)
class Headroom:
    """State of a zone or aggregate after the loss of its fullest host.

    :ivar servers: number of servers on the fullest host, without servers of strict
        affinity groups.
    :ivar unplaced: number of these servers without a new host.
    :ivar fit: number of servers of the reference flavor that fit afterwards.
    """

    name: str
    fullest: str
    servers: int
    unplaced: int
    fit: int

    @property
    def left(self) -> int:
        """The servers that fit, or the servers without a new host as a negative
        number."""
        return -self.unplaced or self.fit


def headroom(
    simulator: Simulator,
    names: Mapping[str, set[str]],
    evacuees: Sequence[Evacuee],
    whereabouts: Mapping[str, str],
    probe: Request,
    most: int,
) -> list[Headroom]:
    """The headroom of each set of hosts, from the same beginning; the least first.

    :param names: the hosts of each set, by name of the set.
    :param evacuees: the servers of the fullest hosts.
    :param whereabouts: the host of each server in the cloud, by UUID.
    :param probe: a request for one server of the reference flavor.
    :param most: limit of ``fit``.
    :raises NovaschedError: Placement or a database does not answer.
    """
    hosts = simulator.hosts
    host_names = {host.host for host in hosts}
    fullest = fullest_hosts(names, hosts)
    results = []
    for name, members in progress(sorted(names.items()), 'sets of hosts'):
        lost = fullest[name]
        movable = []
        for evacuee in evacuees:
            if evacuee.host == lost and not _is_bound(evacuee):
                movable.append(evacuee)

        with simulator.trial():
            loss = evacuate(simulator, lost, {lost}, movable, whereabouts)
            # Servers may move to any host, but the headroom is that of the set.
            outside = tuple(sorted(host_names - members | {lost}))
            request = replace(probe, ignore_hosts=outside)
            fit = until_full(simulator, request, most).fit
        results.append(Headroom(name, lost, len(movable), len(loss.unplaced), fit))
    return sorted(results, key=lambda result: (result.left, result.name))


def _is_bound(evacuee: Evacuee) -> bool:
    """True for a server of a strict affinity group, which nova cannot evacuate."""
    request = evacuee.request
    if isinstance(request, str) or request.instance_group is None:
        return False
    return request.instance_group.policy == 'affinity'


def fullest_hosts(
    names: Mapping[str, set[str]], hosts: Iterable[Host]
) -> Mapping[str, str]:
    """The host with the largest share of memory in use in each set; among equal hosts
    the first by name."""
    shares = {host.host: used_share(host) for host in hosts}
    fullest = {}
    for name, members in names.items():
        fullest[name] = max(sorted(members), key=shares.__getitem__)
    return fullest


def as_text(kind: str, flavor: str, results: Sequence[Headroom]) -> str:
    """A table, the least headroom first."""
    names = (
        kind,
        'without its fullest host',
        'servers there',
        'without a place',
        f'{flavor} that fit then',
    )
    rows = []
    for result in results:
        numbers = (result.servers, result.unplaced, result.fit)
        rows.append((result.name, result.fullest, *(f'{n:,}' for n in numbers)))
    return explain.table_of(names, rows)


def as_json(kind: str, flavor: str, results: Sequence[Headroom]) -> str:
    """``{"kind", "flavor", "headroom": [{name, fullest, servers, unplaced, fit,
    left}]}``."""
    rows = [{**dataclasses.asdict(result), 'left': result.left} for result in results]
    return json.dumps({'kind': kind, 'flavor': flavor, 'headroom': rows}, indent=2)


def as_prometheus(kind: str, flavor: str, results: Sequence[Headroom]) -> str:
    """The text exposition format, for the textfile collector of node_exporter."""
    lines = [f'# HELP {METRIC} {HELP}', f'# TYPE {METRIC} gauge']
    for result in sorted(results, key=lambda result: result.name):
        labels = f'{kind}="{_escaped(result.name)}",flavor="{_escaped(flavor)}"'
        lines.append(f'{METRIC}{{{labels}}} {result.left}')
    return '\n'.join(lines)


def _escaped(text: str) -> str:
    return text.replace('\\', r'\\').replace('"', r'\"').replace('\n', r'\n')


SHAPES = {'table': as_text, 'json': as_json, 'prometheus': as_prometheus}
"""By ``--format``."""
