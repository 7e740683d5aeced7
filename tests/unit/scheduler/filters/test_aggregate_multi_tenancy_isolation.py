# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.aggregate_multi_tenancy_isolation import (
    AggregateMultiTenancyIsolation,
)
from tests.lab.builders import a_host, a_request

NOT_HERE = 'for other projects than project'


@pytest.mark.parametrize(
    ('metadata', 'verdict'),
    [
        ([], None),
        ([{}], None),
        ([{'ssd': 'true'}], None),
        ([{'filter_tenant_id': 'project'}], None),
        ([{'filter_tenant_id': 'a, project'}], None),
        ([{'filter_tenant_id': 'a'}], NOT_HERE),
        ([{'filter_tenant_id': 'a'}, {'ssd': 'true'}], NOT_HERE),
        ([{'filter_tenant_id': 'a', 'filter_tenant_id2': 'project'}], None),
        ([{'filter_tenant_id': 'a'}, {'filter_tenant_id_more': 'project'}], None),
        ([{'filter_tenant_id_more': 'a'}], NOT_HERE),
        ([{'filter_tenant_id': ''}], NOT_HERE),
        ([{'my_filter_tenant_id': 'a'}], None),
    ],
)
def test_aggregates_name_their_projects(metadata, verdict):
    """A host whose aggregates name projects takes these alone."""
    host = a_host(metadata=metadata)
    assert AggregateMultiTenancyIsolation(Settings()).reject(host, a_request()) == verdict
