# SPDX-License-Identifier: Apache-2.0
"""Views with the attributes of nova's HostState, NUMATopology and PciDeviceStats.

NUMA cells and PCI devices are for reading: CPUs that a plugin pins and devices that a
plugin takes have no effect on the decision.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

from oslo_utils import timeutils

from novasched.plugins.nova_compat.import_stubs import stub_in
from novasched.plugins.nova_compat.views import NotKnown, View, mutable
from novasched.scheduler.model import host as model
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.pci.pools import consume
from novasched.scheduler.weighers.metrics import FRACTIONS


class HostState(View):
    """nova's HostState. If the host is chosen, ``limits`` is sent to nova-compute."""

    def __init__(
        self, host: model.Host, view_of: 'Callable[[model.Aggregate], AggregateView]'
    ) -> None:
        super().__init__(host)
        self._view_of = view_of
        self._candidates: Candidates | None = None
        self._offered: Sequence[Candidate] = ()

    updated = None
    """In nova the time of the last read. novasched reads hosts for each request."""

    @cached_property
    def limits(self) -> dict[str, Any]:
        """Limits for nova-compute: ``vcpu``, ``memory_mb``, ``disk_gb``,
        ``numa_topology``."""
        return {}

    @cached_property
    def aggregates(self) -> 'list[AggregateView]':
        """The aggregates of the host, shared by all hosts of a request."""
        return list(map(self._view_of, self._value.aggregates))

    @cached_property
    def instances(self) -> dict[str, View]:
        """The instances on the host by UUID, with ``uuid``, ``project_id``,
        ``instance_type_id`` and ``host``."""
        instances = {}
        for uuid, instance in self._value.instances.items():
            instances[uuid] = View(instance).override(host=self._value.host)
        return instances

    @cached_property
    def allocation_candidates(self) -> list[Any]:
        """Placement's allocation requests for the host. A plugin may remove items or
        replace the list."""
        return [allocation for _, allocation in self._allocations]

    @cached_property
    def _allocations(self) -> list[tuple[Candidate, Any]]:
        """The offered candidates, each with its allocation request as a plugin sees
        the request."""
        self._offered = self._offer_of_host()
        return [(offer, json.loads(offer.body())) for offer in self._offered]

    def offer(self, candidates: Candidates | None) -> None:
        """Set the candidates of all hosts. The candidates of this host may be worked
        out at the first look, and few plugins look.

        If the candidates are the candidates that the plugins left, the plugins keep
        seeing the same list with the same objects.
        """
        self._candidates = candidates
        is_read = 'allocation_candidates' in vars(self)
        if is_read and self._offer_of_host() != self._offered:
            vars(self).pop('allocation_candidates', None)
            vars(self).pop('_allocations', None)

    def _offer_of_host(self) -> Sequence[Candidate]:
        if self._candidates is None:
            return ()
        return self._candidates.get(self._value.uuid, ())

    def remaining_candidates(self) -> Sequence[Candidate] | None:
        """The candidates that the plugins left, in the order of their list; ``None`` if
        no plugin has read the list, or if the host has no candidates."""
        if 'allocation_candidates' not in vars(self) or not self._offered:
            return None

        # Found again by identity, since a plugin may change the allocation requests.
        candidates = {}
        for candidate, allocation in self._allocations:
            candidates[id(allocation)] = candidate

        remaining = []
        for allocation in self.allocation_candidates:
            if id(allocation) in candidates:
                remaining.append(candidates[id(allocation)])
        self._offered = remaining
        return remaining

    @cached_property
    def numa_topology(self) -> 'NumaTopology | None':
        """nova's NUMATopology; ``None`` if the host reports no valid topology."""
        topology = self._value.numa_topology
        if topology is None:
            return None
        return NumaTopology(topology)

    @cached_property
    def pci_stats(self) -> 'PciStats':
        return PciStats(self._value)

    @cached_property
    def service(self) -> dict[str, Any]:
        """The nova-compute service of the host.

        nova's servicegroup API computes the state of a service from two fields. A
        service that is up has ``last_seen_up`` now, a service that is down has
        ``forced_down``.
        """
        service: model.Service = self._value.service
        last_seen_up = None
        if service.up:
            last_seen_up = timeutils.utcnow()
        return {
            'host': service.host,
            'disabled': service.disabled,
            'disabled_reason': service.disabled_reason,
            'version': service.version,
            'binary': 'nova-compute',
            'topic': 'compute',
            'forced_down': not service.up,
            'last_seen_up': last_seen_up,
        }

    @cached_property
    def metrics(self) -> list[SimpleNamespace]:
        """nova's MonitorMetric objects: ``name``, ``value``, ``timestamp``,
        ``source``."""
        metrics = []
        for metric in self._value.metrics:
            # A nova-compute may report malformed metrics.
            if isinstance(metric, Mapping):
                fields = mutable(metric)
                fields['value'] = _metric_value(metric)
                metrics.append(SimpleNamespace(**fields))
        return metrics


