# SPDX-License-Identifier: Apache-2.0
"""New computes are mapped to their cells, as nova-scheduler does it. Databases that do
not let us are in test_grants.py."""

import re
import uuid
from dataclasses import dataclass

from tests.lab.compute_rows import Compute, now
from tests.lab.daemon import Daemon
from tests.lab.nova_release import Config
from tests.lab.processes import wait_until

PATIENCE = 60
# nova-scheduler waits so long before it looks for the first time, and again before each
# time.
SOON: Config = {
    'DEFAULT': {'periodic_fuzzy_delay': 0},
    'scheduler': {'discover_hosts_in_cells_interval': 1, 'workers': 1},
}


@dataclass(frozen=True)
class Outcome:
    """What a discovery has left: hosts to cells, nodes to whether they are marked, and
    what it has said."""

    mappings: dict[str, str]
    marks: dict[str, int]
    lines: list[str]


def add_unmapped(cloud, computes, **columns):
    """The rows that computes make, without what maps them."""
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
    """What nova-manage cell_v2 discover_hosts has done."""
    row = cloud.api.rows('cell_mappings', uuid=cloud.cell_uuids[cell])[0]
    cloud.api.insert(
        'host_mappings', [{'created_at': now(), 'cell_id': row['id'], 'host': host}]
    )


def mapped(cloud):
    """Every host with the name of the cell that it is mapped to."""
    names = {row['id']: row['name'] for row in cloud.api.rows('cell_mappings')}
    return {
        row['host']: names[row['cell_id']] for row in cloud.api.rows('host_mappings')
    }


def marks(cloud):
    """Every node with whether it is marked as mapped."""
    databases = cloud.cells.values()
    nodes = [row for database in databases for row in database.rows('compute_nodes')]
    return {row['hypervisor_hostname']: row['mapped'] for row in nodes}


def discovered(daemon):
    """The lines that tell what was found, from their text on."""
    return re.findall(r'INFO nova\.scheduler\.manager .*(Discovered .*)', daemon.text())


def populate(cloud):
    """Every kind of host at once; the last one is found last."""
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
    """Let a scheduler discover, and find out whether it goes on after what it has
    found."""
    populate(cloud)
    with Daemon(cloud, SOON, command) as daemon:
        wait_until(lambda: bool(discovered(daemon)), PATIENCE, 'discovery')
        add_unmapped(cloud, [Compute('later', 'cell2')])
        wait_until(lambda: len(discovered(daemon)) > 1, PATIENCE, 'second discovery')
        return Outcome(mapped(cloud), marks(cloud), discovered(daemon))


def test_as_nova_does(cloud):
    """The same rows before, the same mappings, marks and words after; a disabled cell,
    too."""
    novas = outcome_of(cloud, [cloud.nova.script('nova-scheduler')])
    ours = outcome_of(cloud, [])
    cloud.restore_cells()
    assert ours == novas
    assert ours.lines == [
        'Discovered 5 new hosts: cell1:new-2,cell1:new-1,cell1:iron,cell1:twin,cell2:last',
        'Discovered 1 new hosts: cell2:later',
    ]


def test_one_of_two_leads(cloud):
    """Of novasched and nova-scheduler at once, the first by name discovers; when it
    goes away the other one takes over."""
    cloud.reset()
    quick = {**SOON, 'DEFAULT': {**SOON['DEFAULT'], 'service_down_time': 3}}
    novas = [cloud.nova.script('nova-scheduler')]
    with Daemon(cloud, quick) as ours, Daemon(cloud, quick, novas) as theirs:
        first, second = sorted((ours, theirs), key=lambda daemon: daemon.host)
        add_unmapped(cloud, [Compute('h1', 'cell1')])
        wait_until(lambda: 'h1' in mapped(cloud), PATIENCE, 'discovery')
        wait_until(lambda: len(discovered(first)) == 1, PATIENCE, 'line')
        assert discovered(second) == []
        first.kill()
        add_unmapped(cloud, [Compute('h2', 'cell1')])
        wait_until(lambda: 'h2' in mapped(cloud), PATIENCE, 'discovery')
        wait_until(lambda: len(discovered(second)) == 1, PATIENCE, 'line')
