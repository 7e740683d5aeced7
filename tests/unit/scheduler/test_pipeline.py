# SPDX-License-Identifier: Apache-2.0
import math
from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler import weights
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.model.numa import TopologyLimits
from novasched.scheduler.model.request import Destination
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weighers.affinity import ServerGroupSoftAffinityWeigher
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_flavor, a_group, a_host, a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver, ask


class BigEnough(Filter):
    """Rejects hosts without memory for the flavor."""

    def reject(self, host, request):
        if host.free_ram_mb >= request.flavor.memory_mb:
            return None
        return 'too small'


class NotA(Filter):
    """Rejects host a, once per request."""

    scope = Scope.REQUEST

    def reject(self, host, request):
        if host.host == 'a':
            return 'is a'
        return None


class Nobody(Filter):
    """Rejects everything, if asked."""

    def applies(self, request):
        return bool(request.hint('nobody'))

    def reject(self, host, request):
        return 'no'


def pipeline(*plugins, **settings):
    values = Settings(**settings)
    made = [plugin(values) for plugin in plugins]
    return Pipeline(
        values,
        [each for each in made if isinstance(each, Filter)],
        [each for each in made if isinstance(each, Weigher)],
    )


def names(hosts):
    return [host.host for host in hosts]


def rank(line, hosts, request=None, index=0, seed=1):
    return names(line.rank(hosts, request or a_request(), index, Random(seed)).hosts)


@pytest.mark.parametrize('where', [{}, {'force_hosts': ('a', 'b')}])
def test_a_request_is_weighed_by_itself(where):
    """Of two requests alike but for their groups each goes where its own is."""
    line = pipeline(ServerGroupSoftAffinityWeigher)
    hosts = [a_host('a', instances=['x']), a_host('b', instances=['y'])]
    groups = [a_group('soft-affinity', members) for members in ('x', 'y', 'x')]
    found = [
        rank(line.for_request(), hosts, a_request(group=each, **where))
        for each in groups
    ]
    assert found == [['a', 'b'], ['b', 'a'], ['a', 'b']]


REBUILD = {'_nova_check_type': ['rebuild']}
EVACUATE = {'_nova_check_type': ['evacuate']}
A, B, C, D = (
    a_host(name, ram=1024 * ram) for name, ram in zip('abcd', (1, 4, 2, 3), strict=True)
)


def test_a_multiplier_that_is_no_number(caplog):
    """The option counts instead, and the log says so."""
    hosts = [A, a_host('b', ram=4096, metadata={'ram_weight_multiplier': 'heavy'})]
    assert rank(pipeline(RAMWeigher), hosts) == ['b', 'a']
    assert caplog.messages == [
        "Could not decode 'ram_weight_multiplier' weight multiplier: "
        "could not convert string to float: 'heavy'"
    ]


@pytest.mark.parametrize(
    ('fields', 'index', 'left'),
    [
        ({}, 0, ['b', 'c']),
        ({}, 1, ['a', 'b', 'c']),
        ({'hints': {'nobody': ['please']}}, 0, []),
        ({'hints': REBUILD}, 0, ['a', 'b', 'c']),
        ({'force_hosts': ('a',), 'hints': {'nobody': ['please']}}, 0, ['a']),
        ({'force_nodes': ('a',), 'hints': {'nobody': ['please']}}, 0, ['a']),
        ({'force_hosts': ('a',), 'hints': {'nobody': ['x'], **EVACUATE}}, 0, []),
    ],
)
def test_which_filters_run(fields, index, left):
    """Once-per-request filters run for the first server, few on a rebuild, none on
    forced hosts, and none that does not apply."""
    assert (
        rank(pipeline(BigEnough, NotA, Nobody), [A, B, C], a_request(**fields), index)
        == left
    )


class Recording(Filter):
    """Accepts every host, and tells which ones it was asked about."""

    scope = Scope.HOST
    asked = []

    def reject(self, host, request):
        type(self).asked.append(host.host)


class OfTheHost(Recording):
    """The same, whatever the request is."""

    request_key = host_alone


class OnceAsked(OfTheHost):
    """The same, for the first instance of a request."""

    scope = Scope.REQUEST


class Everytime(Recording):
    """The same, whoever is in hand."""

    scope = Scope.INSTANCE


