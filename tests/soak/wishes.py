# SPDX-License-Identifier: Apache-2.0
"""What tenants ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.lab.builders import a_uuid
from tests.lab.client import Group
from tests.lab.compute_rows import Flavor
from tests.lab.descriptions import Case
from tests.lab.large_cloud_hosts import FAST
from tests.lab.large_cloud_requests import Kind

FLAVORS = (Flavor(1, 2048, 10), Flavor(2, 4096, 20), Flavor(4, 8192, 40))
PINNED = Flavor(2, 2048, 10, extra_specs={'hw:cpu_policy': 'dedicated'})
IMPOSSIBLE = Flavor(vcpus=1000)
ZONES = ('az1', 'az2')
POLICIES = ('anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity')
DEVICE = {'vendor_id': '8086', 'product_id': '10fb'}


@dataclass(frozen=True)
class Wish:
    """So many servers of a flavor, and what their hosts must have."""

    name: str
    flavor: Flavor
    count: int = 1
    aggregate: str | None = None
    pinned: bool = False
    devices: int = 0
    group: Group | None = None
    avoided: Sequence[str] = ()

    def kind(self, **more: Any) -> Kind:
        """As a conductor asks for it; ``more`` are fields of the request."""
        flavor = self.flavor
        specs = dict(flavor.extra_specs)
        fields: Case = {}
        if self.aggregate == FAST:
            specs[f'aggregate_instance_extra_specs:{FAST}'] = 'true'
        elif self.aggregate:
            fields['availability_zone'] = self.aggregate
        if self.devices:
            one = {'request_id': a_uuid('device'), 'count': self.devices, 'spec': [DEVICE]}
            fields['pci_requests'] = {'requests': [{**one, 'alias_name': 'nic'}]}
        if self.avoided:
            fields['scheduler_hints'] = {'different_host': [*self.avoided]}
        return Kind(
            {
                'vcpus': flavor.vcpus, 'memory_mb': flavor.ram_mb, 'root_gb': flavor.disk_gb,
                'extra_specs': specs,
            },
            guest=[_guest(flavor)] if self.pinned else (),
            group=_told(self.group) if self.group else None,
            count=self.count,
            more={**fields, **more},
        )  # fmt: skip


def draw(random: Random, group: Group | None, servers: Sequence[str]) -> Wish:
    """What somebody wants now.

    :param group: one that nobody else asks for meanwhile.
    :param servers: some that run.
    """
    flavor = random.choice(FLAVORS)
    wishes: dict[Callable[[], Wish], int] = {
        lambda: Wish('plain', flavor): 40,
        lambda: Wish('several', flavor, count=random.randint(2, 5)): 12,
        lambda: Wish('zone', flavor, random.randint(1, 2), aggregate=random.choice(ZONES)): 10,
        lambda: Wish('fast', flavor, aggregate=FAST): 8,
        lambda: Wish('pinned', PINNED, random.randint(1, 3), pinned=True): 12,
        lambda: Wish('devices', flavor, devices=random.randint(1, 2)): 8,
        lambda: Wish('group', flavor, random.randint(1, 2), group=group): 10 if group else 0,
        lambda: Wish('apart', flavor, avoided=servers): 4 if servers else 0,
        lambda: Wish('impossible', IMPOSSIBLE): 2,
    }
    return random.choices(list(wishes), list(wishes.values()))[0]()


def _guest(flavor: Flavor) -> Case:
    cpus = list(range(flavor.vcpus))
    return {'id': 0, 'pcpuset': cpus, 'memory': flavor.ram_mb, 'cpu_policy': 'dedicated'}


def _told(group: Group) -> Case:
    return {
        'uuid': group.uuid, 'policy': group.policy, 'policies': [group.policy], '_rules': {},
        'members': [*group.members], 'hosts': sorted(set(group.hosts)),
    }  # fmt: skip
