# SPDX-License-Identifier: Apache-2.0
"""Random requests to a random cloud, made of themes as cases are elsewhere.

A theme adds one matter to a call. Most leave some hosts over, so that several can meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.descriptions import Case
from tests.parity.dice import Dice
from tests.parity.rankings import needs, places
from tests.parity.rankings.call import Call, Theme
from tests.parity.rankings.words import FLAVORS, IMAGES, PROJECTS, PROPERTIES
from tests.parity.rankings.world import World


def a_call(dice: Dice, world: World, themes: Sequence[Theme] = ()) -> Call:
    """A request for one to five servers, about a few matters, or about these."""
    count = dice.one(1, 1, 1, 1, 2, 3, 4, 5)
    uuids = [dice.uuid() for _ in range(count)]
    flavor = {
        'name': dice.choice(FLAVORS), 'vcpus': dice.one(1, 2, 4), 'memory_mb': dice.one(256, 1024, 4096),
        'root_gb': dice.one(0, 1, 10, 20), 'ephemeral_gb': dice.one(0, 0, 5), 'swap': dice.one(0, 0, 512, 1024),
        'extra_specs': {},
    }  # fmt: skip
    request: Case = {
        'flavor': flavor, 'project_id': dice.choice(PROJECTS), 'instance_uuid': uuids[0],
        'num_instances': count, 'is_bfv': dice.maybe(0.15), 'scheduler_hints': {},
        'image': {
            'id': dice.choice(IMAGES), 'disk_format': dice.one('qcow2', 'qcow2', 'raw'),
            'properties': {name: dice.choice(PROPERTIES[name]) for name in dice.some(list(PROPERTIES), 2)},
        },
    }  # fmt: skip
    call = Call(request, uuids)
    for theme in themes or dict.fromkeys(dice.sample(THEMES, dice.one(0, 1, 1, 1, 2, 2, 3))):
        theme(dice, world, call)
        call.themes.append(theme.__name__)
    request['numa_topology'] = needs.cells_of(flavor)
    if not call.claims:
        request.pop('requested_resources', None)
    return call


def too_much(dice: Dice, world: World, call: Call) -> None:
    """A size that few hosts have, or none."""
    call.put(
        'flavor',
        **dice.one({'vcpus': 64}, {'memory_mb': 40000}, {'root_gb': 500}, {'vcpus': 1000}),
    )


def otherwise(dice: Dice, world: World, call: Call) -> None:
    """As moves and older conductors ask: no alternates, dicts for an answer, no UUIDs and so
    no claims."""
    call.return_alternates = False
    if dice.maybe(0.7):
        call.return_objects, call.return_alternates = False, dice.maybe()
        call.instance_uuids = dice.one(call.instance_uuids, None)


def rebuild(dice: Dice, world: World, call: Call) -> None:
    """A server that stays where it is."""
    server = call.moved = dice.choice(world.servers)
    call.instance_uuids, call.return_alternates = [server.uuid], False
    call.request |= {
        'instance_uuid': server.uuid, 'num_instances': 1,
        'force_hosts': [server.host], 'force_nodes': [server.host],
    }  # fmt: skip
    call.hint(_nova_check_type=['rebuild'])


def evacuation(dice: Dice, world: World, call: Call) -> None:
    """A server that has to leave its host, with what it has there."""
    server = call.moved = dice.choice([each for each in world.servers if len(each.held) == 1])
    call.instance_uuids, call.return_alternates = [server.uuid], dice.maybe()
    call.request |= {
        'instance_uuid': server.uuid, 'project_id': server.project, 'num_instances': dice.one(1, 4),
        'ignore_hosts': [server.host],
    }  # fmt: skip


THEMES: list[Theme] = [
    *places.THEMES, *needs.THEMES, too_much, otherwise, rebuild, evacuation,
]  # fmt: skip
"""Those that stand here more often come more often."""
