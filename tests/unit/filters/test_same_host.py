# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.same_host import SameHostFilter
from novasched.model.settings import Settings
from tests.builders import a_host, a_request


@pytest.mark.parametrize(
    ('hint', 'applies', 'verdict'),
    [
        ([], False, 'has none of '),
        (['a'], True, None),
        (['c'], True, 'has none of c'),
        (['c', 'b'], True, None),
        (['c', 'd'], True, 'has none of c, d'),
    ],
)
def test_one_of_the_servers_is_there(hint, applies, verdict):
    """A host passes with any of the servers that the hint names."""
    request = a_request(hints={'same_host': hint})
    each = SameHostFilter(Settings())
    assert each.applies(request) is applies
    assert each.reject(a_host(instances=['a', 'b']), request) == verdict
