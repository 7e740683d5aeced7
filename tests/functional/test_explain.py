# SPDX-License-Identifier: Apache-2.0
"""What a real daemon has decided, as ``novaschedctl explain`` and the page for people tell it."""

import json
from contextlib import closing
from pathlib import Path

import requests

from novasched.observe.records.store import RecordReader
from novasched.tools import explain
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import Proxy, Tunnel, answer, every

SMALL, LARGE = Flavor(ram_mb=512), Flavor(ram_mb=6000)
SOON = 60.0


def test_a_placement_and_refusals(cloud, client, tmp_path, tool):
    """Of each request the command names the true cause, once the daemon that decided it is
    gone; users are told the first line, as the option wants it."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    config = {
        'DEFAULT': {'state_path': tmp_path},
        'novasched': {'decisions_file': '$state_path/decisions.sqlite', 'fault_detail': 'counts'},
    }
    placed, unoffered, filtered = new_uuids(3)
    with Daemon(cloud, config) as daemon:
        client.select_destinations([placed], SMALL)
        no_offer = client.refusal(unoffered, flavor=LARGE, zone='south')
        cloud.cells['cell1'].update('services', {'disabled': True}, binary='nova-compute')
        no_host = client.refusal(filtered, flavor=SMALL)
        assert daemon.stop() == 0

    def explain(*arguments):
        status, told = tool('explain', daemon.config, *arguments)
        assert status == 0
        return told

    told = explain(placed, '--host', 'host-1')
    assert told['headline'] == 'host-2: 2 of 2 hosts fit'
    assert told['host']['why'] == ['fit, number 2 of 2 by weight']
    best = told['record']['looks'][0]['best']
    assert [each['host'] for each in best] == ['host-2', 'host-1']
    weighed = {each['weigher']: each for each in best[0]['shares']}['RAMWeigher']
    assert weighed == {
        'weigher': 'RAMWeigher', 'raw': 8192.0, 'normalised': 1.0, 'multiplier': 1.0, 'added': 1.0,
    }  # fmt: skip
    assert set(told['record']['steps']) == {
        'prefilters', 'placement', 'hosts', 'filters', 'weighers', 'claim', 'alternates',
    }  # fmt: skip

    told = explain(unoffered)
    assert told['headline'] == (
        'Placement offers no host, but would without availability zone south or without '
        '6000 MEMORY_MB'
    )
    assert 'Placement offers no host.' in no_offer

    told = explain('--last', '--host', 'host-2')
    assert told['headline'] == '0 of 2 hosts: 2 disabled'
    assert told['host']['why'] == ['ComputeFilter: disabled, reason: None']
    assert told['record']['asked']['servers'] == [filtered]
    assert '0 of 2 hosts: 2 disabled.' in no_host
    assert cloud.placement.all_allocations().keys() == {placed}


AVX = Flavor(extra_specs={'trait:HW_CPU_X86_AVX512F': 'required'})
NOWHERE = Flavor(extra_specs={'trait:CUSTOM_NOWHERE': 'required'})
NO_ROOM = json.dumps({'errors': [{'status': 409, 'detail': 'no room', 'code': ''}]}).encode()
NO_OFFER = 'Placement offers no host'
REFUSALS = (
    (
        {'flavor': Flavor(vcpus=999, ram_mb=999_999)}, None,
        f'{NO_OFFER}, whichever one of 5 constraints is left out',
    ),
    ({'flavor': AVX}, None, f'{NO_OFFER}, but would without trait HW_CPU_X86_AVX512F'),
    (
        {'project_id': 'tenant'}, None,
        f'{NO_OFFER}, but would without aggregate tenants or without leaving out disabled hosts',
    ),
    (
        {'flavor': NOWHERE}, None,
        f'{NO_OFFER}: it refuses the query: No such trait(s): CUSTOM_NOWHERE.',
    ),
    (
        {}, every('PUT', '/allocations', answer(409, NO_ROOM)),
        '0 of 3 hosts: 2 not offered by Placement, 1 claimed by others',
    ),
    (
        {}, every('GET', '/allocation_candidates', answer(503)),
        'Not decided: Placement answers 503 Service Unavailable',
    ),
)  # fmt: skip
"""What is asked, what Placement does then, and the first line."""


def test_refusals_by_placement(cloud, client, tmp_path):
    """Whatever it is that Placement refuses, the first line names it; what it says of hosts
    adds up to all of them."""
    cloud.reset()
    cloud.add_host('small', ram_mb=512)
    cloud.add_host('large')
    cloud.add_host('off', traits=('COMPUTE_STATUS_DISABLED',))
    cloud.add_aggregate('tenants', ['off'], metadata={'filter_tenant_id': 'tenant'})
    path = str(tmp_path / 'decisions.sqlite')

    def told(server):
        with closing(RecordReader(path)) as reader:
            records = [explain.as_json(each, 0, None, None) for each in reader.of(server)]
        return json.loads(records[-1]) if records else {'headline': NO_OFFER}

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
                known = lambda server=server: told(server)['headline'] != NO_OFFER  # noqa: E731
                wait_until(known, SOON, f'record of: {headline}')
                assert told(server)['headline'] == headline
                assert sum(told(server)['counts'].values()) in (0, 3)
    assert len(cloud.placement.all_allocations()) == 1


def test_hosts_and_decisions(cloud, client, tmp_path):
    """The page has the hosts of all cells as they are, and each decision with its reasons;
    metrics stand beside it, and nothing secret is in it. Of a cell that is silent it shows what it
    knows, and the cells are those that there are now, which nobody has to tell it."""
    cloud.reset()
    cloud.add_host('host-1', ram_mb=4096)
    cloud.add_host('host-2', cell='cell2', ram_mb=8192)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {
        'decisions_file': tmp_path / 'decisions.sqlite', 'metrics_bind': bind, 'page': True,
        'cell_timeout': 3,
    }}  # fmt: skip
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
        wait_until(lambda: 'but would without' in get(f'/decisions?q={refused}'), SOON, 'inquiry')
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
