# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.page.wanted import Decision, Decisions, Hosts, Nothing, Unwanted, link, read


@pytest.mark.parametrize(
    ('kind', 'query', 'wanted'),
    [
        (Hosts, '', Hosts()),
        (Hosts, 'show=disk&by=zone&page=2', Hosts(show='disk', by='zone', page=2)),
        (Hosts, 'name=&show=&state=', Hosts()),
        (Hosts, 'within=az+1%C3%A9', Hosts(within='az 1é')),
        (Hosts, 'name=%3Cb%3E', Hosts(name='<b>')),
        (Decisions, 'q=++req-1++', Decisions(q='req-1')),
        (Decision, 'host=a', Decision(host='a')),
        (Nothing, '', Nothing()),
    ],
)
def test_queries(kind, query, wanted):
    """A form that is empty asks for what nothing asks for; texts are as they were typed."""
    assert read(kind, query) == wanted


@pytest.mark.parametrize(
    ('kind', 'query'),
    [
        (Hosts, 'show=<script>'),
        (Hosts, 'show=RAM'),
        (Hosts, 'nothing=1'),
        (Hosts, 'page=0'),
        (Hosts, 'page=-1'),
        (Hosts, 'page='),
        (Hosts, 'page=1e3'),
        (Hosts, 'page=10000'),
        (Hosts, 'page=%D9%A3'),
        (Hosts, 'name=a&name=b'),
        (Hosts, 'name=a%00'),
        (Hosts, 'name=a%0D%0Ab'),
        (Hosts, 'name=%FF'),
        (Hosts, 'name=' + 'a' * 256),
        (Hosts, '&'.join(f'name{i}=1' for i in range(40))),
        (Decisions, 'q=' + 'a' * 3000),
        (Decision, 'q=a'),
        (Nothing, 'a=b'),
    ],
)
def test_queries_that_mean_nothing(kind, query):
    """They are refused in one line, which has nothing of them."""
    with pytest.raises(Unwanted) as refused:
        read(kind, query)
    assert refused.value.status == '400 Bad Request'
    assert '\n' not in str(refused.value)
    assert 'script' not in str(refused.value)


@pytest.mark.parametrize(
    ('wanted', 'changes', 'query'),
    [
        (Hosts(), {}, '?'),
        (Hosts(show='disk', page=4), {'by': 'zone'}, '?show=disk&by=zone'),
        (Hosts(show='disk', page=4), {'page': 5}, '?show=disk&page=5'),
        (Hosts(), {'within': 'a&b="<'}, '?within=a%26b%3D%22%3C'),
        (Decisions(q='x'), {'page': 2}, '?q=x&page=2'),
    ],
)
def test_links(wanted, changes, query):
    """A link has what differs from the first page, and other choices begin at page one."""
    assert link(wanted, **changes) == query
