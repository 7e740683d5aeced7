# SPDX-License-Identifier: Apache-2.0
"""Instances that are scheduled again before any host shows them, and hosts that can
take an instance in several ways."""

import json

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.proxy import Proxy
from tests.lab.reports import a_numa_cell, a_numa_topology

FILTERS = 'ComputeFilter,NUMATopologyFilter'
PINNED = Flavor(
    vcpus=8, extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
)
VGPU = Flavor(extra_specs={'resources:VGPU': '1'})


@pytest.fixture(scope='module')
def between(cloud):
    """What stands between Placement and a scheduler that runs as long as these tests
    do."""
    cloud.reset()
    with Proxy(cloud.placement_url) as proxy:
        config = {
            'filter_scheduler': {'enabled_filters': FILTERS},
            'placement': {'endpoint': proxy.url},
            'novasched': {'in_flight_timeout': 3600},  # nothing ends by itself
        }
        with Daemon(cloud, config):
            yield proxy


@pytest.mark.usefixtures('between')
def test_a_live_migration_is_repeated(cloud, client):
    """A pinned instance whose migration fails, with and without a word in its row,
    finds the same CPUs again, which nobody else gets meanwhile; once it stays where it
    is, others do. Each host's cell has room for one such instance, and Placement for
    two."""
    topology = a_numa_topology(a_numa_cell(0))
    for name in ('source', 'dest'):
        cloud.add_host(name, pcpus=16, columns={'numa_topology': topology})
    (uuid,) = new_uuids()
    cloud.boot(uuid, 'source', PINNED)
    asked = {
        'destination': {'cell': cloud.cell_uuids['cell1']},
        'ignore_hosts': ['source'],
    }
    cell1 = cloud.cells['cell1']
    cell1.update('instances', {'task_state': 'migrating'}, uuid=uuid)
    for _ in range(3):
        assert client.chosen(uuid, flavor=PINNED, **asked) == ['dest']
        cloud.placement.release(uuid)
    with pytest.raises(Refused, match='No valid host was found'):
        client.chosen(flavor=PINNED, ignore_hosts=['source'])
    cell1.update('instances', {'task_state': None}, uuid=uuid)
    assert client.chosen(flavor=PINNED, ignore_hosts=['source']) == ['dest']


def add_cards(cloud, host, *counts):
    """Let a host have providers of so many virtual GPUs each; their UUIDs."""
    cards = new_uuids(len(counts))
    for uuid, count in zip(cards, counts, strict=True):
        inventory = {
            'VGPU': {'total': count, 'max_unit': count, 'allocation_ratio': 1.0}
        }
        cloud.placement.add_provider(
            uuid, f'{host.name}-{uuid}', inventory, [], host.uuid
        )
    return cards


def test_another_scheduler_takes_the_card(cloud, client, between):
    """Where Placement refuses the first card, since somebody else has taken it between
    the answer and the claim, the host's other card is claimed."""
    cloud.reset()
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 1, 1)
    add_cards(cloud, cloud.add_host('worse'), 1)
    (uuid,) = new_uuids()
    taken = []

    def somebody_is_faster(method, path, body):
        if method == 'PUT' and path.startswith('/allocations/') and not taken:
            taken.extend(
                card for card in cards if card in json.loads(body)['allocations']
            )
            cloud.placement.allocate(new_uuids()[0], taken[0], {'VGPU': 1})

    between.faults = somebody_is_faster
    assert client.chosen(uuid, flavor=VGPU) == ['host']
    between.faults = None
    (card,) = set(cards) - set(taken)
    assert cloud.placement.allocations(uuid)[card] == {'VGPU': 1}


def test_the_fuller_card_is_filled_up(cloud, client):
    """Whichever of two cards Placement names first: the one of which something is
    used."""
    cloud.reset()
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 4, 4)
    for fuller in cards:
        others, *servers = new_uuids(4)
        cloud.placement.allocate(others, fuller, {'VGPU': 2})
        for uuid in servers:
            assert client.chosen(uuid, flavor=VGPU) == ['host']
        held = [set(cloud.placement.allocations(uuid)) & set(cards) for uuid in servers]
        assert held == [{fuller}, {fuller}, {*cards} - {fuller}]
        for uuid in (others, *servers):
            cloud.placement.release(uuid)
