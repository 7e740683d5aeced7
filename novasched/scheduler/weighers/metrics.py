# SPDX-License-Identifier: Apache-2.0
"""MetricsWeigher: measurements by the monitors of nova-compute."""

from novasched.conf.settings import Settings, parse_ratios
from novasched.scheduler.errors import MetricMissing
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.values import amount
from novasched.scheduler.weighers import Scope, Weigher, host_alone

FRACTIONS = frozenset(
    f'cpu.{kind}percent' for kind in ('', 'user.', 'kernel.', 'idle.', 'iowait.')
)
"""Metrics that nova-compute reports as fractions of 1, and nova weighs as percents."""


class MetricsWeigher(Weigher):
    """Weigh a host by the sum of its metrics, each times its ratio of ``[metrics]
    weight_setting``.

    A host without a metric weighs ``[metrics] weight_of_unavailable``, unless the ratio
    or the scale of the host is 0.
    """

    multiplier = 'metrics_weight_multiplier'
    scope = Scope.HOST
    request_key = host_alone

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.ratios, _ = parse_ratios(settings.metrics_weight_setting)

    def applies(self, request: Request) -> bool:
        return bool(self.ratios)

    def weigh(self, host: Host, request: Request) -> float:
        """See :class:`novasched.scheduler.weighers.Weigher`.

        :raises MetricMissing: the host lacks a metric, and ``[metrics] required`` is
            set.
        """
        values = _values(host)
        total = 0.0
        for name, ratio in self.ratios:
            if name in values:
                total += values[name] * ratio
            elif self.settings.metrics_required:
                raise MetricMissing(name, host.host, host.nodename)
            elif ratio * self._valid_scale(host) != 0:
                # As in nova, one missing metric decides the weight of the host.
                return self.settings.metrics_weight_of_unavailable
        return total

    def _valid_scale(self, host: Host) -> float:
        """The scale on a host; the default where aggregate metadata is not a number."""
        try:
            return self.scale(host)
        except ValueError:
            return self.default_scale


def _values(host: Host) -> dict[str, int]:
    """The metrics of a host by name, as whole numbers. Values of another type are left
    out."""
    values = {}
    for metric in host.metrics:
        name = str(metric.get('name'))
        value = metric.get('value', '')
        try:
            if name in FRACTIONS:
                value = value * 100
            values[name] = amount(name, int(value))
        except (TypeError, ValueError, OverflowError):
            continue
    return values
