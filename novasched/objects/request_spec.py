# SPDX-License-Identifier: Apache-2.0
"""The request on the wire, with the parts that occur nowhere else."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import JsonField, NovaObject, register


@register
class Destination(NovaObject):
    """Where the server is wanted. Each of ``aggregates`` is a text of UUIDs joined by
    commas, any of which will do."""

    VERSION = '1.4'

    fields = {
        'host': fields.StringField(),
        'node': fields.StringField(),
        'cell': fields.ObjectField('CellMapping'),
        'aggregates': fields.ListOfStringsField(),
        'allow_cross_cell_move': fields.BooleanField(),
        'forbidden_aggregates': fields.SetOfStringsField(),
    }


@register
class SchedulerRetries(NovaObject):
    """The hosts that a build has failed on."""

    VERSION = '1.1'

    fields = {
        'num_attempts': fields.IntegerField(),
        'hosts': fields.ObjectField('ComputeNodeList'),
    }


@register
class RequestGroup(NovaObject):
    """Resources and traits that are asked of Placement for one requester."""

    VERSION = '1.3'

    fields = {
        'use_same_provider': fields.BooleanField(),
        'resources': fields.DictOfIntegersField(),
        'required_traits': fields.SetOfStringsField(),
        'forbidden_traits': fields.SetOfStringsField(),
        'aggregates': fields.ListOfListsOfStringsField(),
        'forbidden_aggregates': fields.SetOfStringsField(),
        'requester_id': fields.StringField(),
        'provider_uuids': fields.ListOfStringsField(),
        'in_tree': fields.StringField(),
    }


@register
class RequestLevelParams(NovaObject):
    """What is asked of Placement across all groups."""

    VERSION = '1.1'

    fields = {
        'root_required': fields.SetOfStringsField(),
        'root_forbidden': fields.SetOfStringsField(),
        'same_subtree': fields.ListOfListsOfStringsField(),
    }


@register
class RequestSpec(NovaObject):
    """A request for servers that are alike.

    user_id is there from 1.9 on, network_metadata from 1.10, is_bfv from 1.11,
    requested_resources from 1.12, request_level_params from 1.13, requested_networks
    from 1.14; a rebuild leaves some of them out in any version.
    """

    VERSION = '1.15'

    fields = {
        'id': fields.IntegerField(),
        'image': fields.ObjectField('ImageMeta'),
        'numa_topology': fields.ObjectField('InstanceNUMATopology'),
        'pci_requests': fields.ObjectField('InstancePCIRequests'),
        'project_id': fields.StringField(),
        'user_id': fields.StringField(),
        'availability_zone': fields.StringField(),
        'flavor': fields.ObjectField('Flavor'),
        'num_instances': fields.IntegerField(),
        'ignore_hosts': fields.ListOfStringsField(),
        'force_hosts': fields.ListOfStringsField(),
        'force_nodes': fields.ListOfStringsField(),
        'requested_destination': fields.ObjectField('Destination'),
        'retry': fields.ObjectField('SchedulerRetries'),
        'limits': fields.ObjectField('SchedulerLimits'),
        'instance_group': fields.ObjectField('InstanceGroup'),
        'scheduler_hints': JsonField(),
        'instance_uuid': fields.StringField(),
        'security_groups': fields.ObjectField('SecurityGroupList'),
        'network_metadata': fields.ObjectField('NetworkMetadata'),
        'is_bfv': fields.BooleanField(),
        'requested_resources': fields.ListOfObjectsField('RequestGroup'),
        'request_level_params': fields.ObjectField('RequestLevelParams'),
        'requested_networks': fields.ObjectField('NetworkRequestList'),
    }
