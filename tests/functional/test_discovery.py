# SPDX-License-Identifier: Apache-2.0
"""The scheduler maps new computes to their cells as nova-scheduler does. Databases
without the grants for it are in test_grants.py."""

import re
import uuid
from dataclasses import dataclass

from tests.lab.compute_rows import Compute, now
from tests.lab.daemon import Daemon
from tests.lab.nova_release import Config
from tests.lab.processes import wait_until

PATIENCE = 60
# The delay before nova-scheduler's first discovery, and the interval between two.
SOON: Config = {
    'DEFAULT': {'periodic_fuzzy_delay': 0},
    'scheduler': {'discover_hosts_in_cells_interval': 1, 'workers': 1},
}


@dataclass(frozen=True)
class Outcome:
    """The result of a discovery.

    :ivar mappings: host to cell.
    :ivar marks: node to the column ``mapped``.
    :ivar lines: the log lines about discovered hosts.
    """

    mappings: dict[str, str]
    marks: dict[str, int]
    lines: list[str]


def add_unmapped(cloud, computes, **columns):
    """Insert the rows of computes, without the rows of a mapping."""
    for compute in computes:
        database = cloud.cells[compute.cell]
        row = {**compute.node_row(), 'mapped': 0, **columns}
        database.insert('compute_nodes', [row])
        database.insert('services', [compute.service_row(cloud.nova.service_version)])


def add_nodes(cloud, compute, names):
    for name in names:
        row = {**compute.node_row(), 'mapped': 0, 'uuid': str(uuid.uuid4())}
        row['hypervisor_hostname'] = name
        cloud.cells[compute.cell].insert('compute_nodes', [row])


def map_host(cloud, host, cell):
    """Map a host, as nova-manage cell_v2 discover_hosts does."""
    row = cloud.api.rows('cell_mappings', uuid=cloud.cell_uuids[cell])[0]
    cloud.api.insert(
        'host_mappings', [{'created_at': now(), 'cell_id': row['id'], 'host': host}]
    )


def mapped(cloud):
    """Host to the name of its cell, for all mapped hosts."""
    names = {row['id']: row['name'] for row in cloud.api.rows('cell_mappings')}
    mappings = cloud.api.rows('host_mappings')
    return {row['host']: names[row['cell_id']] for row in mappings}


def marks(cloud):
    """Node to the column ``mapped``, for all nodes."""
    columns = {}
    for database in cloud.cells.values():
        for row in database.rows('compute_nodes'):
            columns[row['hypervisor_hostname']] = row['mapped']
    return columns


def discovered(daemon):
    """The log lines about discovered hosts, from the word Discovered on."""
    return re.findall(r'INFO nova\.scheduler\.manager .*(Discovered .*)', daemon.text())


def populate(cloud):
    """Add a host of every kind at once; the host named last is discovered last."""
    cloud.reset()
    cloud.map_cell('cell2', disabled=True)
    add_unmapped(cloud, [Compute('new-2', 'cell1'), Compute('new-1', 'cell1')])

    iron = Compute('iron', 'cell1')
    add_unmapped(cloud, [iron])
    add_nodes(cloud, iron, ['iron-node-2', 'iron-node-3'])

    add_unmapped(cloud, [Compute('known', 'cell1')])
    map_host(cloud, 'known', 'cell1')
    add_unmapped(cloud, [Compute('moved', 'cell1')])
    map_host(cloud, 'moved', 'cell2')

    add_unmapped(cloud, [Compute('deleted', 'cell1')], deleted=7)
    add_unmapped(cloud, [Compute('marked', 'cell1')], mapped=1)
    add_unmapped(cloud, [Compute('twin', 'cell1'), Compute('twin', 'cell2')])
    add_unmapped(cloud, [Compute('last', 'cell2')])


def outcome_of(cloud, command):
    """Run a scheduler until it has discovered the hosts of :func:`populate`, and a host
    that is added later."""
    populate(cloud)
    with Daemon(cloud, SOON, command) as daemon:
        wait_until(lambda: bool(discovered(daemon)), PATIENCE, 'discovery')

        add_unmapped(cloud, [Compute('later', 'cell2')])
        wait_until(lambda: len(discovered(daemon)) > 1, PATIENCE, 'second discovery')

        return Outcome(mapped(cloud), marks(cloud), discovered(daemon))


def test_discovery_maps_the_same_hosts_as_nova_scheduler(cloud):
    """Given the same rows, both schedulers write the same mappings, marks and log
    lines; hosts of a disabled cell are mapped too."""
    novas = outcome_of(cloud, [cloud.nova.script('nova-scheduler')])
    ours = outcome_of(cloud, [])
    cloud.restore_cells()

    assert ours == novas
    assert ours.lines == [
        'Discovered 5 new hosts: cell1:new-2,cell1:new-1,cell1:iron,cell1:twin,cell2:last',
        'Discovered 1 new hosts: cell2:later',
    ]


def test_discovery_is_taken_over_when_the_leading_scheduler_dies(cloud):
    """When novasched and nova-scheduler run side by side, the scheduler with the first
    host name discovers hosts; when it dies, the second scheduler takes over."""
    cloud.reset()
    quick = {**SOON, 'DEFAULT': {**SOON['DEFAULT'], 'service_down_time': 3}}

    def wait_for_discovery(host, daemon):
        """Wait until the daemon has mapped the host."""
        wait_until(lambda: host in mapped(cloud), PATIENCE, 'discovery')
        wait_until(lambda: len(discovered(daemon)) == 1, PATIENCE, 'line')

    novas = [cloud.nova.script('nova-scheduler')]
    with Daemon(cloud, quick) as ours, Daemon(cloud, quick, novas) as theirs:
        first, second = sorted((ours, theirs), key=lambda daemon: daemon.host)
        add_unmapped(cloud, [Compute('h1', 'cell1')])
        wait_for_discovery('h1', first)
        assert discovered(second) == []

        first.kill()
        add_unmapped(cloud, [Compute('h2', 'cell1')])
        wait_for_discovery('h2', second)
