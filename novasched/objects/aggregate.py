# SPDX-License-Identifier: Apache-2.0
"""Host aggregates on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class Aggregate(NovaObject):
    """A host aggregate with the names of its hosts."""

    VERSION = '1.3'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.StringField(),
        'name': fields.StringField(),
        'hosts': fields.ListOfStringsField(),
        'metadata': fields.DictOfNullableStringsField(),
    }


@register
class AggregateList(NovaObject):
    """Several aggregates."""

    VERSION = '1.3'

    fields = {
        'objects': fields.ListOfObjectsField('Aggregate'),
    }
