# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.weighers.affinity import (
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)
from tests.lab.builders import a_group, a_host, a_request

SOFT, ANTI = ServerGroupSoftAffinityWeigher, ServerGroupSoftAntiAffinityWeigher


@pytest.mark.parametrize(
    ('weigher', 'policy', 'servers', 'weight'),
    [
        (SOFT, 'soft-affinity', ['a', 'b', 'x'], 2),
        (SOFT, 'soft-affinity', [], 0),
        (ANTI, 'soft-anti-affinity', ['a', 'b', 'x'], -2),
        (ANTI, 'soft-anti-affinity', ['x'], 0),
    ],
)
def test_members_on_a_host(weigher, policy, servers, weight):
    """Only servers of the request's own group count, for it or against it."""
    request = a_request(group=a_group(policy, ['a', 'b', 'c']))
    assert weigher(Settings()).weigh(a_host(instances=servers), request) == weight


@pytest.mark.parametrize(
    ('weigher', 'group', 'applies'),
    [
        (SOFT, None, False),
        (SOFT, a_group('soft-affinity', ['a']), True),
        (SOFT, a_group('soft-affinity'), False),
        (SOFT, a_group('soft-anti-affinity', ['a']), False),
        (ANTI, a_group('soft-anti-affinity', ['a']), True),
        (ANTI, a_group('anti-affinity', ['a']), False),
    ],
)
def test_which_groups_apply(weigher, group, applies):
    """Each weigher serves one policy, and groups that have members."""
    assert weigher(Settings()).applies(a_request(group=group)) == applies
