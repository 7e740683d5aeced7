# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.observe.page.query import (
    BadQuery,
    DecisionQuery,
    DecisionsQuery,
    HostsQuery,
    PageQuery,
    is_local,
    link,
    parse,
)  # fmt: skip


@pytest.mark.parametrize(
    ('kind', 'query', 'wanted'),
    [
        (HostsQuery, '', HostsQuery()),
        (HostsQuery, 'page=1e3', HostsQuery(page=1000)),
        (
            HostsQuery,
            'show=disk&by=zone&page=2',
            HostsQuery(show='disk', by='zone', page=2),
        ),
        (HostsQuery, 'name=&show=&state=&page=', HostsQuery()),
        (HostsQuery, 'within=az+1%C3%A9', HostsQuery(within='az 1é')),
        (HostsQuery, 'name=%3Cb%3E', HostsQuery(name='<b>')),
        (DecisionsQuery, 'q=++req-1++', DecisionsQuery(q='req-1')),
        (DecisionQuery, 'host=a', DecisionQuery(host='a')),
        (PageQuery, '', PageQuery()),
    ],
)
def test_queries_are_parsed_with_defaults_for_empty_parameters(kind, query, wanted):
    """Empty parameters have their defaults, and texts are taken as typed."""
    assert parse(kind, query) == wanted


BAD = {
    HostsQuery: [
        'show=<script>',
        'show=RAM',
        'nothing=1',
        'nothing=',
        'page=0',
        'page=-1',
        'page=10000',
        'page=%D9%A3',
        'name=a&name=b',
        'name=a%00',
        'name=a%0D%0Ab',
        'name=%FF',
        'name=' + 'a' * 256,
        '&'.join(f'name{i}=1' for i in range(40)),
    ],
    DecisionsQuery: ['q=' + 'a' * 3000],
    DecisionQuery: ['q=a'],
    PageQuery: ['a=b'],
}


def bad_queries():
    for kind, queries in BAD.items():
        for query in queries:
            yield kind, query


@pytest.mark.parametrize(('kind', 'query'), [*bad_queries()])
def test_a_refusal_of_a_bad_query_does_not_repeat_the_query(kind, query):
    """The refusal of a bad query is a line without any part of the query."""
    with pytest.raises(BadQuery) as refused:
        parse(kind, query)
    assert refused.value.status == '400 Bad Request'
    assert '\n' not in str(refused.value)
    assert 'script' not in str(refused.value)


@pytest.mark.parametrize(
    ('wanted', 'changes', 'query'),
    [
        (HostsQuery(), {}, '?'),
        (HostsQuery(show='disk', page=4), {'by': 'zone'}, '?show=disk&by=zone'),
        (HostsQuery(show='disk', page=4), {'page': 5}, '?show=disk&page=5'),
        (HostsQuery(), {'within': 'a&b="<'}, '?within=a%26b%3D%22%3C'),
        (DecisionsQuery(q='x'), {'page': 2}, '?q=x&page=2'),
    ],
)
def test_a_link_has_the_parameters_that_differ_from_the_first_page(
    wanted, changes, query
):
    """A link has the parameters that differ from the first page. A changed choice
    begins at page one."""
    assert link(wanted, **changes) == query


OURS = [
    '',
    'localhost',
    'localhost:9100',
    'LOCALHOST:9100',
    '127.0.0.1:9100',
    '[::1]:9100',
]
OTHERS = [
    'evil.example.org', 'evil.example.org:9100', 'localhost.evil.example.org',
    'localhost@evil.example.org', '10.0.0.1', '[', '\x00',
]  # fmt: skip


def test_a_local_request_has_a_local_peer_and_a_local_host_header():
    """A local request comes from the same machine, under a name that no web site can
    claim."""
    for peer in ('127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'):
        for host in OURS:
            assert is_local(peer, host)
        for host in OTHERS:
            assert not is_local(peer, host)

    for peer in ('::ffff:10.0.0.1', '10.0.0.1', '', 'unix'):
        for host in OURS:
            assert not is_local(peer, host)
