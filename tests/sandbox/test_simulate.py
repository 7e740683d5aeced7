# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate`` beside the real scheduler: simulated results match real
ones."""

import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing
from operator import itemgetter
from pathlib import Path
from unittest.mock import ANY

import pytest
import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.cmd import novaschedctl
from novasched.observe.records.store import RecordReader
from novasched.rpc import wire
from novasched.rpc.faults import NoValidHostFault
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import Sandbox, request_spec
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.sandboxed import disable, offer, silence
from tests.lab.wire import CALLS

LONG = 36_000  # seconds; less than the day of a silenced compute
LICENSE = 'CUSTOM_LICENSE'
NUMA_HOSTS = ('numa1', 'numa2')
GPU_HOSTS = {'gpu1': 3, 'gpu2': 1}
"""The number of free devices by host."""
CELLS = a_numa_topology(
    *(a_numa_cell(number, threads=1, memory=8192) for number in range(3))
)
"""Three cells of four CPUs that can be pinned. A cell fits a guest of three CPUs, and a
CPU stays free."""
MACHINES = (
    SandboxHost('plain1', cell='cell1', reserved_memory_mb=4096, zone='az1'),
    SandboxHost('plain2', cell='cell2', vcpus=4, cpu_allocation_ratio=1.5, zone='az1'),
    SandboxHost(
        'plain3', cell='cell2', memory_mb=16384, ram_allocation_ratio=1.25, disk_gb=90
    ),
    SandboxHost('off', cell='cell1'),
    SandboxHost('dead', cell='cell2'),
    # With different memory: of hosts with equal weights, any may be the best.
    SandboxHost('numa1', cell='cell1', memory_mb=32768),
    SandboxHost('numa2', cell='cell1', memory_mb=32256),
    *(SandboxHost(name, cell='cell2', memory_mb=8192) for name in GPU_HOSTS),
)
FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'NumInstancesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
    'NUMATopologyFilter',
    'PciPassthroughFilter',
    'RamFilter',
)
ALIAS = {'name': 'gpu', 'vendor_id': '8086', 'product_id': '10fb'}
OPTIONS = {
    'DEFAULT': {'report_interval': LONG, 'service_down_time': 2 * LONG},
    'filter_scheduler': {
        'enabled_filters': ','.join(FILTERS),
        'max_instances_per_host': 12,
    },
    'novasched': {'in_flight_timeout': LONG},
    'pci': {'alias': json.dumps(ALIAS)},
}
LICENSED = Flavor(
    'licensed', 'l', 1, 1, 64, 1, extra_specs={f'resources:{LICENSE}': '2'}
)
PINNED = Flavor('pinned', 'p', 2, 3, 512, 1, extra_specs={'hw:cpu_policy': 'dedicated'})
WITH_GPU = Flavor(
    'gpu', 'g', 3, 1, 512, 1, extra_specs={'pci_passthrough:alias': 'gpu:1'}
)
LARGE = Flavor('large', 'la', 4, 2, 4096, 10, 1, 1024)
SMALL = Flavor('small', 's', 5, 1, 256, 1)
FLAVORS = (LICENSED, PINNED, WITH_GPU, LARGE, SMALL)


@pytest.fixture(scope='module')
def decisions(tmp_path_factory):
    """The file for the decisions of the scheduler."""
    return str(tmp_path_factory.mktemp('decisions') / 'decisions.sqlite')


@pytest.fixture(scope='module')
def cloud(decisions):
    """Hosts of every kind, a disabled host, and a host with a silent nova-compute."""
    options = {
        **OPTIONS,
        'novasched': {**OPTIONS['novasched'], 'decisions_file': decisions},
    }
    licenses = {
        'plain1': {'total': 10, 'reserved': 1, 'step_size': 2},
        'plain3': {'total': 3, 'allocation_ratio': 1.7, 'max_unit': 2},
        'plain2': {'total': 8, 'max_unit': 1},
    }

    with Sandbox(MACHINES, options) as sandbox:
        for flavor in FLAVORS:
            offer(sandbox, flavor)
        disable(sandbox, 'off')
        silence(sandbox, 'dead')

        for name in NUMA_HOSTS:
            report(sandbox, name, numa_topology=CELLS)
            stock(sandbox, name, PCPU={'total': 12, 'max_unit': 4})
        for name, count in GPU_HOSTS.items():
            report(sandbox, name, pci_stats=some_devices(count, None))
        sandbox.placement.call('PUT', f'/resource_classes/{LICENSE}')
        for name, inventory in licenses.items():
            stock(sandbox, name, **{LICENSE: inventory})
        yield sandbox


def report(cloud, name, **columns):
    """Change columns of a compute node, like its nova-compute."""
    machine = cloud.computes.machines[name]
    nodes = tables.compute_nodes
    statement = sa.update(nodes).where(nodes.c.uuid == machine.uuid)
    with cloud.databases.cells[machine.cell].begin() as connection:
        connection.execute(statement.values(updated_at=timeutils.utcnow(), **columns))


def stock(cloud, name, **inventories):
    """Add inventories to a provider."""
    path = f'/resource_providers/{cloud.computes.machines[name].uuid}/inventories'
    has = cloud.placement.call('GET', path)
    has['inventories'].update(inventories)
    cloud.placement.call('PUT', path, **has)


def simulate(cloud, capsys, *arguments):
    """The JSON report of the command. No database changes, including Placement's."""
    shown = [*cloud.configuration, '--format', 'json']
    paths = sorted(cloud.databases.folder.glob('*.sqlite'))
    assert cloud.databases.folder / 'placement.sqlite' in paths
    with ExitStack() as stack:
        bases = []
        for path in paths:
            bases.append(stack.enter_context(closing(sqlite3.connect(path))))
        versions = [[*map(data_version, bases)]]
        assert novaschedctl.main(['simulate', *arguments, *shown]) == 0
        versions.append([*map(data_version, bases)])

    assert versions[0] == versions[1]

    return json.loads(capsys.readouterr().out)


