# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping

from novasched.conf.settings import Settings, parse_ratios
from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class MetricsFilter(Filter):
    """Reject hosts that lack a metric of ``[metrics] weight_setting``."""

    scope = Scope.HOST
    request_key = host_alone
    phrase = 'lack a metric'

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        weighed, _ = parse_ratios(settings.metrics_weight_setting)
        self._required = {name for name, _ in weighed}

    def applies(self, request: Request) -> bool:
        return bool(self._required)

    def reject(self, host: Host, request: Request) -> str | None:
        # A list, since the name may be a value of any type that JSON has.
        present = []
        for metric in host.metrics:
            if isinstance(metric, Mapping):
                present.append(metric.get('name'))

        missing = [name for name in sorted(self._required) if name not in present]
        if missing:
            return f'has no metric {", ".join(missing)}'
        return None
