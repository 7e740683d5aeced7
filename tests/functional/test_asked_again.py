# SPDX-License-Identifier: Apache-2.0
"""Instances that are scheduled again before any host shows them, and hosts that can take an
instance in several ways."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.client import Group, NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud
from tests.lab.proxy import Proxy
from tests.lab.reports import a_numa_cell, a_numa_topology

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler does not know of others')

FILTERS = 'ComputeFilter,NUMATopologyFilter,ServerGroupAntiAffinityFilter'
PINNED = Flavor(
    vcpus=8,
    extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'},
)
VGPU = Flavor(extra_specs={'resources:VGPU': '1'})
PATIENT: dict[str, object] = {'in_flight_timeout': 3600}
"""Nothing ends by itself while a test runs."""


@pytest.fixture
def scheduler(cloud: NovaCloud) -> Iterator[Daemon]:
    """A fresh scheduler for an empty cloud."""
    cloud.reset()
    with Daemon(
        cloud, {'filter_scheduler': {'enabled_filters': FILTERS}, 'novasched': PATIENT}
    ) as running:
        yield running


def add_pinned(cloud: NovaCloud, *names: str) -> None:
    """Hosts of which one cell has room for one pinned instance, and Placement for two."""
    topology = a_numa_topology(a_numa_cell(0))
    for name in names:
        cloud.add_host(name, pcpus=16, columns={'numa_topology': topology})


def chosen(client: NovaClient, uuids: list[str], flavor: Flavor, **asked: Any) -> list[str]:
    """The host of each instance."""
    answer = client.select_destinations(uuids, flavor, **asked)
    return [selections[0]['service_host'] for selections in answer]


def change(cloud: NovaCloud, uuid: str, **columns: str | None) -> None:
    """nova goes on with an instance."""
    cloud.cells['cell1'].update('instances', columns, uuid=uuid)


@pytest.mark.usefixtures('scheduler')
def test_a_live_migration_is_repeated(cloud: NovaCloud, client: NovaClient) -> None:
    """A pinned instance whose migration fails, with and without a word in its row, finds the
    same CPUs again, which nobody else gets meanwhile; once it stays where it is, others do."""
    add_pinned(cloud, 'source', 'dest')
    (uuid,) = new_uuids()
    cloud.boot(uuid, 'source', PINNED)
    asked = {
        'destination': {'cell': cloud.cell_uuids['cell1']},
        'ignore_hosts': ['source'],
    }
    change(cloud, uuid, task_state='migrating')
    for _ in range(3):
        assert chosen(client, [uuid], PINNED, **asked) == ['dest']
        cloud.placement.release(uuid)
    with pytest.raises(Refused, match='No valid host was found'):
        chosen(client, new_uuids(), PINNED, ignore_hosts=['source'])
    change(cloud, uuid, task_state=None)
    assert chosen(client, new_uuids(), PINNED, ignore_hosts=['source']) == ['dest']


@pytest.mark.usefixtures('scheduler')
def test_a_resize_on_the_same_host(cloud: NovaCloud, client: NovaClient) -> None:
    """Its CPUs are its own until nova-compute has claimed them, which it writes to the
    host's row; then that counts."""
    add_pinned(cloud, 'host')
    (uuid,) = new_uuids()
    cloud.boot(uuid, 'host', Flavor())
    change(cloud, uuid, task_state='resize_prep')
    asked = {'destination': {'cell': cloud.cell_uuids['cell1']}}
    assert chosen(client, [uuid], PINNED, **asked) == ['host']
    for _ in range(2):
        with pytest.raises(Refused, match='No valid host was found'):
            chosen(client, new_uuids(), PINNED)
    change(cloud, uuid, task_state='resize_migrating')
    assert chosen(client, new_uuids(), PINNED) == ['host']


@pytest.mark.usefixtures('scheduler')
def test_a_build_that_goes_to_an_alternate(cloud: NovaCloud, client: NovaClient) -> None:
    """The conductor takes the alternate, and the first host is there for the next member of
    the group as soon as the row says so."""
    for name in ('one', 'two'):
        cloud.add_host(name)
    first, second = new_uuids(2)
    group = Group('anti-affinity', members=[first, second])
    [[begun, alternate]] = client.select_destinations(
        [first], Flavor(), group=group, return_alternates=True
    )
    cloud.boot(first, alternate['service_host'], Flavor())
    change(cloud, first, vm_state='building', task_state='spawning')
    group.hosts = [alternate['service_host']]
    assert chosen(client, [second], Flavor(), group=group) == [begun['service_host']]


def add_cards(cloud: NovaCloud, host: Compute, *counts: int) -> list[str]:
    """Let a host have providers of so many virtual GPUs each; their UUIDs."""
    cards = new_uuids(len(counts))
    for uuid, count in zip(cards, counts, strict=True):
        inventory = {'VGPU': {'total': count, 'max_unit': count, 'allocation_ratio': 1.0}}
        cloud.placement.add_provider(uuid, f'{host.name}-{uuid}', inventory, [], host.uuid)
    return cards


@pytest.mark.usefixtures('scheduler')
def test_instances_share_out_virtual_gpus(cloud: NovaCloud, client: NovaClient) -> None:
    """Three of one request fill one card and begin the other, which one more fills."""
    cards = add_cards(cloud, cloud.add_host('host'), 2, 2)
    assert chosen(client, new_uuids(3), VGPU) == ['host'] * 3
    assert chosen(client, new_uuids(1), VGPU) == ['host']
    held = cloud.placement.all_allocations().values()
    assert Counter(card for each in held for card in each if card in cards) == dict.fromkeys(
        cards, 2
    )


def test_another_scheduler_takes_the_card(cloud: NovaCloud, client: NovaClient) -> None:
    """Where Placement refuses the first card, since somebody else has taken it between the
    answer and the claim, the host's other card is claimed."""
    cloud.reset()
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 1, 1)
    add_cards(cloud, cloud.add_host('worse'), 1)
    (uuid,) = new_uuids()
    taken: list[str] = []

    def somebody_is_faster(method: str, path: str, body: bytes) -> None:
        if method == 'PUT' and path.startswith('/allocations/') and not taken:
            taken.extend(card for card in cards if card in json.loads(body)['allocations'])
            cloud.placement.allocate(new_uuids()[0], taken[0], {'VGPU': 1})

    with Proxy(cloud.placement_url) as proxy:
        proxy.faults = somebody_is_faster
        with Daemon(cloud, {'placement': {'endpoint': proxy.url}}):
            assert chosen(client, [uuid], VGPU) == ['host']
    (card,) = set(cards) - set(taken)
    assert cloud.placement.allocations(uuid)[card] == {'VGPU': 1}
