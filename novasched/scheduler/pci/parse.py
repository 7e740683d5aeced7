# SPDX-License-Identifier: Apache-2.0
"""Parse the pools of PCI devices in ``compute_nodes.pci_stats``.

nova writes a versioned object, PciDevicePoolList 1.x. Before Kilo, nova wrote a list of
dicts, or a single dict, with the tags beside the other properties.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from novasched.scheduler.model.pci import Pool, Pools

LIST = 'PciDevicePoolList'
POOL = 'PciDevicePool'
MAJOR = '1'
_FIELDS = ('product_id', 'vendor_id', 'numa_node', 'count')


def pools(text: str | None) -> Pools:
    """Parse the pools of a host; without a text the host has no pools.

    Pools with fewer tags come first, as nova sorts the pools.

    :raises ValueError: the text cannot be read; the message says the reason.
    """
    if not text:
        return ()
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'it is no JSON: {error}') from None

    parsed = []
    for number, properties in enumerate(_listed(stored), 1):
        parsed.append(_pool(properties, number))
    parsed.sort(key=lambda pool: len(pool.tags))
    return tuple(parsed)


def _listed(stored: Any) -> Sequence[Any]:
    """Return a dict of properties, tags included, for each pool."""
    if isinstance(stored, Mapping) and 'nova_object.name' in stored:
        objects = _data(stored, LIST).get('objects')
        if not isinstance(objects, list):
            raise ValueError(f'{LIST} has no objects')
        return [_with_tags(_data(pool, POOL)) for pool in objects]

    if isinstance(stored, Mapping):
        if stored:
            return [stored]
        return []
    if isinstance(stored, list) or stored is None:
        return stored or []
    raise ValueError(f'a list of pools is wanted, not {type(stored).__name__}')


def _data(stored: Any, name: str) -> Mapping[str, Any]:
    """Return the fields of a versioned object, of any minor version.

    :raises ValueError: name or major version are not the expected ones.
    """
    if not isinstance(stored, Mapping) or stored.get('nova_object.name') != name:
        raise ValueError(f'it is no {name}')
    version = stored.get('nova_object.version')
    if str(version).partition('.')[0] != MAJOR:
        raise ValueError(f'{name} {version} cannot be read, only {MAJOR}.x')

    data = stored.get('nova_object.data')
    if not isinstance(data, Mapping):
        raise ValueError(f'{name} has no data')
    return data


def _with_tags(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a pool with the tags beside the fields."""
    tags = data.get('tags')
    if tags is None:
        tags = {}
    if not isinstance(tags, Mapping):
        raise ValueError(f'tags of {POOL} are {type(tags).__name__}')

    properties = {name: data[name] for name in _FIELDS if name in data}
    properties.update(tags)
    return properties


def _pool(stored: Any, number: int) -> Pool:
    """Make a pool of its properties; ``number`` names the pool in errors."""
    if not isinstance(stored, Mapping):
        raise ValueError(f'pool {number} is {type(stored).__name__}')

    try:
        pool = Pool(
            product_id=str(_text(stored, 'product_id') or ''),
            vendor_id=str(_text(stored, 'vendor_id') or ''),
            count=_number(stored, 'count'),
            numa_node=_numa_node(stored),
            tags={name: _text(stored, name) for name in stored if name not in _FIELDS},
        )
    except KeyError as error:
        raise ValueError(f'pool {number} has no {error.args[0]}') from None
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f'pool {number}: {error}') from None

    if pool.count < 0:
        raise ValueError(f'pool {number} has a count of {pool.count}')
    return pool


def _numa_node(stored: Mapping[str, Any]) -> int | None:
    if stored.get('numa_node') is None:
        return None
    return _number(stored, 'numa_node')


def _number(stored: Mapping[str, Any], name: str) -> int:
    """Return a whole number, which may be written as a text."""
    value = stored[name]
    if not isinstance(value, int | float | str):
        raise TypeError(f'{name} is {type(value).__name__}')
    return int(value)


def _text(stored: Mapping[str, Any], name: str) -> str | None:
    """Return a property as text; numbers and flags become text, null stays None."""
    value = stored[name]
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        raise TypeError(f'{name} is {type(value).__name__}')
    return str(value)
