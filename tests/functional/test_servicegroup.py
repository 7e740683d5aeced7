# SPDX-License-Identifier: Apache-2.0
"""Services that show in memcached that they are up, as nova's own do."""

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
    """A memcached of our own."""
    with closing(Memcached()) as server:
        server.start()
        yield server


def config(memcached, backend, down_time):
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


@pytest.fixture
def two_hosts(cloud):
    """Two hosts in two cells, which the databases say were never seen."""
    cloud.reset()
    for name, cell in (('host-1', 'cell1'), ('host-2', 'cell2')):
        cloud.add_host(name, cell)
        cloud.cells[cell].update('services', {'last_seen_up': None, 'created_at': None})
    return cloud


class MakesADirectory:
    """When it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def up(client, daemon):
    """Whether the scheduler is up in nova's own eyes."""
    return [one['up'] for one in client('services') if one['host'] == daemon.host]


@pytest.mark.parametrize(
    'backend', ['dogpile.cache.memcached', 'oslo_cache.memcache_pool']
)
def test_the_keys_are_novas(two_hosts, memcached, backend, tmp_path):
    """With each client that nova's own services have: computes whose nova-compute has
    written its key are up; nova reads ours, and knows who leads the discovery of hosts.
    While memcached is away all computes are down; one warning says why, one line that
    it is over. Who can write to memcached may say that a compute is down, and no more:
    nothing of a key is run."""
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

        def seen():
            client('report', hosts=['host-1', 'host-2'])
            return client.reached() == {'host-1', 'host-2'}

        wait_until(seen, PATIENCE, 'both hosts')
        assert daemon.text().count(LOST) == 1

        made = tmp_path / 'made'
        anybody = memcache.Client([memcached.url])
        anybody.set(
            sha1_mangle_key(service_key(COMPUTE, 'host-1')), MakesADirectory(made)
        )
        anybody.disconnect_all()
        assert client.reached() == {'host-2'}
        assert 'none of a service: it would need posix.mkdir' in daemon.text()
        assert not made.exists()
        assert daemon.stop() == 0
        assert 'Traceback' not in daemon.text()
    # Another one: keys stay in memcached until they are too old.
    memcached.stop()
    memcached.start()


def test_who_keeps_silent_is_down(two_hosts, memcached):
    """After service_down_time seconds, for nova and for us, also when we are gone."""
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
