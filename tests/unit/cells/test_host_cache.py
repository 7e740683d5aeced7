# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from novasched.cells.host_cache import lowest_version


@pytest.mark.parametrize(
    ('versions', 'lowest'),
    [
        ([], 0),
        ([66], 66),
        ([67, 66], 66),
        ([None, 66], 66),
        ([' ', 66], 66),
        ([' '], 0),
    ],
)
def test_lowest_version(versions, lowest):
    """The lowest version of all services. A version that is no number does not
    count."""
    rows = [SimpleNamespace(version=version, forced_down=0) for version in versions]
    assert lowest_version(rows) == lowest


def test_a_service_that_is_forced_down():
    """A service that is forced down does not count, as in nova."""
    rows = [
        SimpleNamespace(version=61, forced_down=1),
        SimpleNamespace(version=66, forced_down=0),
    ]
    assert lowest_version(rows) == 66
