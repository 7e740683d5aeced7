# SPDX-License-Identifier: Apache-2.0
"""What a real daemon has decided, as ``novaschedctl explain`` and the page for people
tell it."""

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

SMALL = Flavor(ram_mb=512)
LARGE = Flavor(ram_mb=6000)
SOON = 60.0


def test_a_placement_and_refusals(cloud, client, tool):
    """Of each request the command names the true cause, once the daemon that decided it
    is gone; users are told the first line, as the option wants it. Nothing else has to
    be set."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    placed, unoffered, filtered = new_uuids(3)
    with Daemon(cloud, {'novasched': {'fault_detail': 'counts'}}) as daemon:
        client.select_destinations([placed], SMALL)
        no_offer = client.refusal(unoffered, flavor=LARGE, zone='south')
        cloud.cells['cell1'].update(
            'services', {'disabled': True}, binary='nova-compute'
        )
        no_host = client.refusal(filtered, flavor=SMALL)
        assert daemon.stop() == 0

    def explain(*arguments):
        status, told = tool('explain', daemon.config, *arguments)
        assert status == 0
        return told

    told = explain(placed, '--host', 'host-1')
    assert told['headline'] == 'host-2: 2 of 2 hosts fit'
    assert told['host']['why'] == ['fit, number 2 of 2 by weight']
    best = told['record']['attempts'][0]['best']
    assert [each['host'] for each in best] == ['host-2', 'host-1']
    weighed = {each['weigher']: each for each in best[0]['shares']}['RAMWeigher']
    assert weighed == {
        'weigher': 'RAMWeigher',
        'raw': 8192.0,
        'normalised': 1.0,
        'multiplier': 1.0,
        'added': 1.0,
    }
    assert set(told['record']['steps']) == {
        'prefilters',
        'placement',
        'hosts',
        'filters',
        'weighers',
        'claim',
        'alternates',
    }

    told = explain(unoffered)
    assert told['headline'] == '0 of 2 hosts: 1 in another zone, 1 lack MEMORY_MB'
    assert 'Placement offers no host.' in no_offer

    told = explain('--last', '--host', 'host-2')
    assert told['headline'] == '0 of 2 hosts: 2 disabled'
    assert told['host']['why'] == ['ComputeFilter: disabled, reason: None']
    assert told['record']['request']['instance_uuids'] == [filtered]
    assert '0 of 2 hosts: 2 disabled.' in no_host
    assert cloud.placement.all_allocations().keys() == {placed}


AVX = Flavor(extra_specs={'trait:HW_CPU_X86_AVX512F': 'required'})
AVX_TRAIT = ('HW_CPU_X86_AVX512F',)
DISABLED = 'COMPUTE_STATUS_DISABLED'
NOWHERE = Flavor(extra_specs={'trait:CUSTOM_NOWHERE': 'required'})
NO_ROOM = json.dumps(
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
        every('PUT', '/allocations', answer(409, NO_ROOM)),
        '0 of 3 hosts: 1 disabled, 1 lack MEMORY_MB, 1 claimed by others',
    ),
    (
        {},
        every('GET', '/allocation_candidates', answer(503)),
        'Not decided: Placement answers 503 Service Unavailable',
    ),
)
"""What is asked, what Placement does then, and the first line."""


def test_refusals_by_placement(cloud, client, tmp_path):
    """Whatever it is that Placement refuses, the first line names it; what it says of
    hosts adds up to all of them."""
    cloud.reset()
    cloud.add_host('small', ram_mb=512)
    cloud.add_host('large')
    cloud.add_host('off', traits=('COMPUTE_STATUS_DISABLED',))
    cloud.add_aggregate('tenants', ['off'], metadata={'filter_tenant_id': 'tenant'})
    path = str(tmp_path / 'decisions.sqlite')

    def told(server):
        with closing(RecordReader(path)) as reader:
            records = [
                explain.as_json(each, 0, None, None) for each in reader.of(server)
            ]
        if records:
            return json.loads(records[-1])
        return {'headline': NO_OFFER}

    with Proxy(cloud.placement_url) as proxy:
        config = {
            'scheduler': {'limit_tenants_to_placement_aggregate': True},
            'placement': {'endpoint': proxy.url},
            'novasched': {'decisions_file': path, 'placement_patience': 0},
        }
        with Daemon(cloud, config):
            client.select_destinations(new_uuids(), SMALL)
            wait_until(lambda: Path(path).exists(), SOON, 'file')
            for asked, rule, headline in REFUSALS:
                proxy.faults = rule
                [server] = new_uuids()
                client.refusal(server, **asked)
                # Placement is asked again after the answer, and the record made anew.
                known = lambda: told(server)['headline'] == headline  # noqa: B023, E731
                wait_until(known, SOON, f'record of: {headline}')
                assert sum(told(server)['counts'].values()) in (0, 3)
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
"""Hosts that lack one thing each, and what ``explain --host`` says of them."""


def a_host_that_lacks(cloud, name):
    """All that is asked for, but for the one thing by which the host is called."""
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
    nic = {'CUSTOM_NIC': {'total': 2}}
    cards = {
        'bare': [({'CUSTOM_NIC': {'total': 1}}, ['CUSTOM_FAST'])],
        'mixed': [(nic, []), ({'CUSTOM_NIC': {'total': 1}}, ['CUSTOM_FAST'])],
    }.get(name, [(nic, ['CUSTOM_FAST'])])
    for number, (inventories, card_traits) in enumerate(cards):
        [card] = new_uuids()
        cloud.placement.add_provider(
            card, f'{name}-{number}', inventories, card_traits, host.uuid
        )
    if name == 'full':
        cloud.placement.allocate(*new_uuids(), host.uuid, {'MEMORY_MB': 4000})


def explained(tool, config, server):
    """The causes of a refusal; none as long as there is no record, or no diagnosis."""
    with contextlib.suppress(ValueError):  # there is nothing yet
        return tool('explain', config, server)[1].get('counts')
    return None


def test_what_each_host_lacks(cloud, client, tool):
    """Each kind of cause by itself, asked of the real Placement, together with a host
    that a filter dropped; then of a request for one host, what the others lack is that
    they are another one."""
    cloud.reset()
    for name in (*LACKING, 'down'):
        if name != 'stranger':
            a_host_that_lacks(cloud, name)
    cloud.add_rows([Compute('stranger', 'cell2')])
    names = {*LACKING, 'down'} - {'stranger'}
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
    asked = {'flavor': FUSSY, 'zone': 'south', 'project_id': 'us'}
    refused, aimed = new_uuids(2)
    with Daemon(cloud, config) as daemon:
        client.refusal(refused, **asked)
        client.refusal(aimed, **asked, force_hosts=['tiny'])
        # Its diagnosis comes after a pause: together they have a share of Placement's
        # time.
        wait_until(lambda: explained(tool, daemon.config, aimed), SOON, 'diagnosis')
        assert daemon.stop() == 0
    status, told = tool('explain', daemon.config, refused)
    assert status == 0
    assert told['counts'] == {
        **{why.partition(': ')[0]: 1 for why in LACKING.values()},
        'lack MEMORY_MB': 2,
        'down': 1,
    }
    for name, why in LACKING.items():
        _, told = tool('explain', daemon.config, refused, '--host', name)
        assert told['host']['why'] == [f'Placement: {why}']
    _, told = tool('explain', daemon.config, aimed)
    assert (
        told['headline'] == '0 of 12 hosts: 11 not the requested host, 1 lack MEMORY_MB'
    )


def test_a_file_that_cannot_be_written(cloud, client, capsys):
    """The start warns once, says which option to set, and servers get their hosts."""
    cloud.reset()
    cloud.add_host('host-1')
    config = {'DEFAULT': {'state_path': '/nowhere'}, 'scheduler': {'workers': 2}}
    with Daemon(cloud, config) as daemon:
        for _ in range(4):
            client.select_destinations(new_uuids(), SMALL)
        assert daemon.stop() == 0
        warnings = [x for x in daemon.text().splitlines() if 'kept only in memory' in x]
    assert len(warnings) == 1
    assert ' WARNING ' in warnings[0]
    assert '/nowhere/novasched' in warnings[0]
    assert 'set [novasched] decisions_file' in warnings[0]
    assert (
        novaschedctl.main(['explain', '--config-file', str(daemon.config), '--last'])
        == 1
    )
    assert (
        '/nowhere/novasched/decisions.sqlite: there is no such file'
        in capsys.readouterr().err
    )


def test_hosts_and_decisions(cloud, client, tmp_path):
    """The page has the hosts of all cells as they are, and each decision with its
    reasons; metrics stand beside it, and nothing secret is in it. Of a cell that is
    silent it shows what it knows, and the cells are those that there are now, which
    nobody has to tell it."""
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
        answer = requests.get(f'http://{bind}{path}', timeout=SOON)
        assert answer.status_code == status, answer.text
        assert answer.headers['X-Content-Type-Options'] == 'nosniff'
        assert "default-src 'none'" in answer.headers['Content-Security-Policy']
        return answer.text

    def says(words):
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
        says('host-3')
        says('1 disabled')
        assert '://' not in text
        tunnel.shut()
        says('Cell cell2 does not answer: its hosts are shown as they were')
        assert 'title="host-2: ' in get('/')
        tunnel.open()
        wait_until(lambda: 'does not answer' not in get('/'), SOON, 'cell2')
        cloud.map_cell('cell2', disabled=True)
        wait_until(lambda: 'title="host-2: ' not in get('/'), SOON, 'end of cell2')
        assert daemon.stop() == 0
    cloud.restore_cells()
