# SPDX-License-Identifier: Apache-2.0
"""Networks and security groups on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class NetworkRequest(NovaObject):
    """A network or a port that the server is to be attached to."""

    VERSION = '1.3'

    fields = {
        'network_id': fields.StringField(),
        'address': fields.StringField(),
        'port_id': fields.StringField(),
        'pci_request_id': fields.StringField(),
        'tag': fields.StringField(),
        'arq_uuid': fields.StringField(),
        'device_profile': fields.StringField(),
    }


@register
class NetworkRequestList(NovaObject):
    """All networks of a request."""

    VERSION = '1.1'

    fields = {
        'objects': fields.ListOfObjectsField('NetworkRequest'),
    }


@register
class SecurityGroup(NovaObject):
    """A security group; only its name or UUID is sent."""

    VERSION = '1.2'

    fields = {
        'id': fields.IntegerField(),
        'name': fields.StringField(),
        'uuid': fields.StringField(),
    }


@register
class SecurityGroupList(NovaObject):
    """All security groups of a request."""

    VERSION = '1.1'

    fields = {
        'objects': fields.ListOfObjectsField('SecurityGroup'),
    }
