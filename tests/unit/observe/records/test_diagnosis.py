# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.record import Diagnosis, Rejections
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.filters import Filter
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Destination
from novasched.tools import explain
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, record_of
from tests.lab.memory_schedulers import ManualClock
from tests.lab.prefilter_sources import StaticAggregates
from tests.lab.providers import Provider, ProvidersInMemory

WEST = Aggregate(1, a_uuid('west'), 'rack-1', {'availability_zone': 'west'})
SSD = Aggregate(2, a_uuid('ssd'), 'ssd', {})
OURS = Aggregate(3, a_uuid('ours'), 'ours', {'filter_tenant_id': 'project'})
KNOWN = StaticAggregates([WEST, SSD, OURS])
HOSTS = [a_host(name, ram=2048) for name in ('a', 'b', 'c')]
DISABLED = 'COMPUTE_STATUS_DISABLED'
MUCH = {'VCPU': 8, 'MEMORY_MB': 2048, 'DISK_GB': 100}


def provider(name, *, without=None, traits=(), aggregates=(), root='', **left):
    """A provider with plenty of each resource, except for the amounts given."""
    has = {} if root or without == 'all' else {**MUCH}
    return Provider(
        a_uuid(name),
        {rc: n for rc, n in {**has, **left}.items() if rc != without},
        frozenset(traits),
        frozenset(each.uuid for each in aggregates),
        a_uuid(root) if root else '',
    )


class Nobody(Filter):
    """A filter that rejects every host."""

    def reject(self, host, request):
        return 'not liked'


def refused(request, offered=(), hosts=HOSTS, settings=None):
    """The refusal of a request for which Placement offered these hosts."""
    slots = {each.uuid: 9 for each in hosts if each.host in offered}
    decided = RecordedScheduler(
        hosts, CountingPlacement(slots), [Nobody(Settings())], settings=settings
    )
    return decided.ask(request)


def diagnose(
    placement, request, offered=(), hosts=HOSTS, settings=None, aggregates=KNOWN
):
    """The record with its diagnosis, and the lacks of each host."""
    settings = settings or Settings()
    decision = refused(request, offered, hosts, settings)
    known = {each.uuid: each for each in hosts}
    found, each = Diagnoser(settings, placement, aggregates, lambda since: known)(
        decision
    )
    return replace(record_of(decision), diagnosis=found), Rejections([each])


def within(*aggregates, **fields):
    sets = tuple(frozenset([each.uuid]) for each in aggregates)
    return {'requested_destination': Destination(aggregates=sets, **fields)}


def required(name):
    return {'extra_specs': {f'trait:{name}': 'required'}}


