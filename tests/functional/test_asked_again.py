# SPDX-License-Identifier: Apache-2.0
"""Instances that are scheduled again before a host reports them, and hosts with several
candidates for an instance."""

import json

import pytest

from novasched.scheduler.model.instance import MAX_READ_LAG_S
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy
from tests.lab.reports import a_numa_cell, a_numa_topology

FILTERS = 'ComputeFilter,NUMATopologyFilter'
PINNED = Flavor(
    vcpus=8, extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
)
VGPU = Flavor(extra_specs={'resources:VGPU': '1'})


@pytest.fixture(scope='module')
def between(cloud):
    """The proxy between Placement and a scheduler. The scheduler runs for all tests of
    this module."""
    cloud.reset()
    with Proxy(cloud.placement_url) as proxy:
        config = {
            'filter_scheduler': {'enabled_filters': FILTERS},
            'placement': {'endpoint': proxy.url},
            'novasched': {'in_flight_timeout': 3600},  # no claim expires
        }
        with Daemon(cloud, config):
            yield proxy


@pytest.mark.usefixtures('between')
def test_a_repeated_live_migration_keeps_the_claimed_cpus(cloud, client):
    """A pinned instance gets the same CPUs again after a failed live migration, and no
    second instance gets the CPUs meanwhile. Soon after the row of the instance shows no
    migration any more, the second instance gets the CPUs.

    The NUMA cell of a host has room for a single such instance, and Placement for two.
    """
    topology = a_numa_topology(a_numa_cell(0))
    for name in ('source', 'dest'):
        cloud.add_host(name, pcpus=16, columns={'numa_topology': topology})
    [uuid] = new_uuids()
    cloud.boot(uuid, 'source', PINNED)

    cell1 = cloud.cells['cell1']
    cell1.update('instances', {'task_state': 'migrating'}, uuid=uuid)
    for _ in range(3):
        hosts = client.chosen(
            uuid,
            flavor=PINNED,
            destination={'cell': cloud.cell_uuids['cell1']},
            ignore_hosts=['source'],
        )
        assert hosts == ['dest']
        cloud.placement.release(uuid)
    with pytest.raises(Refused, match='No valid host was found'):
        client.chosen(flavor=PINNED, ignore_hosts=['source'])

    cell1.update('instances', {'task_state': None}, uuid=uuid)

    def is_placed():
        # A database that lags behind may show the instance as of before the move.
        try:
            return client.chosen(flavor=PINNED, ignore_hosts=['source']) == ['dest']
        except Refused:
            return False

    wait_until(is_placed, MAX_READ_LAG_S + 10, 'end of the move')


def add_cards(cloud, host, *counts):
    """Add a provider with virtual GPUs to a host for every count; the UUIDs of the
    providers."""
    cards = new_uuids(len(counts))
    for uuid, count in zip(cards, counts, strict=True):
        inventory = {
            'VGPU': {'total': count, 'max_unit': count, 'allocation_ratio': 1.0}
        }
        cloud.placement.add_provider(
            uuid, f'{host.name}-{uuid}', inventory, [], host.uuid
        )
    return cards


def test_the_second_card_of_a_host_is_claimed_if_the_first_is_in_use(
    cloud, client, between
):
    """Placement refuses the first card, since another consumer has taken the card
    between the candidates and the claim. The scheduler claims the host's second
    card."""
    cloud.reset()
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 1, 1)
    add_cards(cloud, cloud.add_host('worse'), 1)
    [uuid] = new_uuids()
    taken_cards = []

    def take_the_card(method, path, body):
        """Allocate the card before the first claim of the scheduler."""
        if method == 'PUT' and path.startswith('/allocations/') and not taken_cards:
            allocations = json.loads(body)['allocations']
            taken_cards.extend(card for card in cards if card in allocations)
            cloud.placement.allocate(new_uuids()[0], taken_cards[0], {'VGPU': 1})

    between.faults = take_the_card
    assert client.chosen(uuid, flavor=VGPU) == ['host']
    between.faults = None

    [card] = set(cards) - set(taken_cards)
    assert cloud.placement.allocations(uuid)[card] == {'VGPU': 1}


def test_a_partly_used_card_is_filled_before_an_empty_card(cloud, client):
    """Instances fill the partly used card before the empty card, in both orders of the
    cards in Placement's answer."""
    cloud.reset()
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 4, 4)
    for fuller in cards:
        consumer, *servers = new_uuids(4)
        cloud.placement.allocate(consumer, fuller, {'VGPU': 2})

        used_cards = []
        for uuid in servers:
            assert client.chosen(uuid, flavor=VGPU) == ['host']
            used_cards.append(set(cloud.placement.allocations(uuid)) & set(cards))

        assert used_cards == [{fuller}, {fuller}, {*cards} - {fuller}]
        for uuid in (consumer, *servers):
            cloud.placement.release(uuid)
