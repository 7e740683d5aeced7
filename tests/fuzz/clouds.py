# SPDX-License-Identifier: Apache-2.0
"""Databases with hosts for most messages, and a scheduler that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from novasched.tools.sandbox import databases as tables
from tests.fuzz.messages import HOSTS, ZONE
from tests.fuzz.scheduler import Scheduler, an_offer
from tests.lab.builders import a_uuid
from tests.lab.nova_databases import NovaDatabases
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices

SERVER = a_uuid('there')
"""Is on each host, by its name."""
ODD_AGGREGATE = 100
"""The number of an aggregate in which the first host is, and of its membership there."""
KINDS = [['x86_64', 'kvm', 'hvm'], ['i686', 'fake', 'hvm']]
METRICS = [{'name': name, 'value': 1} for name in ('cpu.percent', 'x')]
CPU = {'features': ['avx', 'avx2'], 'maxphysaddr': {'mode': 'emulate', 'bits': 46}}
TOPOLOGY = a_numa_topology(
    a_numa_cell(0, cpuset=[0, 1], pcpuset=[2, 3, 4, 5, 6, 7]),
    a_numa_cell(1, cpuset=[8, 9], pcpuset=[10, 11, 12, 13, 14, 15]),
)
REPORT = {
    'memory_mb': 10**6, 'free_ram_mb': 10**6, 'vcpus': 1000, 'local_gb': 10**6, 'free_disk_gb': 10**6,
    'disk_available_least': 10**6, 'hypervisor_version': 8002002, 'host_ip': '192.0.2.1',
    'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.5, 'disk_allocation_ratio': 1.0,
    'numa_topology': TOPOLOGY, 'pci_stats': some_devices(5, 0), 'cpu_info': json.dumps(CPU),
    'supported_instances': json.dumps(KINDS), 'metrics': json.dumps(METRICS),
    'stats': json.dumps({'num_instances': 1, 'io_workload': '0', 'failed_builds': '0', 'x': 'y'}),
}  # fmt: skip
"""What each host reports."""


class Cloud:
    """Four hosts in two cells, a server on each, and an aggregate."""

    def __init__(self, folder: Path) -> None:
        self.databases = NovaDatabases(lambda name: f'sqlite:///{folder}/{name}')
        for name, cell in zip(HOSTS, ('cell1', 'cell1', 'cell2', 'cell2'), strict=True):
            self.databases.add_host(name, cell, **REPORT)
            engine = self.databases.engines[cell]
            uuid = a_uuid(f'{SERVER}{name}')
            self.databases.add(
                engine, tables.instances, uuid=uuid, host=name, instance_type_id=7, deleted=0
            )
            for key, value in (('hw_cpu_policy', 'shared'), ('hw_numa_nodes', '2')):
                self.databases.add(
                    engine, tables.instance_system_metadata, instance_uuid=uuid, key=f'image_{key}', value=value, deleted=0
                )  # fmt: skip
        self.databases.add_aggregate(1, HOSTS, availability_zone=ZONE, e2e_ssd='true')
        self.databases.add(
            self.databases.api, tables.aggregate_hosts, id=99, aggregate_id=99, host=''
        )
        self.databases.add_aggregate(ODD_AGGREGATE, HOSTS[:1])
        self.scheduler = Scheduler(self.databases, an_offer(*map(a_uuid, HOSTS)))

    def close(self) -> None:
        self.scheduler.close()
        self.databases.close()

    @contextmanager
    def written(
        self, base: str, table: str, column: str, value: Any, number: int = 1
    ) -> Iterator[None]:
        """A value in a row, of any type, which SQLite takes, unless it is a null that cannot be
        there."""
        engine = self.databases.api if base == 'api' else self.databases.engines[base]
        update = f'update {table} set {column} = ? where id = ?'
        with engine.connect() as connection:
            select = f'select {column} from {table} where id = ?'
            (before,) = connection.exec_driver_sql(select, (number,)).one()
        with suppress(sa.exc.IntegrityError), engine.begin() as connection:
            connection.exec_driver_sql(update, (value, number))
        try:
            yield
        finally:
            with engine.begin() as connection:
                connection.exec_driver_sql(update, (before, number))
