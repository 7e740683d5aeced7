# SPDX-License-Identifier: Apache-2.0
"""nova's HostState with its NUMATopology and PciDeviceStats, as plugins see them.

Cells and devices are to be looked at: a plugin that pins or takes something does so for
itself alone.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from oslo_utils import timeutils

from novasched.plugins.nova_compat.views import View, mutable
from novasched.scheduler.model import host as model
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.pci.pools import consume
from novasched.scheduler.weighers.metrics import FRACTIONS


class HostState(View):
    """A host. What a plugin writes into ``limits`` goes to nova-compute if it is
    chosen."""

    def __init__(
        self, host: model.Host, view_of: 'Callable[[model.Aggregate], AggregateView]'
    ) -> None:
        super().__init__(host)
        self._view_of = view_of
        self._offered: Sequence[Candidate] = ()

    updated = None
    """When nova read the host; ours is read for each request."""

    @cached_property
    def limits(self) -> dict[str, Any]:
        """Of nova's names: ``vcpu``, ``memory_mb``, ``disk_gb``, ``numa_topology``."""
        return {}

    @cached_property
    def aggregates(self) -> 'list[AggregateView]':
        """The host's aggregates; hosts share them as long as the request lasts."""
        return [self._view_of(each) for each in self._value.aggregates]

    @cached_property
    def instances(self) -> dict[str, View]:
        """The instances on the host by UUID: ``uuid``, ``project_id``,
        ``instance_type_id``."""
        name = self._value.host
        return {
            uuid: View(x).override(host=name)
            for uuid, x in self._value.instances.items()
        }

    @cached_property
    def allocation_candidates(self) -> list[Any]:
        """Placement's allocation requests for the host; a plugin may replace or shorten
        the list."""
        return [shown for _, shown in self._shown_candidates]

    @cached_property
    def _shown_candidates(self) -> list[tuple[Candidate, Any]]:
        return [(each, json.loads(each.body())) for each in self._offered]

    def offer(self, candidates: Sequence[Candidate]) -> None:
        """Show these candidates; if they are what the plugins have left, as they left
        it."""
        if candidates != self._offered:
            self._offered = candidates
            for name in ('allocation_candidates', '_shown_candidates'):
                vars(self).pop(name, None)

    def remaining_candidates(self) -> Sequence[Candidate] | None:
        """The candidates that the plugins have left, in the order in which they are
        left; None if they have not looked, or if nothing is offered."""
        if not self._offered or 'allocation_candidates' not in vars(self):
            return None
        candidates = {
            id(shown): candidate for candidate, shown in self._shown_candidates
        }
        shown = self.allocation_candidates
        self._offered = [candidates[id(x)] for x in shown if id(x) in candidates]
        return self._offered

    @cached_property
    def numa_topology(self) -> 'NumaTopology | None':
        """nova's NUMATopology; None where the host reports none that can be read."""
        topology = self._value.numa_topology
        if topology is None:
            return None
        return NumaTopology(topology)

    @cached_property
    def pci_stats(self) -> 'PciStats':
        return PciStats(self._value)

    @cached_property
    def service(self) -> dict[str, Any]:
        """The nova-compute service. Whether it was up is said in the terms by which
        nova's servicegroup API finds out: ``forced_down`` if it was not, else seen just
        now."""
        service: model.Service = self._value.service
        names = 'host', 'disabled', 'disabled_reason', 'version'
        return {
            **{name: getattr(service, name) for name in names},
            'binary': 'nova-compute',
            'topic': 'compute',
            'forced_down': not service.up,
            'last_seen_up': timeutils.utcnow() if service.up else None,
        }

    @cached_property
    def metrics(self) -> list[SimpleNamespace]:
        """nova's MonitorMetric objects: ``name``, ``value``, ``timestamp``,
        ``source``."""
        return [
            SimpleNamespace(**{**mutable(each), 'value': _metric(each)})
            for each in self._value.metrics
            if isinstance(each, Mapping)
        ]


class AggregateView(View):
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


class NumaTopology(View):
    @cached_property
    def cells(self) -> 'list[NumaCellView]':
        """nova's NUMACell objects, in the order in which the host reports them."""
        return [NumaCellView(each) for each in self._value.cells]

    def __len__(self) -> int:
        return len(self.cells)


class NumaCellView(View):
    """A cell; memory is in MiB."""

    @property
    def has_threads(self) -> bool:
        """True if a core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    @property
    def free_siblings(self) -> list[set[int]]:
        return [core & self.free_pcpus for core in self.siblings]

    @property
    def avail_pcpus(self) -> int:
        """Number of CPUs that can be pinned."""
        return len(self.free_pcpus)

    @property
    def avail_memory(self) -> int:
        """Memory that no guest has."""
        return int(self.free_memory)

    @cached_property
    def mempages(self) -> list[SimpleNamespace]:
        """nova's NUMAPagesTopology objects."""
        return [
            SimpleNamespace(
                **each._asdict(),
                free=each.free,
                free_kb=each.free * each.size_kb,
                total_kb=each.total * each.size_kb,
            )
            for each in self._value.mempages
        ]

    @cached_property
    def network_metadata(self) -> SimpleNamespace:
        """nova's NetworkMetadata: the networks that are near to the cell."""
        return SimpleNamespace(physnets=self.physnets, tunneled=self.tunneled)


class PciStats:
    def __init__(self, host: model.Host) -> None:
        self._host = host

    @cached_property
    def pools(self) -> list[dict[str, Any]]:
        """The pools, their tags beside what else is known of them."""
        names = 'product_id', 'vendor_id', 'numa_node', 'count'
        return [
            {**{name: getattr(pool, name) for name in names}, **pool.tags}
            for pool in self._host.pci_stats
        ]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.pools)

    def support_requests(
        self,
        requests: Sequence[Any],
        provider_mapping: Mapping[str, Sequence[str]] | None = None,
        numa_cells: Sequence[Any] | None = None,
    ) -> bool:
        """True if the host has the devices.

        :param requests: nova's InstancePCIRequest objects, or views of ours.
        :param provider_mapping: which providers serve which request group.
        :param numa_cells: guest cells whose ids are those of the host cells that they
            get.
        """
        topology = self._host.numa_topology
        sockets = {cell.id: cell.socket for cell in topology.cells} if topology else {}
        wanted = [_request(each) for each in requests]
        cells = [cell.id for cell in numa_cells or ()]
        left = consume(self._host.pci_stats, wanted, provider_mapping, cells, sockets)
        return not isinstance(left, str)


def _request(shown: Any) -> PciRequest:
    names = ('alias_name', 'request_id', 'requester_id', 'numa_policy')
    optional = {name: _given(shown, name) for name in names}
    return PciRequest(count=shown.count, spec=tuple(shown.spec), **optional)


def _given(shown: Any, name: str) -> Any:
    """An attribute; None where it is not set, which nova's objects take for an
    error."""
    try:
        return getattr(shown, name)
    except (AttributeError, NotImplementedError):
        return None
