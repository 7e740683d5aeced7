# SPDX-License-Identifier: Apache-2.0
"""Services report to memcached that they are up, like nova's services."""

import os
from contextlib import closing

import memcache
import pytest
from dogpile.cache.util import sha1_mangle_key

from novasched.cells.servicegroup import COMPUTE, service_key
from tests.lab.daemon import Daemon, NovaClient
from tests.lab.processes import wait_until
from tests.lab.servers import Memcached

PATIENCE = 60
LOST = 'WARNING nova.servicegroup.drivers.mc'
BACK = 'Recovered connection to memcache server'


@pytest.fixture(scope='module')
def memcached():
    """A memcached for the tests of this module."""
    with closing(Memcached()) as server:
        server.start()
        yield server


def config(memcached, backend, down_time):
    """Options of an operator. A dead memcached is tried again at once."""
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


@pytest.fixture
def two_hosts(cloud):
    """Two hosts in two cells, whose services never reported to the databases."""
    cloud.reset()
    for name, cell in (('host-1', 'cell1'), ('host-2', 'cell2')):
        cloud.add_host(name, cell)
        cloud.cells[cell].update('services', {'last_seen_up': None, 'created_at': None})
    return cloud


class MakesADirectory:
    """An object whose unpickling makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def up(client, daemon):
    """A list with nova's verdict whether the scheduler is up."""
    rows = client('services')
    return [row['up'] for row in rows if row['host'] == daemon.host]


@pytest.mark.parametrize(
    'backend', ['dogpile.cache.memcached', 'oslo_cache.memcache_pool']
)
def test_service_keys_in_memcached_are_compatible_with_nova(
    two_hosts, memcached, backend, tmp_path
):
    """Both memcached clients of nova's services work with novasched. Computes with a
    key of nova-compute are up, nova reads the scheduler's key, and the scheduler knows
    the leader of the discovery.

    While memcached is away, all computes are down. The log has a warning with the
    reason, and a line when memcached is back. A stranger who can write to memcached can
    make a compute seem down, but cannot run code.
    """
    overrides = config(memcached, backend, 60)
    with (
        closing(
            NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))
        ) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        assert client.reached() == set()
        client('report', hosts=['host-2'])
        assert client.reached() == {'host-2'}
        client('report', hosts=['host-1'])
        assert client.reached() == {'host-1', 'host-2'}
        assert up(client, daemon) == [True]

        two_hosts.cells['cell1'].update('compute_nodes', {'mapped': 0})
        two_hosts.api.delete('host_mappings')
        wait_until(
            lambda: 'Discovered 1 new hosts' in daemon.text(), PATIENCE, 'discovery'
        )

        memcached.stop()
        assert client.reached() == set()
        wait_until(lambda: LOST in daemon.text(), PATIENCE, 'warning')
        memcached.start()
        wait_until(lambda: BACK in daemon.text(), PATIENCE, 'recovery')

        def both_are_up():
            client('report', hosts=['host-1', 'host-2'])
            return client.reached() == {'host-1', 'host-2'}

        wait_until(both_are_up, PATIENCE, 'both hosts')
        assert daemon.text().count(LOST) == 1

        directory = tmp_path / 'made'
        stranger = memcache.Client([memcached.url])
        key = sha1_mangle_key(service_key(COMPUTE, 'host-1'))
        stranger.set(key, MakesADirectory(directory))
        stranger.disconnect_all()
        assert client.reached() == {'host-2'}
        assert 'none of a service: it would need posix.mkdir' in daemon.text()
        assert not directory.exists()
        assert daemon.stop() == 0
        assert 'Traceback' not in daemon.text()

    # The next test needs an empty memcached: keys stay until they expire.
    memcached.stop()
    memcached.start()


def test_a_silent_service_is_down_after_service_down_time(two_hosts, memcached):
    """nova and novasched consider a silent service down after service_down_time
    seconds, the scheduler itself included."""
    overrides = config(memcached, 'oslo_cache.memcache_pool', 3)
    with (
        closing(
            NovaClient(two_hosts.nova, two_hosts.config('mc', overrides))
        ) as client,
        Daemon(two_hosts, overrides) as daemon,
    ):
        client('report', hosts=['host-1'])
        wait_until(lambda: client.reached() == set(), PATIENCE, 'end of host-1')
        assert up(client, daemon) == [True]
        daemon.kill()
        wait_until(
            lambda: up(client, daemon) == [False], PATIENCE, 'end of the scheduler'
        )
