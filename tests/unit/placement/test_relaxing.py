# SPDX-License-Identifier: Apache-2.0
from urllib.parse import parse_qsl

import pytest

from novasched.model.settings import Settings
from novasched.placement import query
from novasched.placement.relaxing import relaxed, whole
from tests.builders import a_request

TABLE = [
    ('resources=VCPU:1', []),
    ('resources=VCPU:4', [('resource', 'VCPU:4', '', {'resources': 'VCPU:1'})]),
    ('resources=DISK_GB:2,VCPU:1', [('resource', 'DISK_GB:2', '', {'resources': 'VCPU:1'}), ('resource', 'VCPU:1', '', {'resources': 'DISK_GB:2'})]),
    ('resources=VCPU:1&required=A,!B', [('trait', 'A', '', {'required': '!B'}), ('trait', '!B', '', {'required': 'A'})]),
    ('resources=VCPU:1&root_required=A', [('trait', 'A', '', {'root_required': None})]),
    ('resources=VCPU:1&member_of=in:x,y&member_of=!in:z', [('aggregates', 'in:x,y', '', {'member_of': '!in:z'}), ('aggregates', '!in:z', '', {'member_of': 'in:x,y'})]),
    ('resources=VCPU:1&in_tree=host', [('host', 'host', '', {'in_tree': None})]),
    ('resources=VCPU:1&resources_net=CUSTOM_X:1&required_net=A&group_policy=none', [('trait', 'A', '_net', {'required_net': None}), ('group_policy', 'none', '', {'group_policy': None})]),
    ('resources=VCPU:1&same_subtree=_a,_b', [('same_subtree', '_a,_b', '', {'same_subtree': None})]),
]  # fmt: skip


@pytest.mark.parametrize(('string', 'found'), TABLE)
def test_one_constraint_less(string, found):
    """Each query lacks one constraint, keeps the others, and asks for one candidate."""
    before = parse_qsl(string)
    for each, (kind, value, group, changed) in zip(relaxed(string), found, strict=True):
        assert (each.kind, each.value, each.group) == (kind, value, group)
        ((name, left),) = changed.items()
        others = [pair for pair in before if pair[0] != name]
        kept = [(name, left)] if left else []
        assert parse_qsl(each.string) == sorted([*others, *kept, ('limit', '1')])


def test_of_a_real_query():
    """The limit of the daemon gives way to one, and what tells most comes first."""
    string = query.build(a_request(extra_specs={'trait:CUSTOM_A': 'required'}), Settings()).string
    assert 'limit=1000' in string
    assert whole(string).count('limit=1') == 1
    assert 'limit=1000' not in whole(string)
    assert [each.value for each in relaxed(string)] == [
        'CUSTOM_A',
        'DISK_GB:1',
        'MEMORY_MB:512',
        'VCPU:1',
    ]
