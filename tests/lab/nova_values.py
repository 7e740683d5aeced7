# SPDX-License-Identifier: Apache-2.0
"""Values of requests, for scripts in the virtualenv of any release of nova, see
nova_child.py."""

from __future__ import annotations

from nova import objects
from oslo_utils import uuidutils

USER = 'functional-user'
PROJECT = 'functional-project'


def image_meta(properties, **differences):
    """An image.

    :param differences: other fields with a value of their own.
    """
    image = {
        'id': uuidutils.generate_uuid(),
        'name': 'functional',
        'status': 'active',
        'disk_format': 'qcow2',
        'container_format': 'bare',
        'min_ram': 0,
        'min_disk': 0,
        'size': 1,
        'properties': properties,
        **differences,
    }
    return objects.ImageMeta.from_dict(image)
