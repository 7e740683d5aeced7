# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.io_ops import AggregateIoOpsFilter, IoOpsFilter
from tests.lab.builders import a_host, a_request

SETTINGS = Settings(max_io_ops_per_host=8)


@pytest.mark.parametrize(
    ('kind', 'metadata', 'operations', 'verdict'),
    [
        (IoOpsFilter, {}, 7, None),
        (IoOpsFilter, {}, 8, '8 I/O operations, limit 8'),
        (IoOpsFilter, {'max_io_ops_per_host': '9'}, 8, '8 I/O operations, limit 8'),
        (AggregateIoOpsFilter, {}, 8, '8 I/O operations, limit 8'),
        (AggregateIoOpsFilter, {'max_io_ops_per_host': '9'}, 8, None),
        (AggregateIoOpsFilter, {'max_io_ops_per_host': '1'}, 1, '1 I/O operations, limit 1'),
        (AggregateIoOpsFilter, {'max_io_ops_per_host': 'many'}, 7, None),
    ],
)
def test_limit(kind, metadata, operations, verdict):
    """A host takes no more operations than the option, or its aggregates, allow."""
    host = a_host(num_io_ops=operations, metadata=metadata)
    assert kind(SETTINGS).reject(host, a_request()) == verdict
