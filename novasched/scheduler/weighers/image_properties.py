# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from novasched.conf.settings import Settings, parse_ratios
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Data, Scope, Weigher


class ImagePropertiesWeigher(Weigher):
    """Weigh a host by the image properties that its instances share with the request.

    ``[filter_scheduler] image_props_weight_setting`` gives the properties that count,
    with a factor for each; all properties count 1 if the option is empty. A multiplier
    option of 0 disables the weigher, regardless of aggregate metadata.
    """

    multiplier = 'image_props_weight_multiplier'
    scope = Scope.HOST
    reads = frozenset({Data.INSTANCES, Data.IMAGES})

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        ratios, _ = parse_ratios(settings.image_props_weight_setting)
        self.ratios = dict(ratios)

    def applies(self, request: Request) -> bool:
        # The images of all instances take long to read: 0 must not cause that.
        if self.default_scale == 0.0:
            return False
        properties = request.requirements.properties
        if not self.ratios:
            return bool(properties)
        return not self.ratios.keys().isdisjoint(properties)

    def weigh(self, host: Host, request: Request) -> float:
        properties = request.requirements.properties
        shared: Counter[str] = Counter()
        for instance in host.instances.values():
            for name, value in instance.image_properties.items():
                if name in properties and properties[name] == value:
                    shared[name] += 1

        if not self.ratios:
            return shared.total()
        weights = [self.ratios.get(name, 0.0) * n for name, n in shared.items()]
        return sum(weights, start=0.0)
