# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.scheduler.filters.json import JsonFilter
from tests.lab.builders import a_host, a_request

FALSE = 'the query is not true'
HOST = a_host(
    ram=2048, vcpus=8, instances=['a'], stats={'gpus': '2'}, hypervisor_type='QEMU'
)  # fmt: skip


def verdict(text, host=HOST):
    """What the filter says of a query's text."""
    each, request = JsonFilter(Settings()), a_request(hints={'query': [text]})
    return each.reject(host, request) if each.applies(request) else None


@pytest.mark.parametrize(
    ('query', 'holds'),
    [
        (['=', '$free_ram_mb', 2048], True),
        (['=', '$free_ram_mb', 2048, 2048.0], True),
        (['=', '$free_ram_mb', 2048, 1], False),
        (['=', '$hypervisor_type', 'QEMU'], True),
        (['<', '$vcpus_total', 9], True),
        (['<', '$vcpus_total', 8], False),
        (['>', '$vcpus_total', 7], True),
        (['>', '$vcpus_total', 8], False),
        (['<=', '$vcpus_total', 8], True),
        (['<=', '$vcpus_total', 7], False),
        (['>=', '$vcpus_total', 8], True),
        (['>=', '$vcpus_total', 9], False),
        (['<', 1, 2, 3], True),
        (['<', 2, 3, 1], False),
        (['in', '$host', 'host1', 'host2'], True),
        (['in', '$host', 'host2', 'host3'], False),
        (['and', ['>=', '$free_ram_mb', 1024], ['<', '$num_io_ops', 8]], True),
        (['and', ['>=', '$free_ram_mb', 1024], ['<', '$num_io_ops', 0]], False),
        (['and'], True),
        (['or', ['>=', '$free_ram_mb', 4096], ['=', '$host', 'host1']], True),
        (['or', ['>=', '$free_ram_mb', 4096], ['=', '$host', 'host2']], False),
        (['or'], False),
        (['not', ['=', '$host', 'host2']], True),
        (['not', ['=', '$host', 'host1']], False),
        (['not', ['=', '$host', 'host1'], ['=', '$host', 'host2']], True),
        (['not'], False),
        (['and', ['not', ['=', '$host', 'host1']]], True),
        (['=', '$stats.gpus', '2'], True),
        (['=', '$stats.gpus', 2], False),
        (['<', '$stats.gpus', '10'], False),
        (['=', '$service.disabled', False], True),
        (['and', '$instances.a'], True),
        (['or', '$instances.b'], False),
        ([], True),
        ({}, True),
        (None, True),
        (['and', []], True),
    ],
)  # fmt: skip
def test_operators(query, holds):
    """Each operator on its terms; ``not`` gives a list, of which any will do at the top."""
    assert verdict(json.dumps(query)) == (None if holds else FALSE)


@pytest.mark.parametrize(
    'query',
    [
        ['=', 8],
        ['=', 8, None],
        ['=', 8, ''],
        ['=', 8, '$'],
        ['=', 8, '$nothing'],
        ['=', 8, '$key'],
        ['=', 8, '$stats.nothing'],
        ['=', 8, '$stats.nothing.more'],
        ['=', False, '$service.nothing'],
        ['in', 8],
    ],
)
def test_what_is_not_there_is_left_out(query):
    """A comparison with fewer than two terms left is false."""
    assert verdict(json.dumps(query)) == FALSE


@pytest.mark.parametrize(('text', 'holds'), [('"=aa"', True), ('"=ab"', False), ('"<ab"', True)])
def test_a_text_is_a_list_of_letters(text, holds):
    """As nova has it."""
    assert verdict(text) == (None if holds else FALSE)


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('', None),
        ('[', 'the query cannot be answered: Expecting value'),
        ('5', 'the query cannot be answered: 5 does not start with an operator'),
        ('{"=": 1}', "the query cannot be answered: {'=': 1} does not start with an operator"),
        ('"not"', "the query cannot be answered: 'n' is no operator"),
        ('["==", 1, 1]', "the query cannot be answered: '==' is no operator"),
        ('[["="], 1, 1]', "the query cannot be answered: [['='], 1, 1] does not start with"),
        ('["and", ["a", "b"]]', "the query cannot be answered: 'a' is no operator"),
        ('["<", "$host", 1]', "the query cannot be answered: '<' not supported between"),
        ('["not", ["<", 2, 1, "a"]]', "the query cannot be answered: '<' not supported between"),
        ('["<", "$stats.gpus", 3]', "the query cannot be answered: '<' not supported between"),
        ('["=", "$host.name", 1]', "the query cannot be answered: there is no 'name' in 'host1'"),
        ('[' * 100_000, 'the query cannot be answered: '),
    ],
)
def test_what_cannot_be_answered(text, why):
    """A host is rejected with what is wrong with the query; an empty text is none."""
    if why is None:
        assert verdict(text) is None
    else:
        assert verdict(text).startswith(why)


def test_two_queries():
    """The hint takes one."""
    why = JsonFilter(Settings()).reject(HOST, a_request(hints={'query': ['[]', '[]']}))
    assert why == 'the query cannot be answered: query takes one value, not 2'


OPERATORS = st.sampled_from(['=', '<', '>', '<=', '>=', 'in', 'not', 'or', 'and', '==', '', None])
TERMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(
    ['$host', '$stats', '$stats.gpus', '$service', '$instances.a.uuid', '$metrics.x', '$free_ram_mb', '$.']
)  # fmt: skip
QUERIES = st.recursive(
    TERMS, lambda each: st.tuples(OPERATORS, st.lists(each, max_size=4)).map(lambda x: [x[0], *x[1]])
)  # fmt: skip


@given(st.builds(json.dumps, QUERIES) | st.text())
def test_any_query_has_a_verdict(text):
    """Whatever stands in the hint, the filter accepts or says why not, in one line."""
    assert '\n' not in (verdict(text) or '')
