# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesWeigher: servers of similar images."""

from __future__ import annotations

from collections import Counter

from novasched.model import ratios
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.weighers import Weigher


class ImagePropertiesWeigher(Weigher):
    """Weigh hosts by how often their servers' images share a property with the request's.

    Each property counts by its ratio of ``image_props_weight_setting``; all count alike
    where that is empty. An option of 0 stops the weigher whatever aggregates say.
    """

    multiplier = 'image_props_weight_multiplier'
    once_per_host = True
    reads_instances = True
    reads_images = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        good, _ = ratios.parse(settings.image_props_weight_setting)
        self.ratios = dict(good)

    def applies(self, request: Request) -> bool:
        wanted = request.image.properties if request.image else {}
        counted = self.ratios.keys() & wanted.keys() if self.ratios else wanted
        return self.default_scale != 0.0 and bool(counted)

    def weigh(self, host: Host, request: Request) -> float:
        wanted = request.image.properties if request.image else {}
        shared = Counter(
            name
            for server in host.instances.values()
            for name, value in server.image_properties.items()
            if name in wanted and wanted[name] == value
        )
        if not self.ratios:
            return shared.total()
        return sum((self.ratios.get(name, 0.0) * n for name, n in shared.items()), start=0.0)
