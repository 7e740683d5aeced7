# SPDX-License-Identifier: Apache-2.0
"""The cache of ``[cache]``, read without running what may have been put there.

Clients of memcached pickle values, and a pickle can call whatever is installed: whoever
can write to memcached, which has no passwords as a rule, could run code in all of its
readers (https://docs.python.org/3/library/pickle.html, "not secure"; dogpile.cache,
python-memcached and pymemcache offer no option against it). nova's values are a time in
dogpile's wrapper, and the safe unpickler here makes nothing else.
"""

import io
import logging
import pickle
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide

LOG = logging.getLogger('nova.servicegroup.drivers.mc')

PACKAGES = {'bmemcached': 'python-binary-memcached', 'memcache': 'python-memcached'}
"""Modules that the backends of oslo.cache import, and their packages if these have
other names."""
PICKLED_FLAG = 1
"""The flag with which python-memcached and pymemcache mark pickled values."""
ALLOWED_NAMES = {
    ('dogpile.cache.api', 'CachedValue'),
    ('datetime', 'datetime'),
    ('copy_reg', '_reconstructor'),
    ('__builtin__', 'tuple'),
    ('_codecs', 'encode'),
}
"""The modules and names in pickles of nova's values; the last three are of protocols
below 3."""


def cache_region(conf: cfg.ConfigOpts, expiration_time: int) -> Any:
    """The dogpile cache region that ``[cache]`` describes, as nova's services use it.

    :param expiration_time: seconds after which a value is hidden.
    :raises ConfigError: there is none, or its client is not installed.
    """
    try:
        from oslo_cache import core
        from oslo_cache import exception as cache_exc
    except ImportError:
        install = 'install the package oslo.cache (pip install novasched[memcached])'
        raise ConfigError('[DEFAULT] servicegroup_driver', 'mc', install) from None
    core.configure(conf)
    try:
        options = {
            name: conf.cache[name]
            for name in ('enabled', 'backend', 'memcache_servers')
        }
    except cfg.ConfigSourceValueError as error:
        raise ConfigError('[cache]', 'unusable', hide(error)) from None
    unset = {'enabled': False, 'backend': 'dogpile.cache.null', 'memcache_servers': []}
    for name, value in options.items():
        if value == unset[name]:
            why = 'servicegroup_driver = mc keeps what services report there'
            raise ConfigError(f'[cache] {name}', value, why)
    conf.set_override('expiration_time', expiration_time, group='cache')
    region = core.create_region()
    try:
        core.configure_cache_region(conf, region)
    except ImportError as error:
        install = f'install the package {PACKAGES.get(error.name or "", error.name)}'
        raise ConfigError('[cache] backend', options['backend'], install) from None
    except (cache_exc.ConfigurationError, ValueError, OSError) as error:
        raise ConfigError('[cache]', 'unusable', hide(error)) from None
    use_safe_unpickler(region)
    return region


class SafeUnpickler(pickle.Unpickler):
    """Loads the values that nova writes; anything else is None, which clients take for
    no value."""

    def load(self) -> Any:
        try:
            return super().load()
        except Exception:  # broken bytes raise any of them
            return None

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED_NAMES:
            return super().find_class(module, name)
        text = f'A key in memcached is none of a service: it would need {module}.{name}'
        LOG.warning('%s', text)
        raise pickle.UnpicklingError(text)


def use_safe_unpickler(region: Any) -> None:
    """Let a cache region load values by :class:`SafeUnpickler` alone.

    dogpile has no option for the client's unpickler, so each client is changed once
    made.
    """
    backend = region.actual_backend
    if region.deserializer is pickle.loads:
        region.deserializer = _loads
    pool = getattr(backend, 'client_pool', None)
    if pool is not None:
        pool._create_connection = _with_safe_unpickler(pool._create_connection)
    elif hasattr(backend, 'serde'):
        backend.serde = _pymemcache_serde()
    elif hasattr(backend, '_create_client'):
        backend._create_client = _with_safe_unpickler(backend._create_client)


def _loads(data: bytes) -> Any:
    """Load a value of a backend for which dogpile pickles by itself."""
    from dogpile.cache.api import CantDeserializeException

    value = SafeUnpickler(io.BytesIO(data)).load()
    if value is None:
        raise CantDeserializeException
    return value


def _with_safe_unpickler(create: Callable[[], Any]) -> Callable[[], Any]:
    """A factory of clients that unpickle safely, where they have an attribute for
    it."""

    def create_client() -> Any:
        client = create()
        # python-binary-memcached has an unpickler in each of its servers.
        readers = [
            x
            for x in (client, *getattr(client, 'servers', ()))
            if hasattr(x, 'unpickler')
        ]
        for reader in readers:
            reader.unpickler = SafeUnpickler
        if not readers:
            LOG.warning(
                'The client of memcached that [cache] backend chooses cannot be kept'
                ' from unpickling whatever it reads: who can write to memcached can run'
                ' code here.'
            )
        return client

    return create_client


def _pymemcache_serde() -> Any:
    """pymemcache's own format, loaded by :class:`SafeUnpickler`."""
    from pymemcache import serde

    class SafeSerde(serde.PickleSerde):  # type: ignore[misc]
        def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
            if flags & PICKLED_FLAG:
                return SafeUnpickler(io.BytesIO(value)).load()
            return super().deserialize(key, value, flags)

    return SafeSerde()
