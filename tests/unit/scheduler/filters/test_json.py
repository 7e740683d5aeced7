# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.scheduler.filters.json import JsonFilter
from tests.lab.builders import a_host, a_request

FALSE = 'the query is not true'
HOST = a_host(ram=2048, instances=['a'], stats={'gpus': '2'}, hypervisor_type='QEMU')


def verdict(text, host=HOST):
    """The verdict of the filter on the text of a query."""
    plugin = JsonFilter(Settings())
    request = a_request(hints={'query': [text]})
    if plugin.applies(request):
        return plugin.reject(host, request)
    return None


TRUE = [
    ['=', '$free_ram_mb', 2048],
    ['=', '$free_ram_mb', 2048, 2048.0],
    ['=', '$host', 'host1'],
    ['<', '$vcpus_total', 9],
    ['<', 1, 2, 3],
    ['>', '$vcpus_total', 7],
    ['<=', '$vcpus_total', 8],
    ['>=', '$vcpus_total', 8],
    ['in', '$host', 'host1', 'host2'],
    ['=', '$stats.gpus', '2'],
    ['=', '$service.disabled', False],
    ['and', '$instances.a'],
    ['and'],
    ['and', []],
    ['and', ['>=', '$free_ram_mb', 1024], ['<', '$num_io_ops', 8]],
    ['or', ['>=', '$free_ram_mb', 4096], ['=', '$host', 'host1']],
    ['not', ['=', '$host', 'host2']],
    ['not', ['=', '$host', 'host1'], ['=', '$host', 'host2']],
    ['and', ['not', ['=', '$host', 'host1']]],
    [],
    {},
    None,
    '=aa',
    '<ab',
]
"""True queries. As in nova, ``not`` returns a list, which is true at the top if any
item is true, and a text is a list of letters."""
NOT_TRUE = [
    ['=', '$free_ram_mb', 2048, 1],
    ['<', '$vcpus_total', 8],
    ['<', 2, 3, 1],
    ['>', '$vcpus_total', 8],
    ['<=', '$vcpus_total', 7],
    ['>=', '$vcpus_total', 9],
    ['in', '$host', 'host2', 'host3'],
    ['=', '$stats.gpus', 2],
    ['<', '$stats.gpus', '10'],
    ['or', '$instances.b'],
    ['or'],
    ['and', ['>=', '$free_ram_mb', 1024], ['<', '$num_io_ops', 0]],
    ['or', ['>=', '$free_ram_mb', 4096], ['=', '$host', 'host2']],
    ['not', ['=', '$host', 'host1']],
    ['not'],
    '=ab',
]
MISSING = [
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
]
"""Comparisons with missing attributes. With fewer than two terms left, the answer is
false."""


@pytest.mark.parametrize('query', TRUE)
def test_a_true_query_accepts_the_host(query):
    assert verdict(json.dumps(query)) is None


@pytest.mark.parametrize('query', NOT_TRUE + MISSING)
def test_a_false_query_rejects_the_host(query):
    assert verdict(json.dumps(query)) == FALSE


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('[', 'Expecting value: line 1 column 2 (char 1)'),
        ('5', '5 does not start with an operator'),
        ('{"=": 1}', "{'=': 1} does not start with an operator"),
        ('"not"', "'n' is no operator"),
        ('["==", 1, 1]', "'==' is no operator"),
        ('[["="], 1, 1]', "[['='], 1, 1] does not start with"),
        ('["and", ["a", "b"]]', "'a' is no operator"),
        ('["<", "$host", 1]', "'<' not supported between"),
        ('["not", ["<", 2, 1, "a"]]', "'<' not supported between"),
        ('["=", "$host.name", 1]', "there is no 'name' in 'host1'"),
        ('[' * 9_000, ''),
        ('[' * 100_000, 'it has more than 10000 characters'),
        (f'["and"{", true" * 500}]', 'it has more than 500 terms'),
        (f'["and"{", [1, 2, 3]" * 130}]', 'it has more than 500 terms'),
        (f'"={"a" * 500}"', 'it has more than 500 terms'),
    ],
)
def test_the_reason_says_why_a_query_is_invalid(text, why):
    """The reason says what is wrong with the query."""
    assert verdict(text).startswith(f'the query cannot be answered: {why}')


def test_a_query_of_the_maximum_number_of_terms_is_answered():
    """A query of the maximum number of terms is answered."""
    assert verdict(f'["and"{", true" * 498}]') is None


def test_the_query_hint_takes_a_single_value():
    """The hint takes one query; an empty text is no query."""
    assert verdict('') is None
    why = JsonFilter(Settings()).reject(HOST, a_request(hints={'query': ['[]', '[]']}))
    assert why == 'the query cannot be answered: query takes one value, not 2'


OPERATORS = st.sampled_from(
    ['=', '<', '>', '<=', '>=', 'in', 'not', 'or', 'and', '==', '', None]
)
TERMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(
        [
            '$host',
            '$stats',
            '$stats.gpus',
            '$service',
            '$instances.a.uuid',
            '$metrics.x',
            '$free_ram_mb',
            '$.',
        ]
    )
)


def queries_of(terms):
    """Queries of an operator and up to four terms."""
    pairs = st.tuples(OPERATORS, st.lists(terms, max_size=4))
    return pairs.map(lambda pair: [pair[0], *pair[1]])


QUERIES = st.recursive(TERMS, queries_of)


@settings(deadline=None)
@given(st.builds(json.dumps, QUERIES) | st.text())
def test_any_query_has_a_verdict(text):
    """The filter accepts any text of the hint, or gives a reason in one line."""
    assert '\n' not in (verdict(text) or '')
