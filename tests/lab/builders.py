# SPDX-License-Identifier: Apache-2.0
"""Hosts, requests and candidates with ordinary values for tests."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.host import Aggregate, Host, Instance, Service
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import Needs

NAMESPACE = uuid.UUID('6f2f26b5-9df6-4f0f-9d0b-3b8a3f8a2b43')


def a_uuid(name):
    """The same UUID for the same name."""
    return str(uuid.uuid5(NAMESPACE, name))


def numbered_uuids(prefix, count):
    """The UUIDs of ``count`` names: the prefix with 0, 1, 2..."""
    return [a_uuid(f'{prefix}{number}') for number in range(count)]


def a_host(
    name='host1',
    *,
    ram=8192,
    disk_gb=100,
    vcpus=8,
    vcpus_used=0,
    cell='cell1',
    disabled=False,
    up=True,
    metadata=(),
    instances=(),
    **fields,
):
    """A host with free memory, disk and vCPUs.

    :param metadata: the metadata of an aggregate with the host, or of several
        aggregates.
    :param instances: the UUIDs of instances on the host.
    """
    rows = metadata
    if isinstance(metadata, Mapping):
        rows = [metadata]
    aggregates = []
    for i, row in enumerate(rows, 1):
        aggregates.append(
            Aggregate(i, a_uuid(f'aggregate{i}'), f'aggregate{i}', dict(row))
        )

    return Host(
        host=name,
        nodename=fields.pop('nodename', name),
        uuid=fields.pop('uuid', a_uuid(name)),
        cell_uuid=a_uuid(cell),
        service=Service(
            name, up=up, disabled=disabled, disabled_reason=fields.pop('why', None)
        ),
        total_usable_ram_mb=fields.pop('total_usable_ram_mb', ram),
        free_ram_mb=ram,
        total_usable_disk_gb=fields.pop('total_usable_disk_gb', disk_gb),
        free_disk_mb=disk_gb * 1024,
        vcpus_total=vcpus,
        vcpus_used=vcpus_used,
        aggregates=tuple(aggregates),
        instances={uuid: Instance(uuid) for uuid in instances},
        **fields,
    )


def named_hosts(names, **fields):
    """Hosts that differ in name and UUID only."""
    return [a_host(name, **fields) for name in names]


def numbered_hosts(count, prefix='h', **fields):
    """Hosts named by the prefix with 0, 1, 2..., that differ in name and UUID only."""
    names = [f'{prefix}{number}' for number in range(count)]
    return named_hosts(names, **fields)


def by_uuid(hosts):
    """Host UUID to host."""
    return {host.uuid: host for host in hosts}


def a_flavor(extra_specs=None, **fields):
    """A flavor of 1 vCPU, 512 MiB and 1 GiB."""
    return Flavor(
        **{
            'vcpus': 1,
            'memory_mb': 512,
            'root_gb': 1,
            **fields,
            'extra_specs': extra_specs or {},
        }
    )


def a_needs(named=(), located=(), **data):
    """The needs of a request, as in ``a_needs(instances=True)``.

    :param data: the names of :class:`Data`, with True for data that are needed.
    """
    needed = [Data(name) for name, is_needed in data.items() if is_needed]
    return Needs(frozenset(needed), {*named}, located)


def a_request(
    *,
    count=1,
    flavor=None,
    extra_specs=None,
    image=None,
    hints=None,
    group=None,
    **fields,
):
    """A request for instances, with claims.

    :param count: number of instances.
    :param image: the properties of the image.
    """
    uuids = tuple(numbered_uuids('server', count))
    fields.setdefault('instance_uuids', uuids)
    fields.setdefault('instance_uuid', uuids[0] if uuids else None)
    return Request(
        flavor=flavor or a_flavor(extra_specs),
        num_instances=count,
        project_id='project',
        user_id='user',
        image=Image(properties=image) if image is not None else None,
        scheduler_hints={name: tuple(values) for name, values in (hints or {}).items()},
        instance_group=group,
        **fields,
    )


def a_group(policy, members=(), **fields):
    return ServerGroup(
        uuid=a_uuid('group'), policy=policy, members=frozenset(members), **fields
    )


def a_full_candidate(amounts):
    """A candidate.

    :param amounts: provider UUID to resource class to amount.
    """
    allocations = {}
    for provider, resources in amounts.items():
        body = json.dumps({'resources': resources})
        allocations[provider] = msgspec.Raw(body.encode())
    return Candidate(allocations)


def a_candidate(*providers, **amounts):
    """A candidate with amounts from the first provider, and a custom resource from each
    further provider."""
    first, *further = providers
    all_amounts = {first: amounts or {'VCPU': 1}}
    for provider in further:
        all_amounts[provider] = {'CUSTOM_X': 1}
    mappings = msgspec.Raw(json.dumps({'': list(providers)}).encode())
    return Candidate(a_full_candidate(all_amounts).allocations, mappings)


def a_mapped_candidate(provider, group, providers):
    """A candidate on a provider, with further providers for the groups ``group-0``,
    ``group-1``..."""
    mappings = {'': [provider]}
    for i, further in enumerate(providers):
        mappings[f'{group}-{i}'] = [further]
    return Candidate(
        allocations={provider: msgspec.Raw(b'{"resources": {"VCPU": 1}}')},
        mappings=msgspec.Raw(json.dumps(mappings).encode()),
    )


NOT_ASKED = object()
"""The outcome of a filter or a weigher that does not apply to the request."""


class Cases(list[Any]):
    """Cases of filters or weighers for ``parametrize``: name, settings, fields of a
    host, fields of a request, and outcome."""

    def rows(self, name, *rows, host=None, request=None, **settings):
        """Add cases.

        :param rows: fields of the host, fields of the request, and outcome.
        :param host: fields of the host in all cases.
        :param request: fields of the request in all cases.
        """
        for host_fields, request_fields, outcome in rows:
            case = pytest.param(
                name,
                settings,
                {**(host or {}), **host_fields},
                {**(request or {}), **request_fields},
                outcome,
                id=name,
            )
            self.append(case)
