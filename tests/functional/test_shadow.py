# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl shadow`` beside the answers that nova's client got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from novasched.cmd import novaschedctl
from tests.lab import broker
from tests.lab.client import NovaClient, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud


def test_recorded_requests(
    cloud: NovaCloud, client: NovaClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Taken from the queue and decided again, they are the same until the cloud changes; then
    the reason is told. Nothing is claimed."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    lines = []
    # Each decision for itself, as nova-scheduler's and the shadow's are.
    config = {'novasched': {'in_flight_timeout': 0}}
    with Daemon(cloud, config), broker.copied(cloud.amqp_url) as bodies:
        for server in new_uuids(3):
            answer = client.select_destinations([server], Flavor())
            reply = {'result': [[{'nova_object.data': answer[0][0]}]], 'failure': None}
            lines.append(json.dumps({'request': bodies(), 'reply': reply}))
            cloud.placement.release(server)
    path = tmp_path / 'requests.jsonl'
    path.write_text('\n'.join(lines))

    def shadow() -> tuple[int, Any]:
        capsys.readouterr()
        config = str(cloud.config('shadow'))
        arguments = ['--config-file', config, '--requests', str(path), '--format', 'json']
        status = novaschedctl.main(['shadow', *arguments])
        return status, json.loads(capsys.readouterr().out)

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
    assert {row['difference']['why'] for row in report['requests']} == {
        'ComputeFilter rejects it: disabled, reason: None'
    }
    assert cloud.all_allocations() == {}
