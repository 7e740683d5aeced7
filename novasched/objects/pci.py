# SPDX-License-Identifier: Apache-2.0
"""PCI requests and pools of PCI devices on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


class ListOfSpecsField(fields.AutoTypedField[list[dict[str, str | None]]]):
    """A list of dicts of texts: alternatives of device properties."""

    AUTO_TYPE = fields.List(fields.Dict(fields.String(), nullable=True))


@register
class InstancePCIRequest(NovaObject):
    """``count`` devices that match one of the specs."""

    VERSION = '1.4'

    fields = {
        'count': fields.IntegerField(),
        'spec': ListOfSpecsField(),
        'alias_name': fields.StringField(),
        'is_new': fields.BooleanField(),
        'request_id': fields.StringField(),
        'requester_id': fields.StringField(),
        'numa_policy': fields.StringField(),
    }


@register
class InstancePCIRequests(NovaObject):
    """All PCI requests of a server."""

    VERSION = '1.1'

    fields = {
        'instance_uuid': fields.StringField(),
        'requests': fields.ListOfObjectsField('InstancePCIRequest'),
    }


@register
class PciDevicePool(NovaObject):
    """``count`` free devices that are alike; what else tells them is in ``tags``."""

    VERSION = '1.1'

    fields = {
        'product_id': fields.StringField(),
        'vendor_id': fields.StringField(),
        'numa_node': fields.IntegerField(),
        'tags': fields.DictOfNullableStringsField(),
        'count': fields.IntegerField(),
    }


@register
class PciDevicePoolList(NovaObject):
    """The pools of a host."""

    VERSION = '1.1'

    fields = {
        'objects': fields.ListOfObjectsField('PciDevicePool'),
    }
