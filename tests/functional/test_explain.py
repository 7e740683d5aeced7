# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl explain`` and the web pages explain the decisions of a real daemon."""

import contextlib
import json
from contextlib import closing
from pathlib import Path

import requests

from novasched.cmd import novaschedctl
from novasched.observe.records.store import RecordReader
from novasched.tools import explain
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import Proxy, Tunnel, answer, every
from tests.lab.reports import a_numa_cell, a_numa_topology

SMALL = Flavor(ram_mb=512)
LARGE = Flavor(ram_mb=6000)
SOON = 60.0


def test_explain_names_the_cause_of_every_decision(cloud, client, tool):
    """After the end of the daemon, the command names the cause of every decision. Users
    get the first line in the fault, by ``fault_detail``. Decision records need no
    configuration."""
    cloud.reset()
    cloud.add_host('host-1', ram_mb=4096)
    cloud.add_host('host-2', ram_mb=8192)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    placed, unoffered, filtered = new_uuids(3)
    with Daemon(cloud, {'novasched': {'fault_detail': 'counts'}}) as daemon:
        client.select_destinations([placed], SMALL)
        fault_unoffered = client.refusal(unoffered, flavor=LARGE, zone='south')
        cloud.cells['cell1'].update(
            'services', {'disabled': True}, binary='nova-compute'
        )
        fault_filtered = client.refusal(filtered, flavor=SMALL)
        assert daemon.stop() == 0

    def explain(*arguments):
        status, explanation = tool('explain', daemon.config, *arguments)
        assert status == 0
        return explanation

    explanation = explain(placed, '--host', 'host-1')
    assert explanation['headline'] == 'host-2: 2 of 2 hosts fit'
    assert explanation['host']['why'] == ['fit, number 2 of 2 by weight']
    best = explanation['record']['attempts'][0]['best']
    assert [host['host'] for host in best] == ['host-2', 'host-1']
    shares = {share['weigher']: share for share in best[0]['shares']}
    assert shares['RAMWeigher'] == {
        'weigher': 'RAMWeigher',
        'raw': 8192.0,
        'normalised': 1.0,
        'multiplier': 1.0,
        'added': 1.0,
    }
    assert set(explanation['record']['steps']) == {
        'prefilters',
        'placement',
        'hosts',
        'filters',
        'weighers',
        'claim',
        'alternates',
    }

    headline = '0 of 2 hosts: 1 in another zone, 1 lack MEMORY_MB'
    assert explain(unoffered)['headline'] == headline
    assert 'Placement offers no host.' in fault_unoffered

    explanation = explain('--last', '--host', 'host-2')
    assert explanation['headline'] == '0 of 2 hosts: 2 disabled'
    assert explanation['host']['why'] == ['ComputeFilter: disabled, reason: None']
    assert explanation['record']['request']['instance_uuids'] == [filtered]
    assert '0 of 2 hosts: 2 disabled.' in fault_filtered
    assert cloud.placement.all_allocations().keys() == {placed}


AVX = Flavor(extra_specs={'trait:HW_CPU_X86_AVX512F': 'required'})
AVX_TRAIT = ('HW_CPU_X86_AVX512F',)
DISABLED = 'COMPUTE_STATUS_DISABLED'
NOWHERE = Flavor(extra_specs={'trait:CUSTOM_NOWHERE': 'required'})
CONFLICT = json.dumps(
    {'errors': [{'status': 409, 'detail': 'no room', 'code': ''}]}
).encode()
NO_OFFER = 'Placement offers no host'
REFUSALS = (
    (
        {'flavor': Flavor(vcpus=999, ram_mb=999_999)},
        None,
        '0 of 3 hosts: 2 lack MEMORY_MB, 1 disabled',
    ),
    ({'flavor': AVX}, None, '0 of 3 hosts: 2 lack HW_CPU_X86_AVX512F, 1 disabled'),
    ({'project_id': 'tenant'}, None, '0 of 3 hosts: 2 for other projects, 1 disabled'),
    (
        {'flavor': NOWHERE},
        None,
        f'{NO_OFFER}: it refuses the query: Invalid trait(s) in "required" parameter: No such '
        'trait(s): CUSTOM_NOWHERE.',
    ),
    (
        {},
        every('PUT', '/allocations', answer(409, CONFLICT)),
        '0 of 3 hosts: 1 disabled, 1 lack MEMORY_MB, 1 refused by Placement',
    ),
    (
        {},
        every('GET', '/allocation_candidates', answer(503)),
        'Not decided: Placement answers 503 Service Unavailable',
    ),
)
"""Options of a request, fault of the proxy, and first line of the explanation."""


