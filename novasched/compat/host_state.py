# SPDX-License-Identifier: Apache-2.0
"""nova's HostState, as plugins see it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol

from oslo_utils import timeutils

from novasched.compat.hardware import NumaTopology, PciStats
from novasched.compat.views import View, thaw
from novasched.model import host as model
from novasched.model.candidate import Candidate
from novasched.weighers.metrics import FRACTIONS


class Source(Protocol):
    """Where a host's view finds what is not on the host."""

    def aggregate(self, aggregate: model.Aggregate) -> Aggregate:
        """The request's view of an aggregate."""

    def instances(self, host: model.Host) -> Mapping[str, model.Instance]:
        """The servers on a host.

        :raises InstancesUnread: they have not been read.
        """

    def candidates(self, uuid: str) -> Sequence[Candidate]:
        """What Placement offers for a provider."""


class HostState(View):
    """A host. What a plugin writes into ``limits`` goes to nova-compute if it is chosen."""

    def __init__(self, host: model.Host, source: Source) -> None:
        super().__init__(host)
        self._source = source
        self._offered: list[tuple[Candidate, Any]] = []

    updated = None
    """When nova read the host; ours is read for each request."""

    @cached_property
    def limits(self) -> dict[str, Any]:
        """Of nova's names: ``vcpu``, ``memory_mb``, ``disk_gb``, ``numa_topology``."""
        return {}

    @cached_property
    def aggregates(self) -> list[Aggregate]:
        """The host's aggregates; hosts share them as long as the request lasts."""
        return [self._source.aggregate(each) for each in self._value.aggregates]

    @cached_property
    def instances(self) -> dict[str, View]:
        """The servers on the host by UUID: ``uuid``, ``project_id``, ``instance_type_id``.

        :raises InstancesUnread: nobody has looked at them before.
        """
        name = self._value.host
        servers = self._source.instances(self._value)
        return {uuid: View(each).having(host=name) for uuid, each in servers.items()}

    @cached_property
    def allocation_candidates(self) -> list[Any]:
        """Placement's allocation requests for the host; a plugin may replace or shorten the
        list."""
        offered = self._source.candidates(self._value.uuid)
        self._offered = [(each, json.loads(each.body())) for each in offered]
        return [shown for _, shown in self._offered]

    @property
    def remaining_candidates(self) -> list[Candidate] | None:
        """Those that the plugins have left, in the order in which they have left them; None
        if they have not looked."""
        if not self._offered:
            return None
        offered = {id(shown): candidate for candidate, shown in self._offered}
        return [offered[id(x)] for x in self.allocation_candidates if id(x) in offered]

    @cached_property
    def numa_topology(self) -> NumaTopology | None:
        """nova's NUMATopology; None where the host reports none that can be read."""
        topology = self._value.numa_topology
        return None if topology is None else NumaTopology(topology)

    @cached_property
    def pci_stats(self) -> PciStats:
        """nova's PciDeviceStats."""
        return PciStats(self._value)

    @cached_property
    def service(self) -> dict[str, Any]:
        """The nova-compute service. Whether it was up is said in the terms by which nova's
        servicegroup API finds out: ``forced_down`` if it was not, else seen just now."""
        service: model.Service = self._value.service
        return {
            'host': service.host,
            'binary': 'nova-compute',
            'topic': 'compute',
            'disabled': service.disabled,
            'disabled_reason': service.disabled_reason,
            'version': service.version,
            'forced_down': not service.up,
            'last_seen_up': timeutils.utcnow() if service.up else None,
        }

    @cached_property
    def metrics(self) -> list[SimpleNamespace]:
        """nova's MonitorMetric objects: ``name``, ``value``, ``timestamp``, ``source``."""
        return [
            SimpleNamespace(**{**thaw(each), 'value': _metric(each)})
            for each in self._value.metrics
            if isinstance(each, Mapping)
        ]


class Aggregate(View):
    """nova's Aggregate, but for ``hosts``."""

    @cached_property
    def availability_zone(self) -> Any:
        """The zone that the aggregate gives its hosts."""
        return self.metadata.get(model.AVAILABILITY_ZONE)


def _metric(metric: Mapping[str, Any]) -> Any:
    """A metric's value as nova has it: whole, and fractions as percents."""
    value = metric.get('value')
    if not isinstance(value, int | float):
        return value
    return int(value * 100 if metric.get('name') in FRACTIONS else value)
