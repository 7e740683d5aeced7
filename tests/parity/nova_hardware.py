# SPDX-License-Identifier: Apache-2.0
"""A child process with nova's NUMA fitter and PCI statistics. The script runs in nova's
virtualenv; see nova_side.py."""

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
FIELDS = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
MEASURED_S = 0.5
"""Least duration of a measurement."""


class Hardware(Answers):
    def fit(self, case: Case) -> Any:
        """For every guest cell [host cell, {vCPU: CPU}, reserved CPUs, page size]; null
        if the guest does not fit."""
        CONF.set_override(
            'packing_host_numa_cells_allocation_strategy',
            case.get('packing', False),
            'compute',
        )
        with stage('verdict'):
            fitted = hardware.numa_fit_instance_to_host(**arguments(case))
        if not fitted:
            return fitted

        cells = []
        for cell in fitted.cells:
            reserved = sorted(cell.cpuset_reserved or ())
            cells.append([cell.id, cell.cpu_pinning, reserved, cell.pagesize])
        return cells

    def time(self, case: Case) -> list[Any]:
        """The median seconds of a call, without the construction of its arguments, and
        True if the guest fits."""
        taken: list[float] = []
        while True:
            given = arguments(case)
            start = time.perf_counter()
            fitted = hardware.numa_fit_instance_to_host(**given)
            taken.append(time.perf_counter() - start)
            if sum(taken) > MEASURED_S or len(taken) >= 1000:
                return [sorted(taken)[len(taken) // 2], fitted is not None]

    def cells(self, case: Case) -> Any:
        """The NUMA cells of a flavor and of image properties."""
        flavor = objects.Flavor(root_gb=1, **case['flavor'])
        image = objects.ImageMeta.from_dict({'properties': case['image']})
        with stage('request'):
            topology = hardware.numa_get_constraints(flavor, image)
        if not topology:
            return topology

        cells = []
        for cell in topology.cells:
            fields = {name: getattr(cell, name) for name in FIELDS}
            for name in SETS:
                fields[name] = sorted(getattr(cell, name))
            cells.append(fields)
        return {
            'emulator_threads_policy': topology.emulator_threads_policy,
            'cells': cells,
        }

    def take_devices(self, case: Case) -> list[Any]:
        """True if the requests are supported, and the remaining pools; None for the
        pools if the requests cannot be applied."""
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
        """The host cells of a guest that fits all cells, except for its devices."""
        requests, topology, host = _read(case)
        cells = []
        for i in range(case['guest']):
            cell = objects.InstanceNUMACell(
                id=i,
                cpuset={i},
                pcpuset=set(),
                memory=1,
                pagesize=None,
                cpu_policy=None,
            )
            cells.append(cell)

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
    """Free PCI devices by host cell, in the place of nova's PCI statistics.

    :param near: host cell to its number of free devices.
    """

    def __init__(self, near: dict[str, int]) -> None:
        self.pools = []
        for node, count in near.items():
            self.pools.append({'numa_node': int(node), 'count': count})

    def support_requests(
        self, requests: list[int], mapping: Any, cells: list[Any]
    ) -> bool:
        """True if the cells have enough devices together."""
        ids = {cell.id for cell in cells}
        free = sum(pool['count'] for pool in self.pools if pool['numa_node'] in ids)
        return free >= requests[0]


def guest_topology(guest: Case) -> objects.InstanceNUMATopology:
    cells = []
    for cell in guest['cells']:
        sets = {name: set(cell[name]) for name in SETS}
        cells.append(objects.InstanceNUMACell(**{**cell, **sets}))
    policy = guest.get('emulator_threads_policy')
    return objects.InstanceNUMATopology(cells=cells, emulator_threads_policy=policy)


def arguments(case: Case) -> Case:
    """The arguments of nova's function. They are new for every call, since the function
    changes its arguments."""
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
        decode = base.NovaObject.obj_from_primitive
        requests = [decode(primitive) for primitive in case['requests']]
    with stage('hosts'):
        cells = []
        for number, socket in case['sockets'].items():
            cell = objects.NUMACell(
                id=int(number),
                cpuset={int(number)},
                pcpuset=set(),
                memory=8,
                cpu_usage=0,
                memory_usage=0,
                pinned_cpus=set(),
                siblings=[],
                mempages=[],
                socket=socket,
            )
            cells.append(cell)
        topology = objects.NUMATopology(cells=cells)
        pools = pci_device_pool.from_pci_stats(case['pci_stats'])
        return requests, topology, stats.PciDeviceStats(topology, pools)


if __name__ == '__main__':
    serve(Hardware)
