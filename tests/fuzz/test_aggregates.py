# SPDX-License-Identifier: Apache-2.0
"""Aggregates: whatever one of them says, servers find the hosts outside."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from novasched.tools.sandbox.databases import aggregate_metadata
from tests.fuzz import stored
from tests.fuzz.bounds import EFFORT, one_input
from tests.fuzz.clouds import ODD_AGGREGATE, Cloud
from tests.fuzz.messages import MESSAGES

KEYS = (
    'availability_zone', 'filter_tenant_id', 'filter_tenant_id2', 'instance_type', 'e2e_ssd', 'hw_cpu_policy',
    'max_io_ops_per_host', 'max_instances_per_host', 'cpu_allocation_ratio', 'ram_allocation_ratio',
    'disk_allocation_ratio', 'trait:CUSTOM_A', 'trait:', 'hw_numa_nodes', 'ram_weight_multiplier',
    'cpu_weight_multiplier', 'io_ops_weight_multiplier', 'pci_weight_multiplier', 'metrics_weight_multiplier',
    'soft_affinity_weight_multiplier', 'build_failure_weight_multiplier', 'image_props_weight_multiplier',
)  # fmt: skip
"""What filters, weighers and prefilters look at."""
COLUMNS = (('aggregates', 'uuid'), ('aggregates', 'name'), ('aggregate_hosts', 'host'))
values = stored.text | stored.number


def check(cloud: Cloud, metadata: dict[str, Any]) -> None:
    """Servers find hosts."""
    rows = [{'aggregate_id': ODD_AGGREGATE, 'key': k, 'value': v} for k, v in metadata.items()]
    with cloud.databases.api.begin() as connection:
        old = aggregate_metadata.c.aggregate_id == ODD_AGGREGATE
        connection.execute(aggregate_metadata.delete().where(old))
        for row in rows:
            connection.execute(aggregate_metadata.insert().values(row))
    for case in ('boot', 'full'):
        answer = cloud.scheduler.answer(MESSAGES[case])
        assert isinstance(answer, list), answer


@EFFORT
@given(metadata=st.dictionaries(st.sampled_from(KEYS) | stored.text, values, max_size=4))
def test_metadata(cloud: Cloud, metadata: dict[str, Any]) -> None:
    """Metadata of any kind."""
    with one_input('aggregates'):
        check(cloud, metadata)


@EFFORT
@given(where=st.sampled_from(COLUMNS), value=stored.scalar)
def test_columns(cloud: Cloud, where: tuple[str, str], value: Any) -> None:
    """An aggregate, or a member of one, without a name or with an odd one."""
    with one_input('aggregates'), cloud.written('api', *where, value, ODD_AGGREGATE):
        check(cloud, {})
