# SPDX-License-Identifier: Apache-2.0
"""NUMA cells and PCI devices as nova-compute writes columns of compute_nodes."""

import json

from tests.lab.descriptions import OBJECTS
from tests.lab.wire import primitive


def an_object(name, version=None, **data):
    """A versioned object whose fields are all changed."""
    value = primitive(name, version or OBJECTS[name]['version'], **data)
    value['nova_object.changes'] = sorted(data)
    return value


def a_numa_cell(number, cores=4, threads=2, memory=16384, pinned=(), **fields):
    """A cell whose CPUs can all be pinned. The threads of a core have consecutive
    numbers.

    :param memory: MiB, in pages of 4 KiB.
    """
    first = number * cores * threads
    cpus = list(range(first, first + cores * threads))
    siblings = [cpus[core : core + threads] for core in range(0, len(cpus), threads)]
    small = an_object(
        'NUMAPagesTopology', size_kb=4, total=memory * 256, used=0, reserved=0
    )
    usual = {
        'id': number,
        'cpuset': [],
        'pcpuset': cpus,
        'memory': memory,
        'memory_usage': 0,
        'cpu_usage': 0,
        'pinned_cpus': list(pinned),
        'socket': number // 2,
        'mempages': [small],
        'siblings': siblings,
    }
    return an_object('NUMACell', **{**usual, **fields})


def a_numa_topology(*cells, version=None):
    return json.dumps(an_object('NUMATopology', version, cells=list(cells)))


def some_devices(count, numa_node, **tags):
    """The text of ``pci_stats`` of a host with free devices near a host cell."""
    pools = []
    if count:
        pools.append(_a_pool(count, numa_node, **tags))
    return json.dumps(an_object('PciDevicePoolList', objects=pools))


PRODUCT = '10fb'


def reported_devices(cell_of, product_of=None):
    """The text of ``pci_stats`` of a host whose devices are reported in Placement.

    :param cell_of: the host cell of each device, by UUID of its resource provider.
    :param product_of: the product id of each device; by default the same for all.
    """
    pools = []
    for provider, cell in cell_of.items():
        product = product_of[provider] if product_of else PRODUCT
        pools.append(_a_pool(1, cell, product, rp_uuid=provider))
    return json.dumps(an_object('PciDevicePoolList', objects=pools))


def _a_pool(count, numa_node, product=PRODUCT, **tags):
    return an_object(
        'PciDevicePool',
        product_id=product,
        vendor_id='8086',
        numa_node=numa_node,
        count=count,
        tags={'dev_type': 'type-PCI', **tags},
    )
