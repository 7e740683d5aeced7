# SPDX-License-Identifier: Apache-2.0
"""A small cloud of one release of nova, with a child process that runs the release."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.lab.compute_rows import Compute
from tests.lab.daemon import NovaClient
from tests.lab.nova_cloud import COMPUTE_TRAITS, NovaCloud
from tests.lab.nova_release import NovaRelease

CELL = 'cell1'
SCRIPT = Path(__file__).with_name('nova_side.py')
DEVICE = {
    'vendor_id': '8086',
    'product_id': '10fb',
    'device_type': 'type-PCI',
    'name': 'nic',
}


class Nova(NovaClient):
    """The computes, the API and the conductor of a cloud. The commands are the methods
    of ``nova_side.Nova``."""

    def __init__(self, nova: NovaRelease, cloud: NovaCloud) -> None:
        alias = {'pci': {'alias': json.dumps(DEVICE)}}
        super().__init__(nova, cloud.config('releases', alias), SCRIPT)

        self.cloud = cloud
        self.zone = ''
        self.newest: str = self('newest')

    def add_host(
        self, compute: Compute, cells: Sequence[tuple[int, int]] = (), devices: int = 0
    ) -> None:
        """Add a host to nova and to Placement.

        :param cells: CPUs and MiB of the host's NUMA cells.
        :param devices: the number of PCI devices.
        """
        host = {**asdict(compute), 'cells': cells, 'devices': devices}
        self('add_host', cell=CELL, host=host)
        self.cloud.computes[compute.name] = compute
        self.cloud.placement.add_provider(
            compute.uuid, compute.name, compute.inventories(), list(COMPUTE_TRAITS)
        )

    def add_zone(self, name: str, hosts: Sequence[str]) -> str:
        """Add an availability zone to nova and to Placement; the UUID of its
        aggregate."""
        metadata = {'availability_zone': name}
        uuid: str = self(
            'add_aggregate', name=name, hosts=list(hosts), metadata=metadata
        )

        for host in hosts:
            self.cloud.placement.join_aggregate(self.cloud.computes[host].uuid, uuid)
        return uuid
