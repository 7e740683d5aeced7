# SPDX-License-Identifier: Apache-2.0
"""nova's NUMATopology and PciDeviceStats, as plugins see them on a host.

They are to be looked at: a plugin that pins or takes something does so for itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from novasched.compat.views import View
from novasched.model import host as model
from novasched.model.pci import PciRequest
from novasched.pci.consume import supports


class NumaTopology(View):
    """A host's cells."""

    @cached_property
    def cells(self) -> list[NumaCell]:
        """nova's NUMACell objects, in the order in which the host reports them."""
        return [NumaCell(each) for each in self._value.cells]

    def __len__(self) -> int:
        return len(self.cells)


class NumaCell(View):
    """A cell; memory is in MiB."""

    @property
    def has_threads(self) -> bool:
        """Whether a core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    @property
    def free_siblings(self) -> list[set[int]]:
        """The free CPUs of each core."""
        return [core & self.free_pcpus for core in self.siblings]

    @property
    def avail_pcpus(self) -> int:
        """How many CPUs can be pinned."""
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
    """A host's free devices."""

    def __init__(self, host: model.Host) -> None:
        self._host = host

    @cached_property
    def pools(self) -> list[dict[str, Any]]:
        """The pools, their tags beside what else is known of them."""
        return [
            {
                'product_id': pool.product_id,
                'vendor_id': pool.vendor_id,
                'numa_node': pool.numa_node,
                'count': pool.count,
                **pool.tags,
            }
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
        """Whether the host has the devices.

        :param requests: nova's InstancePCIRequest objects, or views of ours.
        :param provider_mapping: which providers serve which request group.
        :param numa_cells: guest cells whose ids are those of the host cells that they get.
        """
        topology = self._host.numa_topology
        sockets = {cell.id: cell.socket for cell in topology.cells} if topology else {}
        wanted = [_request(each) for each in requests]
        cells = [cell.id for cell in numa_cells or ()]
        return supports(self._host.pci_stats, wanted, provider_mapping, cells, sockets)


def _request(shown: Any) -> PciRequest:
    names = ('alias_name', 'request_id', 'requester_id', 'numa_policy')
    optional = {name: _given(shown, name) for name in names}
    return PciRequest(count=shown.count, spec=tuple(shown.spec), **optional)


def _given(shown: Any, name: str) -> Any:
    """An attribute; None where it is not set, which nova's objects take for an error."""
    try:
        return getattr(shown, name)
    except (AttributeError, NotImplementedError):
        return None
