# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate --evict`` beside the real scheduler: once the servers are
gone that it names, what was refused goes there."""

from collections import Counter

import pytest
import sqlalchemy as sa

from novasched.cmd import novaschedctl
from novasched.observe.records.store import RecordReader
from novasched.rpc import wire
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab.processes import wait_until
from tests.lab.reports import some_devices
from tests.lab.sandboxed import disable, offer

from .test_simulate import (
    CELL,
    CELLS,
    DEVICE,
    OPTIONS,
    PINNED,
    SMALL,
    WITH_GPU,
    report,
    simulate,
    stock,
)

SPOT = {'preemptible': 'true'}
MIDDLE = Flavor('middle', 'm', 6, 1, 1024, 1, extra_specs=SPOT)
BIG = Flavor('big', 'b', 7, 1, 2048, 1, extra_specs=SPOT)
HUGE = Flavor('huge', 'h', 8, 2, 3072, 1)
SERVERS = {
    'one': (BIG, MIDDLE, MIDDLE),
    'two': (MIDDLE, MIDDLE, MIDDLE, SMALL),
    'kept': (SMALL, SMALL, PINNED, WITH_GPU),
    'many': (*[SMALL] * 8, MIDDLE),
    'off': (BIG, MIDDLE),
    'west': (BIG, MIDDLE),
}
MACHINES = tuple(
    SandboxHost(
        name,
        memory_mb={'two': 4096, 'many': 3072, 'kept': 3072}.get(name, 4096),
        reserved_memory_mb=0,
        ram_allocation_ratio=1.0,
        cell='cell2' if name == 'two' else 'cell1',
        zone='az2' if name == 'west' else 'az1',
    )
    for name in SERVERS
)


@pytest.fixture(scope='module')
def decisions(tmp_path_factory):
    """Where the scheduler keeps its decisions."""
    return str(tmp_path_factory.mktemp('decisions') / 'decisions.sqlite')


@pytest.fixture(scope='module')
def cloud(decisions):
    options = {'novasched': {**OPTIONS['novasched'], 'decisions_file': decisions}}
    with Sandbox(MACHINES, {**OPTIONS, **options}) as made:
        for flavor in (SMALL, MIDDLE, BIG, HUGE, PINNED, WITH_GPU):
            offer(made, flavor)
        report(made, 'kept', numa_topology=CELLS, pci_stats=some_devices(1, None))
        stock(made, 'kept', PCPU={'total': 12, 'max_unit': 4})
        for host, flavors in SERVERS.items():
            for flavor in flavors:
                fields = {
                    'p': {'numa_topology': wire.InstanceNUMATopology(cells=[CELL])},
                    'g': {'pci_requests': wire.InstancePCIRequests(requests=[DEVICE])},
                }.get(flavor.flavorid, {})
                boot = made.boot(flavor, force_hosts=[host], **fields)
                assert [each.host for each in boot.servers] == [host]
        disable(made, 'off')
        yield made


def delete(cloud, uuid, host):
    """Let a server be gone, as nova-compute does."""
    machine = cloud.computes.machines[host]
    table = tables.instances
    with cloud.databases.cells[machine.cell].begin() as connection:
        connection.execute(sa.delete(table).where(table.c.uuid == uuid))
        usage = cloud.computes._usage(connection, machine)
    cloud.placement.call('DELETE', f'/allocations/{uuid}')
    report(cloud, host, **usage)


def test_what_fits_at_once(cloud, capsys):
    """Has nothing to wait for."""
    said = simulate(cloud, capsys, '--flavor', 'small', '--evict')
    assert said['host']
    assert said['evictions'] == []
    assert (
        novaschedctl.main(
            ['simulate', '--flavor', 'small', '--evict', *cloud.configuration]
        )
        == 0
    )
    assert capsys.readouterr().out.endswith('It fits: nothing has to go.\n')


def test_who_may_go(cloud, capsys):
    """Servers of a kind alone, if that is said; pinned ones and those with devices
    never."""
    said = simulate(cloud, capsys, '--flavor', 'huge', '--zone', 'az1', '--evict')
    assert said['kept'] == {
        'have pinned CPUs or NUMA cells': 1,
        'have PCI devices': 1,
    }
    spot = ('--evictable', 'preemptible=true')
    said = simulate(
        cloud, capsys, '--flavor', 'huge', '--zone', 'az1', '--evict', *spot
    )
    gone = Counter(x['flavor'] for each in said['evictions'] for x in each['servers'])
    assert set(gone) == {'middle', 'big'}
    assert said['kept']['do not match --evictable'] == sum(
        flavor in (SMALL, PINNED, WITH_GPU)
        for host, flavors in SERVERS.items()
        for flavor in flavors
        if host not in ('off', 'west')
    )
    (other,) = (
        simulate(cloud, capsys, *x, '--evict')
        for x in [('--vcpus', '1', '--ram', '9999')]
    )
    assert other['evictions'] == []
    assert other['rejected'] == {'lack MEMORY_MB': len(SERVERS) - 1, 'disabled': 1}


def test_a_decision(cloud, capsys, decisions):
    """One that was refused is asked the same."""
    boot = cloud.boot(HUGE, zone='az1')
    assert boot.fault
    wait_until(
        lambda: RecordReader(decisions).of(boot.uuids[0]), 30, 'record of the refusal'
    )
    asked = simulate(cloud, capsys, '--flavor', 'huge', '--zone', 'az1', '--evict')
    assert simulate(cloud, capsys, '--decision', boot.uuids[0], '--evict') == asked


def test_what_leaves_lets_it_in(cloud, capsys):
    """What is refused goes to each host in turn once the servers are gone that were
    named, and not before the last of them is; the fewest come first."""
    ask = ('--flavor', 'huge', '--zone', 'az1', '--evict')
    said = simulate(cloud, capsys, *ask)
    assert said['host'] is None
    found = [
        (each['host'], Counter(x['flavor'] for x in each['servers']))
        for each in said['evictions']
    ]
    assert found == [
        ('one', {'big': 1, 'middle': 1}),
        ('two', {'middle': 2, 'small': 1}),
    ]
    assert said['rejected'] == {
        'in another zone': 1,
        'disabled': 1,
        'lack MEMORY_MB': 1,
    }
    assert said['more'] == ['many']
    assert novaschedctl.main(['simulate', *ask, *cloud.configuration]) == 0
    text = capsys.readouterr().out
    assert '1 in another zone' in text
    for each in said['evictions']:
        *others, last = each['servers']
        for server in others:
            delete(cloud, server['uuid'], each['host'])
        assert not cloud.boot(HUGE, zone='az1').servers
        delete(cloud, last['uuid'], each['host'])
        boot = cloud.boot(HUGE, zone='az1')
        assert [server.host for server in boot.servers] == [each['host']]
