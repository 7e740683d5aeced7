# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.different_host import DifferentHostFilter
from novasched.model.settings import Settings
from tests.builders import a_host, a_request


@pytest.mark.parametrize(
    ('hint', 'applies', 'verdict'),
    [
        ([], False, None),
        (['c'], True, None),
        (['a'], True, 'has a'),
        (['c', 'b', 'a'], True, 'has a, b'),
    ],
)
def test_none_of_the_servers_is_there(hint, applies, verdict):
    """A host fails with any of the servers that the hint names."""
    request = a_request(hints={'different_host': hint})
    each = DifferentHostFilter(Settings())
    assert each.applies(request) is applies
    assert each.reject(a_host(instances=['a', 'b']), request) == verdict
