# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable, Iterator

from novasched.scheduler.filters.shared import AggregatesFilter, split_values
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class AggregateImagePropertiesIsolation(AggregatesFilter):
    """Reject hosts in aggregates for images with a different value of a property.

    The metadata key is the name of the property; the metadata value lists the allowed
    values, separated by commas. ``[filter_scheduler]
    aggregate_image_properties_isolation_namespace`` limits the filter to properties
    with a prefix: the namespace and ``..._separator``.
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
            allowed = split_values(host.metadata(name))
            if allowed and value not in allowed:
                values = ', '.join(sorted(allowed))
                return f"'{name}' is '{value}' in the image, not {values}"
        return None

    def _properties(self, request: Request) -> Iterator[tuple[str, str]]:
        """The names and values of the properties to check. False and empty values are
        skipped, as in nova."""
        settings = self.settings
        prefix = settings.aggregate_image_properties_isolation_namespace or ''
        if prefix:
            prefix += settings.aggregate_image_properties_isolation_separator

        for name, value in request.requirements.properties.items():
            if value and name.startswith(prefix):
                yield name, str(value)
