# SPDX-License-Identifier: Apache-2.0
"""nova's objects in a request and in an answer, in the versions of nova 34.0.0.

Fields that novasched does not use are not declared, and therefore not decoded. Memory
and swap are in MiB, disks in GiB, page sizes in KiB. Policies are plain texts, so that
a policy of a newer release does not fail the request. Times stay texts in the format of
ISO 8601.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import fields

from novasched.rpc.wire import base
from novasched.rpc.wire.base import BadObject, NovaObject, decode, loads

# The classes in this module need no entry.
__all__ = ['BadObject', 'NovaObject', 'decode', 'loads']

Fields = dict[str, fields.Field[Any]]


def _each(
    field: Callable[..., fields.Field[Any]], *names: str, **options: Any
) -> Fields:
    return {name: field(**options) for name in names}


_texts = partial(_each, fields.StringField)
_integers = partial(_each, fields.IntegerField)
_sets_of_texts = partial(_each, partial(fields.Field, fields.Set(fields.String())))
_lists_of_lists = partial(
    _each, partial(fields.Field, fields.List(fields.List(fields.String())))
)


class Destination(NovaObject):
    """The host, cell and aggregates of a request. An element of ``aggregates`` is a
    text of UUIDs separated by commas. The host has to be in an aggregate of every
    element."""

    VERSION = '1.4'
    fields = {
        **_texts('host', 'node'),
        'aggregates': fields.ListOfStringsField(),
        'allow_cross_cell_move': fields.BooleanField(),
        **_sets_of_texts('forbidden_aggregates'),
        'cell': fields.ObjectField('CellMapping'),
    }


class SchedulerRetries(NovaObject):
    """The hosts on which a build has failed."""

    VERSION = '1.1'
    fields = {
        'num_attempts': fields.IntegerField(),
        'hosts': fields.ObjectField('ComputeNodeList'),
    }


class RequestGroup(NovaObject):
    """A request group of Placement: the resources and traits for one requester."""

    VERSION = '1.3'
    fields = {
        'use_same_provider': fields.BooleanField(),
        'resources': fields.DictOfIntegersField(),
        **_sets_of_texts('required_traits', 'forbidden_traits', 'forbidden_aggregates'),
        **_lists_of_lists('aggregates'),
        **_texts('requester_id', 'in_tree'),
        'provider_uuids': fields.ListOfStringsField(),
    }


class RequestLevelParams(NovaObject):
    """Parameters of the query to Placement that apply to all request groups."""

    VERSION = '1.1'
    fields = {
        **_sets_of_texts('root_required', 'root_forbidden'),
        **_lists_of_lists('same_subtree'),
    }


class RequestSpec(NovaObject):
    """A request for equal instances.

    Versions added user_id (1.9), network_metadata (1.10), is_bfv (1.11),
    requested_resources (1.12), request_level_params (1.13) and requested_networks
    (1.14). A rebuild leaves out fields in every version.
    """

    VERSION = '1.15'
    fields = {
        **_integers('id', 'num_instances'),
        **_texts('project_id', 'user_id', 'availability_zone', 'instance_uuid'),
        **_each(
            fields.ListOfStringsField, 'ignore_hosts', 'force_hosts', 'force_nodes'
        ),
        # Any JSON value. decode.py checks the form.
        'scheduler_hints': fields.Field(fields.FieldType()),
        'is_bfv': fields.BooleanField(),
        'image': fields.ObjectField('ImageMeta'),
        'numa_topology': fields.ObjectField('InstanceNUMATopology'),
        'pci_requests': fields.ObjectField('InstancePCIRequests'),
        'flavor': fields.ObjectField('Flavor'),
        'requested_destination': fields.ObjectField('Destination'),
        'retry': fields.ObjectField('SchedulerRetries'),
        'limits': fields.ObjectField('SchedulerLimits'),
        'instance_group': fields.ObjectField('InstanceGroup'),
        'security_groups': fields.ObjectField('SecurityGroupList'),
        'network_metadata': fields.ObjectField('NetworkMetadata'),
        'requested_resources': fields.ListOfObjectsField('RequestGroup'),
        'request_level_params': fields.ObjectField('RequestLevelParams'),
        'requested_networks': fields.ObjectField('NetworkRequestList'),
    }


class Flavor(NovaObject):
    VERSION = '1.2'
    fields = {
        **_texts(
            'created_at', 'deleted_at', 'description', 'flavorid', 'name', 'updated_at'
        ),
        **_each(fields.BooleanField, 'deleted', 'disabled', 'is_public'),
        **_integers(
            'ephemeral_gb', 'id', 'memory_mb', 'root_gb', 'swap', 'vcpu_weight', 'vcpus'
        ),
        'extra_specs': fields.DictOfNullableStringsField(),
        'projects': fields.ListOfStringsField(),
        'rxtx_factor': fields.FloatField(),
    }


class ImageMetaProps(NovaObject):
    """Image properties, as ``values`` without declared fields.

    nova declares about a hundred properties. Many are enumerations, which every release
    extends. A scheduler reads a dozen properties. An unknown value must not fail the
    request: the filter that reads the property decides.
    """

    VERSION = '1.44'
    fields: dict[str, fields.Field[Any]] = {}
    values: Mapping[str, Any] = MappingProxyType({})

    def _fill(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            name = f'{self.obj_name()} {self.VERSION}'
            raise BadObject(f'{name} must have a dict of fields, not {base.kind(data)}')
        self.values = dict(data)

    def obj_to_primitive(
        self,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The primitive with all properties."""
        primitive = super().obj_to_primitive(target_version, version_manifest)
        return {**primitive, base.DATA: dict(self.values)}


