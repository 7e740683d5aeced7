# SPDX-License-Identifier: Apache-2.0
"""The PCI devices that a flavor asks for by the aliases of ``[pci] alias``, which nova-api
looks up when a server is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import os_resource_classes as classes

from novasched.errors import BadRequest, ConfigError
from novasched.model.pci import PciRequest
from novasched.model.request import Flavor, Image, RequestGroup

SPEC = 'pci_passthrough:alias'
POLICY = 'pci_numa_affinity_policy'
KEPT = ('vendor_id', 'product_id', 'resource_class', 'traits', 'live_migratable')

Alias = Mapping[str, Any]


def wanted(flavor: Flavor, image: Image | None, aliases: Sequence[str]) -> tuple[PciRequest, ...]:
    """The devices, by the values of ``[pci] alias``.

    :raises BadRequest: the flavor names an alias that there is not.
    :raises ConfigError: an alias is not what it should be.
    """
    text = flavor.extra_specs.get(SPEC)
    if not text:
        return ()
    known = [_read(each) for each in aliases]
    found = []
    for place, part in enumerate(text.split(',')):
        name, _, number = part.strip().partition(':')
        alike = [each for each in known if each['name'] == name]
        if not alike or not number.isdigit():
            why = 'NAME:COUNT is needed' if alike else 'no alias of that name in [pci] alias'
            raise BadRequest(f'{SPEC} = {part.strip()}: {why}')
        found.append(
            PciRequest(
                count=int(number),
                spec=tuple(_spec(each) for each in alike),
                alias_name=name,
                request_id=f'pci-{place}',
                numa_policy=_policy(flavor, image) or alike[0].get('numa_policy'),
            )
        )
    return tuple(found)


def groups(requests: Sequence[PciRequest]) -> tuple[RequestGroup, ...]:
    """What Placement is asked for, if it knows the devices: a group for each."""
    return tuple(
        RequestGroup(
            requester_id=f'{each.request_id}-{number}',
            resources={_class(each.spec[0]): 1},
            required_traits=_traits(each.spec[0]),
        )
        for each in requests
        for number in range(each.count)
    )


def _read(text: str) -> Alias:
    try:
        alias = json.loads(text)
        if not isinstance(alias['name'], str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ConfigError('[pci] alias', text, 'is no JSON object with a name') from None
    return dict(alias)


def _spec(alias: Alias) -> dict[str, str | None]:
    spec: dict[str, str | None] = {name: str(alias[name]) for name in KEPT if name in alias}
    if alias.get('device_type'):
        spec['dev_type'] = str(alias['device_type'])
    return spec


def _policy(flavor: Flavor, image: Image | None) -> str | None:
    of_image = image.properties.get(f'hw_{POLICY}') if image else None
    policy = flavor.extra_specs.get(f'hw:{POLICY}') or of_image
    return str(policy) if policy else None


def _class(spec: Mapping[str, str | None]) -> str:
    if name := spec.get('resource_class'):
        return name if name in classes.STANDARDS else _custom(name)
    return _custom(f'PCI_{spec.get("vendor_id")}_{spec.get("product_id")}')


def _traits(spec: Mapping[str, str | None]) -> frozenset[str]:
    names = filter(None, (each.strip() for each in (spec.get('traits') or '').split(',')))
    return frozenset(name.upper() for name in names)


def _custom(name: str) -> str:
    made: str = classes.normalize_name(name.upper().removeprefix(classes.CUSTOM_NAMESPACE))
    return made