def test_records_name_the_reason_of_a_refusal_by_placement(cloud, client, tmp_path):
    """The first line names the reason of Placement's refusal. The counts of hosts in
    the record add up to the number of hosts."""
    cloud.reset()
    cloud.add_host('small', ram_mb=512)
    cloud.add_host('large')
    cloud.add_host('off', traits=('COMPUTE_STATUS_DISABLED',))
    cloud.add_aggregate('tenants', ['off'], metadata={'filter_tenant_id': 'tenant'})
    path = str(tmp_path / 'decisions.sqlite')

    def latest_record(server):
        with closing(RecordReader(path)) as reader:
            records = list(reader.of(server))
        if not records:
            return {'headline': NO_OFFER}
        return json.loads(explain.as_json(records[-1], 0, None, None))

    with Proxy(cloud.placement_url) as proxy:
        config = {
            'scheduler': {'limit_tenants_to_placement_aggregate': True},
            'placement': {'endpoint': proxy.url},
            'novasched': {
                'decisions_file': path,
                'placement_patience': 0,
                # An earlier answer must not hide the faults of the proxy.
                'candidates_max_age': 0,
            },
        }
        with Daemon(cloud, config):
            client.select_destinations(new_uuids(), SMALL)
            wait_until(lambda: Path(path).exists(), SOON, 'file')

            for options, rule, headline in REFUSALS:
                proxy.faults = rule
                [server] = new_uuids()
                client.refusal(server, **options)

                # After the answer, the scheduler asks Placement for the causes and
                # writes the record again.
                def has_headline(server=server, headline=headline):
                    return latest_record(server)['headline'] == headline

                wait_until(has_headline, SOON, f'record of: {headline}')
                assert sum(latest_record(server)['counts'].values()) in (0, 3)
    assert len(cloud.placement.all_allocations()) == 1


FUSSY = Flavor(
    vcpus=4,
    ram_mb=2048,
    extra_specs={
        'trait:HW_CPU_X86_AVX512F': 'required', 'trait:CUSTOM_BAD': 'forbidden',
        'resources1:CUSTOM_NIC': '2', 'trait1:CUSTOM_FAST': 'required',
    },
)  # fmt: skip
LACKING = {
    'stranger': 'unknown to Placement: it has no provider of that UUID',
    'elsewhere': 'in another zone: availability zone south',
    'theirs': 'for other projects: aggregate ours',
    'isolated': 'in isolated aggregates: staying out of aggregate licensed',
    'off': 'disabled: its provider is marked so, though its service is enabled',
    'bad': 'have CUSTOM_BAD: forbidding trait CUSTOM_BAD',
    'plain': 'lack HW_CPU_X86_AVX512F: trait HW_CPU_X86_AVX512F',
    'full': 'lack MEMORY_MB: 2048 MEMORY_MB, in use or reserved',
    'tiny': 'lack MEMORY_MB: 2048 MEMORY_MB, more than there is',
    'bare': 'lack CUSTOM_NIC: 2 CUSTOM_NIC (group 1)',
    'mixed': 'without a candidate that meets all at once: each constraint is met by itself, but '
    'not by what a candidate may be made of',
}
"""Hosts that lack a single property each, and the cause by ``explain --host``."""


def add_host_that_lacks(cloud, name):
    """Add a host with all properties of :data:`FUSSY`, except the property that the
    name of the host stands for."""
    traits = {
        'plain': (),
        'bad': (*AVX_TRAIT, 'CUSTOM_BAD'),
        'off': (*AVX_TRAIT, DISABLED),
    }
    host = cloud.add_host(
        name,
        ram_mb=1024 if name == 'tiny' else 4096,
        traits=traits.get(name, AVX_TRAIT),
    )

    one_nic = {'CUSTOM_NIC': {'total': 1}}
    two_nics = {'CUSTOM_NIC': {'total': 2}}
    cards = {
        'bare': [(one_nic, ['CUSTOM_FAST'])],
        'mixed': [(two_nics, []), (one_nic, ['CUSTOM_FAST'])],
    }.get(name, [(two_nics, ['CUSTOM_FAST'])])
    for number, (inventories, card_traits) in enumerate(cards):
        [card] = new_uuids()
        cloud.placement.add_provider(
            card, f'{name}-{number}', inventories, card_traits, host.uuid
        )

    if name == 'full':
        cloud.placement.allocate(*new_uuids(), host.uuid, {'MEMORY_MB': 4000})


def explained(tool, config, server):
    """The causes of a refusal; None while there is no record or no diagnosis."""
    with contextlib.suppress(ValueError):  # no record
        return tool('explain', config, server)[1].get('counts')
    return None


