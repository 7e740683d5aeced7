# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, on hosts that do not report yet what is placed on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.lab.client import NovaClient, Refused, a_call, new_uuids
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import NovaCloud
from tests.lab.reports import a_numa_cell, a_numa_topology

CLIENTS, HOSTS, ROOM = 16, 50, 4
"""Each host has room for four servers of three CPUs, two in either cell of eight CPUs. By its
numbers alone, Placement would let a fifth onto it."""

PINNED = Flavor(
    vcpus=3, ram_mb=512, disk_gb=1,
    extra_specs={'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'},
)  # fmt: skip
TOPOLOGY = a_numa_topology(*(a_numa_cell(number) for number in (0, 1)))

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler does not know of others')


@pytest.fixture(scope='module')
def hosts(cloud: NovaCloud) -> NovaCloud:
    """Hosts whose CPUs are just enough for 200 servers. Of memory and disk there is more."""
    cloud.reset()
    cloud.add_hosts(
        [
            Compute(f'host-{i:02}', ('cell1', 'cell2')[i % 2], pcpus=16, columns=COLUMNS)
            for i in range(HOSTS)
        ]
    )
    return cloud


COLUMNS = {'numa_topology': TOPOLOGY}


@pytest.fixture
def scheduler(hosts: NovaCloud) -> Iterator[Daemon]:
    """A scheduler that remembers long enough what it has placed."""
    with Daemon(
        hosts,
        {
            'filter_scheduler': {'enabled_filters': 'ComputeFilter,NUMATopologyFilter'},
            'novasched': {'in_flight_timeout': 3600},
        },
    ) as running:
        yield running


def where(answers: Sequence[object]) -> list[str]:
    """The hosts of all servers that were placed."""
    return [
        selections[0]['service_host']
        for answer in answers
        if not isinstance(answer, Refused)
        for selections in answer
    ]


@pytest.mark.usefixtures('scheduler')
def test_pinned_servers_for_all_the_room_there_is(hosts: NovaCloud, client: NovaClient) -> None:
    """200 pinned servers asked for by 16 clients at once, some of them by fours, go to hosts
    that hold exactly 200: all are placed, nova-compute finds CPUs for each that nobody else
    has, every allocation is a server's, and one more is refused."""
    fours = [new_uuids(4) for _ in range(20)]
    ones = [new_uuids(1) for _ in range(HOSTS * ROOM - 80)]
    batches = [batch for pair in zip(fours, ones[:20], strict=True) for batch in pair] + ones[20:]
    answers = client.select_at_once([a_call(uuids, PINNED) for uuids in batches], CLIENTS)
    assert [answer for answer in answers if isinstance(answer, Refused)] == []

    placed = Counter(where(answers))
    assert placed == {f'host-{i:02}': ROOM for i in range(HOSTS)}
    for count in placed.values():
        pins, _ = client.land(TOPOLOGY, PINNED, count)
        assert len({cpu for each in pins for cpu in each}) == PINNED.vcpus * count

    held = hosts.all_allocations()
    assert held.keys() == {uuid for batch in batches for uuid in batch}
    with pytest.raises(Refused, match='No valid host was found'):
        client.select_destinations(new_uuids(1), PINNED)
    assert hosts.all_allocations() == held
