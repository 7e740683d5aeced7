# SPDX-License-Identifier: Apache-2.0
"""The legacy payload: ``{'request_spec': {num_instances, image, instance_properties,
instance_type}}``.

What it looks like follows from how nova's objects happened to become JSON: image, flavor and
NUMA topology are dicts of the fields that are set, and PCI requests are a picture of the
object's insides. Consumers have it so, and get it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from novasched.notify.spec import data
from novasched.objects.base import CHANGES, DATA, VERSION

INSTANCE = ('numa_topology', 'pci_requests', 'project_id', 'user_id', 'availability_zone')
SIZES = ('root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')
TIMES = ('created_at', 'updated_at', 'deleted_at')


def payload(spec: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """The payload for the fields of a RequestSpec.

    ``context`` are the insides of the caller's context, which nova's PCI requests hold.
    """
    flavor = data(spec['flavor'])
    instance = {name: spec[name] for name in INSTANCE if name in spec}
    if instance.get('numa_topology'):
        instance['numa_topology'] = _plain(instance['numa_topology'])
    if instance.get('pci_requests'):
        instance['pci_requests'] = _insides(instance['pci_requests'], context)
    request_spec = {
        'num_instances': spec.get('num_instances', 1),
        'image': _plain(spec['image']) if spec.get('image') else {},
        'instance_properties': {
            **instance,
            'uuid': spec.get('instance_uuid'),
            **{name: flavor.get(name) for name in SIZES},
        },
        'instance_type': _plain(spec['flavor']),
    }
    return {'request_spec': request_spec}


def _plain(value: Any) -> Any:
    """An object, with those in it, as a dict of the fields that are set."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    fields = {name: _plain(each) for name, each in data(value).items()}
    return {**fields, **{name: _time(fields[name]) for name in TIMES if fields.get(name)}}


def _time(text: str) -> str:
    """Without zone, and to the microsecond; what is no time stays as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.replace(tzinfo=None).isoformat(timespec='microseconds')


def _insides(value: Any, context: Mapping[str, Any]) -> Any:
    """An object, with those in it, as the attributes that Python keeps of it."""
    if isinstance(value, list):
        return [_insides(each, context) for each in value]
    if not isinstance(value, Mapping) or DATA not in value:
        return value
    fields = {f'_obj_{name}': _insides(each, context) for name, each in data(value).items()}
    changed = sorted(value.get(CHANGES) or ())
    return {
        '_changed_fields': changed, '_context': context, 'VERSION': value[VERSION], **fields,
    }  # fmt: skip
