# SPDX-License-Identifier: Apache-2.0
"""nova's NUMA fitter as a child process. Runs in nova's virtualenv, as a script.

One JSON object a line: {"do": "fit" | "time" | "cells", "cases": [...]} comes in, {"answers":
[...]} goes out. An answer to "cells" are those that a flavor and an image ask for; to "fit", it is null, a list with [host cell, {vCPU: CPU}, reserved CPUs, page size] for
each guest cell, or {"error": class, "text": ...}; to "time", seconds for one call and whether
it fits.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from nova import objects
from nova.conf import CONF
from nova.virt import hardware

Case = dict[str, Any]
SETS = ('cpuset', 'pcpuset')
ASKED = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
AT_LEAST = 0.5  # seconds to measure for


class Devices:
    """Free PCI devices by host cell, of which a request wants so many near to it."""

    def __init__(self, near: dict[str, int]) -> None:
        self.pools = [{'numa_node': int(node), 'count': count} for node, count in near.items()]

    def support_requests(self, requests: list[int], mapping: Any, cells: list[Any]) -> bool:
        """Whether the cells have them between them."""
        ids = {cell.id for cell in cells}
        return sum(pool['count'] for pool in self.pools if pool['numa_node'] in ids) >= requests[0]


def guest_topology(guest: Case) -> objects.InstanceNUMATopology:
    """A guest's cells from their fields."""
    cells = [
        objects.InstanceNUMACell(**{**cell, **{name: set(cell[name]) for name in SETS}})
        for cell in guest['cells']
    ]
    policy = guest.get('emulator_threads_policy')
    return objects.InstanceNUMATopology(cells=cells, emulator_threads_policy=policy)


def arguments(case: Case) -> Case:
    """What nova's function takes; it must be made anew for each call, which changes it."""
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


def fit(case: Case) -> Any:
    """Where nova puts the guest."""
    CONF.set_override(
        'packing_host_numa_cells_allocation_strategy', case.get('packing', False), 'compute'
    )
    try:
        fitted = hardware.numa_fit_instance_to_host(**arguments(case))
    except Exception as error:
        return {'error': type(error).__name__, 'text': str(error)[:200]}
    return fitted and [
        [cell.id, cell.cpu_pinning, sorted(cell.cpuset_reserved or ()), cell.pagesize]
        for cell in fitted.cells
    ]


def timed(case: Case) -> list[Any]:
    """Seconds for one call, without making its arguments, and whether the guest fits."""
    taken: list[float] = []
    while True:
        given = arguments(case)
        start = time.perf_counter()
        fitted = hardware.numa_fit_instance_to_host(**given)
        taken.append(time.perf_counter() - start)
        if sum(taken) > AT_LEAST or len(taken) >= 1000:
            return [sorted(taken)[len(taken) // 2], fitted is not None]


def cells(case: Case) -> Any:
    """What nova makes of a flavor and the properties of an image."""
    flavor = objects.Flavor(root_gb=1, **case['flavor'])
    image = objects.ImageMeta.from_dict({'properties': case['image']})
    try:
        found = hardware.numa_get_constraints(flavor, image)
    except Exception as error:
        return {'error': type(error).__name__, 'text': str(error)[:200]}
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


def main() -> None:
    """Answer until there is no more question."""
    CONF([], project='nova', default_config_files=[])
    objects.register_all()
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {'fit': fit, 'time': timed, 'cells': cells}[asked['do']]
        print(json.dumps({'answers': [answer(case) for case in asked['cases']]}), flush=True)


main()
