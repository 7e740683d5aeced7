# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate`` beside a real daemon: on MariaDB, with nova's own schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from novasched.cmd import novaschedctl
from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler has no such command')

SMALL = Flavor(vcpus=2, ram_mb=1000, disk_gb=1)
ROW = {
    'id': 77, 'name': 'm1.small', 'flavorid': 'small', 'vcpus': SMALL.vcpus,
    'memory_mb': SMALL.ram_mb, 'root_gb': SMALL.disk_gb, 'ephemeral_gb': 0, 'swap': 0,
    'rxtx_factor': 1.0, 'disabled': False, 'is_public': True,
}  # fmt: skip


def forever(do: Callable[[], None]) -> None:
    """Until something is raised."""
    while True:
        do()


def test_as_many_fit_as_it_says(
    cloud: NovaCloud, client: NovaClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """On each host, and nothing is claimed before; a flavor's extra specs count."""
    cloud.reset()
    for number, ram_mb in enumerate((2100, 3100, 5100), 1):
        cloud.add_host(f'host-{number}', f'cell{number % 2 + 1}', ram_mb=ram_mb)
    cloud.cells['cell2'].update('services', {'disabled': True}, host='host-3')
    cloud.api.insert('flavors', [ROW])

    def simulated() -> Any:
        capsys.readouterr()
        arguments = ['--flavor', 'small', '--until-full', '--format', 'json']
        config = ['--config-file', str(daemon.config)]
        assert novaschedctl.main(['simulate', *arguments, *config]) == 0
        return json.loads(capsys.readouterr().out)['placed']

    with Daemon(cloud) as daemon:
        said = simulated()
        assert cloud.all_allocations() == {}
        placed: Counter[str] = Counter()

        def place() -> None:
            [[found]] = client.select_destinations(new_uuids(), SMALL)
            placed[found['service_host']] += 1

        with pytest.raises(Refused) as refusal:
            forever(place)
        assert refusal.value.no_valid_host
        assert said == placed == {'host-1': 2, 'host-2': 3}
        spec = {'flavor_id': ROW['id'], 'key': 'resources:CUSTOM_GOLD', 'value': '1'}
        cloud.api.insert('flavor_extra_specs', [spec])
        assert simulated() == {}
