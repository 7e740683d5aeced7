# SPDX-License-Identifier: Apache-2.0
"""Keys of nova's services are read from memcached, and only such keys are unpickled.
``functional/test_servicegroup.py`` has tests with the clients of nova's services."""

import io
import os
import pickle
import time

import pytest
from dogpile.cache.api import CachedValue
from oslo_cache import core

from novasched.cells.memcached import PICKLED_FLAG, SafeUnpickler, use_safe_unpickler
from tests.lab.nova_databases import NOW

WRITTEN = CachedValue(NOW, {'ct': time.time(), 'v': 2})
"""As a service of nova's writes it."""


class Evil:
    """Makes a directory when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def read(data):
    return SafeUnpickler(io.BytesIO(data)).load()


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
def test_only_keys_of_services_are_unpickled(protocol, tmp_path, caplog):
    """Keys of services are read in every pickle protocol. Of a different value nothing
    is run, and the log names the refused function."""
    assert read(pickle.dumps(WRITTEN, protocol)) == WRITTEN

    evil = Evil(tmp_path / 'made')
    for what in (evil, CachedValue(evil, {}), CachedValue(NOW, {'ct': evil})):
        assert read(pickle.dumps(what, protocol)) is None
        assert 'none of a service: it would need posix.mkdir' in caplog.messages[-1]
    assert not evil.path.exists()


@pytest.mark.parametrize(
    'data',
    [
        b'',
        b'no pickle',
        b'cbuiltins\neval\n(V1\ntR.',
        b'cos\nsystem\n(Vtrue\ntR.',
        b'c__builtin__\ngetattr\n.',
        b'\x80\x04\x8c\x08datetime\x8c\x03sys\x93.',
        b'\x80\x02\x82\x01.',
        b'P1\n.',
    ],
)
def test_handwritten_pickles_are_refused(data):
    """Globals in every spelling, extension codes, persistent ids and garbage are
    refused."""
    assert read(data) is None


def made(backend):
    region = core.create_region()
    region.configure(backend, arguments={'url': ['127.0.0.1:1'], 'no_lock': True})
    use_safe_unpickler(region)
    return region


def test_python_binary_memcached_uses_the_safe_unpickler():
    pytest.importorskip('bmemcached')
    [server] = made('dogpile.cache.bmemcached').actual_backend.client.servers
    assert server.unpickler is SafeUnpickler


def test_pymemcache_uses_the_safe_unpickler(tmp_path):
    """pymemcache writes the usual format, and reads the format with the safe
    unpickler."""
    backend = made('dogpile.cache.pymemcache').actual_backend
    data, flags = backend.serde.serialize(b'key', WRITTEN)
    assert flags == PICKLED_FLAG
    assert (
        pickle.loads(data) == backend.serde.deserialize(b'key', data, flags) == WRITTEN
    )

    evil = pickle.dumps(Evil(tmp_path / 'made'))
    assert backend.serde.deserialize(b'key', evil, flags) is None
    assert backend.serde.deserialize(b'key', b'5', 2) == 5
    assert not (tmp_path / 'made').exists()

    client = backend.client.clients.popitem()[1]
    assert client.serde is backend.serde


def test_values_pickled_by_dogpile_are_read_with_the_safe_unpickler(tmp_path):
    """Values pickled by dogpile itself, as for redis, are read with the safe
    unpickler."""
    region = made('dogpile.cache.memory_pickle')
    region.set('key', NOW)
    assert region.get('key') == NOW
    region.set('key', Evil(tmp_path / 'made'))
    assert region.get('key') is core.NO_VALUE
    assert not (tmp_path / 'made').exists()


def test_the_log_warns_of_a_client_with_another_unpickler(caplog):
    """pylibmc has its own unpickler. The log warns of such a client."""
    region = made('dogpile.cache.memory')
    region.actual_backend._create_client = object
    use_safe_unpickler(region)
    region.actual_backend._create_client()
    assert 'cannot be kept from unpickling' in caplog.text
