# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate lose`` beside the real scheduler: servers of a lost host go
to the simulated hosts, and servers without a simulated place are refused."""

from unittest.mock import ANY

import pytest
import sqlalchemy as sa

from novasched.rpc import wire
from novasched.rpc.faults import NoValidHostFault
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import Sandbox, request_spec
from novasched.tools.sandbox.computes import SandboxHost, stable_uuid
from tests.lab.reports import some_devices
from tests.lab.sandboxed import offer, silence

from .test_simulate import (
    CELL,
    CELLS,
    DEVICE,
    LARGE,
    NUMA_HOSTS,
    OPTIONS,
    PINNED,
    SMALL,
    WITH_GPU,
    report,
    simulate,
    stock,
)

MEMORY = {
    'lost': 9000,
    'a1': 12000,
    'a2': 11000,
    'a3': 10000,
    'numa1': 9500,
    'numa2': 9400,
}
"""No two hosts are alike, so that none is a matter of chance."""
MACHINES = (
    *(
        SandboxHost(
            name,
            memory_mb=each,
            reserved_memory_mb=0,
            cell='cell1',
            zone='az1' if name in ('lost', 'a3') else None,
        )
        for name, each in MEMORY.items()
    ),
    SandboxHost('elsewhere', memory_mb=99_000, cell='cell2'),
)  # fmt: skip
WEIGHTS = {'io_ops_weight_multiplier': '0'}
"""What is on its way builds, which a simulated server does not."""
NUMA = {'numa_topology': wire.InstanceNUMATopology(cells=[CELL])}
PCI = {'pci_requests': wire.InstancePCIRequests(requests=[DEVICE])}


@pytest.fixture(scope='module')
def cloud():
    options = {
        **OPTIONS,
        'filter_scheduler': {**OPTIONS['filter_scheduler'], **WEIGHTS},
    }
    with Sandbox(MACHINES, options) as made:
        for flavor in (LARGE, SMALL, PINNED, WITH_GPU):
            offer(made, flavor)
        for name in ('lost', *NUMA_HOSTS):
            report(made, name, numa_topology=CELLS)
            stock(made, name, PCPU={'total': 12, 'max_unit': 4})
        for name, count in {'lost': 3, 'a3': 1}.items():
            report(made, name, pci_stats=some_devices(count, None))
        yield made


@pytest.fixture(scope='module')
def servers(cloud):
    """The servers of the lost host, each with the fields of its request."""
    asked = []

    def boot(flavor, count=1, **fields):
        group = fields.get('group')
        for _ in range(count):
            boot = cloud.boot(flavor, **fields, force_hosts=['lost'])
            assert [each.host for each in boot.servers] == ['lost']
            asked.append((boot.uuids[0], flavor, group, fields))

    apart = cloud.group('anti-affinity')
    together = cloud.group('affinity')
    for host in ('a1', 'a2', *NUMA_HOSTS):
        cloud.boot(SMALL, group=apart, force_hosts=[host])
    boot(SMALL, group=apart)
    boot(SMALL, count=2, group=together)
    boot(PINNED, **NUMA)
    boot(WITH_GPU, count=2, **PCI)
    boot(LARGE)
    boot(SMALL, zone='az1')
    return {uuid: rest for uuid, *rest in asked}


def evacuated(cloud, uuid, flavor, group, fields):
    """Send the request of an evacuation to the scheduler: the new host, or None after a
    refusal."""
    table = tables.instances
    with cloud.databases.cells['cell1'].begin() as connection:
        statement = sa.update(table).where(table.c.uuid == uuid)
        connection.execute(statement.values(task_state='rebuilding'))
    moved = {key: each for key, each in fields.items() if key != 'group'}
    cell = wire.CellMapping(uuid=stable_uuid('cell', 'cell1'))
    spec = request_spec(
        [uuid],
        flavor,
        group=group,
        ignore_hosts=['lost'],
        requested_destination=wire.Destination(cell=cell),
        **moved,
    )
    try:
        ((first, *_),) = cloud.request(spec, [uuid])
    except NoValidHostFault:
        return None
    return first.value('service_host')


def test_servers_go_where_it_says(cloud, servers, capsys):
    """The order and the hosts of evacuations match, with server groups, pinned CPUs,
    devices and zones. The simulation itself moves no server."""
    said = simulate(cloud, capsys, 'lose', 'host=lost')
    each = simulate(cloud, capsys, 'lose', '--any', 'host')
    text = [x for x in each['losses'] if x['name'] == 'lost']

    assert [{name: x[name] for name in ('placed', 'unplaced')} for x in text] == [
        {'placed': said['placed'], 'unplaced': said['unplaced']}
    ]

    rooms = simulate(cloud, capsys, 'headroom', 'zone', '--flavor', 'small')['headroom']
    assert {each['name']: each['fullest'] for each in rooms} == {
        'az1': 'lost',
        'nova': ANY,
    }

    (room,) = (each for each in rooms if each['fullest'] == 'lost')
    assert (room['servers'], room['unplaced'], room['left']) == (
        len(servers) - 2,
        1,
        -1,
    )
    assert {move['server'] for move in said['moves']} == {*servers}

    silence(cloud, 'lost')
    for move in said['moves']:
        flavor, group, fields = servers[move['server']]
        now = group and cloud.with_members(group, [move['server']])
        assert evacuated(cloud, move['server'], flavor, now, fields) == move['to']
    whys = [move['why'] for move in said['moves'] if move['to'] is None]

    assert sum('outside of the server group' in why for why in whys) == 2
    assert sum('devices' in why for why in whys) == 1
