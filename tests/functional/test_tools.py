# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl shadow`` and ``simulate`` on MariaDB, with nova's schema."""

import json

from tests.lab import broker
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids

ROW = {
    'id': 77,
    'name': 'm1.small',
    'flavorid': 'small',
    'vcpus': 2,
    'memory_mb': 1000,
    'root_gb': 1,
    'ephemeral_gb': 0,
    'swap': 0,
    'rxtx_factor': 1.0,
    'disabled': False,
    'is_public': True,
}
"""Columns of a flavor."""


def test_shadow_repeats_the_decisions_of_recorded_requests(
    cloud, client, tmp_path, tool
):
    """``shadow`` repeats the decisions of recorded requests. The decisions are the same
    until the cloud changes; then the report names the reason. Nothing is claimed."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    lines = []
    # A decision must not see earlier claims: neither nova-scheduler nor shadow does.
    config = {'novasched': {'in_flight_timeout': 0}}
    with Daemon(cloud, config), broker.copied(cloud.amqp_url) as bodies:
        for server in new_uuids(3):
            answer = client.select_destinations([server], Flavor())
            reply = {'result': [[{'nova_object.data': answer[0][0]}]], 'failure': None}
            lines.append(json.dumps({'request': bodies(), 'reply': reply}))
            cloud.placement.release(server)

    path = tmp_path / 'requests.jsonl'
    path.write_text('\n'.join(lines))

    def shadow():
        return tool('shadow', cloud.config('shadow'), '--requests', str(path))

    status, report = shadow()
    assert status == 0, report
    assert report['counts'] == {
        'requests': 3,
        'compared': 3,
        'same': 3,
        'different': 0,
        'unknown': 0,
        'failed': 0,
    }

    cloud.cells['cell1'].update('services', {'disabled': True}, host='host-2')
    status, report = shadow()
    assert status == 1
    assert report['counts']['different'] == 3
    for row in report['requests']:
        reason = row['difference']['why']
        assert reason == 'ComputeFilter rejects it: disabled, reason: None'
    assert cloud.all_allocations() == {}


def test_simulate_boots_a_flavor_until_the_cloud_is_full(cloud, tool):
    """``simulate`` reads the flavor and its extra specs, and claims nothing."""
    cloud.reset()
    for number, ram_mb in enumerate((2100, 3100, 5100), 1):
        cloud.add_host(f'host-{number}', f'cell{number % 2 + 1}', ram_mb=ram_mb)
    cloud.cells['cell2'].update('services', {'disabled': True}, host='host-3')
    cloud.api.insert('flavors', [ROW])
    config = cloud.config('simulate')

    def simulate():
        status, report = tool(
            'simulate', config, 'boot', '--flavor', 'small', '--until-full'
        )
        assert status == 0
        return report['placed']

    assert simulate() == {'host-1': 2, 'host-2': 3}
    spec = {'flavor_id': ROW['id'], 'key': 'resources:CUSTOM_GOLD', 'value': '1'}
    cloud.api.insert('flavor_extra_specs', [spec])
    assert simulate() == {}
    assert cloud.all_allocations() == {}
