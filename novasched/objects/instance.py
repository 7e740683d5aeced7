# SPDX-License-Identifier: Apache-2.0
"""Servers on the wire, as computes announce them."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class Instance(NovaObject):
    """The fields of a server that a scheduler reads; user data, keys, network caches,
    tags and faults travel too and are ignored."""

    VERSION = '2.8'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.StringField(),
        'user_id': fields.StringField(),
        'project_id': fields.StringField(),
        'image_ref': fields.StringField(),
        'hostname': fields.StringField(),
        'display_name': fields.StringField(),
        'host': fields.StringField(),
        'node': fields.StringField(),
        'power_state': fields.IntegerField(),
        'vm_state': fields.StringField(),
        'task_state': fields.StringField(),
        'memory_mb': fields.IntegerField(),
        'vcpus': fields.IntegerField(),
        'root_gb': fields.IntegerField(),
        'ephemeral_gb': fields.IntegerField(),
        'instance_type_id': fields.IntegerField(),
        'availability_zone': fields.StringField(),
        'os_type': fields.StringField(),
        'architecture': fields.StringField(),
        'vm_mode': fields.StringField(),
        'access_ip_v4': fields.StringField(),
        'access_ip_v6': fields.StringField(),
        'metadata': fields.DictOfNullableStringsField(),
        'system_metadata': fields.DictOfNullableStringsField(),
        'numa_topology': fields.ObjectField('InstanceNUMATopology'),
        'pci_requests': fields.ObjectField('InstancePCIRequests'),
        'flavor': fields.ObjectField('Flavor'),
        'hidden': fields.BooleanField(),
        'deleted': fields.BooleanField(),
        'created_at': fields.StringField(),
        'updated_at': fields.StringField(),
    }


@register
class InstanceList(NovaObject):
    """Several servers."""

    VERSION = '2.6'

    fields = {
        'objects': fields.ListOfObjectsField('Instance'),
    }