def test_explain_names_the_property_that_each_host_lacks(cloud, client, tool):
    """The diagnosis by the real Placement finds a cause of every kind, beside a host
    that a filter rejects. When a request names one host, the cause of the remaining
    hosts is the name."""
    cloud.reset()
    names = {*LACKING, 'down'} - {'stranger'}
    for name in (*LACKING, 'down'):
        if name in names:
            add_host_that_lacks(cloud, name)
    cloud.add_rows([Compute('stranger', 'cell2')])
    cloud.add_aggregate('rack', [*names - {'elsewhere'}], zone='south')
    cloud.add_aggregate(
        'ours', [*names - {'theirs'}], metadata={'filter_tenant_id': 'us'}
    )
    cloud.add_aggregate(
        'licensed', ['isolated'], metadata={'trait:CUSTOM_LICENSED': 'required'}
    )
    cloud.cells['cell1'].update('services', {'forced_down': True}, host='down')

    config = {
        'scheduler': {
            'limit_tenants_to_placement_aggregate': True,
            'enable_isolated_aggregate_filtering': True,
        }
    }
    options = {'flavor': FUSSY, 'zone': 'south', 'project_id': 'us'}
    refused, forced = new_uuids(2)
    with Daemon(cloud, config) as daemon:
        client.refusal(refused, **options)
        client.refusal(forced, **options, force_hosts=['tiny'])
        # The second diagnosis waits: all diagnoses share a part of Placement's time.
        wait_until(lambda: explained(tool, daemon.config, forced), SOON, 'diagnosis')
        assert daemon.stop() == 0

    status, explanation = tool('explain', daemon.config, refused)
    assert status == 0
    counts = {cause.partition(': ')[0]: 1 for cause in LACKING.values()}
    assert explanation['counts'] == {**counts, 'lack MEMORY_MB': 2, 'down': 1}
    for name, cause in LACKING.items():
        _, explanation = tool('explain', daemon.config, refused, '--host', name)
        assert explanation['host']['why'] == [f'Placement: {cause}']

    _, explanation = tool('explain', daemon.config, forced)
    headline = '0 of 12 hosts: 11 not the requested host, 1 lack MEMORY_MB'
    assert explanation['headline'] == headline


PINNED = {'hw:cpu_policy': 'dedicated'}
NO_FALLBACK = {'workarounds': {'disable_fallback_pcpu_query': True}}
SHARED = [*range(4)]
DEDICATED = [*range(4, 16)]
LINKS = {'CUSTOM_LINK': {'total': 16, 'min_unit': 4, 'step_size': 4, 'max_unit': 8}}
IN_USE = 'in use or reserved'
AMOUNTS = {
    'VCPU:5': 'more than a server may have (4)',
    'VCPU:17': 'more than there is',
    'VCPU:4': IN_USE,
    'PCPU:13': 'more than there is',
    'PCPU:12': IN_USE,
    'CUSTOM_LINK:2': 'at least 4 at once',
    'CUSTOM_LINK:6': 'only in units of 4',
    'CUSTOM_LINK:12': 'more than a server may have (8)',
    'CUSTOM_LINK:20': 'more than there is',
    'CUSTOM_LINK:8': IN_USE,
}
"""Amounts of the flavor, and the cause why the host cannot give the amount."""


def test_explained_amounts_agree_with_the_inventories(cloud, client, tool):
    """The causes agree with the inventories of the real Placement: a host with 4 shared
    CPUs, overcommitted fourfold, 12 dedicated CPUs and links in units of four. While
    the host has room, it gets the servers whose amounts are later in use."""
    cloud.reset()
    topology = a_numa_topology(a_numa_cell(0, 8, cpuset=SHARED, pcpuset=DEDICATED))
    columns = {'vcpus': 16, 'numa_topology': topology}
    host = cloud.add_host('host-1', vcpus=4, pcpus=12, columns=columns)
    cloud.placement.call('PUT', '/resource_classes/CUSTOM_LINK')
    cloud.placement.put(host.uuid, inventories={**host.inventories(), **LINKS})

    reasons = {}

    def refuse(flavor, reason):
        [server] = new_uuids()
        client.refusal(server, flavor=flavor)
        reasons[server] = reason

    with Daemon(cloud, NO_FALLBACK) as daemon:
        in_use = []
        for amount, cause in AMOUNTS.items():
            name, _, number = amount.partition(':')
            flavor = Flavor(vcpus=1, extra_specs={f'resources:{name}': number})
            if name == 'PCPU':
                flavor = Flavor(int(number), extra_specs=PINNED)
            reason = f'{number} {name}, {cause}'
            if cause == IN_USE:
                assert client.chosen(*new_uuids(), flavor=flavor) == ['host-1']
                in_use.append((flavor, reason))
            else:
                refuse(flavor, reason)
        for consumer in new_uuids(2):
            amounts = {'VCPU': 4, 'CUSTOM_LINK': 4}
            cloud.placement.allocate(consumer, host.uuid, amounts)
        for flavor, reason in in_use:
            refuse(flavor, reason)

        for server in reasons:
            # Each diagnosis waits: all diagnoses share a part of Placement's time.
            def is_explained(server=server):
                return explained(tool, daemon.config, server)

            wait_until(is_explained, SOON, 'diagnosis')
        assert daemon.stop() == 0

    for server, reason in reasons.items():
        _, explanation = tool('explain', daemon.config, server, '--host', 'host-1')
        [why] = explanation['host']['why']
        assert why.partition(': ')[2].partition(': ')[2] == reason


