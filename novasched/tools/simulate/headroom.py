# SPDX-License-Identifier: Apache-2.0
"""Headroom of zones or aggregates: how many more servers fit there once its fullest
host is lost, as one number for whoever is to be woken."""

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

    :ivar servers: the number of servers on that host, but for those of strict affinity
        groups.
    :ivar unplaced: the number of them that find no place.
    :ivar fit: the number of servers of the reference flavor that fit there after that.
    """

    name: str
    fullest: str
    servers: int
    unplaced: int
    fit: int

    @property
    def left(self) -> int:
        """The one number: servers that fit, or minus the number of those that find no
        place."""
        return -self.unplaced or self.fit


def headroom(
    simulator: Simulator,
    names: Mapping[str, set[str]],
    evacuees: Sequence[Evacuee],
    whereabouts: Mapping[str, str],
    probe: Request,
    most: int,
) -> list[Headroom]:
    """The headroom of each of several sets of hosts, each from the same beginning; the
    least first.

    :param probe: the request for a server of the reference flavor.
    :param most: no more of these are tried.
    :raises NovaschedError: Placement or a database is away.
    """
    hosts = simulator.hosts
    found = []
    fullest = fullest_hosts(names, hosts)
    everybody = {host.host for host in hosts}
    for name, members in progress(sorted(names.items()), 'looked at'):
        lost = fullest[name]
        outside = tuple(sorted(everybody - members | {lost}))
        own = [each for each in evacuees if each.host == lost and not _is_bound(each)]
        with simulator.trial():
            loss = evacuate(simulator, lost, {lost}, own, whereabouts)
            fit = until_full(simulator, replace(probe, ignore_hosts=outside), most).fit
        found.append(Headroom(name, lost, len(own), len(loss.unplaced), fit))
    return sorted(found, key=lambda each: (each.left, each.name))


def _is_bound(evacuee: Evacuee) -> bool:
    """True for a server of a strict affinity group: nova evacuates none, whatever is
    free."""
    request = evacuee.request
    group = request.instance_group if isinstance(request, Request) else None
    return group is not None and group.policy == 'affinity'


def fullest_hosts(
    names: Mapping[str, set[str]], hosts: Iterable[Host]
) -> Mapping[str, str]:
    """The host of each set of which most memory is in use; of equal ones the first by
    name."""
    shares = {host.host: used_share(host) for host in hosts}
    return {name: max(sorted(x), key=shares.__getitem__) for name, x in names.items()}


def as_text(kind: str, flavor: str, found: Sequence[Headroom]) -> str:
    """A table, the least headroom first."""
    rows = (
        (
            each.name,
            each.fullest,
            f'{each.servers:,}',
            f'{each.unplaced:,}',
            f'{each.fit:,}',
        )
        for each in found
    )
    names = kind, 'without its fullest host', 'servers there', 'without a place'
    return explain.table_of((*names, f'{flavor} that fit then'), rows)


def as_json(kind: str, flavor: str, found: Sequence[Headroom]) -> str:
    """``{"kind", "flavor", "headroom": [{name, fullest, servers, unplaced, fit,
    left}]}``."""
    rows = [{**dataclasses.asdict(each), 'left': each.left} for each in found]
    return json.dumps({'kind': kind, 'flavor': flavor, 'headroom': rows}, indent=2)


def as_prometheus(kind: str, flavor: str, found: Sequence[Headroom]) -> str:
    """The text exposition format, as node_exporter's textfile collector reads it."""
    lines = [f'# HELP {METRIC} {HELP}', f'# TYPE {METRIC} gauge']
    for each in sorted(found, key=lambda each: each.name):
        labels = f'{kind}="{_escaped(each.name)}",flavor="{_escaped(flavor)}"'
        lines.append(f'{METRIC}{{{labels}}} {each.left}')
    return '\n'.join(lines)


def _escaped(text: str) -> str:
    return text.replace('\\', r'\\').replace('"', r'\"').replace('\n', r'\n')


SHAPES = {'table': as_text, 'json': as_json, 'prometheus': as_prometheus}
"""By ``--format``."""
