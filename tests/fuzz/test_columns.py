# SPDX-License-Identifier: Apache-2.0
"""Columns of the databases with any value.

A bad column of a host changes no other host, instances are placed on the other hosts,
and the log has at most one warning. Bad aggregates do not stop instances either.
"""

import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weights import weigh
from novasched.tools.sandbox import databases as tables
from tests.fuzz import mutation
from tests.fuzz.clouds import HOSTS, MAX_CHARACTER, MESSAGES, ODD_AGGREGATE, REPORT
from tests.fuzz.mutation import EFFORT, one_input
from tests.lab.builders import a_request, a_uuid
from tests.lab.logs import logged

ODD, *OTHERS = HOSTS
"""The columns of the first host are written; the rows of the host have the id 1."""
JSON = (
    'numa_topology',
    'pci_stats',
    'stats',
    'metrics',
    'supported_instances',
    'cpu_info',
)
COLUMNS = {
    'compute_nodes': (
        'vcpus',
        'vcpus_used',
        'memory_mb',
        'free_ram_mb',
        'local_gb',
        'local_gb_used',
        'free_disk_gb',
        'disk_available_least',
        'hypervisor_version',
        'cpu_allocation_ratio',
        'ram_allocation_ratio',
        'disk_allocation_ratio',
        'host',
        'hypervisor_hostname',
        'uuid',
        'hypervisor_type',
        'host_ip',
        *JSON,
    ),
    'services': ('host', 'disabled', 'disabled_reason', 'forced_down', 'version'),
    'instances': (
        'uuid',
        'host',
        'project_id',
        'instance_type_id',
        'vm_state',
        'task_state',
    ),
    'instance_system_metadata': ('key', 'value'),
}
PLACES = []
for table, columns in COLUMNS.items():
    PLACES += [(table, column) for column in columns]
OF_AGGREGATES = (
    ('aggregates', 'uuid'),
    ('aggregates', 'name'),
    ('aggregate_hosts', 'host'),
)
KEYS = (
    'availability_zone',
    'filter_tenant_id',
    'filter_tenant_id2',
    'instance_type',
    'e2e_ssd',
    'hw_cpu_policy',
    'max_io_ops_per_host',
    'max_instances_per_host',
    'cpu_allocation_ratio',
    'ram_allocation_ratio',
    'disk_allocation_ratio',
    'trait:CUSTOM_A',
    'trait:',
    'hw_numa_nodes',
    'ram_weight_multiplier',
    'cpu_weight_multiplier',
    'io_ops_weight_multiplier',
    'pci_weight_multiplier',
    'metrics_weight_multiplier',
    'soft_affinity_weight_multiplier',
    'build_failure_weight_multiplier',
    'image_props_weight_multiplier',
)
"""Metadata of aggregates for filters, weighers and prefilters."""


def can_be_stored(value):
    """True if SQLite stores the value unchanged in a column of any type, and MariaDB
    in a column of utf8mb3.

    SQLite stores neither surrogates nor integers of more than 64 bits, and stores NaN
    as null.
    """
    if isinstance(value, str):
        whole = value == value.encode(errors='replace').decode()
        return whole and (not value or max(value) <= MAX_CHARACTER)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value == value


texts = mutation.text.filter(can_be_stored)
scalars = (mutation.scalar | st.binary(max_size=8)).filter(can_be_stored)


@st.composite
def written(draw):
    """A table, a column and a value."""
    table, column = draw(st.sampled_from(PLACES))
    if column not in JSON or draw(st.integers(0, 3)) == 0:
        return table, column, draw(scalars)
    damaged = draw(mutation.mutated(json.loads(REPORT[column])))
    return table, column, mutation.dumped(damaged)


def servers_find_hosts(cloud):
    for case in ('boot', 'full'):
        answer = cloud.scheduler.answer(MESSAGES[case])
        assert isinstance(answer, list), answer