class AggregateView(View):
    """nova's Aggregate without ``hosts``."""

    @cached_property
    def availability_zone(self) -> Any:
        """The availability zone of the hosts of the aggregate."""
        return self.metadata.get(model.AVAILABILITY_ZONE)


AggregatesOfHosts = Callable[[], Mapping[str, Sequence[model.Aggregate]]]
"""Returns the aggregates by host name."""


@stub_in('nova.objects')
class AggregateList:
    """nova's AggregateList, with the aggregates that novasched has read last.

    :ivar source: set by the process that reads aggregates.
    """

    source: ClassVar[AggregatesOfHosts | None] = None

    @classmethod
    def get_by_host(
        cls, context: Any, host: str, key: str | None = None
    ) -> list[AggregateView]:
        """The aggregates of a host.

        :param key: only aggregates with this metadata key.
        :raises NotKnown: this process reads no aggregates.
        """
        if cls.source is None:
            raise NotKnown('the aggregates of other hosts are not known to this tool')
        aggregates = []
        for aggregate in cls.source().get(host, ()):
            if key is None or key in aggregate.metadata:
                aggregates.append(AggregateView(aggregate))
        return aggregates


def _metric_value(metric: Mapping[str, Any]) -> Any:
    """The value of a metric as in nova: a whole number, with fractions as percents."""
    value = metric.get('value')
    if not isinstance(value, int | float):
        return value
    if metric.get('name') in FRACTIONS:
        value = value * 100
    return int(value)


class NumaTopology(View):
    @cached_property
    def cells(self) -> 'list[NumaCellView]':
        """nova's NUMACell objects, in the order of the report of the host."""
        return list(map(NumaCellView, self._value.cells))

    def __len__(self) -> int:
        return len(self.cells)


class NumaCellView(View):
    """nova's NUMACell; memory is in MiB."""

    @property
    def has_threads(self) -> bool:
        """True if a core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    @property
    def free_siblings(self) -> list[set[int]]:
        return [core & self.free_pcpus for core in self.siblings]

    @property
    def avail_pcpus(self) -> int:
        """The number of free dedicated CPUs."""
        return len(self.free_pcpus)

    @property
    def avail_memory(self) -> int:
        """The free memory in MiB."""
        return int(self.free_memory)

    @cached_property
    def mempages(self) -> list[SimpleNamespace]:
        """nova's NUMAPagesTopology objects."""
        pages = []
        for size in self._value.mempages:
            namespace = SimpleNamespace(
                **size._asdict(),
                free=size.free,
                free_kb=size.free * size.size_kb,
                total_kb=size.total * size.size_kb,
            )
            pages.append(namespace)
        return pages

    @cached_property
    def network_metadata(self) -> SimpleNamespace:
        """nova's NetworkMetadata: the networks with NUMA affinity to the cell."""
        return SimpleNamespace(physnets=self.physnets, tunneled=self.tunneled)


class PciStats:
    """nova's PciDeviceStats."""

    def __init__(self, host: model.Host) -> None:
        self._host = host

    @cached_property
    def pools(self) -> list[dict[str, Any]]:
        """The pools of free devices; the tags of a pool are further keys."""
        pools = []
        for pool in self._host.pci_stats:
            fields = {
                'product_id': pool.product_id,
                'vendor_id': pool.vendor_id,
                'numa_node': pool.numa_node,
                'count': pool.count,
            }
            pools.append({**fields, **pool.tags})
        return pools

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.pools)

    def support_requests(
        self,
        requests: Sequence[Any],
        provider_mapping: Mapping[str, Sequence[str]] | None = None,
        numa_cells: Sequence[Any] | None = None,
    ) -> bool:
        """True if the host has the devices.

        :param requests: nova's InstancePCIRequest objects, or views.
        :param provider_mapping: the resource providers of each request group.
        :param numa_cells: guest cells with the ids of their host cells.
        """
        sockets = {}
        topology = self._host.numa_topology
        if topology:
            sockets = {cell.id: cell.socket for cell in topology.cells}
        pci_requests = list(map(_pci_request, requests))
        cells = [cell.id for cell in numa_cells or ()]
        pools = consume(
            self._host.pci_stats, pci_requests, provider_mapping, cells, sockets
        )
        # A text is the reason why the host lacks the devices.
        return not isinstance(pools, str)


def _pci_request(shown: Any) -> PciRequest:
    return PciRequest(
        count=shown.count,
        spec=tuple(shown.spec),
        alias_name=_optional(shown, 'alias_name'),
        request_id=_optional(shown, 'request_id'),
        requester_id=_optional(shown, 'requester_id'),
        numa_policy=_optional(shown, 'numa_policy'),
    )


def _optional(shown: Any, name: str) -> Any:
    """An attribute, ``None`` if unset. nova's objects raise an error in that case."""
    try:
        return getattr(shown, name)
    except (AttributeError, NotImplementedError):
        return None