class ImageMeta(NovaObject):
    """An image of Glance: size in bytes, min_ram in MiB, min_disk in GiB."""

    VERSION = '1.8'
    fields = {
        **_texts(
            'id', 'name', 'owner', 'status', 'visibility', 'created_at', 'updated_at'
        ),
        **_texts('checksum', 'container_format', 'disk_format', 'direct_url'),
        **_integers('min_disk', 'min_ram', 'size', 'virtual_size'),
        'protected': fields.FlexibleBooleanField(),
        'tags': fields.ListOfStringsField(),
        'properties': fields.ObjectField('ImageMetaProps'),
    }


class InstanceGroup(NovaObject):
    """A server group. Version 1.10 added hosts. Version 1.11 added ``policy`` and
    rules; before, the policy was the only element of ``policies``."""

    VERSION = '1.11'
    fields = {
        'id': fields.IntegerField(),
        **_texts('user_id', 'project_id', 'uuid', 'name', 'policy'),
        **_each(fields.ListOfStringsField, 'policies', 'members', 'hosts'),
        '_rules': fields.DictOfStringsField(),
    }


class InstanceNUMACell(NovaObject):
    """A guest cell. Version 1.5 added pcpuset; before, dedicated CPUs were in
    cpuset."""

    VERSION = '1.6'
    fields = {
        **_integers('id', 'memory', 'pagesize'),
        **_each(fields.SetOfIntegersField, 'cpuset', 'pcpuset', 'cpuset_reserved'),
        'cpu_pinning_raw': fields.DictOfIntegersField(),
        **_texts('cpu_policy', 'cpu_thread_policy'),
        # Only notifications use the topology.
        'cpu_topology': fields.Field(fields.FieldType()),
    }


class InstanceNUMATopology(NovaObject):
    VERSION = '1.3'
    fields = {
        **_texts('instance_uuid', 'emulator_threads_policy'),
        'cells': fields.ListOfObjectsField('InstanceNUMACell'),
    }


class NetworkMetadata(NovaObject):
    """Physical networks of a request. ``tunneled``: the request also has tunnelled
    networks."""

    VERSION = '1.0'
    fields = {**_sets_of_texts('physnets'), 'tunneled': fields.BooleanField()}


class NUMATopologyLimits(NovaObject):
    """Allocation ratios of a host's NUMA cells, and the networks of the guest."""

    VERSION = '1.1'
    fields = {
        **_each(fields.FloatField, 'cpu_allocation_ratio', 'ram_allocation_ratio'),
        'network_metadata': fields.ObjectField('NetworkMetadata'),
    }


class InstancePCIRequest(NovaObject):
    """A request for ``count`` devices. A device has to match a dict in ``spec``."""

    VERSION = '1.4'
    fields = {
        'count': fields.IntegerField(),
        'spec': fields.Field(fields.List(fields.Dict(fields.String(), nullable=True))),
        **_texts('alias_name', 'request_id', 'requester_id', 'numa_policy'),
        'is_new': fields.BooleanField(),
    }


class InstancePCIRequests(NovaObject):
    VERSION = '1.1'
    fields = {
        'instance_uuid': fields.StringField(),
        'requests': fields.ListOfObjectsField('InstancePCIRequest'),
    }


class NetworkRequest(NovaObject):
    """A network or a port to attach to the instance."""

    VERSION = '1.3'
    fields = _texts(
        'network_id',
        'address',
        'port_id',
        'pci_request_id',
        'tag',
        'arq_uuid',
        'device_profile',
    )


class NetworkRequestList(NovaObject):
    VERSION = '1.1'
    fields = {'objects': fields.ListOfObjectsField('NetworkRequest')}


class SecurityGroup(NovaObject):
    """A security group. Callers send the name or the UUID."""

    VERSION = '1.2'
    fields = {**_integers('id'), **_texts('name', 'uuid')}


class SecurityGroupList(NovaObject):
    VERSION = '1.1'
    fields = {'objects': fields.ListOfObjectsField('SecurityGroup')}


class CellMapping(NovaObject):
    """A cell. The connection strings, which contain passwords, are not declared: a
    field that is not decoded cannot be logged."""

    VERSION = '1.1'
    fields = {
        **_integers('id'),
        **_texts('uuid', 'name'),
        'disabled': fields.BooleanField(),
    }


class ComputeNode(NovaObject):
    VERSION = '1.19'
    fields = {**_integers('id'), **_texts('uuid', 'host', 'hypervisor_hostname')}


class ComputeNodeList(NovaObject):
    VERSION = '1.17'
    fields = {'objects': fields.ListOfObjectsField('ComputeNode')}


class SchedulerLimits(NovaObject):
    """Limits for the claim of nova-compute on the host. Null means no limit. An answer
    sets all fields."""

    VERSION = '1.0'
    fields = {
        'numa_topology': fields.ObjectField('NUMATopologyLimits', nullable=True),
        **_integers('vcpu', 'disk_gb', 'memory_mb', nullable=True),
    }


class Selection(NovaObject):
    """A chosen host or an alternate, with its allocation request.

    ``allocation_request`` is a JSON text. Without Placement, ``allocation_request`` is
    the text ``null``, and ``allocation_request_version`` is null.
    """

    VERSION = '1.1'
    fields = {
        **_texts('compute_node_uuid', 'service_host', 'nodename', 'cell_uuid'),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        **_texts('allocation_request', 'allocation_request_version', nullable=True),
        **_texts('availability_zone', nullable=True),
    }