@pytest.mark.parametrize(
    ('plugin', 'asked'),
    [
        (Recording, ['abc', '', 'd', 'abd']),
        (OfTheHost, ['abc', '', 'd', '']),
        (OnceAsked, ['abc', '', '', 'd']),
        (Everytime, ['abc', 'abc', 'abd', 'abd']),
    ],
)
def test_only_changed_hosts_are_judged_again(plugin, asked, unchecked_scopes):
    """Scope HOST means: for the next instance of a request, hosts that are not what
    they were for the last one are judged, and no others; also for the next request
    where a key says so."""
    line = pipeline(plugin)
    told = []
    for hosts, index in [
        ([A, B, C], 0),
        ([A, B, C], 1),
        ([A, B, D], 2),
        ([A, B, D], 0),
    ]:
        plugin.asked.clear()
        ranking = line.filter(hosts, a_request(), index)
        assert ranking.hosts == hosts
        told.append(''.join(plugin.asked))
    assert told == asked


def test_a_reason_without_words():
    """It is a rejection like any other."""

    class Terse(Recording):
        def reject(self, host, request):
            return ''

    ranking = pipeline(Terse).filter([A, B], a_request(), 0)
    assert (ranking.hosts, ranking.filters[0].reasons) == ([], ('', ''))


def test_log_of_a_refusal(caplog):
    """Operators find nova's lines, with the counts of every filter that ran."""
    caplog.set_level('DEBUG', logger='nova.filters')
    request = a_request(hints={'nobody': ['please']})
    assert rank(pipeline(BigEnough, NotA, Nobody), [A, B, C], request) == []
    texts = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ('DEBUG', 'Starting with 3 host(s)') in texts
    assert ('DEBUG', 'Filter BigEnough returned 3 host(s)') in texts
    assert ('DEBUG', 'Filter NotA returned 2 host(s)') in texts
    assert texts[-3] == ('INFO', 'Filter Nobody returned 0 hosts')
    assert texts[-2] == ('INFO', 'Nobody rejected 2 host(s): no')
    assert texts[-1] == (
        'INFO',
        'Filtering removed all hosts for the request with instance ID '
        f"'{request.instance_uuid}'. Filter results: ['BigEnough: (start: 3, end: 3)', "
        "'NotA: (start: 3, end: 2)', 'Nobody: (start: 2, end: 0)']",
    )


@pytest.mark.parametrize(
    ('fields', 'blamed'),
    [
        ({'ignore_hosts': ('A', 'b', 'c')}, False),
        ({'ignore_hosts': ('A',)}, True),
        ({'requested_destination': Destination(host='d')}, True),
    ],
)
def test_filters_without_hosts(fields, blamed, caplog):
    """Where the request ignores every host no filter is said to have removed them;
    where it names a host that is not there the first one is, as in nova's log."""
    caplog.set_level('DEBUG', logger='nova.filters')
    request = a_request(hints={'nobody': ['please']}, **fields)
    assert rank(pipeline(Nobody), [A, B, C], request) == []
    assert ('Filter Nobody returned 0 hosts' in caplog.messages) is blamed


def test_an_error_is_not_a_rejection():
    """A filter that raises fails the request by its name; no host is silently
    dropped."""

    class Broken(Filter):
        def reject(self, host, request):
            raise ZeroDivisionError('bug')

    with pytest.raises(
        BadPlugin, match='Broken raised ZeroDivisionError: bug'
    ) as failure:
        rank(pipeline(Broken), [A])
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ('fields', 'limits'),
    [
        ({}, {'vcpu': 32}),
        ({'force_hosts': ('a',)}, {}),
        ({'hints': REBUILD}, {}),
        ({'hints': {'no_limits': ['please']}}, {}),
    ],
)
def test_limits_come_from_filters_that_ran(fields, limits):
    """A filter that did not judge the host has nothing for nova-compute to check."""

    class Limiting(Filter):
        def applies(self, request):
            return not request.hint('no_limits')

        def limits(self, host, request):
            return {'vcpu': 4 * host.vcpus_total}

    assert pipeline(Limiting).limits(A, a_request(**fields)) == limits


