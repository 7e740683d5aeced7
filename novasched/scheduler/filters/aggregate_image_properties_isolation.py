# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable, Iterator

from novasched.scheduler.filters.shared import AggregatesFilter, parts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class AggregateImagePropertiesIsolation(AggregatesFilter):
    """Reject hosts whose aggregates give other values to a property of the image.

    Metadata of the property's own name lists the values, as text, with commas between.
    With ``aggregate_image_properties_isolation_namespace`` only properties whose names
    start with that and ``_separator`` are looked at.
    """

    on_rebuild = True
    phrase = 'in aggregates for other images'

    def applies(self, request: Request) -> bool:
        return any(self._properties(request))

    def request_key(self, request: Request) -> Hashable | None:
        return tuple(self._properties(request))

    def reject(self, host: Host, request: Request) -> str | None:
        if not host.aggregates:
            return None
        for name, value in self._properties(request):
            allowed = parts(host.metadata(name))
            if allowed and value not in allowed:
                return (
                    f"'{name}' is '{value}' in the image, not"
                    f' {", ".join(sorted(allowed))}'
                )
        return None

    def _properties(self, request: Request) -> Iterator[tuple[str, str]]:
        """The image's properties to look at; those that are false or empty are not."""
        settings = self.settings
        prefix = settings.aggregate_image_properties_isolation_namespace or ''
        if prefix:
            prefix += settings.aggregate_image_properties_isolation_separator
        for name, value in request.requirements.properties.items():
            if value and name.startswith(prefix):
                yield name, str(value)
