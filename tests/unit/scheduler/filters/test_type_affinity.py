# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.type_affinity import TypeAffinityFilter
from novasched.scheduler.model.host import Instance
from tests.lab.builders import a_flavor, a_host, a_request


@pytest.mark.parametrize(
    ('flavors', 'verdict'),
    [
        ([], None),
        ([1, 1], None),
        ([1, 2], 'has servers of 1 other flavors'),
        ([2, 3, 3], 'has servers of 2 other flavors'),
    ],
)
def test_one_flavor_on_a_host(flavors, verdict):
    """A host is empty or has servers of the wanted flavor alone."""
    servers = {f'{i}': Instance(f'{i}', None, flavor) for i, flavor in enumerate(flavors)}
    host = replace(a_host(), instances=servers)
    request = a_request(flavor=a_flavor(id=1))
    assert TypeAffinityFilter(Settings()).reject(host, request) == verdict
