# SPDX-License-Identifier: Apache-2.0
"""The cell mapping on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class CellMapping(NovaObject):
    """A cell. Its connection strings travel with it and hold passwords, so they are not
    declared: what is not decoded cannot be logged."""

    VERSION = '1.1'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.StringField(),
        'name': fields.StringField(),
        'disabled': fields.BooleanField(),
    }
