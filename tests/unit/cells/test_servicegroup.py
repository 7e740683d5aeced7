# SPDX-License-Identifier: Apache-2.0
import sys
import time

import pytest
from dogpile.cache.api import CachedValue
from oslo_cache import core

from novasched.cells.memcached import cache_region
from novasched.cells.servicegroup import (
    COMPUTE,
    Heartbeat,
    MemcachedServiceGroup,
    service_key,
)
from novasched.conf.errors import ConfigError
from tests.lab.nova_databases import NOW, hosts_of

DOWN_TIME = 60
LOST = 'Lost connection to memcache server for reporting service status: '


class Memory:
    """A cache region in memory.

    :ivar reads: number of readings.
    :ivar cut: the failure of the region: an exception to raise, or a text for an empty
        region (several clients hide errors); None without a failure.
    """

    def __init__(self):
        self.cache = core.create_region()
        self.cache.configure('dogpile.cache.memory', expiration_time=DOWN_TIME)
        self.reads = 0
        self.cut = None

    def set(self, name, value):
        self.check()
        if self.cut is None:
            self.cache.set(name, value)

    def get_multi(self, names):
        self.reads += 1
        self.check()
        if self.cut is None:
            return self.cache.get_multi(names)
        return [core.NO_VALUE] * len(names)

    def check(self):
        if isinstance(self.cut, Exception):
            raise self.cut

    def heard(self, host, seconds_ago=0):
        """Write the key as nova-compute on a host does."""
        written = {'ct': time.time() - seconds_ago, 'v': 2}
        self.cache.backend.set(service_key(COMPUTE, host), CachedValue(NOW, written))


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def cloud(cloud, memory):
    """Three computes in two cells. The rows have no time of a report."""
    cloud.group = MemcachedServiceGroup(memory, 'ctl1', lambda: cloud.now)
    for host, cell in (('h1', 'cell1'), ('h2', 'cell1'), ('h3', 'cell2')):
        cloud.add_host(host, cell, service=False)
        cloud.add_service(host, cloud.engines[cell], last_seen_up=None)
    return cloud


def up(reader):
    return sorted(name for name, host in hosts_of(reader).items() if host.service.up)


def said(caplog):
    messages = []
    for record in caplog.records:
        if record.name == 'nova.servicegroup.drivers.mc' and record.levelno > 10:
            messages.append(record.getMessage())
    return messages


def test_a_compute_is_up_while_the_memcached_key_is_young(cloud, memory):
    """A compute with a young key is up unless an operator has forced the compute down.
    The time in the row has no effect. The next request sees a change. A request reads
    memcached once a cell."""
    reader = cloud.reader()
    assert up(reader) == []

    memory.heard('h1', seconds_ago=DOWN_TIME / 2)
    memory.heard('h2', seconds_ago=DOWN_TIME + 1)
    memory.heard('h3')
    assert up(reader) == ['h1', 'h3']

    memory.heard('h2')
    memory.reads = 0
    assert up(reader) == ['h1', 'h2', 'h3']
    assert memory.reads == 2

    cloud.sql('cell1', 'UPDATE services SET forced_down = true')
    assert up(reader) == ['h3']


REFUSED = ConnectionRefusedError('refused')


@pytest.mark.parametrize(
    ('meets', 'cut', 'why'),
    [
        ('heartbeat', 'silent', 'it does not keep our own key'),
        ('heartbeat', REFUSED, 'ConnectionRefusedError: refused'),
        ('request', 'silent', 'it has no key of any service'),
        ('request', REFUSED, 'ConnectionRefusedError: refused'),
    ],
)
def test_all_computes_are_down_during_a_memcached_outage(
    cloud, memory, meets, cut, why, caplog
):
    """The first failure of an outage is logged, and its end. All computes are down in
    between. Computes without keys are no outage as long as the key of the scheduler
    exists."""
    caplog.set_level('INFO')
    reader = cloud.reader()
    cloud.group.report_state()
    assert up(reader) == []
    memory.heard('h1')
    for _ in range(2):
        memory.cut = cut
        if meets == 'heartbeat':
            cloud.group.report_state()
        assert up(reader) == []
        cloud.group.report_state()
        memory.cut = None
        cloud.group.report_state()
        assert up(reader) == ['h1']

    lost = f'{LOST}{why}. All services count as down.'
    back = 'Recovered connection to memcache server for reporting service status.'
    assert said(caplog) == [lost, back] * 2


def test_registering_inserts_the_row_and_sets_the_memcached_key(cloud, memory):
    """Registering inserts the row and sets the key. A report renews the key and leaves
    the row unchanged."""
    cloud.cells.refresh()
    own = cloud.cells.all()[0].database
    heart = Heartbeat(own, cloud.cells.enabled, 'ctl1', lambda: cloud.now, cloud.group)
    heart.register()
    assert memory.cache.get('scheduler:ctl1') == NOW

    memory.cache.delete('scheduler:ctl1')
    heart.report_state()
    assert memory.cache.get('scheduler:ctl1') == NOW
    row = own.rows('services', ('report_count', 'topic'), binary='nova-scheduler')
    assert row == [(0, 'scheduler')]


MEMORY = '[cache]\nenabled = true\nbackend = dogpile.cache.memory\n'


KEEPS = 'servicegroup_driver = mc keeps what services report there'


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', f'[cache] enabled = False: {KEEPS}'),
        ('[cache]\nenabled = true', f'[cache] backend = dogpile.cache.null: {KEEPS}'),
        (f'{MEMORY}memcache_servers =', f'[cache] memcache_servers = []: {KEEPS}'),
        (
            '[cache]\nenabled = true\nbackend = redis',
            'Value for option backend from LocationInfo',
        ),
        (
            '[cache]\nenabled = true\nbackend = dogpile.cache.pylibmc',
            '[cache] backend = dogpile.cache.pylibmc: install the package pylibmc',
        ),
        (f'{MEMORY}backend_expiration_time = 5', '[cache] = unusable: '),
        (f'{MEMORY}tls_enabled = true', '[cache] = unusable: '),
    ],
)
def test_the_error_of_an_unusable_cache_names_option_or_package(load, text, message):
    """The error names the wrong option, or the missing package."""
    with pytest.raises(ConfigError) as caught:
        cache_region(load(text), DOWN_TIME)
    assert message in str(caught.value)


def test_memcached_keys_expire_after_service_down_time(load, monkeypatch):
    """As in nova, a key expires after service_down_time. [cache] expiration_time has no
    effect. Without oslo.cache the error names the missing package."""
    assert cache_region(load(f'{MEMORY}expiration_time = 600'), 7).expiration_time == 7
    monkeypatch.setitem(sys.modules, 'oslo_cache', None)
    why = r'install the package oslo.cache \(pip install novasched\[memcached\]\)$'
    with pytest.raises(
        ConfigError, match=rf'^\[DEFAULT\] servicegroup_driver = mc: {why}'
    ):
        cache_region(load(MEMORY), DOWN_TIME)