def data_version(base):
    """A number that changes with each commit of another connection."""
    return base.execute('pragma data_version').fetchone()


def refusal_of(capsys, *arguments):
    """The single line of an error."""
    assert novaschedctl.main(['simulate', *arguments]) == 1
    said = capsys.readouterr().err
    assert said.count('\n') == 1
    return said


def placed(cloud, flavor, **fields):
    """Place servers one by one until a refusal: the number of servers by host."""
    hosts = Counter()
    while (boot := cloud.boot(flavor, **fields)).servers:
        hosts.update(server.host for server in boot.servers)
    return hosts


def placed_at_once(cloud, flavor, **fields):
    """Place servers one by one until a refusal, and build the servers afterwards: the
    number of servers by host."""
    hosts = {}
    while True:
        uuid = cloud.new_uuid()
        spec = request_spec([uuid], flavor, **fields)
        try:
            ((selection, *_),) = cloud.request(spec, [uuid])
        except NoValidHostFault:
            break
        hosts[uuid] = selection.value('service_host')

    for uuid, host in hosts.items():
        cloud.computes.spawn(host, uuid, flavor, {})
    return Counter(hosts.values())


def test_a_simulated_boot_explains_the_reason_against_a_host(cloud, capsys):
    """The explanation of a decision, and the reason against another host. Another
    multiplier gives another host."""
    said = simulate(
        cloud, capsys, 'boot', '--vcpus', '1', '--ram', '64', '--host', 'off'
    )
    (host,) = said['record']['result']['hosts']
    assert said['host']['why'] == [
        'Placement did not offer it, or there is no such host'
    ]

    packs = ('--set', 'filter_scheduler.ram_weight_multiplier=-9')
    said = simulate(cloud, capsys, 'boot', '--vcpus', '1', '--ram', '64', *packs)
    (other,) = said['record']['result']['hosts']
    machines = cloud.computes.machines
    memory_mb = machines[host].capacity['MEMORY_MB']
    assert memory_mb > machines[other].capacity['MEMORY_MB']


