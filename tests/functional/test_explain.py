# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl explain`` after a real daemon has decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from novasched.cmd import novaschedctl

from .client import NovaClient, Refused, new_uuids
from .compute_rows import Flavor
from .daemon import Daemon
from .nova_cloud import NovaCloud

SMALL, LARGE = Flavor(ram_mb=512), Flavor(ram_mb=6000)


def test_a_placement_and_refusals(
    cloud: NovaCloud, client: NovaClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
        with pytest.raises(Refused) as no_offer:
            client.select_destinations([unoffered], LARGE, zone='south')
        cloud.cells['cell1'].update('services', {'disabled': True}, binary='nova-compute')
        with pytest.raises(Refused) as no_host:
            client.select_destinations([filtered], SMALL)
        assert daemon.stop() == 0
        nova_conf = str(daemon.config)

    def explain(*arguments: str) -> Any:
        capsys.readouterr()
        shown = ['--config-file', nova_conf, '--format', 'json']
        assert novaschedctl.main(['explain', *arguments, *shown]) == 0
        return json.loads(capsys.readouterr().out)

    report = explain(placed, '--host', 'host-1')
    assert report['headline'] == 'host-2: 2 of 2 hosts fit'
    assert report['host']['why'] == ['fit, number 2 of 2 by weight']
    best = report['record']['looks'][0]['best']
    assert [each['host'] for each in best] == ['host-2', 'host-1']
    weighed = {each['weigher']: each for each in best[0]['shares']}['RAMWeigher']
    assert weighed == {
        'weigher': 'RAMWeigher', 'raw': 8192.0, 'normalised': 1.0, 'multiplier': 1.0, 'added': 1.0,
    }  # fmt: skip
    assert set(report['record']['steps']) == {
        'prefilters', 'placement', 'hosts', 'filters', 'weighers', 'claim', 'alternates',
    }  # fmt: skip

    report = explain(unoffered)
    assert report['headline'] == (
        'Placement offers no host, but would without availability zone south or without '
        '6000 MEMORY_MB'
    )
    assert 'Placement offers no host.' in no_offer.value.message

    report = explain('--last', '--host', 'host-2')
    assert report['headline'] == '0 of 2 hosts: 2 disabled'
    assert report['host']['why'] == ['ComputeFilter: disabled, reason: None']
    assert report['record']['asked']['servers'] == [filtered]
    assert '0 of 2 hosts: 2 disabled.' in no_host.value.message
    assert cloud.placement.all_allocations().keys() == {placed}
