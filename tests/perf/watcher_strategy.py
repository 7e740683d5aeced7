# SPDX-License-Identifier: Apache-2.0
"""Watcher's consolidation of a described cloud, run by a Python that has python-watcher.

    python watcher_strategy.py < cloud.json

The strategy ``vm_workload_consolidation`` gets the sizes of hosts and servers, and no
measured load, so that a server counts with its flavor. Prints the seconds of processor
time, the number of moves and the number of hosts without servers, as JSON.
"""

import json
import logging
import sys
import time
import uuid

from watcher.decision_engine.model import element, model_root
from watcher.decision_engine.strategy.strategies.vm_workload_consolidation import (
    VMWorkloadConsolidation,
)

DISK_GB = 1_000_000
"""More disk than the servers of a host have."""
RATIOS = {'memory_ratio': 1.0, 'disk_ratio': 1.0}
PROJECT = str(uuid.UUID(int=1))


class NoMeasurements:
    """A datasource that has no measured value of any server or host."""

    def __getattr__(self, name):
        return lambda *arguments, **named: None


class Settings:
    """The configuration of the strategy, with defaults."""

    datasources = None


def model_of(cloud):
    """Watcher's model of a described cloud of equal hosts."""
    [kind] = cloud['hosts']
    model = model_root.ModelRoot()
    nodes = {}
    for number in range(kind['number']):
        name = f'{kind["name"]}-{number:05}'
        nodes[name] = element.ComputeNode(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
            hostname=name,
            status='enabled',
            state='up',
            memory=kind['memory_mb'],
            memory_mb_reserved=0,
            disk=DISK_GB,
            disk_gb_reserved=0,
            vcpus=kind['vcpus'],
            vcpu_reserved=0,
            vcpu_ratio=float(cloud['cpu_allocation_ratio']),
            **RATIOS,
        )
        model.add_node(nodes[name])

    for server in cloud['servers']:
        flavor = cloud['flavors'][server['flavor']]
        instance = element.Instance(
            uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, server['name'])),
            name=server['name'],
            state='active',
            memory=flavor['memory_mb'],
            disk=1,
            vcpus=flavor['vcpus'],
            metadata={},
            project_id=PROJECT,
            host=server['host'],
            watcher_exclude=False,
        )
        model.add_instance(instance)
        model.map_instance(instance, nodes[server['host']])
    return model


def main():
    """Run the strategy, and print the figures."""
    logging.disable(logging.CRITICAL)
    strategy = VMWorkloadConsolidation(Settings())
    model = model_of(json.load(sys.stdin))
    strategy._compute_model = model
    strategy._datasource_backend = NoMeasurements()
    strategy.input_parameters = {}

    began = time.process_time()
    strategy.do_execute()
    seconds = time.process_time() - began

    empty = 0
    for node in model.get_all_compute_nodes().values():
        empty += not model.get_node_instances(node)
    figures = {
        'seconds': seconds,
        'moves': strategy.number_of_migrations,
        'empty': empty,
    }
    print(json.dumps(figures))


if __name__ == '__main__':
    main()
