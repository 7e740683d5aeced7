# SPDX-License-Identifier: Apache-2.0
"""A Placement that stops after a few allocation candidates, without a sign in the
answer."""

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.placement_api import PlacementProcess

HOSTS = 6
LIMIT = 2
"""``[placement] max_allocation_candidates``, below the number of hosts."""


@pytest.fixture
def daemon(cloud, placement, tmp_path):
    """A scheduler that asks the limited Placement."""
    cloud.reset()
    environment = {'OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES': str(LIMIT)}
    connection = placement.connection
    with PlacementProcess(connection, tmp_path, environment=environment) as limited:
        config = {'placement': {'endpoint': limited.url}}
        with Daemon(cloud, config) as daemon:
            yield daemon


def test_every_host_with_devices_is_found(cloud, client, daemon):
    """Each host has a device of its own class. An answer about all hosts has two hosts,
    and a request for a device finds the host of the device all the same."""
    for number in range(HOSTS):
        host = cloud.add_host(f'host-{number}', ram_mb=131072)
        [device] = new_uuids()
        inventory = {f'CUSTOM_DEVICE_{number}': {'total': 4}}
        cloud.placement.add_provider(device, device, inventory, [], host.uuid)

    for number in range(HOSTS):
        flavor = Flavor(extra_specs={f'resources1:CUSTOM_DEVICE_{number}': '1'})
        assert client.chosen(flavor=flavor) == [f'host-{number}']