NIC = {
    'requested_resources': (
        RequestGroup('_nic', {'CUSTOM_NIC': 2}, frozenset(['CUSTOM_FAST'])),
    )
}
NOT_OURS = within(forbidden_aggregates=frozenset([SSD.uuid]))
CAUSES = {
    'in use': (
        {'MEMORY_MB': 100},
        {},
        {},
        'lack MEMORY_MB: 512 MEMORY_MB, in use or reserved',
    ),
    'too small': (
        {},
        {},
        {'flavor': a_flavor(memory_mb=4096)},
        'lack MEMORY_MB: 4096 MEMORY_MB, more than there is',
    ),
    'more vCPUs than CPUs': (
        {'VCPU': 8},
        {},
        {'flavor': a_flavor(vcpus=9)},
        'lack VCPU: 9 VCPU, more than there is',
    ),
    'custom class': (
        {'CUSTOM_X': 1},
        {'CUSTOM_X': 2},
        {'extra_specs': {'resources:CUSTOM_X': '2'}},
        'lack CUSTOM_X: 2 CUSTOM_X',
    ),
    'trait': (
        {},
        {'traits': ['CUSTOM_A']},
        required('CUSTOM_A'),
        'lack CUSTOM_A: trait CUSTOM_A',
    ),
    'trait of the root': (
        {},
        {'traits': ['CUSTOM_A']},
        {'root_required': frozenset(['CUSTOM_A'])},
        'lack CUSTOM_A: trait CUSTOM_A',
    ),
    'forbidden trait': (
        {'traits': ['CUSTOM_A']},
        {},
        {'extra_specs': {'trait:CUSTOM_A': 'forbidden'}},
        'have CUSTOM_A: forbidding trait CUSTOM_A',
    ),
    'zone': (
        {},
        {'aggregates': [WEST]},
        {'availability_zone': 'west', **within(WEST)},
        'in another zone: availability zone west',
    ),
    'tenants': (
        {},
        {'aggregates': [OURS]},
        within(OURS),
        'for other projects: aggregate ours',
    ),
    'aggregate': (
        {},
        {'aggregates': [SSD]},
        within(SSD),
        'outside of the aggregates: aggregate ssd',
    ),
    'isolated': (
        {'aggregates': [SSD]},
        {},
        NOT_OURS,
        'in isolated aggregates: staying out of aggregate ssd',
    ),
    'two aggregates': (
        {'aggregates': [WEST]},
        {'aggregates': [WEST, SSD]},
        within(WEST, SSD),
        'outside of the aggregates: aggregate ssd',
    ),
}
"""What a host that lacks something has, what one that does not has, what is asked for,
and the cause."""


@pytest.mark.parametrize('name', CAUSES)
def test_what_a_host_lacks(name):
    """Two hosts meet all constraints but the constraint of the second host. The third
    host lacks the constraint of the case, and the headline and the reasons against the
    host name it."""
    lacking, having, asked, why = CAUSES[name]
    small = 'small' in name or 'CPUs' in name
    placement = ProvidersInMemory(
        [
            provider('a', **having),
            provider('b', **{**having, 'DISK_GB': 0}),
            provider('c', **lacking),
        ]
    )
    record, each = diagnose(placement, a_request(**asked))
    words = why.partition(': ')[0]
    reasons = each.against('c')
    assert reasons == [f'Placement: {why}']
    counts = render.tally(record)
    assert counts.total() == 3
    assert counts[words] == (2 if small else 1)
    assert counts['lack DISK_GB'] == 1
    assert f'{counts[words]} {words}' in render.headline(record)
    assert render.headline(record).startswith('0 of 3 hosts: ')


@pytest.mark.parametrize(('disabled', 'why'), [
    (True, 'disabled: disabled, reason: rack 4'),
    (False, 'disabled: its provider is marked so, though its service is enabled'),
])  # fmt: skip
def test_a_disabled_host(disabled, why):
    """A disabled host has the words of ComputeFilter, also if only Placement has the
    trait."""
    off = a_host('off', disabled=disabled, why='rack 4')
    placement = ProvidersInMemory([provider('off', traits=[DISABLED])])
    asked = a_request(root_forbidden=frozenset([DISABLED]))
    record, each = diagnose(placement, asked, hosts=[off])
    assert render.headline(record) == '0 of 1 host: 1 disabled'
    assert each.against('off') == [f'Placement: {why}']


def test_not_the_requested_host():
    """The requested host is diagnosed, and the remaining hosts are only not
    requested."""
    placement = ProvidersInMemory(
        [provider('a'), provider('b', MEMORY_MB=3), provider('c')]
    )
    record, _ = diagnose(placement, a_request(in_tree=a_uuid('b')))
    assert render.tally(record) == {'not the requested host': 2, 'lack MEMORY_MB': 1}


def test_a_host_of_another_cell():
    """A host of another cell is not diagnosed."""
    hosts = [*HOSTS, a_host('far', cell='cell2')]
    placement = ProvidersInMemory([provider(each.host, MEMORY_MB=3) for each in hosts])
    asked = a_request(requested_destination=Destination(cell_uuid=a_uuid('cell1')))
    record, _ = diagnose(placement, asked, hosts=hosts)
    assert render.tally(record) == {'lack MEMORY_MB': 3, render.LEFT_OUT: 1}