def check(cloud, table, column, value):
    """Instances find the other hosts, the other hosts are unchanged, and the weight of
    every host is a finite number."""
    before = cloud.scheduler.hosts.read(None, a_request()).hosts
    log = logged('nova.scheduler.host_manager', logging.WARNING)
    with cloud.written('cell1', table, column, value), log as records:
        after = cloud.scheduler.hosts.read(None, a_request()).hosts
        servers_find_hosts(cloud)
        hosts = list(after.values())
        weighers = list(map(Enabled, cloud.scheduler.weighers))
        weights = weigh(weighers, hosts, a_request())
        assert weights.shares
        for weight in weights.explained(range(len(hosts)), hosts):
            assert math.isfinite(weight.weight)
            for share in weight.shares:
                assert math.isfinite(share.normalised)
                assert math.isfinite(share.added)
        for uuid in map(a_uuid, OTHERS):
            assert after[uuid] == before[uuid]
        assert len(records) <= 1, records


@EFFORT
@given(where=written())
def test_any_value_in_a_column_changes_no_other_host(cloud, where):
    """A column with any value."""
    with one_input('columns'):
        check(cloud, *where)


@EFFORT
@given(
    metadata=st.dictionaries(
        st.sampled_from(KEYS) | texts,
        texts | mutation.number.filter(can_be_stored),
        max_size=4,
    )
)
def test_any_aggregate_metadata_does_not_stop_instances(cloud, metadata):
    """An aggregate with metadata of any kind."""
    check_metadata(cloud, metadata)


def check_metadata(cloud, metadata):
    """Instances find hosts beside an aggregate with the metadata."""
    table = tables.aggregate_metadata
    api = cloud.databases.api
    with one_input('columns'):
        with api.begin() as connection:
            connection.execute(
                table.delete().where(table.c.aggregate_id == ODD_AGGREGATE)
            )
        for key, value in metadata.items():
            cloud.databases.add(
                api, table, aggregate_id=ODD_AGGREGATE, key=key, value=value
            )
        servers_find_hosts(cloud)


@EFFORT
@given(where=st.sampled_from(OF_AGGREGATES), value=scalars)
def test_an_odd_column_of_an_aggregate_does_not_stop_instances(cloud, where, value):
    """An aggregate, or a member of an aggregate, without a name or with an odd name."""
    with one_input('columns'), cloud.written('api', *where, value, ODD_AGGREGATE):
        servers_find_hosts(cloud)


DEEP = '[' * 5000
FAR = 10**400
"""More than any number with a fraction."""
KEPT = {
    'A version below 0 was taken apart for ever': ('hypervisor_version', -1),
    'A number that is a text cannot be compared': ('vcpus', 'eight'),
    'A null where nova has none': ('free_ram_mb', None),
    'What is infinite leaves no order': ('cpu_allocation_ratio', float('inf')),
    'A ratio whose product is infinite': ('cpu_allocation_ratio', 1e308),
    'A host without a name': ('hypervisor_hostname', None),
    'JSON nested too deeply kept the whole cell from being read': ('stats', DEEP),
    'So did metrics': ('metrics', DEEP),
    'And what a filter reads by itself': ('cpu_info', DEEP),
    'So did the kinds of servers': ('supported_instances', DEEP),
    'A statistic beyond all numbers with a fraction': (
        'stats',
        json.dumps({'io_workload': FAR}),
    ),
    'A metric like that': (
        'metrics',
        json.dumps([{'name': 'cpu.percent', 'value': FAR}]),
    ),
    'A topology in bytes': ('numa_topology', b'\x00'),
    'Memory of a cell like that': (
        'numa_topology',
        REPORT['numa_topology'].replace('"memory": 16384', f'"memory": {FAR}'),
    ),
}
"""Values that caused an error before: a column of compute_nodes, and the value."""


@pytest.mark.parametrize(('column', 'value'), KEPT.values(), ids=KEPT)
def test_kept_column_values_change_no_other_host(cloud, column, value):
    """Values that caused an error before cause no error now."""
    with one_input('columns'):
        check(cloud, 'compute_nodes', column, value)


KEPT_METADATA = {
    'An infinite multiplier of 0 made a weight that no record holds': {
        'ram_weight_multiplier': 'inf'
    },
    'So did an infinite multiplier of any weight': {'cpu_weight_multiplier': '-inf'},
    'A multiplier that is called not a number': {'ram_weight_multiplier': 'nan'},
}
"""Metadata of an aggregate that caused an error before."""


@pytest.mark.parametrize('metadata', KEPT_METADATA.values(), ids=KEPT_METADATA)
def test_kept_aggregate_metadata_does_not_stop_instances(cloud, metadata):
    """Metadata that caused an error before cause no error now."""
    check_metadata(cloud, metadata)
