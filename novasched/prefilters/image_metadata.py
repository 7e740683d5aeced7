# SPDX-License-Identifier: Apache-2.0
"""Hosts that can emulate the devices that the image names."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.prefilters import LOG, Prefilter

PREFIXES = {
    'hw_architecture': 'HW_ARCH',
    'hw_cdrom_bus': 'COMPUTE_STORAGE_BUS',
    'hw_disk_bus': 'COMPUTE_STORAGE_BUS',
    'hw_emulation_architecture': 'COMPUTE_ARCH',
    'hw_vif_model': 'COMPUTE_NET_VIF_MODEL',
    'hw_video_model': 'COMPUTE_GRAPHICS_MODEL',
    'hw_viommu_model': 'COMPUTE_VIOMMU',
}
"""Image property to what its value makes a trait with, as nova has it. os-traits calls
those of vIOMMU models otherwise, so that such an image is asked nothing of its host."""


class ImageMetadataPrefilter(Prefilter):
    """Require a trait for each of those properties; none if one makes no known trait.

    ``[scheduler] image_metadata_prefilter`` switches the rule on.
    """

    def __call__(self, request: Request) -> Request:
        if not self.settings.image_metadata_prefilter or request.image is None:
            return request
        properties = request.image.properties
        traits = [
            f'{prefix}_{str(properties[name]).replace("-", "_").upper()}'
            for name, prefix in PREFIXES.items()
            if name in properties
        ]
        for trait in traits:
            if not hasattr(os_traits, trait):
                LOG.error('Computed trait name %r is not valid; is os-traits up to date?', trait)
                return request
        return self.requiring(request, *traits) if traits else request