def test_a_host_without_a_provider():
    """A host without a provider has other words than a full host."""
    placement = ProvidersInMemory(
        [provider('a', without='all'), provider('b', MEMORY_MB=1)]
    )
    record, each = diagnose(placement, a_request())
    assert render.tally(record) == {
        'unknown to Placement': 1, 'lack DISK_GB': 1, 'lack MEMORY_MB': 1,
    }  # fmt: skip
    assert each.against('c') == [
        'Placement: unknown to Placement: it has no provider of that UUID'
    ]


def test_all_that_a_host_lacks():
    """A host counts once, by its first lack. The reasons against a host name all its
    lacks. Constraints that are a host's only lack are listed."""
    west = {'aggregates': [WEST]}
    placement = ProvidersInMemory(
        [
            provider('a', MEMORY_MB=1, DISK_GB=0),
            provider('b', **west, MEMORY_MB=1, DISK_GB=0),
            provider('c', **west, MEMORY_MB=1),
        ]
    )
    record, each = diagnose(
        placement, a_request(availability_zone='west', **within(WEST))
    )
    assert (
        render.headline(record)
        == '0 of 3 hosts: 1 in another zone, 1 lack DISK_GB, 1 lack MEMORY_MB'
    )
    assert each.against('a') == [
        'Placement: in another zone: availability zone west; lack DISK_GB: 1 DISK_GB, in use or '
        'reserved; lack MEMORY_MB: 512 MEMORY_MB, in use or reserved'
    ]
    assert dict(render.facts(record))['nearest'] == '1 host but for 512 MEMORY_MB'
    lines = explain.as_text(record, 0, None, None).splitlines()
    table = [[*map(str.strip, x.split('|'))][1:-1] for x in lines if x.startswith('|')]
    assert table == [
        ['not offered', 'in', 'out', 'why not'],
        ['in another zone', '3', '2', '1: availability zone west'],
        ['lack DISK_GB', '2', '1', '1: 1 DISK_GB, in use or reserved'],
        ['lack MEMORY_MB', '1', '0', '1: 512 MEMORY_MB, in use or reserved'],
    ]


def test_those_that_filters_dropped():
    """Hosts that Placement offered are not diagnosed, and the counts add up to all
    hosts."""
    placement = ProvidersInMemory(
        [provider('a'), provider('b', MEMORY_MB=1), provider('c', VCPU=0)]
    )
    record, each = diagnose(placement, a_request(), offered=['a'])
    assert render.tally(record) == {
        'rejected by Nobody': 1,
        'lack MEMORY_MB': 1,
        'lack VCPU': 1,
    }
    assert each.against('a') == []


@pytest.mark.parametrize(('limit', 'words'), [
    (1, 'beyond max_placement_results'), (1000, 'offered when asked again'),
])  # fmt: skip
def test_hosts_that_lack_nothing(limit, words):
    """Hosts that lack nothing are beyond the limit if the answer reached the limit;
    else the cloud has changed."""
    placement = ProvidersInMemory(
        [provider('a'), provider('b'), provider('c', MEMORY_MB=1)]
    )
    settings = Settings(max_placement_results=limit)
    record, _ = diagnose(placement, a_request(), offered=['a'], settings=settings)
    assert render.tally(record) == {
        'rejected by Nobody': 1,
        'lack MEMORY_MB': 1,
        words: 1,
    }
    assert 'limit' not in placement.asked[-1]


