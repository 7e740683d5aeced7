# SPDX-License-Identifier: Apache-2.0
"""Services that show in memcached that they are up, as nova's own do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import memcache
import pytest
from dogpile.cache.util import sha1_mangle_key

from novasched.cells.servicegroup import COMPUTE, service_key
from tests.lab.client import NovaClient
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config
from tests.lab.processes import wait_until
from tests.lab.servers import Memcached

PATIENCE = 60
LOST = 'WARNING nova.servicegroup.drivers.mc'
BACK = 'Recovered connection to memcache server'


@pytest.fixture(scope='module')
def memcached() -> Iterator[Memcached]:
    """A memcached of our own."""
    with closing(Memcached()) as server:
        server.start()
        yield server


def config(memcached: Memcached, backend: str, down_time: int) -> Config:
    """What an operator sets; a server that was dead is tried again at once."""
    return {
        'DEFAULT': {'servicegroup_driver': 'mc', 'service_down_time': down_time},
        'cache': {
            'enabled': True,
            'backend': backend,
            'memcache_servers': memcached.url,
            'memcache_dead_retry': 1,
        },
        'scheduler': {'discover_hosts_in_cells_interval': 1, 'workers': 1},
    }


@pytest.fixture(params=['dogpile.cache.memcached', 'oslo_cache.memcache_pool'])
def backend(request: pytest.FixtureRequest) -> str:
    """What nova's own services have a client for."""
    name: str = request.param
    return name


@pytest.fixture
def two_hosts(cloud: NovaCloud) -> NovaCloud:
    """Two hosts in two cells, which the databases say were never seen."""
    cloud.reset()
    for name, cell in (('host-1', 'cell1'), ('host-2', 'cell2')):
        cloud.add_host(name, cell)
        cloud.cells[cell].update('services', {'last_seen_up': None, 'created_at': None})
    return cloud


def test_the_keys_are_novas(two_hosts: NovaCloud, memcached: Memcached, backend: str) -> None:
    """Computes whose nova-compute has written its key are up; nova reads ours, and knows
    who leads the discovery of hosts."""
    overrides = config(memcached, backend, 60)
    with (
        closing(NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        assert client.reached() == set()
        client('report', hosts=['host-2'])
        assert client.reached() == {'host-2'}
        client('report', hosts=['host-1'])
        assert client.reached() == {'host-1', 'host-2'}
        assert [one['up'] for one in client('services') if one['host'] == daemon.host] == [True]
        two_hosts.cells['cell1'].update('compute_nodes', {'mapped': 0})
        two_hosts.api.clear(['host_mappings'])
        wait_until(lambda: 'Discovered 1 new hosts' in daemon.text(), PATIENCE, 'discovery')
        assert daemon.stop() == 0
        assert 'Traceback' not in daemon.text()
    # Another one: keys stay in memcached until they are too old.
    memcached.stop()
    memcached.start()


def test_who_keeps_silent_is_down(two_hosts: NovaCloud, memcached: Memcached, backend: str) -> None:
    """After service_down_time seconds, for nova and for us, also when we are gone."""
    overrides = config(memcached, backend, 3)
    with (
        closing(NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        client('report', hosts=['host-1'])
        wait_until(lambda: client.reached() == set(), PATIENCE, 'end of host-1')

        def up() -> list[bool]:
            return [one['up'] for one in client('services') if one['host'] == daemon.host]

        assert up() == [True]
        daemon.kill()
        wait_until(lambda: up() == [False], PATIENCE, 'end of the scheduler')


def test_nothing_of_a_key_is_run(
    two_hosts: NovaCloud, memcached: Memcached, backend: str, tmp_path: Path
) -> None:
    """Who can write to memcached may say that a compute is down, and no more."""
    overrides = config(memcached, backend, 60)
    made = tmp_path / 'made'
    with (
        closing(NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        client('report', hosts=['host-1', 'host-2'])
        assert client.reached() == {'host-1', 'host-2'}
        anybody = memcache.Client([memcached.url])
        anybody.set(sha1_mangle_key(service_key(COMPUTE, 'host-1')), MakesADirectory(made))
        anybody.disconnect_all()
        assert client.reached() == {'host-2'}
        assert 'none of a service: it would need posix.mkdir' in daemon.text()
        assert not made.exists()
    memcached.stop()
    memcached.start()


class MakesADirectory:
    """When it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_memcached_goes_away(two_hosts: NovaCloud, memcached: Memcached, backend: str) -> None:
    """All computes are down; one warning says why, one line that it is over."""
    overrides = config(memcached, backend, 60)
    with (
        closing(NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        client('report', hosts=['host-1'])
        assert client.reached() == {'host-1'}
        memcached.stop()
        assert client.reached() == set()
        wait_until(lambda: LOST in daemon.text(), PATIENCE, 'warning')
        memcached.start()
        wait_until(lambda: BACK in daemon.text(), PATIENCE, 'recovery')

        def seen() -> bool:
            client('report', hosts=['host-1'])
            return client.reached() == {'host-1'}

        wait_until(seen, PATIENCE, 'host-1')
        assert daemon.text().count(LOST) == 1
        assert 'Traceback' not in daemon.text()


@pytest.mark.parametrize(
    ('overrides', 'line'),
    [
        ({'DEFAULT': {'servicegroup_driver': 'zk'}}, '[DEFAULT] servicegroup_driver = zk: '),
        ({'DEFAULT': {'servicegroup_driver': 'mc'}}, '[cache] enabled = False: '),
    ],
)
def test_start_is_refused(two_hosts: NovaCloud, overrides: Config, line: str) -> None:
    """The last line names option and value."""
    daemon = Daemon(two_hosts, overrides)
    assert daemon.run_to_end() != 0
    assert line in daemon.text().splitlines()[-1]
