# SPDX-License-Identifier: Apache-2.0
"""What services keep in memcached, read without running what may have been put there.

The clients of memcached pickle what they keep, and a pickle can call whatever is installed:
whoever can write to a memcached, which has no passwords as a rule, could run code in all of its
readers. nova's keys are a time in dogpile's wrapper, and nothing else is made of a pickle here.
"""

from __future__ import annotations

import copyreg
import io
import logging
import pickle
from _codecs import encode
from collections.abc import Callable
from datetime import datetime
from typing import Any

LOG = logging.getLogger('nova.servicegroup.drivers.mc')
PICKLED = 1
"""The flag with which python-memcached and pymemcache mark what they have pickled."""
OF_OLD = {'copy_reg': 'copyreg', '__builtin__': 'builtins'}
"""Modules by the names that they have in protocols below 3."""


def _known() -> dict[tuple[str, str], Any]:
    """What a pickle of a key names; the last three are of protocol 0."""
    from dogpile.cache.api import CachedValue

    return {
        ('dogpile.cache.api', 'CachedValue'): CachedValue,
        ('datetime', 'datetime'): datetime,
        ('copyreg', '_reconstructor'): getattr(copyreg, '_reconstructor'),  # noqa: B009
        ('builtins', 'tuple'): tuple,
        ('_codecs', 'encode'): encode,
    }


class Unpickler(pickle.Unpickler):
    """Makes what is known. Of all else it makes None, which clients take for no value."""

    def load(self) -> Any:
        """See :class:`pickle.Unpickler`."""
        try:
            return super().load()
        except Exception:  # as it may be with any bytes
            return None

    def find_class(self, module: str, name: str) -> Any:
        """See :class:`pickle.Unpickler`."""
        try:
            return _known()[OF_OLD.get(module, module), name]
        except KeyError:
            text = f'A key in memcached is none of a service: it would need {module}.{name}'
            LOG.warning('%s', text)
            raise pickle.UnpicklingError(text) from None


def _loads(data: bytes) -> Any:
    """What a pickle has, for backends whose values dogpile pickles itself."""
    from dogpile.cache.api import CantDeserializeException

    found = Unpickler(io.BytesIO(data)).load()
    if found is None:
        raise CantDeserializeException
    return found


def guard(region: Any) -> None:
    """Let a cache region read by :class:`Unpickler` alone.

    dogpile lets no client be chosen, so that each is changed when it has been made.
    """
    backend = region.actual_backend
    if region.deserializer is pickle.loads:
        region.deserializer = _loads
    pool = getattr(backend, 'client_pool', None)
    if pool is not None:
        pool._create_connection = _guarded(pool._create_connection)
    elif hasattr(backend, 'serde'):
        backend.serde = _serde()
    elif hasattr(backend, '_create_client'):
        backend._create_client = _guarded(backend._create_client)


def _guarded(create: Callable[[], Any]) -> Callable[[], Any]:
    """What makes a client that reads by :class:`Unpickler`, if it lets itself be told."""

    def made() -> Any:
        client = create()
        # python-binary-memcached has one for each server.
        readers = [x for x in (client, *getattr(client, 'servers', ())) if hasattr(x, 'unpickler')]
        for each in readers:
            each.unpickler = Unpickler
        if not readers:
            LOG.warning(
                'The client of memcached that [cache] backend chooses cannot be kept from '
                'unpickling whatever it reads: who can write to memcached can run code here.'
            )
        return client

    return made


def _serde() -> Any:
    """pymemcache's own format, read by :class:`Unpickler`."""
    from pymemcache import serde

    class Serde(serde.PickleSerde):  # type: ignore[misc]
        """As every client of nova's writes."""

        def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
            """See :class:`pymemcache.serde.PickleSerde`."""
            if flags & PICKLED:
                return Unpickler(io.BytesIO(value)).load()
            return super().deserialize(key, value, flags)

    return Serde()