APART = 'without a candidate that meets all at once'
TREES = {
    'in one provider': (
        [
            provider('nic', root='a', CUSTOM_NIC=2),
            provider('fast', root='a', traits=['CUSTOM_FAST']),
        ],
        NIC,
        APART,
    ),
    'too few': (
        [provider('nic', root='a', CUSTOM_NIC=1, traits=['CUSTOM_FAST'])],
        NIC,
        'lack CUSTOM_NIC',
    ),
    'slow': ([provider('nic', root='a', CUSTOM_NIC=2)], NIC, 'lack CUSTOM_FAST'),
    'there is one': (
        [provider('nic', root='a', CUSTOM_NIC=2, traits=['CUSTOM_FAST'])],
        NIC,
        'offered when asked again',
    ),
    'trait of what gives nothing': (
        [provider('idle', root='a', traits=['CUSTOM_A'])],
        required('CUSTOM_A'),
        APART,
    ),
}


@pytest.mark.parametrize('name', TREES)
def test_nested_providers(name):
    """If providers of a tree meet each constraint and no candidate meets all, the
    diagnosis says so."""
    nested, asked, words = TREES[name]
    placement = ProvidersInMemory([provider('a'), *nested])
    record, _ = diagnose(placement, a_request(**asked), hosts=HOSTS[:1])
    assert render.tally(record) == {words: 1}


@pytest.mark.parametrize(('pool', 'words'), [
    ({'DISK_GB': 100}, 'lack MEMORY_MB'), ({'DISK_GB': 0}, 'lack DISK_GB'),
])  # fmt: skip
def test_a_provider_that_shares(pool, words):
    """Hosts have the amounts of their sharing provider. If the provider is full, the
    reason does not blame the host."""
    shared = provider(
        'nfs', without='all', traits=['MISC_SHARES_VIA_AGGREGATE'], aggregates=[SSD]
    )
    shared.left = pool
    host = provider('a', without='DISK_GB', aggregates=[SSD], MEMORY_MB=1)
    record, each = diagnose(
        ProvidersInMemory([host, shared]), a_request(), hosts=HOSTS[:1]
    )
    assert render.tally(record) == {words: 1}
    assert ('Placement: lack DISK_GB: 1 DISK_GB; ' in each.against('a')[0]) == (
        not pool['DISK_GB']
    )


def test_pinned_cpus():
    """Of the queries with PCPU and with VCPU, the query whose first lack comes later
    counts."""
    placement = ProvidersInMemory(
        [
            provider('a', PCPU=4, MEMORY_MB=1),
            provider('b', MEMORY_MB=1),
            provider('c', VCPU=0),
        ]
    )
    asked = a_request(extra_specs={'hw:cpu_policy': 'dedicated'})
    record, _ = diagnose(placement, asked)
    assert render.tally(record) == {'lack MEMORY_MB': 2, 'lack PCPU': 1}
    plain = [x for x in placement.asked if x.endswith('resources=MEMORY_MB%3A512')]
    assert len(plain) == 1


def test_a_query_that_is_refused():
    """The diagnosis has Placement's reason against the query."""
    placement = ProvidersInMemory([provider('a')], unknown='CUSTOM_A')
    record, _ = diagnose(placement, a_request(**required('CUSTOM_A')))
    assert render.headline(record) == (
        'Placement offers no host: it refuses the query: No such: CUSTOM_A.'
    )


@pytest.mark.parametrize(('questions', 'counts'), [
    (1, {}),
    (2, {'lack CUSTOM_A': 1, render.NOT_OFFERED: 2}),
    (4, {'lack CUSTOM_A': 1, 'lack MEMORY_MB': 1, render.NOT_OFFERED: 1}),
    (6, {'lack CUSTOM_A': 1, 'lack MEMORY_MB': 1, 'offered when asked again': 1}),
])  # fmt: skip
def test_so_many_questions(questions, counts):
    """The number of queries is limited, and an unknown lack is not claimed."""
    has = {'traits': ['CUSTOM_A']}
    placement = ProvidersInMemory([
        provider('a', **has), provider('b', MEMORY_MB=1, **has), provider('c'),
    ])  # fmt: skip
    settings = Settings(decisions_questions=questions)
    record, _ = diagnose(
        placement, a_request(**required('CUSTOM_A')), settings=settings
    )
    assert len(placement.asked) == record.diagnosis.queries == questions
    assert render.tally(record) == counts
    assert record.diagnosis.constraints == 4