def test_an_unwritable_decisions_file_causes_a_single_warning(cloud, client, capsys):
    """The daemon warns once at the start and names the option to set. Servers get
    hosts."""
    cloud.reset()
    cloud.add_host('host-1')
    config = {'DEFAULT': {'state_path': '/nowhere'}, 'scheduler': {'workers': 2}}
    with Daemon(cloud, config) as daemon:
        for _ in range(4):
            client.select_destinations(new_uuids(), SMALL)
        assert daemon.stop() == 0
    lines = daemon.text().splitlines()
    [warning] = [line for line in lines if 'kept only in memory' in line]
    assert ' WARNING ' in warning
    assert '/nowhere/novasched' in warning
    assert 'set [novasched] decisions_file' in warning

    command = ['explain', '--config-file', str(daemon.config), '--last']
    assert novaschedctl.main(command) == 1
    error = '/nowhere/novasched/decisions.sqlite: there is no such file'
    assert error in capsys.readouterr().err


def test_web_pages_show_hosts_and_decisions(cloud, client, tmp_path):
    """The web pages show the hosts of all cells, and decisions with their reasons,
    beside the metrics, and no secrets. The hosts of a silent cell are shown as last
    read. Changes of cell mappings are shown without a reload."""
    cloud.reset()
    cloud.add_host('host-1', ram_mb=4096)
    cloud.add_host('host-2', cell='cell2', ram_mb=8192)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    bind = f'127.0.0.1:{free_port()}'
    config = {
        'novasched': {
            'decisions_file': tmp_path / 'decisions.sqlite',
            'metrics_bind': bind,
            'page': True,
            'cell_timeout': 3,
        }
    }
    placed, refused = new_uuids(2)

    def get(path, status=200):
        response = requests.get(f'http://{bind}{path}', timeout=SOON)
        assert response.status_code == status, response.text
        assert response.headers['X-Content-Type-Options'] == 'nosniff'
        assert "default-src 'none'" in response.headers['Content-Security-Policy']
        return response.text

    def wait_for(words):
        wait_until(lambda: words in get('/'), SOON, words)

    tunnel = Tunnel(cloud.cells['cell2'].url)
    cloud.map_cell('cell2', database_connection=tunnel.url)
    with tunnel, Daemon(cloud, config) as daemon:
        client.select_destinations([placed], SMALL)
        client.refusal(refused, flavor=LARGE, zone='south')

        text = get('/?by=zone')
        assert '<strong>2</strong> hosts' in text
        assert 'south' in text
        assert 'host-2: 8.00 of 8.00 GiB free' in text
        assert 'rack-1' in get('/hosts/host-1')
        assert 'host-2: 2 of 2 hosts fit' in get(f'/decisions?q={placed}')
        wait_until(
            lambda: 'lack MEMORY_MB' in get(f'/decisions?q={refused}'), SOON, 'inquiry'
        )
        assert 'host-2: 2 of 2 hosts fit' in get('/hosts/host-2')
        assert requests.get(f'http://{bind}/metrics', timeout=SOON).status_code == 200
        get('/hosts/host-3', 404)

        cloud.cells['cell1'].update('services', {'disabled': True}, host='host-1')
        cloud.add_host('host-3')
        wait_for('host-3')
        wait_for('1 disabled')
        assert '://' not in text

        tunnel.shut()
        wait_for('Cell cell2 does not answer: its hosts are shown as they were')
        assert 'title="host-2: ' in get('/')
        tunnel.open()
        wait_until(lambda: 'does not answer' not in get('/'), SOON, 'cell2')

        cloud.map_cell('cell2', disabled=True)
        wait_until(lambda: 'title="host-2: ' not in get('/'), SOON, 'end of cell2')
        assert daemon.stop() == 0
    cloud.restore_cells()
