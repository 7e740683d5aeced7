# SPDX-License-Identifier: Apache-2.0
import math
from itertools import permutations
from operator import attrgetter
from random import Random

import numpy as np
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler import host_table
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter, Scope, host_alone
from novasched.scheduler.filters.shared import CandidateFilter
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.numa import TopologyLimits
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import Destination
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weighers.affinity import ServerGroupSoftAffinityWeigher
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import (
    a_flavor,
    a_group,
    a_host,
    a_mapped_candidate,
    a_request,
    numbered_hosts,
)
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
    """Rejects every host, for requests with the hint."""

    def applies(self, request):
        return bool(request.hint('nobody'))

    def reject(self, host, request):
        return 'no'


def pipeline(*plugins, **settings):
    values = Settings(**settings)
    filters = []
    weighers = []
    for plugin in plugins:
        if issubclass(plugin, Weigher):
            weighers.append(plugin(values))
        else:
            filters.append(plugin(values))
    return Pipeline(values, filters, weighers)


def names(hosts):
    return [host.host for host in hosts]


def rank(line, hosts, request=None, index=0, seed=1):
    return names(line.rank(hosts, request or a_request(), index, Random(seed)).hosts)


@pytest.mark.parametrize('where', [{}, {'force_hosts': ('a', 'b')}])
def test_a_request_is_weighed_by_the_group_of_the_request(where):
    """A request goes to the host of its group, although another request differs in the
    group alone."""
    line = pipeline(ServerGroupSoftAffinityWeigher)
    hosts = [a_host('a', instances=['x']), a_host('b', instances=['y'])]

    rankings = []
    for members in ('x', 'y', 'x'):
        request = a_request(group=a_group('soft-affinity', members), **where)
        rankings.append(rank(line.for_request(), hosts, request))

    assert rankings == [['a', 'b'], ['b', 'a'], ['a', 'b']]


REBUILD = {'_nova_check_type': ['rebuild']}
EVACUATE = {'_nova_check_type': ['evacuate']}
A = a_host('a', ram=1024)
B = a_host('b', ram=4096)
C = a_host('c', ram=2048)
D = a_host('d', ram=3072)


@pytest.mark.parametrize(
    ('value', 'why'),
    [
        ('heavy', "could not convert string to float: 'heavy'"),
        ('nan', 'nan is not a number'),
    ],
)
def test_an_invalid_multiplier_is_replaced_by_the_option(value, why, caplog):
    """The weigher uses the option instead, with a line in the log."""
    hosts = [A, a_host('b', ram=4096, metadata={'ram_weight_multiplier': value})]
    assert rank(pipeline(RAMWeigher), hosts) == ['b', 'a']
    assert caplog.messages == [
        f"Could not decode 'ram_weight_multiplier' weight multiplier: {why}"
    ]


class DividingWeigher(Weigher):
    """A weigher of a plugin, which divides by the free memory of a host less 1024."""

    multiplier = 'dividing_weight_multiplier'

    def weigh(self, host, request):
        return float(np.float64(host.free_ram_mb - 1024) / (host.free_ram_mb - 1024))


@pytest.mark.filterwarnings('ignore:invalid value')
def test_a_host_with_a_nan_weight_comes_last(caplog):
    """The host without a weight comes last for this weigher, the other weighers rank
    the rest, and the log names the weigher once."""
    pipe = pipeline(RAMWeigher, DividingWeigher)
    for hosts in permutations((A, B, C)):
        assert rank(pipe.for_request(), hosts) == ['b', 'c', 'a']

    [message] = caplog.messages
    assert message.startswith('DividingWeigher gives hosts weights that are NaN')


