# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.type_affinity import AggregateTypeAffinityFilter
from tests.lab.builders import a_flavor, a_host, a_request


@pytest.mark.parametrize(
    ('metadata', 'verdict'),
    [
        ([], None),
        ([{'ssd': 'true'}], None),
        ([{'instance_type': 'm1.small'}], None),
        ([{'instance_type': 'm1.large, m1.small'}], None),
        ([{'instance_type': 'm1.large'}], 'for flavors m1.large'),
        ([{'instance_type': 'm1.large'}, {'instance_type': 'm1.small'}], None),
        ([{'instance_type': 'm1.large'}, {'instance_type': 'm1.big'}], 'for flavors m1.big, m1.large'),
    ],
)  # fmt: skip
def test_aggregates_name_their_flavors(metadata, verdict):
    """A host whose aggregates name flavors takes these alone."""
    request = a_request(flavor=a_flavor(name='m1.small'))
    host = a_host(metadata=metadata)
    assert AggregateTypeAffinityFilter(Settings()).reject(host, request) == verdict
