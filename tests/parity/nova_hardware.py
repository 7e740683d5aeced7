# SPDX-License-Identifier: Apache-2.0
"""nova's NUMA fitter and its statistics of PCI devices, as a child process. Runs in
nova's virtualenv, as a script; see nova_side.py."""

from __future__ import annotations

import time
from typing import Any

from nova import exception, objects
from nova.conf import CONF
from nova.objects import base, pci_device_pool
from nova.pci import stats
from nova.virt import hardware
from nova_child import serve
from nova_side import Answers, Case, stage

SETS = ('cpuset', 'pcpuset')
ASKED = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
AT_LEAST = 0.5  # seconds to measure for


class Hardware(Answers):
    def fit(self, case: Case) -> Any:
        """Null, or [host cell, {vCPU: CPU}, reserved CPUs, page size] for each guest
        cell."""
        CONF.set_override(
            'packing_host_numa_cells_allocation_strategy',
            case.get('packing', False),
            'compute',
        )
        with stage('verdict'):
            fitted = hardware.numa_fit_instance_to_host(**arguments(case))
        return fitted and [
            [
                cell.id,
                cell.cpu_pinning,
                sorted(cell.cpuset_reserved or ()),
                cell.pagesize,
            ]
            for cell in fitted.cells
        ]

    def time(self, case: Case) -> list[Any]:
        """Seconds for one call, without making its arguments, and whether the guest
        fits."""
        taken: list[float] = []
        while True:
            given = arguments(case)
            start = time.perf_counter()
            fitted = hardware.numa_fit_instance_to_host(**given)
            taken.append(time.perf_counter() - start)
            if sum(taken) > AT_LEAST or len(taken) >= 1000:
                return [sorted(taken)[len(taken) // 2], fitted is not None]

    def cells(self, case: Case) -> Any:
        """What nova makes of a flavor and the properties of an image."""
        flavor = objects.Flavor(root_gb=1, **case['flavor'])
        image = objects.ImageMeta.from_dict({'properties': case['image']})
        with stage('request'):
            found = hardware.numa_get_constraints(flavor, image)
        return found and {
            'emulator_threads_policy': found.emulator_threads_policy,
            'cells': [
                {
                    **{name: sorted(getattr(cell, name)) for name in SETS},
                    **{name: getattr(cell, name) for name in ASKED},
                }
                for cell in found.cells
            ],
        }

    def take_devices(self, case: Case) -> list[Any]:
        """Whether the requests are supported, and the pools that they leave; None if
        they cannot be applied."""
        requests, _, host = _read(case)
        guest = [objects.InstanceNUMACell(id=cell) for cell in case['cells']]
        with stage('verdict'):
            supported = host.support_requests(requests, case['mappings'], guest)
            try:
                host.apply_requests(requests, case['mappings'], guest)
            except exception.PciDeviceRequestFailed:
                return [supported, None]
            return [supported, host.pools]

    def fit_devices(self, case: Case) -> list[int] | None:
        """The host cells that a guest gets which fits all of them, but for its
        devices."""
        requests, topology, host = _read(case)
        cells = [
            objects.InstanceNUMACell(
                id=i,
                cpuset={i},
                pcpuset=set(),
                memory=1,
                pagesize=None,
                cpu_policy=None,
            )
            for i in range(case['guest'])
        ]
        with stage('verdict'):
            fitted = hardware.numa_fit_instance_to_host(
                topology,
                objects.InstanceNUMATopology(cells=cells),
                case['mappings'],
                pci_requests=requests,
                pci_stats=host,
            )
        return fitted and [cell.id for cell in fitted.cells]


class Devices:
    """Free PCI devices by host cell, of which a request wants so many near to it."""

    def __init__(self, near: dict[str, int]) -> None:
        self.pools = [
            {'numa_node': int(node), 'count': count} for node, count in near.items()
        ]

    def support_requests(
        self, requests: list[int], mapping: Any, cells: list[Any]
    ) -> bool:
        """Whether the cells have them between them."""
        ids = {cell.id for cell in cells}
        return (
            sum(pool['count'] for pool in self.pools if pool['numa_node'] in ids)
            >= requests[0]
        )


def guest_topology(guest: Case) -> objects.InstanceNUMATopology:
    cells = [
        objects.InstanceNUMACell(**{**cell, **{name: set(cell[name]) for name in SETS}})
        for cell in guest['cells']
    ]
    policy = guest.get('emulator_threads_policy')
    return objects.InstanceNUMATopology(cells=cells, emulator_threads_policy=policy)


def arguments(case: Case) -> Case:
    """What nova's function takes; it must be made anew for each call, which changes
    it."""
    taken: Case = {
        'host_topology': objects.NUMATopology.obj_from_db_obj(case['host']),
        'instance_topology': guest_topology(case['guest']),
        'provider_mapping': {},
    }
    limits = case.get('limits')
    if limits:
        taken['limits'] = objects.NUMATopologyLimits(
            cpu_allocation_ratio=limits['cpu'], ram_allocation_ratio=limits['ram']
        )
        if 'physnets' in limits:
            taken['limits'].network_metadata = objects.NetworkMetadata(
                physnets=set(limits['physnets']), tunneled=limits['tunneled']
            )
    if 'pci' in case:
        taken['pci_stats'] = Devices(case['pci']['near'])
        taken['pci_requests'] = [case['pci']['count']] if case['pci']['count'] else []
    return taken


def _read(case: Case) -> tuple[list[Any], objects.NUMATopology, stats.PciDeviceStats]:
    with stage('request'):
        requests = [
            base.NovaObject.obj_from_primitive(each) for each in case['requests']
        ]
    with stage('hosts'):
        cells = [
            objects.NUMACell(
                id=int(i),
                cpuset={int(i)},
                pcpuset=set(),
                memory=8,
                cpu_usage=0,
                memory_usage=0,
                pinned_cpus=set(),
                siblings=[],
                mempages=[],
                socket=socket,
            )
            for i, socket in case['sockets'].items()
        ]
        topology = objects.NUMATopology(cells=cells)
        pools = pci_device_pool.from_pci_stats(case['pci_stats'])
        return requests, topology, stats.PciDeviceStats(topology, pools)


if __name__ == '__main__':
    serve(Hardware)
