# SPDX-License-Identifier: Apache-2.0
"""PCI devices of a flavor, by the aliases of ``[pci] alias``.

nova-api looks up the aliases when an instance is created; the simulator looks up the
aliases here.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import os_resource_classes as classes

from novasched.conf.errors import ConfigError
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, RequestGroup
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.requirements.features import flavor_and_image_values

SPEC = 'pci_passthrough:alias'
ALIAS_FIELDS = (
    'vendor_id',
    'product_id',
    'resource_class',
    'traits',
    'live_migratable',
)

Alias = Mapping[str, Any]


def pci_requests(
    flavor: Flavor, properties: Mapping[str, Any], aliases: Sequence[str]
) -> tuple[PciRequest, ...]:
    """Return the requests of ``pci_passthrough:alias``.

    :param aliases: the values of ``[pci] alias``.
    :raises BadRequest: the flavor names an alias that does not exist.
    :raises ConfigError: an alias is malformed.
    """
    text = flavor.extra_specs.get(SPEC)
    if not text:
        return ()

    parsed_aliases = [_read(alias) for alias in aliases]
    of_flavor, of_image = flavor_and_image_values(
        flavor, properties, 'pci_numa_affinity_policy'
    )
    policy = of_flavor or of_image
    requests = []
    for index, part in enumerate(text.split(',')):
        name, _, number = part.strip().partition(':')
        # An alias may be defined several times: any of the device specs will do.
        namesakes = [alias for alias in parsed_aliases if alias['name'] == name]
        if not namesakes:
            why = 'no alias of that name in [pci] alias'
            raise BadRequest(f'{SPEC} = {part.strip()}: {why}')
        if not number.isdigit():
            raise BadRequest(f'{SPEC} = {part.strip()}: NAME:COUNT is needed')

        numa_policy = namesakes[0].get('numa_policy')
        if policy:
            numa_policy = str(policy)
        requests.append(
            PciRequest(
                count=int(number),
                spec=tuple(map(_spec, namesakes)),
                alias_name=name,
                request_id=f'pci-{index}',
                numa_policy=numa_policy,
            )
        )
    return tuple(requests)


def request_groups(requests: Sequence[PciRequest]) -> tuple[RequestGroup, ...]:
    """Return a request group for each device (``[filter_scheduler]
    pci_in_placement``)."""
    groups = []
    for request in requests:
        for number in range(request.count):
            spec = request.spec[0]
            group = RequestGroup(
                requester_id=f'{request.request_id}-{number}',
                resources={_resource_class(spec): 1},
                required_traits=_traits(spec),
            )
            groups.append(group)
    return tuple(groups)


def _read(text: str) -> Alias:
    try:
        alias = json.loads(text)
        if not isinstance(alias['name'], str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            '[pci] alias', text, 'is no JSON object with a name'
        ) from None
    return dict(alias)


def _spec(alias: Alias) -> dict[str, str | None]:
    spec: dict[str, str | None] = {}
    for name in ALIAS_FIELDS:
        if name in alias:
            spec[name] = str(alias[name])
    if alias.get('device_type'):
        spec['dev_type'] = str(alias['device_type'])
    return spec


def _resource_class(spec: Mapping[str, str | None]) -> str:
    if name := spec.get('resource_class'):
        if name in classes.STANDARDS:
            return name
        return _custom(name)
    return _custom(f'PCI_{spec.get("vendor_id")}_{spec.get("product_id")}')


def _traits(spec: Mapping[str, str | None]) -> frozenset[str]:
    names = map(str.strip, (spec.get('traits') or '').split(','))
    return frozenset(name.upper() for name in names if name)


def _custom(name: str) -> str:
    suffix = name.upper().removeprefix(classes.CUSTOM_NAMESPACE)
    resource_class: str = classes.normalize_name(suffix)
    return resource_class
