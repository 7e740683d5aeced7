# SPDX-License-Identifier: Apache-2.0
"""nova's statistics of PCI devices, as a child process. Runs in nova's virtualenv, as a
script; see nova_side.py."""

from __future__ import annotations

import sys
from typing import Any

from nova import exception, objects
from nova.objects import base, pci_device_pool
from nova.pci import stats
from nova.virt import hardware
from nova_side import Case, serve, stage


class Devices:
    """The commands; each takes a case and returns a JSON value."""

    def take(self, case: Case) -> list[Any]:
        """Whether the requests are supported, and the pools that they leave; None if they
        cannot be applied."""
        requests, _, host = _read(case)
        guest = [objects.InstanceNUMACell(id=cell) for cell in case['cells']]
        with stage('verdict'):
            supported = host.support_requests(requests, case['mappings'], guest)
            try:
                host.apply_requests(requests, case['mappings'], guest)
            except exception.PciDeviceRequestFailed:
                return [supported, None]
            return [supported, host.pools]

    def fit(self, case: Case) -> list[int] | None:
        """The host cells that a guest gets which fits all of them, but for its devices."""
        requests, topology, host = _read(case)
        cells = [
            objects.InstanceNUMACell(
                id=i, cpuset={i}, pcpuset=set(), memory=1, pagesize=None, cpu_policy=None
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


def _read(case: Case) -> tuple[list[Any], objects.NUMATopology, stats.PciDeviceStats]:
    with stage('request'):
        requests = [base.NovaObject.obj_from_primitive(each) for each in case['requests']]
    with stage('hosts'):
        cells = [
            objects.NUMACell(
                id=int(i), cpuset={int(i)}, pcpuset=set(), memory=8, cpu_usage=0,
                memory_usage=0, pinned_cpus=set(), siblings=[], mempages=[], socket=socket,
            )
            for i, socket in case['sockets'].items()
        ]  # fmt: skip
        topology = objects.NUMATopology(cells=cells)
        pools = pci_device_pool.from_pci_stats(case['pci_stats'])
        return requests, topology, stats.PciDeviceStats(topology, pools)


if __name__ == '__main__':
    serve(sys.argv[1], Devices)
