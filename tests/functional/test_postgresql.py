# SPDX-License-Identifier: Apache-2.0
"""The daemon with nova's own schemas on PostgreSQL. Its databases by themselves are in
``test_databases.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab.client import Group, NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, checked, is_reference
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import NovaRelease
from tests.lab.placement_api import PlacementProcess
from tests.lab.postgresql import PostgreSQL
from tests.lab.processes import wait_until
from tests.lab.servers import Server

pytestmark = pytest.mark.skipif(is_reference(), reason='it is our reader that is looked at')

SECONDS = 30
PATIENCE = 2
BOTH = {'h1', 'h2'}
SMALL = Flavor(vcpus=1, ram_mb=1024, disk_gb=10)
OTHERS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid != pg_backend_pid()"


@pytest.fixture(scope='module')
def server() -> Iterator[PostgreSQL]:
    """A server of our own, with which a test does as it likes."""
    with closing(PostgreSQL()) as made:
        made.start()
        yield made


@pytest.fixture(scope='module')
def pg_cloud(
    nova: NovaRelease,
    server: PostgreSQL,
    rabbitmq: Server,
    placement: PlacementProcess,
    directory: Path,
) -> Iterator[NovaCloud]:
    """nova's own schemas there, made by nova-manage, with two hosts in one cell."""
    made = NovaCloud(
        nova,
        directory,
        amqp_url=rabbitmq.url,
        database_url=server.url,
        placement_url=placement.url,
        cells=('cell1',),
    )
    with closing(made):
        made.reset()
        for number in (1, 2):
            made.add_host(f'h{number}')
            made.add_aggregate(f'rack{number}', [f'h{number}'], zone=f'z{number}')
        yield made


def test_the_daemon(server: PostgreSQL, pg_cloud: NovaCloud, nova: NovaRelease) -> None:
    """Instances are placed, moved and grouped; hosts change, come and are mapped; the service is
    up; the server hangs, and its connections are cut."""
    cell1, cloud = pg_cloud.cells['cell1'], pg_cloud
    overrides = {
        'novasched': {'cell_timeout': PATIENCE},
        'DEFAULT': {'periodic_fuzzy_delay': 0},
        'scheduler': {'discover_hosts_in_cells_interval': 1, 'workers': 1},
    }

    def host(client: NovaClient, **asked: object) -> str:
        [[found]] = client.select_destinations(new_uuids(), SMALL, **asked)
        name: str = found['service_host']
        return name

    with closing(NovaClient(nova, cloud.config('client'))) as client, Daemon(cloud, overrides) as daemon:  # fmt: skip
        servers = new_uuids(4)
        found = client.select_destinations(servers, SMALL)
        assert {each[0]['service_host'] for each in found} == BOTH
        assert all(cloud.allocations(server) for server in servers)
        assert [host(client, zone=zone) for zone in ('z1', 'z2')] == ['h1', 'h2']

        first = host(client)
        cloud.boot(servers[0], first, SMALL)
        moved = host(client, ignore_hosts=[first], destination={'cell': cloud.cell_uuids['cell1']})
        assert moved == (BOTH - {first}).pop()
        group = Group('anti-affinity', members=[servers[0]], hosts=[first])
        assert host(client, group=group) == moved
        assert host(client, hints={'same_host': [servers[0]]}) in BOTH
        assert host(client, force_hosts=['h2']) == 'h2'

        cell1.update('services', {'disabled': True}, host='h1', binary='nova-compute')
        assert {host(client) for _ in range(4)} == {'h2'}
        cell1.update('services', {'disabled': False}, host='h1', binary='nova-compute')

        findings = checked(daemon.config)
        for subject in ('[database] connection', '[api_database] connection', 'cell cell1'):
            level, text = findings[subject]
            assert (level, text.split()[0]) == ('ok', 'PostgreSQL')

        [row] = cloud.service_rows('nova-scheduler')
        assert (row['host'], row['version']) == (daemon.host, nova.service_version)

        new = Compute('h3', 'cell1')
        cell1.insert('compute_nodes', [{**new.node_row(), 'mapped': 0}])
        cell1.insert('services', [new.service_row(nova.service_version)])
        wait_until(lambda: 'Discovered 1 new hosts: cell1:h3' in daemon.text(), SECONDS, 'discovery')  # fmt: skip
        assert cloud.api.rows('host_mappings', host='h3')

        server.freeze()
        try:
            with pytest.raises(Refused) as refused:
                host(client)
            assert refused.value.no_valid_host
        finally:
            server.thaw()

        def works() -> bool:
            try:
                return host(client) in BOTH
            except Refused:
                return False

        cloud.refresh_services()
        wait_until(works, SECONDS, 'use of the databases')
        with cell1.engine.connect() as own:
            own.exec_driver_sql(f'SELECT pg_terminate_backend(pid) {OTHERS}')
        cloud.refresh_services()
        assert host(client) in BOTH
        assert 'Traceback' not in daemon.text()
        assert daemon.stop() == 0
