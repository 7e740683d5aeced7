# SPDX-License-Identifier: Apache-2.0
"""Columns of the databases: whatever stands in one of a host's, the other hosts are there as
before, servers find them, and the log says no more than once what is wrong."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.weights import normalised
from tests.fuzz import mutation, stored
from tests.fuzz.bounds import EFFORT, one_input
from tests.fuzz.clouds import REPORT, Cloud
from tests.fuzz.messages import HOSTS, MESSAGES
from tests.lab.builders import a_request, a_uuid

ODD, *OTHERS = HOSTS
"""The first host is that whose columns are written to; its rows have the id 1."""
JSON = ('numa_topology', 'pci_stats', 'stats', 'metrics', 'supported_instances', 'cpu_info')
COLUMNS = {
    'compute_nodes': (
        'vcpus', 'vcpus_used', 'memory_mb', 'free_ram_mb', 'local_gb', 'local_gb_used', 'free_disk_gb',
        'disk_available_least', 'hypervisor_version', 'cpu_allocation_ratio', 'ram_allocation_ratio',
        'disk_allocation_ratio', 'host', 'hypervisor_hostname', 'uuid', 'hypervisor_type', 'host_ip', *JSON,
    ),
    'services': ('host', 'disabled', 'disabled_reason', 'forced_down', 'version'),
    'instances': ('uuid', 'host', 'project_id', 'instance_type_id', 'vm_state', 'task_state'),
    'instance_system_metadata': ('key', 'value'),
}  # fmt: skip
PLACES = [(table, column) for table, columns in COLUMNS.items() for column in columns]
WARNINGS = 'nova.scheduler.host_manager'


class Warnings(logging.Handler):
    """Keeps what is said of the host."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def warnings() -> Iterator[list[str]]:
    """What the log warns of meanwhile, of hosts."""
    handler = Warnings()
    logging.getLogger(WARNINGS).addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.getLogger(WARNINGS).removeHandler(handler)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str, Any]:
    """A table, a column and what is to stand there."""
    table, column = draw(st.sampled_from(PLACES))
    if column not in JSON or draw(st.integers(0, 3)) == 0:
        return table, column, draw(stored.scalar)
    damaged = draw(mutation.mutated(json.loads(REPORT[column])))
    return table, column, mutation.dumped(damaged)


def check(cloud: Cloud, table: str, column: str, value: Any) -> None:
    """Servers find the other hosts, which nothing is wrong with, and every host weighs
    something."""
    before = cloud.scheduler.hosts.read(None, a_request(), instances=False).hosts
    with cloud.written('cell1', table, column, value), warnings() as told:
        after = cloud.scheduler.hosts.read(None, a_request(), instances=False).hosts
        for case in ('boot', 'full'):
            answer = cloud.scheduler.answer(MESSAGES[case])
            assert isinstance(answer, list), answer
        for weigher in cloud.scheduler.weighers:
            raw = weigher.weigh_all(list(after.values()), a_request())
            assert all(map(math.isfinite, normalised(raw, weigher.minval, weigher.maxval)))
        for uuid in map(a_uuid, OTHERS):
            assert after[uuid] == before[uuid]
        assert len(told) <= 1, told


@EFFORT
@given(where=written())
def test_one_column(cloud: Cloud, where: tuple[str, str, Any]) -> None:
    """A column in which anything stands."""
    with one_input('columns'):
        check(cloud, *where)


DEEP = '[' * 5000
FAR = 10**400
"""More than any number with a fraction."""
KEPT = {
    'A version below 0 was taken apart for ever': ('hypervisor_version', -1),
    'A number that is a text cannot be compared': ('vcpus', 'eight'),
    'A null where nova has none': ('free_ram_mb', None),
    'What is infinite leaves no order': ('cpu_allocation_ratio', float('inf')),
    'A host without a name': ('hypervisor_hostname', None),
    'JSON nested too deeply kept the whole cell from being read': ('stats', DEEP),
    'So did metrics': ('metrics', DEEP),
    'And what a filter reads by itself': ('cpu_info', DEEP),
    'So did the kinds of servers': ('supported_instances', DEEP),
    'A statistic beyond all numbers with a fraction': ('stats', json.dumps({'io_workload': FAR})),
    'A metric like that': ('metrics', json.dumps([{'name': 'cpu.percent', 'value': FAR}])),
    'Memory of a cell like that': (
        'numa_topology', REPORT['numa_topology'].replace('"memory": 16384', f'"memory": {FAR}'),
    ),
}  # fmt: skip
"""What was found: a column of compute_nodes, and what stood in it."""


@pytest.mark.parametrize(('column', 'value'), KEPT.values(), ids=KEPT)
def test_kept(cloud: Cloud, column: str, value: Any) -> None:
    """What has once gone wrong goes right."""
    with one_input('columns'):
        check(cloud, 'compute_nodes', column, value)