def test_an_answer_for_several_refusals():
    """An answer serves all requests that arrived before its query. An older answer does
    not serve."""
    placement = ProvidersInMemory([provider(each.host, MEMORY_MB=1) for each in HOSTS])
    known = {each.uuid: each for each in HOSTS}
    diagnoser = Diagnoser(Settings(), placement, KNOWN, lambda since: known)
    waiting = [refused(a_request()) for _ in range(3)]
    found = [diagnoser(each)[0] for each in waiting]
    number = len(placement.asked)
    assert [each.queries for each in found] == [number, 0, 0]
    found.append(diagnoser(refused(a_request()))[0])
    assert found[-1].queries == number
    assert len({each.lacking for each in found}) == 1


@pytest.mark.parametrize('status', [None, 503])
def test_placement_that_fails(status):
    with pytest.raises(PlacementUnavailable):
        diagnose(ProvidersInMemory([], status=status), a_request())


def test_aggregates_that_cannot_be_read():
    """Aggregates without a known name are named by UUID."""

    class Down:
        def all(self, since):
            raise PlacementUnavailable('down')

    placement = ProvidersInMemory([provider(each.host) for each in HOSTS])
    _, each = diagnose(placement, a_request(**within(SSD)), aggregates=Down())
    assert each.against('a') == [
        f'Placement: outside of the aggregates: aggregate {SSD.uuid}'
    ]


def test_no_host_at_all():
    """Without hosts there is nothing to count."""
    record, _ = diagnose(ProvidersInMemory([]), a_request(), hosts=[])
    assert (record.diagnosis, render.headline(record)) == (
        Diagnosis(queries=record.diagnosis.queries, constraints=3),
        'Placement offers no host',
    )


class SlowProviders(ProvidersInMemory):
    """Takes a second for each answer."""

    def __init__(self, clock, *arguments, **fields):
        super().__init__(*arguments, **fields)
        self._clock = clock

    def request(self, path, method, **options):
        self._clock.now += 1.0
        return super().request(path, method, **options)


@pytest.mark.parametrize('processes', [1, 4])
@pytest.mark.parametrize('status', [200, 503])
def test_the_share_of_the_time_of_placement(processes, status):
    """The pause after a diagnosis limits all processes together to a quarter of the
    time of a worker of Placement, whether Placement answers or not. A diagnosis without
    queries needs no pause."""
    clock = ManualClock()
    placement = SlowProviders(
        clock, [provider(each.host, MEMORY_MB=1) for each in HOSTS]
    )
    placement.status = status
    known = {each.uuid: each for each in HOSTS}
    diagnoser = Diagnoser(
        Settings(),
        placement,
        KNOWN,
        lambda since: known,
        processes=processes,
        clock=clock,
    )
    assert diagnoser.pause() == 0.0
    decision = refused(a_request())
    with suppress(PlacementUnavailable):
        diagnoser(decision)
    took = len(placement.asked)
    assert took / (took + diagnoser.pause()) * processes == pytest.approx(0.25)
    clock.now += diagnoser.pause()
    assert diagnoser.pause() == 0.0
    if status == 200:
        diagnoser(decision)
        assert (len(placement.asked), diagnoser.pause()) == (took, 0.0)


def test_while_the_circuit_is_open():
    """Diagnoses do not query Placement while the circuit is open, and a running
    diagnosis ends."""
    placement = ProvidersInMemory([provider(each.host) for each in HOSTS])
    known = {each.uuid: each for each in HOSTS}
    for number in (0, 1):
        placement.asked.clear()
        diagnoser = Diagnoser(
            Settings(),
            placement,
            KNOWN,
            lambda since: known,
            circuit_open=lambda number=number: len(placement.asked) >= number,
        )
        with pytest.raises(PlacementUnavailable, match='does not answer requests'):
            diagnoser(refused(a_request()))
        assert len(placement.asked) == number
