# SPDX-License-Identifier: Apache-2.0
"""Hosts that can run the image's disk format."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.prefilters import LOG, Prefilter


class ImageTypeSupportPrefilter(Prefilter):
    """Require the trait of the image's disk format, unless the server has a root volume.

    ``[scheduler] query_placement_for_image_type_support`` switches the rule on.
    """

    def __call__(self, request: Request) -> Request:
        if not self.settings.query_placement_for_image_type_support or request.is_bfv:
            return request
        disk_format = request.image.disk_format if request.image else None
        if not disk_format:
            return request
        trait = f'COMPUTE_IMAGE_TYPE_{disk_format.upper()}'
        if not hasattr(os_traits, trait):
            LOG.error('Computed trait name %r is not valid; is os-traits up to date?', trait)
            return request
        return self.requiring(request, trait)
