# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate lose`` beside the real scheduler: servers of a lost host go
to the simulated hosts, and servers without a simulated place are refused."""

from operator import itemgetter

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


def a_machine(name, memory_mb, zone=None):
    return SandboxHost(
        name, memory_mb=memory_mb, reserved_memory_mb=0, cell='cell1', zone=zone
    )


MACHINES = (
    a_machine('lost', 9000, zone='az1'),
    a_machine('a1', 12000),
    a_machine('a2', 11000),
    a_machine('a3', 10000, zone='az1'),
    a_machine('numa1', 9500),
    a_machine('numa2', 9400),
    SandboxHost('elsewhere', memory_mb=99_000, cell='cell2'),
)
"""All hosts differ in memory, so chance decides nothing."""

WEIGHTS = {'io_ops_weight_multiplier': '0'}
"""A real evacuation counts as an I/O operation, a simulated one does not."""

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
    requests = {}

    def boot(flavor, count=1, **fields):
        group = fields.get('group')
        for _ in range(count):
            boot = cloud.boot(flavor, **fields, force_hosts=['lost'])
            [server] = boot.servers
            assert server.host == 'lost'
            requests[server.uuid] = (flavor, group, fields)

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
    return requests


def evacuated(cloud, uuid, flavor, group, fields):
    """Send the request of an evacuation to the scheduler: the new host, or None after a
    refusal."""
    table = tables.instances
    with cloud.databases.cells['cell1'].begin() as connection:
        statement = sa.update(table).where(table.c.uuid == uuid)
        connection.execute(statement.values(task_state='rebuilding'))
    further = dict(fields)
    further.pop('group', None)
    cell = wire.CellMapping(uuid=stable_uuid('cell', 'cell1'))
    spec = request_spec(
        [uuid],
        flavor,
        group=group,
        ignore_hosts=['lost'],
        requested_destination=wire.Destination(cell=cell),
        **further,
    )
    try:
        ((first, *_),) = cloud.request(spec, [uuid])
    except NoValidHostFault:
        return None
    return first.value('service_host')


def test_evacuated_instances_go_to_the_simulated_hosts(cloud, servers, capsys):
    """The order and the hosts of evacuations match, with server groups, pinned CPUs,
    devices and zones. The simulation itself moves no server."""
    said = simulate(cloud, capsys, 'lose', 'host=lost')
    losses = simulate(cloud, capsys, 'lose', '--any', 'host')['losses']
    [alone] = [loss for loss in losses if loss['name'] == 'lost']
    numbers = itemgetter('placed', 'unplaced')
    assert numbers(alone) == numbers(said)

    rooms = simulate(cloud, capsys, 'headroom', 'zone', '--flavor', 'small')['headroom']
    rooms_by_zone = {room['name']: room for room in rooms}
    assert rooms_by_zone.keys() == {'az1', 'nova'}
    numbers = itemgetter('fullest', 'servers', 'unplaced', 'left')
    assert numbers(rooms_by_zone['az1']) == ('lost', len(servers) - 2, 1, -1)
    assert {*map(itemgetter('server'), said['moves'])} == {*servers}

    silence(cloud, 'lost')
    whys = []
    for move in said['moves']:
        flavor, group, fields = servers[move['server']]
        now = group and cloud.with_members(group, [move['server']])
        assert evacuated(cloud, move['server'], flavor, now, fields) == move['to']
        if move['to'] is None:
            whys.append(move['why'])

    text = '\n'.join(whys)
    assert text.count('outside of the server group') == 2
    assert text.count('devices') == 1
