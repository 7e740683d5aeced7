# SPDX-License-Identifier: Apache-2.0
"""The server group on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class InstanceGroup(NovaObject):
    """A server group. Up to 1.10 its policy is the only element of ``policies``; from
    1.11 on it is ``policy``, with rules. Before 1.10 there are no hosts."""

    VERSION = '1.11'

    fields = {
        'id': fields.IntegerField(),
        'user_id': fields.StringField(),
        'project_id': fields.StringField(),
        'uuid': fields.StringField(),
        'name': fields.StringField(),
        'policies': fields.ListOfStringsField(),
        'members': fields.ListOfStringsField(),
        'hosts': fields.ListOfStringsField(),
        'policy': fields.StringField(),
        '_rules': fields.DictOfStringsField(),
    }
