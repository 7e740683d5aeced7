# SPDX-License-Identifier: Apache-2.0
"""The image on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import fields

from novasched.objects.base import DATA, BadObject, NovaObject, kind, register


@register
class ImageMetaProps(NovaObject):
    """Image properties: ``values`` holds every key of the primitive's data as sent.

    nova declares some hundred properties here, many of them enumerations that each
    release widens. A scheduler looks at a dozen, and a value that it does not know is
    for a filter to judge, not a reason to fail the request. So no fields are declared.
    """

    VERSION = '1.44'

    fields: dict[str, fields.Field[Any]] = {}
    values: Mapping[str, Any] = MappingProxyType({})

    def _fill(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise BadObject(f'{self.obj_name()} {self.VERSION} has no fields but {kind(data)}')
        self.values = dict(data)

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The primitive, which holds every property again."""
        primitive = super().obj_to_primitive(target_version, version_manifest)
        return {**primitive, DATA: dict(self.values)}


@register
class ImageMeta(NovaObject):
    """The image's record in Glance: size in bytes, min_ram in MiB, min_disk in GiB."""

    VERSION = '1.8'

    fields = {
        'checksum': fields.StringField(),
        'container_format': fields.StringField(),
        'created_at': fields.StringField(),
        'direct_url': fields.StringField(),
        'disk_format': fields.StringField(),
        'id': fields.StringField(),
        'min_disk': fields.IntegerField(),
        'min_ram': fields.IntegerField(),
        'name': fields.StringField(),
        'owner': fields.StringField(),
        'properties': fields.ObjectField('ImageMetaProps'),
        'protected': fields.FlexibleBooleanField(),
        'size': fields.IntegerField(),
        'status': fields.StringField(),
        'tags': fields.ListOfStringsField(),
        'updated_at': fields.StringField(),
        'virtual_size': fields.IntegerField(),
        'visibility': fields.StringField(),
    }
