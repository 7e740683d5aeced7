# SPDX-License-Identifier: Apache-2.0
"""Pools of PCI devices from the texts that ``compute_nodes.pci_stats`` holds.

Today's nova writes an object, PciDevicePoolList 1.x; before Kilo it was a list of
dicts, or one dict, in which the tags stand beside the other properties.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from novasched.scheduler.model.pci import Pool, Pools

LIST = 'PciDevicePoolList'
POOL = 'PciDevicePool'
MAJOR = '1'
_OWN = ('product_id', 'vendor_id', 'numa_node', 'count')


def pools(text: str | None) -> Pools:
    """The pools of a host, those with the fewest properties first, as nova has them;
    none if nothing is stored.

    :raises ValueError: the text cannot be read; says what is wrong with it.
    """
    if not text:
        return ()
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'it is no JSON: {error}') from None
    found = [_pool(each, number) for number, each in enumerate(_listed(stored), 1)]
    return tuple(sorted(found, key=lambda pool: len(pool.tags)))


def _listed(stored: Any) -> Sequence[Any]:
    """The dicts of properties, tags among them, in any of the forms."""
    if isinstance(stored, Mapping) and 'nova_object.name' in stored:
        listed = _data(stored, LIST).get('objects')
        if not isinstance(listed, list):
            raise ValueError(f'{LIST} has no objects')
        return [_flat(_data(each, POOL)) for each in listed]
    if isinstance(stored, Mapping):
        if stored:
            return [stored]
        return []
    if isinstance(stored, list) or stored is None:
        return stored or []
    raise ValueError(f'a list of pools is wanted, not {type(stored).__name__}')


def _data(stored: Any, name: str) -> Mapping[str, Any]:
    """The fields of an object in nova's envelope. What a newer minor version adds is
    not looked at."""
    if not isinstance(stored, Mapping) or stored.get('nova_object.name') != name:
        raise ValueError(f'it is no {name}')
    version = stored.get('nova_object.version')
    if str(version).partition('.')[0] != MAJOR:
        raise ValueError(f'{name} {version} cannot be read, only {MAJOR}.x')
    data = stored.get('nova_object.data')
    if not isinstance(data, Mapping):
        raise ValueError(f'{name} has no data')
    return data


def _flat(data: Mapping[str, Any]) -> Mapping[str, Any]:
    tags = {} if data.get('tags') is None else data['tags']
    if not isinstance(tags, Mapping):
        raise ValueError(f'tags of {POOL} are {type(tags).__name__}')
    return {**{name: data[name] for name in _OWN if name in data}, **tags}


def _pool(stored: Any, number: int) -> Pool:
    if not isinstance(stored, Mapping):
        raise ValueError(f'pool {number} is {type(stored).__name__}')
    try:
        node = stored.get('numa_node')
        pool = Pool(
            product_id=str(_text(stored, 'product_id') or ''),
            vendor_id=str(_text(stored, 'vendor_id') or ''),
            count=_number(stored, 'count'),
            numa_node=None if node is None else _number(stored, 'numa_node'),
            tags={name: _text(stored, name) for name in stored if name not in _OWN},
        )
    except KeyError as error:
        raise ValueError(f'pool {number} has no {error.args[0]}') from None
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f'pool {number}: {error}') from None
    if pool.count < 0:
        raise ValueError(f'pool {number} has a count of {pool.count}')
    return pool


def _number(stored: Mapping[str, Any], name: str) -> int:
    """A whole number, be it written as a text."""
    value = stored[name]
    if not isinstance(value, int | float | str):
        raise TypeError(f'{name} is {type(value).__name__}')
    return int(value)


def _text(stored: Mapping[str, Any], name: str) -> str | None:
    """A text, or the number or flag that stands for one; null stays null."""
    value = stored[name]
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        raise TypeError(f'{name} is {type(value).__name__}')
    return str(value)
