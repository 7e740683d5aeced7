# SPDX-License-Identifier: Apache-2.0
"""The answer on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class SchedulerLimits(NovaObject):
    """What compute may use of the host; null is no limit. An answer sets all four."""

    VERSION = '1.0'

    fields = {
        'numa_topology': fields.ObjectField('NUMATopologyLimits', nullable=True),
        'vcpu': fields.IntegerField(nullable=True),
        'disk_gb': fields.IntegerField(nullable=True),
        'memory_mb': fields.IntegerField(nullable=True),
    }


@register
class Selection(NovaObject):
    """A host, with what is or can be claimed there.

    ``allocation_request`` is JSON in a text; it is the text ``null`` where Placement
    was not asked, and then there is no version.
    """

    VERSION = '1.1'

    fields = {
        'compute_node_uuid': fields.StringField(),
        'service_host': fields.StringField(),
        'nodename': fields.StringField(),
        'cell_uuid': fields.StringField(),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        'allocation_request': fields.StringField(nullable=True),
        'allocation_request_version': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
    }