@pytest.mark.parametrize(
    ('fields', 'index', 'passed'),
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
def test_scope_rebuild_and_forced_hosts_decide_the_filters_that_run(
    fields, index, passed
):
    """A filter that does not apply does not run. Filters of scope REQUEST run for the
    first instance alone, few filters run on a rebuild, and no filter runs on forced
    hosts."""
    line = pipeline(BigEnough, NotA, Nobody)
    assert rank(line, [A, B, C], a_request(**fields), index) == passed


class Recording(Filter):
    """Accepts every host, and records the names of the hosts."""

    scope = Scope.HOST
    asked = []

    def reject(self, host, request):
        type(self).asked.append(host.host)


class OfTheHost(Recording):
    """A recording filter whose verdicts do not depend on the request."""

    request_key = host_alone


class OnceAsked(OfTheHost):
    """A recording filter for the first instance of a request."""

    scope = Scope.REQUEST


class AlwaysAsked(Recording):
    """A recording filter for every instance."""

    scope = Scope.INSTANCE


@pytest.mark.parametrize(
    ('plugin', 'asked'),
    [
        (Recording, ['abc', '', 'd', 'abd']),
        (OfTheHost, ['abc', '', 'd', '']),
        (OnceAsked, ['abc', '', '', 'd']),
        (AlwaysAsked, ['abc', 'abc', 'abd', 'abd']),
    ],
)
def test_only_changed_hosts_are_judged_again(plugin, asked, unchecked_scopes):
    """A filter of scope HOST judges only the hosts that changed since the last instance
    of the request. With a request key, the verdicts also serve the next request."""
    line = pipeline(plugin)
    judged_hosts = []
    for hosts, index in [
        ([A, B, C], 0),
        ([A, B, C], 1),
        ([A, B, D], 2),
        ([A, B, D], 0),
    ]:
        plugin.asked.clear()
        ranking = line.filter(hosts, a_request(), index)
        assert [*ranking.hosts] == hosts
        judged_hosts.append(''.join(plugin.asked))

    assert judged_hosts == asked


class NotCardB(CandidateFilter):
    """Drops candidates with the card b, and records the candidates that it judges."""

    asked = []

    def key_beside_devices(self, request):
        return (attrgetter('host'),)

    def request_key(self, request):
        return ()

    def reject_candidate(self, host, request, mappings):
        [card] = mappings['gpu-0']
        self.asked.append(f'{host.host}{card}')
        return 'has b' if card == 'b' else None


def cards_of(candidates, host):
    """The cards of the candidates of a host."""
    cards = []
    for candidate in candidates[host.uuid]:
        cards += candidate.providers_by_group()['gpu-0']
    return cards


def test_candidates_of_another_offer_are_judged_again(unchecked_scopes):
    """The next instance keeps the verdicts for the candidates that the filter has left.
    An earlier offer is judged again, and so is the offer of the next request."""
    candidates = []
    for host in (A, C):
        for card in 'ab':
            candidates.append(a_mapped_candidate(host.uuid, 'gpu', [card]))
    first = CandidateIndex(candidates)
    request = a_request(pci_requests=(PciRequest(1, (), 'gpu', 'gpu'),))
    line = pipeline(NotCardB)

    offers = [first]
    for number, index, is_judged in [
        (0, 0, True),
        (1, 1, False),
        (2, 2, False),
        (0, 2, True),
        (4, 0, True),
    ]:
        NotCardB.asked.clear()
        ranking = line.filter([A, C], request, index, offers[number])
        offers.append(ranking.candidates)
        assert [*ranking.hosts] == [A, C]
        for host in (A, C):
            assert cards_of(ranking.candidates, host) == ['a']
        assert bool(NotCardB.asked) == is_judged


def test_an_empty_reason_rejects_the_host():
    """An empty reason rejects the host like any text."""

    class Terse(Recording):
        def reject(self, host, request):
            return ''

    ranking = pipeline(Terse).filter([A, B], a_request(), 0)
    assert not ranking.hosts
    assert ranking.filters[0].reasons == ('', '')


def test_a_refusal_is_logged_with_the_lines_of_nova(caplog):
    """Operators find nova's lines, with the counts of every filter that ran."""
    caplog.set_level('DEBUG', logger='nova.filters')
    request = a_request(hints={'nobody': ['please']})

    assert rank(pipeline(BigEnough, NotA, Nobody), [A, B, C], request) == []

    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ('DEBUG', 'Starting with 3 host(s)') in lines
    assert ('DEBUG', 'Filter BigEnough returned 3 host(s)') in lines
    assert ('DEBUG', 'Filter NotA returned 2 host(s)') in lines
    assert lines[-3] == ('INFO', 'Filter Nobody returned 0 hosts')
    assert lines[-2] == ('INFO', 'Nobody rejected 2 host(s): no')
    assert lines[-1] == (
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
def test_no_filter_is_blamed_if_the_request_ignores_all_hosts(fields, blamed, caplog):
    """The log blames no filter where the request ignores every host. Where the request
    names an unknown host, the log blames the first filter, as nova does."""
    caplog.set_level('DEBUG', logger='nova.filters')
    request = a_request(hints={'nobody': ['please']}, **fields)
    assert rank(pipeline(Nobody), [A, B, C], request) == []
    assert ('Filter Nobody returned 0 hosts' in caplog.messages) is blamed


def test_an_error_in_a_filter_fails_the_request():
    """An exception in a filter fails the request with the name of the filter, and
    rejects no host silently."""

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
    """Filters that did not judge the host add no limits for nova-compute."""

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
def test_an_invalid_limit_of_a_filter_fails_without_a_claim(limit):
    """The error names the filter, and the host is not claimed."""

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
    ('text', 'logged'),
    [
        ('a\n2026-01-01 ERROR forged', 'a 2026-01-01 ERROR forged'),
        ('a' * 64_000, 'a' * 100),
    ],
)
def test_a_logged_reason_is_short_and_without_line_breaks(text, logged, caplog):
    """A text of a user can neither forge a line of the log nor fill the log."""

    class Echo(Filter):
        def reject(self, host, request):
            return request.hint('x')[0]

    caplog.set_level('DEBUG', logger='nova.filters')
    rank(pipeline(Echo), [A], a_request(hints={'x': [text]}))

    lines = [line for line in caplog.messages if line.startswith('Echo rejected')]
    line_of_host, line_of_filter = lines
    start = f'Echo rejected {A}: {logged}'
    assert line_of_host.startswith(start)
    assert not line_of_filter.startswith(start)
    for line in lines:
        assert len(line) < 1000
        assert logged in line


def test_the_most_frequent_reasons_are_logged(caplog):
    """When a filter leaves no host, the log has the three most frequent reasons and the
    number of hosts with other reasons."""

    class Picky(Filter):
        def reject(self, host, request):
            if host.free_ram_mb > 4:
                return 'too big'
            return f'too {host.free_ram_mb}'

    caplog.set_level('INFO', logger='nova.filters')
    rank(pipeline(Picky), [a_host(f'h{ram}', ram=ram) for ram in range(9)])
    assert caplog.messages[1:-1] == [
        'Picky rejected 4 host(s): too big',
        'Picky rejected 1 host(s): too 0',
        'Picky rejected 1 host(s): too 1',
        'Picky rejected 3 host(s) for other reasons',
    ]


class TooSmall(BigEnough):
    """Rejects hosts without memory, with another reason for each host."""

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
    reasons = {}
    for key, column in table._columns.items():
        if column.reasons:
            reasons[key] = dict(column.reasons)
    return reasons


def test_reasons_of_hosts_that_pass_again_are_dropped():
    """A column keeps reasons against rejected hosts alone."""
    line = pipeline(TooSmall)
    request = a_request(flavor=a_flavor(memory_mb=2048))

    assert rank(line, [A, B], request) == ['b']
    assert [*reasons_kept(line).values()] == [{0: '1024 of 2048'}]

    assert rank(line, [a_host('a', ram=4096), B], request) == ['a', 'b']
    assert reasons_kept(line) == {}


def test_kept_reasons_are_limited_to_the_columns_used_last(monkeypatch):
    """The columns used last keep their reasons, up to a total number of reasons. A
    column without reasons asks its filter again. A single request may exceed the
    number."""
    monkeypatch.setattr(host_table, 'MAX_REASONS', 10)
    line = pipeline(TooSmall)
    hosts = [a_host(f'h{i}', ram=i) for i in range(4)]

    for needed in (100, 200, 300, 100, 400):
        request = a_request(flavor=a_flavor(memory_mb=needed))
        (result,) = line.filter(hosts, request, 0).filters
        assert result.reasons == tuple(f'{i} of {needed}' for i in range(4))
        reasons_by_key = reasons_kept(line)
        assert sum(map(len, reasons_by_key.values())) <= 10
    assert sorted(needed for _, needed in reasons_by_key) == [100, 400]

    many_hosts = [a_host(f'm{i}', ram=i) for i in range(30)]
    (result,) = line.filter(many_hosts, request, 0).filters
    assert len(result.reasons) == 30
    assert [*map(len, reasons_kept(line).values())] == [34]


def test_hosts_with_equal_reasons_share_the_text():
    """Hosts that are rejected for the same reason share the text."""
    line = pipeline(TooSmall)
    request = a_request(flavor=a_flavor(memory_mb=1000))
    hosts = numbered_hosts(10, ram=500)

    (result,) = line.filter(hosts, request, 0).filters

    assert len({*map(id, result.reasons)}) == 1
