# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.retry import RetryFilter
from novasched.scheduler.model.request import Retry
from tests.lab.builders import a_host, a_request


@pytest.mark.parametrize(
    ('retry', 'applies', 'verdict'),
    [
        (None, False, None),
        (Retry(), False, None),
        (Retry(2, (('host1', 'node1'),)), True, 'was tried before'),
        (Retry(3, (('host2', 'node2'), ('host1', 'node1'))), True, 'was tried before'),
        (Retry(2, (('host1', 'node2'),)), True, None),
        (Retry(2, (('host1', None),)), True, None),
    ],
)
def test_a_node_is_tried_once(retry, applies, verdict):
    """A node fails on which the build failed, not the others of its host."""
    request, each = a_request(retry=retry), RetryFilter(Settings())
    assert each.applies(request) is applies
    assert each.reject(a_host('host1', nodename='node1'), request) == verdict
