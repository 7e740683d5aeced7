# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from novasched.conf.settings import Settings, parse_ratios
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Scope, Weigher


class ImagePropertiesWeigher(Weigher):
    """Weigh hosts by how often images of their instances share a property with the
    request's.

    Each property counts by its ratio of ``image_props_weight_setting``; all count alike
    where that is empty. An option of 0 stops the weigher whatever aggregates say.
    """

    multiplier = 'image_props_weight_multiplier'
    scope = Scope.HOST
    reads_instances = True
    reads_images = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        good, _ = parse_ratios(settings.image_props_weight_setting)
        self.ratios = dict(good)

    def applies(self, request: Request) -> bool:
        properties = request.requirements.properties
        counted = self.ratios.keys() & properties.keys() if self.ratios else properties
        return self.default_scale != 0.0 and bool(counted)

    def weigh(self, host: Host, request: Request) -> float:
        properties = request.requirements.properties
        shared = Counter(
            name
            for instance in host.instances.values()
            for name, value in instance.image_properties.items()
            if name in properties and properties[name] == value
        )
        if not self.ratios:
            return shared.total()
        return sum(
            (self.ratios.get(name, 0.0) * n for name, n in shared.items()), start=0.0
        )
