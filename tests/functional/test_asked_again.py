# SPDX-License-Identifier: Apache-2.0
"""Instances that are scheduled again before any host shows them, and hosts that can take an
instance in several ways."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.lab.client import Group, NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config
from tests.lab.proxy import Proxy
from tests.lab.reports import a_numa_cell, a_numa_topology

FILTERS = 'ComputeFilter,NUMATopologyFilter,ServerGroupAntiAffinityFilter'
PINNED = Flavor(
    vcpus=8,
    extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'},
)
VGPU = Flavor(extra_specs={'resources:VGPU': '1'})


@pytest.fixture(scope='module')
def between(cloud: NovaCloud) -> Iterator[Proxy]:
    """What stands between Placement and a scheduler that runs as long as these tests do."""
    cloud.reset()
    with Proxy(cloud.placement_url) as proxy:
        config: Config = {
            'filter_scheduler': {'enabled_filters': FILTERS},
            'placement': {'endpoint': proxy.url},
            'novasched': {'in_flight_timeout': 3600},  # nothing ends by itself
        }
        with Daemon(cloud, config):
            yield proxy


@pytest.fixture(autouse=True)
def empty(cloud: NovaCloud, between: Proxy) -> None:
    """No host, of which the scheduler could remember anything."""
    cloud.reset()


def add_pinned(cloud: NovaCloud, *names: str) -> None:
    """Hosts of which one cell has room for one pinned instance, and Placement for two."""
    topology = a_numa_topology(a_numa_cell(0))
    for name in names:
        cloud.add_host(name, pcpus=16, columns={'numa_topology': topology})


def change(cloud: NovaCloud, uuid: str, **columns: str | None) -> None:
    """nova goes on with an instance."""
    cloud.cells['cell1'].update('instances', columns, uuid=uuid)


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
        assert client.chosen(uuid, flavor=PINNED, **asked) == ['dest']
        cloud.placement.release(uuid)
    with pytest.raises(Refused, match='No valid host was found'):
        client.chosen(flavor=PINNED, ignore_hosts=['source'])
    change(cloud, uuid, task_state=None)
    assert client.chosen(flavor=PINNED, ignore_hosts=['source']) == ['dest']


def test_a_resize_on_the_same_host(cloud: NovaCloud, client: NovaClient) -> None:
    """Its CPUs are its own until nova-compute has claimed them, which it writes to the
    host's row; then that counts."""
    add_pinned(cloud, 'host')
    (uuid,) = new_uuids()
    cloud.boot(uuid, 'host', Flavor())
    change(cloud, uuid, task_state='resize_prep')
    asked = {'destination': {'cell': cloud.cell_uuids['cell1']}}
    assert client.chosen(uuid, flavor=PINNED, **asked) == ['host']
    for _ in range(2):
        with pytest.raises(Refused, match='No valid host was found'):
            client.chosen(flavor=PINNED)
    change(cloud, uuid, task_state='resize_migrating')
    assert client.chosen(flavor=PINNED) == ['host']


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
    assert client.chosen(second, group=group) == [begun['service_host']]


def add_cards(cloud: NovaCloud, host: Compute, *counts: int) -> list[str]:
    """Let a host have providers of so many virtual GPUs each; their UUIDs."""
    cards = new_uuids(len(counts))
    for uuid, count in zip(cards, counts, strict=True):
        inventory = {'VGPU': {'total': count, 'max_unit': count, 'allocation_ratio': 1.0}}
        cloud.placement.add_provider(uuid, f'{host.name}-{uuid}', inventory, [], host.uuid)
    return cards


def test_instances_share_out_virtual_gpus(cloud: NovaCloud, client: NovaClient) -> None:
    """Three of one request fill one card and begin the other, which one more fills."""
    cards = add_cards(cloud, cloud.add_host('host'), 2, 2)
    assert client.chosen(*new_uuids(3), flavor=VGPU) == ['host'] * 3
    assert client.chosen(flavor=VGPU) == ['host']
    held = cloud.placement.all_allocations().values()
    assert Counter(card for each in held for card in each if card in cards) == dict.fromkeys(
        cards, 2
    )


def test_another_scheduler_takes_the_card(
    cloud: NovaCloud, client: NovaClient, between: Proxy
) -> None:
    """Where Placement refuses the first card, since somebody else has taken it between the
    answer and the claim, the host's other card is claimed."""
    cards = add_cards(cloud, cloud.add_host('host', ram_mb=131072), 1, 1)
    add_cards(cloud, cloud.add_host('worse'), 1)
    (uuid,) = new_uuids()
    taken: list[str] = []

    def somebody_is_faster(method: str, path: str, body: bytes) -> None:
        if method == 'PUT' and path.startswith('/allocations/') and not taken:
            taken.extend(card for card in cards if card in json.loads(body)['allocations'])
            cloud.placement.allocate(new_uuids()[0], taken[0], {'VGPU': 1})

    between.faults = somebody_is_faster
    assert client.chosen(uuid, flavor=VGPU) == ['host']
    between.faults = None
    (card,) = set(cards) - set(taken)
    assert cloud.placement.allocations(uuid)[card] == {'VGPU': 1}
