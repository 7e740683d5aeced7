# SPDX-License-Identifier: Apache-2.0
"""The memcached of ``[cache]``, read with a safe unpickler.

Clients of memcached pickle values, and loading a pickle can call any installed code.
memcached has no passwords as a rule, so a client that can write to memcached could run
code in every reader (https://docs.python.org/3/library/pickle.html, "not secure").
dogpile.cache, python-memcached and pymemcache offer no option against it. nova's values
are a time in dogpile's wrapper; the safe unpickler loads nothing else.
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
"""Modules that backends of oslo.cache import, and the package of each module where the
names differ."""
PICKLED_FLAG = 1
"""The flag of pickled values in python-memcached and pymemcache."""
ALLOWED_NAMES = {
    ('dogpile.cache.api', 'CachedValue'),
    ('datetime', 'datetime'),
    ('copy_reg', '_reconstructor'),
    ('__builtin__', 'tuple'),
    ('_codecs', 'encode'),
}
"""The modules and names in pickles of nova's values. The last three occur in pickle
protocols below 3."""


def cache_region(conf: cfg.ConfigOpts, expiration_time: int) -> Any:
    """Make the dogpile cache region of ``[cache]``, as nova's services do.

    :param expiration_time: age in seconds beyond which the region hides a value.
    :raises ConfigError: ``[cache]`` names no memcached, or the client library is not
        installed.
    """
    try:
        from oslo_cache import core
        from oslo_cache import exception as cache_exc
    except ImportError:
        install = 'install the package oslo.cache (pip install novasched[memcached])'
        raise ConfigError('[DEFAULT] servicegroup_driver', 'mc', install) from None

    core.configure(conf)
    unset = {'enabled': False, 'backend': 'dogpile.cache.null', 'memcache_servers': []}
    try:
        options = {name: conf.cache[name] for name in unset}
    except cfg.ConfigSourceValueError as error:
        raise ConfigError('[cache]', 'unusable', hide(error)) from None
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
    """Loads the values written by nova. All other values are loaded as None: to
    clients, None is a missing key."""

    def load(self) -> Any:
        try:
            return super().load()
        except Exception:
            # Broken bytes can raise any exception.
            return None

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED_NAMES:
            return super().find_class(module, name)
        text = f'A key in memcached is none of a service: it would need {module}.{name}'
        LOG.warning('%s', text)
        raise pickle.UnpicklingError(text)


def use_safe_unpickler(region: Any) -> None:
    """Make a cache region load values only by :class:`SafeUnpickler`.

    dogpile has no option for the unpickler of clients, so the factories of clients are
    replaced.
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
    """Load a value of a backend with values pickled by dogpile itself."""
    from dogpile.cache.api import CantDeserializeException

    value = SafeUnpickler(io.BytesIO(data)).load()
    if value is None:
        raise CantDeserializeException
    return value


def _with_safe_unpickler(create: Callable[[], Any]) -> Callable[[], Any]:
    """A factory of clients with the safe unpickler. A client without an attribute for
    an unpickler stays as it is, with a warning."""

    def create_client() -> Any:
        client = create()
        is_safe = False
        # python-binary-memcached has an unpickler in each of its servers.
        for reader in (client, *getattr(client, 'servers', ())):
            if hasattr(reader, 'unpickler'):
                reader.unpickler = SafeUnpickler
                is_safe = True
        if not is_safe:
            LOG.warning(
                'The client of memcached that [cache] backend chooses cannot be kept '
                'from unpickling whatever it reads: who can write to memcached can run '
                'code here.'
            )
        return client

    return create_client


def _pymemcache_serde() -> Any:
    """The format of pymemcache, with pickles loaded by :class:`SafeUnpickler`."""
    from pymemcache import serde

    class SafeSerde(serde.PickleSerde):  # type: ignore[misc]
        def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
            if flags & PICKLED_FLAG:
                return SafeUnpickler(io.BytesIO(value)).load()
            return super().deserialize(key, value, flags)

    return SafeSerde()