@pytest.mark.parametrize(
    'limit',
    [
        {'vcpu': 'plenty'},
        {'memory_mb': math.inf},
        {'disk_gb': math.nan},
        {'memory_mb': [1024]},
        {'numa_topology': {'cpu_allocation_ratio': 16.0}},
        {'numa_topology': TopologyLimits('plenty', 1.5)},
        None,
    ],
)
def test_a_limit_that_cannot_be_sent(limit):
    """The filter is at fault, and this is found before the host is claimed."""

    class Limiting(Filter):
        def reject(self, host, request):
            return None

        def limits(self, host, request):
            return limit

    placement = CountingPlacement({A.uuid: 1})
    with pytest.raises(BadPlugin, match='Limiting'):
        ask(a_driver([A], Limiting, placement=placement))
    assert placement.allocations == {}


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('a\n2026-01-01 ERROR forged', 'a 2026-01-01 ERROR forged'),
        ('a' * 64_000, 'a' * 100),
    ],
)
def test_a_reason_in_the_log(text, told, caplog):
    """What a user wrote cannot make a line of the log, nor fill it."""

    class Echo(Filter):
        def reject(self, host, request):
            return request.hint('x')[0]

    caplog.set_level('DEBUG', logger='nova.filters')
    rank(pipeline(Echo), [A], a_request(hints={'x': [text]}))
    lines = [each for each in caplog.messages if each.startswith('Echo rejected')]
    assert [each.startswith(f'Echo rejected {A}: {told}') for each in lines] == [
        True,
        False,
    ]
    assert all(len(each) < 1000 and told in each for each in lines)


def test_the_commonest_reasons_are_told(caplog):
    """When a filter leaves no host, the log says why: three reasons, and how many
    more."""

    class Picky(Filter):
        def reject(self, host, request):
            return f'too {"big" if host.free_ram_mb > 4 else host.free_ram_mb}'

    caplog.set_level('INFO', logger='nova.filters')
    rank(pipeline(Picky), [a_host(f'h{ram}', ram=ram) for ram in range(9)])
    assert caplog.messages[1:-1] == [
        'Picky rejected 4 host(s): too big',
        'Picky rejected 1 host(s): too 0',
        'Picky rejected 1 host(s): too 1',
        'Picky rejected 3 host(s) for other reasons',
    ]


class TooSmall(BigEnough):
    """Rejects them with a reason for each host."""

    scope = Scope.HOST

    def request_key(self, request):
        return request.flavor.memory_mb

    def reject(self, host, request):
        needed = request.flavor.memory_mb
        if host.free_ram_mb >= needed:
            return None
        return f'{host.free_ram_mb} of {needed}'


def reasons_kept(line):
    """The reasons in the columns of the filters, by the columns' keys."""
    (table,) = line._tables
    return {
        key: dict(column.reasons)
        for key, column in table._columns.items()
        if column.reasons
    }


def test_reasons_of_hosts_that_pass_again():
    """They are not kept: a column has the reasons against the hosts that it rejects."""
    line = pipeline(TooSmall)
    asked = a_request(flavor=a_flavor(memory_mb=2048))
    assert rank(line, [A, B], asked) == ['b']
    assert [*reasons_kept(line).values()] == [{0: '1024 of 2048'}]
    assert rank(line, [a_host('a', ram=4096), B], asked) == ['a', 'b']
    assert reasons_kept(line) == {}


def test_reasons_of_many_flavors(monkeypatch):
    """The columns that were asked for last keep theirs, up to a number of reasons in
    all; a column without them asks its filter again. One request may have more."""
    monkeypatch.setattr(weights, 'MAX_REASONS', 10)
    line = pipeline(TooSmall)
    hosts = [a_host(f'h{i}', ram=i) for i in range(4)]
    for needed in (100, 200, 300, 100, 400):
        asked = a_request(flavor=a_flavor(memory_mb=needed))
        results = line.filter(hosts, asked, 0).filters
        assert results[0].reasons == tuple(f'{i} of {needed}' for i in range(4))
        kept = reasons_kept(line)
        assert sum(map(len, kept.values())) <= 10
    assert sorted(needed for _, needed in kept) == [100, 400]
    many = [a_host(f'm{i}', ram=i) for i in range(30)]
    assert len(line.filter(many, asked, 0).filters[0].reasons) == 30
    assert [len(reasons) for reasons in reasons_kept(line).values()] == [34]


def test_equal_reasons_are_one_text():
    """However many hosts are rejected for the same reason."""
    line = pipeline(TooSmall)
    asked = a_request(flavor=a_flavor(memory_mb=1000))
    hosts = [a_host(f'h{i}', ram=500) for i in range(10)]
    (result,) = line.filter(hosts, asked, 0).filters
    assert len({id(reason) for reason in result.reasons}) == 1