def test_the_same_seed_prints_the_same_tables_and_picture(cloud, capsys, tmp_path):
    """Another process prints the same tables and draws the same picture."""
    ours = tmp_path / 'ours.svg'
    others = tmp_path / 'others.svg'
    arguments = [
        *(
            'simulate',
            'boot',
            '--flavor',
            'large',
            '--until-full',
            '--count',
            '2',
            *cloud.configuration,
        ),
        *('--set', 'filter_scheduler.host_subset_size=5', '--seed', '7', '--plot'),
    ]

    assert novaschedctl.main([*arguments, str(ours)]) == 0

    command = [
        sys.executable,
        '-m',
        'novasched.cmd.novaschedctl',
        *arguments,
        str(others),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == capsys.readouterr().out
    assert 'more large fit, on' in done.stdout
    assert others.read_bytes() == ours.read_bytes()


def test_a_missing_flavor_device_or_file_is_named_in_the_error(cloud, capsys, tmp_path):
    """A missing flavor, device, file or Placement is named in one line."""
    conf = cloud.configuration
    assert 'no flavor of the id or name vast' in refusal_of(
        capsys, 'boot', '--flavor', 'vast', *conf
    )

    spec = ('--extra-spec', 'pci_passthrough:alias=tpu:1')
    assert 'no alias of that name' in refusal_of(
        capsys, 'boot', '--flavor', 'small', *spec, *conf
    )

    (tmp_path / 'cut').write_text(json.dumps({'request': CALLS['boot']})[:200])
    for source in (['replay'], ['boot', '--request']):
        said = refusal_of(capsys, *source, str(tmp_path / 'cut'), *conf)
        assert 'line 1: no pair of request and reply' in said
    text = Path(conf[1]).read_text()
    (tmp_path / 'nova.conf').write_text(
        re.sub('endpoint = .*', 'endpoint = http://127.0.0.1:1', text)
    )
    away = ('--config-file', str(tmp_path / 'nova.conf'), *conf[2:])

    assert '127.0.0.1:1' in refusal_of(capsys, 'boot', '--flavor', 'small', *away)


CELL = wire.InstanceNUMACell(
    id=0, cpuset=set(), pcpuset={0, 1, 2}, memory=512, cpu_policy='dedicated'
)
DEVICE = wire.InstancePCIRequest(
    count=1, alias_name='gpu', request_id='a',
    spec=[{name: ALIAS[name] for name in ('vendor_id', 'product_id')}],
)  # fmt: skip


@pytest.mark.parametrize(
    ('arguments', 'place', 'flavor', 'fields', 'hosts', 'why'),
    [
        # Totals, reserves, ratios, steps and greatest amounts are Placement's.
        (
            '--flavor licensed',
            placed,
            LICENSED,
            {},
            {'plain1': 4, 'plain3': 2},
            f'Placement offers no host, but would without 2 {LICENSE}',
        ),
        # Three fit on a host of three cells, though Placement counts CPUs enough for
        # four.
        (
            '--flavor p',
            placed_at_once,
            PINNED,
            {'numa_topology': wire.InstanceNUMATopology(cells=[CELL])},
            dict.fromkeys(NUMA_HOSTS, 3),
            '0 of 9 hosts: 7 do not fit the NUMA topology',
        ),
        # As many as there are devices, which only the hosts know of.
        (
            '--flavor gpu',
            placed_at_once,
            WITH_GPU,
            {'pci_requests': wire.InstancePCIRequests(requests=[DEVICE])},
            GPU_HOSTS,
            '',
        ),
        # Either all three of a request fit or none does.
        (
            '--flavor large --count 3 --zone az1',
            placed,
            LARGE,
            {'count': 3, 'zone': 'az1'},
            {'plain1': ANY, 'plain2': ANY},
            '',
        ),
    ],
)
def test_as_many_instances_fit_as_the_simulation_reports(
    cloud, capsys, arguments, place, flavor, fields, hosts, why
):
    """The simulated numbers on each host are the real ones, and the refusal has its
    reason."""
    said = simulate(cloud, capsys, 'boot', *arguments.split(), '--until-full')
    assert said['placed'] == hosts
    assert said['fit'] % fields.get('count', 1) == 0
    assert said['stopped_by'].startswith(why)
    assert place(cloud, flavor, **fields) == said['placed']


@pytest.mark.parametrize('policy', ['anti-affinity', 'affinity'])
def test_members_of_a_server_group_fit_as_simulated(cloud, capsys, policy):
    """All servers are in one group, which grows."""
    arguments = ('boot', '--flavor', 'small', '--group-policy', policy, '--until-full')
    said = simulate(cloud, capsys, *arguments)
    assert said['fit'] > 1
    assert len(said['placed']) == (1 if policy == 'affinity' else said['fit'])
    assert placed(cloud, SMALL, group=cloud.group(policy)) == said['placed']


def test_only_usable_hosts_are_filled_as_simulated(cloud, capsys):
    """A common flavor on the used hosts: disabled and silent hosts get no server, and
    hosts with too many servers keep free memory."""
    for flavor in (LARGE, SMALL):
        said = simulate(cloud, capsys, 'boot', '--flavor', flavor.name, '--until-full')
        assert said['fit']
        assert not {'off', 'dead'} & set(said['placed'])
        assert placed(cloud, flavor) == said['placed']
    assert 'with too many servers' in said['stopped_by']
    full = simulate(cloud, capsys, 'boot', '--flavor', 'small')
    assert full['record']['result']['hosts'] == []


def test_decisions_and_recorded_requests_are_replayed(
    cloud, capsys, decisions, tmp_path
):
    """Decisions are replayed, including groups and devices, and so are recorded
    requests. The results are compared."""

    packs = ('--set', 'filter_scheduler.ram_weight_multiplier=-1', '--probe', 'small')
    said = simulate(cloud, capsys, 'replay', decisions, *packs)
    assert [*map(itemgetter('name'), said['runs'])] == ['as it is', 'changed']
    assert said['skipped'] == {}

    reader = RecordReader(decisions)
    requests = [record.request for record in reader.newest()]
    reader.close()

    assert sum(request.instance_group is not None for request in requests) > 1
    assert sum(bool(request.pci_requests) for request in requests) > 1
    assert len(said['runs'][0]['answers']) == said['requests'] > 9

    (tmp_path / 'requests').write_text(
        f'{json.dumps({"request": CALLS["boot"]})}\n' * 3
    )
    said = simulate(cloud, capsys, 'replay', str(tmp_path / 'requests'))
    assert said['requests'] == 3
    assert len(said['runs']) == 1
