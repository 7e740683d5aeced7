# SPDX-License-Identifier: Apache-2.0
"""A random cloud: hosts, aggregates and servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.parity.dice import Dice
from tests.parity.rankings.machines import Machine, a_machine
from tests.parity.rankings.words import CELLS, FLAVORS, PROJECTS, PROPERTIES, ZONES


@dataclass(frozen=True)
class Server:
    """A server that runs somewhere, and what it has in Placement."""

    uuid: str
    host: str
    project: str
    image: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Aggregate:
    name: str
    hosts: list[str]
    metadata: dict[str, str]
    zone: str | None = None


@dataclass
class World:
    """What requests may speak of; servers are added as they are placed."""

    machines: list[Machine]
    nodes: list[Machine]
    """More nodes of the first machine's nova-compute."""
    aggregates: list[Aggregate]
    servers: list[Server]
    on_shared_disk: list[Machine]
    disabled_cell: str | None = None
    cells: dict[str, str] = field(default_factory=dict)
    """UUIDs by name."""
    aggregate_uuids: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        return [machine.name for machine in self.machines]


def a_world(dice: Dice, size: int) -> World:
    """So many hosts in two cells, in aggregates, with servers on them."""
    shared = dice.maybe(0.5)
    machines = [a_machine(dice, number, shared) for number in range(size)]
    nodes = [a_machine(dice, number) for number in (90, 91)] if dice.maybe(0.4) else []
    return World(
        machines=machines,
        nodes=nodes,
        aggregates=_aggregates(dice, [each.name for each in machines]),
        servers=[
            _server(dice, dice.choice(machines)) for _ in range(dice.randint(size // 2, size))
        ],
        on_shared_disk=[each for each in machines if 'DISK_GB' in each.inventory],
        disabled_cell=dice.choice(CELLS) if dice.maybe(0.15) else None,
    )


def _server(dice: Dice, machine: Machine) -> Server:
    image = {name: dice.choice(PROPERTIES[name]) for name in dice.some(list(PROPERTIES), 4)}
    resources = {'VCPU': 1, 'MEMORY_MB': 256}
    held = {machine.uuid: resources} if dice.maybe(0.4) else {}
    return Server(dice.uuid(), machine.name, dice.choice(PROJECTS), image, held)


def _aggregates(dice: Dice, hosts: list[str]) -> list[Aggregate]:
    in_zones = dice.sample(hosts, len(hosts) * 2 // 3)
    half = len(in_zones) // 2
    found = [
        Aggregate('zone1', in_zones[:half], {}, ZONES[0]),
        Aggregate('zone2', in_zones[half:], {}, ZONES[1]),
        Aggregate('more of zone1', dice.some(in_zones[:half], 3, 1), {'rack': '2'}, ZONES[0]),
        *(
            Aggregate(f'of {each}', dice.some(hosts, 9, 5), {'filter_tenant_id': each})
            for each in PROJECTS[:2]
        ),
        Aggregate(
            'racks', dice.some(hosts, 16, 8), {'ssd': 'true', 'rack': dice.one('1', '4', '9')}
        ),
    ]
    for number in range(dice.randint(4, 8)):
        name, metadata = f'aggregate{number}', dice.choice(METADATA)(dice)
        found.append(Aggregate(name, dice.some(hosts, 8, 2), metadata))
    return found


def _limit(dice: Dice) -> str:
    return dice.one('4', '9', '30', '-1', '0', ' 5 ', '1.5', 'many')


METADATA = (
    lambda dice: {'filter_tenant_id2': dice.choice(PROJECTS)},
    lambda dice: {'os_distro': dice.joined(('ubuntu', 'rhel')), 'os_type': 'linux'},
    lambda dice: {'rack': dice.one('3', '7'), 'ssd': dice.one('true', 'false,true'), 'cpu': dice.joined(('avx', 'sse'))},
    lambda dice: {'instance_type': dice.joined(FLAVORS)},
    lambda dice: {'max_io_ops_per_host': _limit(dice), 'max_instances_per_host': _limit(dice)},
    lambda dice: {'trait:CUSTOM_GOLD': 'required'},
    lambda dice: {'trait:CUSTOM_SILVER': dice.one('required', 'forbidden'), 'trait:X': 'no'},
    lambda dice: {
        f'{name}_weight_multiplier': dice.one('2.0', '0.25', '-1.5', '1', 'x', '1e1', '')
        for name in dice.some(MULTIPLIERS, 3, 1)
    },
)  # fmt: skip
MULTIPLIERS = (
    'ram', 'cpu', 'disk', 'io_ops', 'num_instances', 'hypervisor_version', 'build_failure', 'pci',
    'soft_affinity', 'soft_anti_affinity', 'cross_cell_move', 'metrics', 'image_props',
)  # fmt: skip
