# SPDX-License-Identifier: Apache-2.0
"""Messages that services have sent, as bodies that name method, version and arguments; databases with
hosts for most of them, and a scheduler that reads these."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from novasched.rpc.wire.base import DATA
from novasched.tools.sandbox import databases as tables
from tests.fuzz.scheduler import Scheduler, an_offer
from tests.lab.builders import a_uuid
from tests.lab.nova_databases import NovaDatabases
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.wire import MADE, RECORDED

OLD = Path(__file__).parents[1] / 'lab' / 'messages' / 'old.jsonl'
HOSTS = ('e2e-cmp1', 'e2e-cmp2', 'e2e-cmp3', 'e2e-cmp4')
ZONE, CELL = 'e2e-az', 'c20426e3-05e3-4b70-9282-0679c58899f1'
"""What the messages name."""


def a_call(arguments: Any, version: str = '4.5') -> dict[str, Any]:
    return {'method': 'select_destinations', 'version': version, 'args': arguments}


def full(**extra_specs: str) -> Any:
    """Arguments that say something of everything, and yet find a host."""
    arguments = json.loads(json.dumps(MADE['everything']).replace('1515', '10fb'))
    arguments['instance_uuids'] = [a_uuid('one'), a_uuid('two')]
    arguments |= {'return_objects': True, 'return_alternates': True}
    spec = arguments['spec_obj'][DATA]
    spec['availability_zone'] = ZONE
    spec['requested_destination'][DATA] |= {'host': None, 'node': None, 'cell': None}
    spec['scheduler_hints'] = {
        'query': ['["or", [">=", "$free_ram_mb", 1024], ["=", "$stats.x", "$service.host"]]'],
        'different_host': [a_uuid('nobody')], 'build_near_host_ip': ['192.0.2.9'], 'cidr': ['/24'],
    }  # fmt: skip
    spec['instance_group'][DATA] |= {'hosts': [], 'policy': 'soft-affinity'}
    spec['pci_requests'][DATA]['requests'][0][DATA] |= {'count': 1, 'numa_policy': 'preferred'}
    spec['numa_topology'][DATA]['cells'][0][DATA]['pagesize'] = None
    spec['flavor'][DATA]['extra_specs'] = {
        'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-1', 'hw:cpu_thread_policy': 'prefer',
        'aggregate_instance_extra_specs:e2e_ssd': '<in> t', 'hw:maxphysaddr_bits': '40', 'capabilities:free_ram_mb': '>= 1',
        'capabilities:cpu_info:features': '<in> avx', 'trait2:CUSTOM_A': 'required', 'hw:pmem': 'a,b',
        'resources2:CUSTOM_B': '2', 'hw:tpm_version': '2.0', **extra_specs,
    }  # fmt: skip
    spec['image'][DATA]['properties'][DATA] |= {
        'img_hv_requested_version': '>=1', 'hw_maxphysaddr_bits': 40, 'hw_vif_model': 'virtio',
    }  # fmt: skip
    return arguments


def _messages() -> dict[str, Any]:
    sent = {case: body for case, body in RECORDED.items() if 'method' in body}
    made = {case: a_call(arguments) for case, arguments in {**MADE, 'full': full()}.items()}
    for row in map(json.loads, OLD.read_text().splitlines()):
        made[f'{row["from"]} {row["case"]}'] = a_call(row['arguments'], row['version'])
    found: dict[str, Any] = json.loads(json.dumps({**sent, **made}).replace(CELL, a_uuid('cell1')))
    return found


MESSAGES = _messages()
"""By what is asked or told."""

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
