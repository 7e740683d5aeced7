# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.affinity import (
    DifferentHostFilter,
    SameHostFilter,
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from tests.lab.builders import a_group, a_host, a_request, a_uuid

GROUP = a_uuid('group')


@pytest.mark.parametrize(
    ('on_host', 'members', 'rules', 'verdict'),
    [
        ([], ['a', 'b'], {}, None),
        (['x'], ['a', 'b'], {}, None),
        (['a'], ['a', 'b'], {}, f'1 servers of group {GROUP}, limit 1'),
        (['a'], ['a', 'b'], {'max_server_per_host': '2'}, None),
        (['a', 'b'], ['a', 'b'], {'max_server_per_host': '2'}, f'2 servers of group {GROUP}, limit 2'),
        ([], ['a'], {'max_server_per_host': 'few'}, f"group {GROUP} has 'few' for max_server_per_host, which is no whole number"),
        ([], ['a'], {'max_server_per_host': '1.5'}, f"group {GROUP} has '1.5' for max_server_per_host, which is no whole number"),
        ([a_uuid('server0'), 'a'], ['a', a_uuid('server0')], {}, None),
    ],
)  # fmt: skip
def test_anti_affinity(on_host, members, rules, verdict):
    """A host takes so many members as the rule says; a server may stay where it is."""
    request = a_request(group=a_group('anti-affinity', members, rules=rules))
    each = ServerGroupAntiAffinityFilter(Settings())
    assert each.applies(request)
    assert each.reject(a_host(instances=on_host), request) == verdict


@pytest.mark.parametrize(
    ('hosts', 'applies', 'verdict'),
    [
        ([], False, f'group {GROUP} is on '),
        (['host1'], True, None),
        (['host2', 'host1'], True, None),
        (['host3', 'host2'], True, f'group {GROUP} is on host2, host3'),
    ],
)
def test_affinity(hosts, applies, verdict):
    """Once the group is somewhere, its servers go there."""
    request = a_request(group=a_group('affinity', hosts=frozenset(hosts)))
    each = ServerGroupAffinityFilter(Settings())
    assert each.applies(request) is applies
    assert each.reject(a_host(), request) == verdict


@pytest.mark.parametrize('group', [None, a_group('soft-affinity'), a_group('soft-anti-affinity')])
@pytest.mark.parametrize('each', [ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter])
def test_other_policies_are_left_alone(each, group):
    """No group, or a soft policy, is none of a filter's business."""
    assert not each(Settings()).applies(a_request(group=group))


@pytest.mark.parametrize(
    ('kind', 'hint', 'values', 'applies', 'verdict'),
    [
        (DifferentHostFilter, 'different_host', [], False, None),
        (DifferentHostFilter, 'different_host', ['c'], True, None),
        (DifferentHostFilter, 'different_host', ['a'], True, 'has a'),
        (DifferentHostFilter, 'different_host', ['c', 'b', 'a'], True, 'has a, b'),
        (SameHostFilter, 'same_host', [], False, 'has none of '),
        (SameHostFilter, 'same_host', ['a'], True, None),
        (SameHostFilter, 'same_host', ['c'], True, 'has none of c'),
        (SameHostFilter, 'same_host', ['c', 'b'], True, None),
        (SameHostFilter, 'same_host', ['c', 'd'], True, 'has none of c, d'),
    ],
)
def test_instances_that_a_hint_names(kind, hint, values, applies, verdict):
    """A host fails with any of the instances to keep away from, and passes with any to be with."""
    request = a_request(hints={hint: values})
    each = kind(Settings())
    assert each.applies(request) is applies
    assert each.reject(a_host(instances=['a', 'b']), request) == verdict
