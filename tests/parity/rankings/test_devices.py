# SPDX-License-Identifier: Apache-2.0
"""Servers of one request take PCI devices card by card, from nova-scheduler and from ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tests.functional.client import NovaClient
from tests.functional.nova_cloud import NovaCloud
from tests.parity.conftest import Check
from tests.parity.descriptions import wire
from tests.parity.dice import Dice
from tests.parity.known import Known
from tests.parity.rankings import needs
from tests.parity.rankings.builder import Builder
from tests.parity.rankings.comparison import Comparison
from tests.parity.rankings.machines import Machine, cards
from tests.parity.rankings.pair import running
from tests.parity.rankings.requests import a_call
from tests.parity.rankings.trial import Trial
from tests.parity.rankings.words import DOWN_TIME
from tests.parity.rankings.world import World

REQUESTS, HOSTS, CARDS = 60, 4, 4
TURNS = 10
"""So often at least a server has to take another card than the one before it."""
CONFIG = {
    'DEFAULT': {'service_down_time': DOWN_TIME},
    'novasched': {'in_flight_timeout': 0},
    'scheduler': {'max_attempts': 200},
    # Hosts fill up one after the other.
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter',
        'ram_weight_multiplier': -1.0,
    },
}
CELLS = [
    {
        'id': number, 'cpuset': cpus, 'pcpuset': cpus, 'siblings': [[x] for x in cpus], 'memory': 32768,
        'mempages': [{'size_kb': 4, 'total': 32768 * 256}], 'socket': number,
    }
    for number, cpus in enumerate((list(range(16)), list(range(16, 32))))
]  # fmt: skip


def a_machine(dice: Dice, number: int) -> Machine:
    """A host with room for everything but devices."""
    pools, providers = cards(dice, CARDS, reported=True)
    topology = json.dumps(wire('NUMATopology', {'cells': CELLS}))
    return Machine(
        f'host{number:02}',
        'cell1',
        ram_mb=65536 - number,
        uuid=dice.uuid(),
        columns={'pci_stats': pools, 'numa_topology': topology},
        children=providers,
    )


def test_devices(
    cloud: NovaCloud,
    client: NovaClient,
    intended: Sequence[Known],
    seed: int,
    times: int,
    check: Check,
) -> None:
    """What Placement gave to one server of a request is what the next one does not find."""
    compared, turns = Comparison('devices', intended), 0
    dice, builder = Dice(f'devices {seed}'), Builder(cloud)
    world = World([a_machine(dice, number) for number in range(HOSTS)], [], [], [], [])
    builder.build(dice, world)
    with running(cloud, client, CONFIG) as pair:
        trial = Trial(builder, pair, world)
        for case in range(REQUESTS * times):
            themes = [needs.devices, needs.cells] if dice.maybe(0.3) else [needs.devices]
            call = a_call(dice, world, themes)
            nova, ours = trial.run(call)
            where = f'seed {seed}, request {case}'
            compared.add({'where': where, 'config': CONFIG, **asdict(call)}, nova, ours)
            turns += nova.has_turned
            trial.undo(call, ours)
    assert not trial.leftovers()
    check(compared.result)
    assert turns >= TURNS
