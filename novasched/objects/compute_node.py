# SPDX-License-Identifier: Apache-2.0
"""Compute nodes on the wire, where they only name hosts that were tried."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class ComputeNode(NovaObject):
    """A compute node, by name."""

    VERSION = '1.19'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.StringField(),
        'host': fields.StringField(),
        'hypervisor_hostname': fields.StringField(),
    }


@register
class ComputeNodeList(NovaObject):
    """Several compute nodes."""

    VERSION = '1.17'

    fields = {
        'objects': fields.ListOfObjectsField('ComputeNode'),
    }
