# SPDX-License-Identifier: Apache-2.0
"""Where servers may go: zones, neighbours, aggregates, hosts that are named."""

from __future__ import annotations

import json
from typing import Any

from tests.parity.dice import Dice
from tests.parity.rankings.call import Call, Theme
from tests.parity.rankings.words import POLICIES, ZONES
from tests.parity.rankings.world import World

NOBODY = 'no-such-host'


def zone(dice: Dice, world: World, call: Call) -> None:
    call.request['availability_zone'] = dice.one(*ZONES, *ZONES, 'nova', 'nowhere')


def group(dice: Dice, world: World, call: Call) -> None:
    policy = dice.choice(POLICIES)
    # Where members attract or repel, hosts differ by how many they have.
    most, least = {'affinity': (2, 0), 'anti-affinity': (9, 0)}.get(policy, (40, 10))
    members = dice.some(world.servers, most, least)
    rules = (
        {'max_server_per_host': dice.one('1', '2', '3')}
        if policy == 'anti-affinity' and dice.maybe()
        else {}
    )
    call.request['instance_group'] = {
        'policy': policy, 'policies': [policy], '_rules': rules,
        'members': [*(each.uuid for each in members), *(call.instance_uuids or [])],
        'hosts': sorted({each.host for each in members}),
    }  # fmt: skip
    call.hint(group=[dice.uuid()])


def neighbours(dice: Dice, world: World, call: Call) -> None:
    name = dice.one('same_host', 'different_host', 'different_host')
    uuids = [each.uuid for each in dice.some(world.servers, 6, 1)]
    call.hint(**{name: uuids})


def address(dice: Dice, world: World, call: Call) -> None:
    """Near a host's address."""
    near = dice.one('10.0.1.9', '10.0.2.1', '10.0.3.3', '10.0.0.1')
    call.hint(
        build_near_host_ip=[near],
        cidr=[dice.one('/24', '/23', '/16', '/28')],
    )


def query(dice: Dice, world: World, call: Call) -> None:
    terms: list[Any] = [
        ['>=', '$free_ram_mb', dice.one(1024, 20000, 40000)], ['<', '$num_instances', 8],
        ['>', '$free_disk_mb', 100 * 1024], ['=', '$hypervisor_type', 'QEMU'], ['<=', '$vcpus_used', 5],
        ['in', '$host', *world.hosts[::2]], ['not', ['=', '$service.disabled', True]],
        ['=', '$stats.arch', 'x86_64'], ['>', '$vcpus_total', '$num_io_ops'],
    ]  # fmt: skip
    chosen = dice.some(terms, 3, 1)
    call.hint(query=[json.dumps([dice.one('and', 'or'), *chosen])])


def aggregate(dice: Dice, world: World, call: Call) -> None:
    """Extra specs about aggregates, whose hosts alone can have them."""
    wanted = dice.one(
        ('ssd', 'true'), ('rack', dice.one('>= 3', '<= 4', '<or> 1 <or> 7')), ('cpu', '<in> avx')
    )
    call.extra_specs({f'aggregate_instance_extra_specs:{wanted[0]}': wanted[1]})


def forced(dice: Dice, world: World, call: Call) -> None:
    """One host, whatever filters say."""
    host = dice.one(world.hosts[0], *world.hosts, NOBODY)
    name, value = dice.one(
        ('force_hosts', host), ('force_nodes', host), ('force_hosts', host.upper())
    )
    call.request[name] = [value]
    if dice.maybe(0.2):
        call.hint(_nova_check_type=['something else'])


def ignored(dice: Dice, world: World, call: Call) -> None:
    """Not these hosts."""
    call.request['ignore_hosts'] = [
        dice.one(name, name.upper()) for name in dice.some(world.hosts, 9, 1)
    ]


def destination(dice: Dice, world: World, call: Call) -> None:
    """A host, a node, a cell, or some aggregates."""
    cell = {'uuid': world.cells[dice.one('cell1', 'cell2')]}
    call.request['requested_destination'] = dice.one(
        {'host': dice.choice(world.hosts), 'node': None}, {'node': dice.choice([*world.hosts, NOBODY])}, {'cell': cell},
        *[{'cell': cell, 'allow_cross_cell_move': True}] * 6, {'cell': cell, 'host': dice.choice(world.hosts), 'node': None},
        {'host': dice.choice(world.hosts), 'node': dice.choice(world.hosts[:2])},
        {'aggregates': [','.join(dice.some(world.aggregate_uuids, 3, 1))]},
        {'forbidden_aggregates': dice.some(world.aggregate_uuids, 2, 1)},
    )  # fmt: skip


THEMES: list[Theme] = [
    zone, group, group, group, neighbours, neighbours, address, query, aggregate, forced, ignored,
    destination, destination,
]  # fmt: skip
