# SPDX-License-Identifier: Apache-2.0
"""The flavor on the wire."""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class Flavor(NovaObject):
    """Memory and swap in MiB, disks in GiB. Times stay the ISO 8601 texts that they are."""

    VERSION = '1.2'

    fields = {
        'id': fields.IntegerField(),
        'name': fields.StringField(),
        'memory_mb': fields.IntegerField(),
        'vcpus': fields.IntegerField(),
        'root_gb': fields.IntegerField(),
        'ephemeral_gb': fields.IntegerField(),
        'flavorid': fields.StringField(),
        'swap': fields.IntegerField(),
        'rxtx_factor': fields.FloatField(),
        'vcpu_weight': fields.IntegerField(),
        'disabled': fields.BooleanField(),
        'is_public': fields.BooleanField(),
        'extra_specs': fields.DictOfNullableStringsField(),
        'projects': fields.ListOfStringsField(),
        'description': fields.StringField(),
        'created_at': fields.StringField(),
        'updated_at': fields.StringField(),
        'deleted_at': fields.StringField(),
        'deleted': fields.BooleanField(),
    }
