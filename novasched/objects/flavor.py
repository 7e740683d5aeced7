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
        'created_at': fields.StringField(),
        'deleted': fields.BooleanField(),
        'deleted_at': fields.StringField(),
        'description': fields.StringField(),
        'disabled': fields.BooleanField(),
        'ephemeral_gb': fields.IntegerField(),
        'extra_specs': fields.DictOfNullableStringsField(),
        'flavorid': fields.StringField(),
        'id': fields.IntegerField(),
        'is_public': fields.BooleanField(),
        'memory_mb': fields.IntegerField(),
        'name': fields.StringField(),
        'projects': fields.ListOfStringsField(),
        'root_gb': fields.IntegerField(),
        'rxtx_factor': fields.FloatField(),
        'swap': fields.IntegerField(),
        'updated_at': fields.StringField(),
        'vcpu_weight': fields.IntegerField(),
        'vcpus': fields.IntegerField(),
    }
