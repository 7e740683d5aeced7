# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.questions import MAX_INVENTORIES
from novasched.observe.records.record import Diagnosis, Rejections
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.filters import Filter
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.numa import HostCell, HostTopology
from novasched.scheduler.model.request import Destination
from novasched.tools import explain
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid, named_hosts
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, record_of
from tests.lab.memory_schedulers import ManualClock
from tests.lab.prefilter_sources import StaticAggregates
from tests.lab.providers import Provider, ProvidersInMemory

WEST = Aggregate(1, a_uuid('west'), 'rack-1', {'availability_zone': 'west'})
SSD = Aggregate(2, a_uuid('ssd'), 'ssd', {})
OURS = Aggregate(3, a_uuid('ours'), 'ours', {'filter_tenant_id': 'project'})
KNOWN = StaticAggregates(AggregateList([WEST, SSD, OURS]))
HOSTS = named_hosts('abc', ram=2048)
DISABLED = 'COMPUTE_STATUS_DISABLED'
MUCH = {'VCPU': 8, 'MEMORY_MB': 2048, 'DISK_GB': 100}


def provider(name, *, without=None, traits=(), aggregates=(), root='', **left):
    """A provider with plenty of each resource, except for the amounts given."""
    amounts = {} if root or without == 'all' else {**MUCH}
    amounts |= left
    amounts.pop(without, None)
    return Provider(
        a_uuid(name),
        amounts,
        frozenset(traits),
        frozenset(aggregate.uuid for aggregate in aggregates),
        a_uuid(root) if root else '',
    )


class Nobody(Filter):
    """A filter that rejects every host."""

    def reject(self, host, request):
        return 'not liked'


def refused(request, offered=(), hosts=HOSTS, settings=None):
    """The refusal of a request for which Placement offered the hosts of some names."""
    slots = {host.uuid: 9 for host in hosts if host.host in offered}
    scheduler = RecordedScheduler(
        hosts, CountingPlacement(slots), [Nobody(Settings())], settings=settings
    )
    return scheduler.ask(request)


def diagnose(
    placement, request, offered=(), hosts=HOSTS, settings=None, aggregates=KNOWN
):
    """The record with its diagnosis, and the lacks of each host."""
    settings = settings or Settings()
    decision = refused(request, offered, hosts, settings)
    diagnoser = Diagnoser(settings, placement, aggregates, reader_of(hosts))

    diagnosis, rejections = diagnoser(decision)

    record = replace(record_of(decision), diagnosis=diagnosis)
    return record, Rejections([rejections])


def reader_of(hosts):
    """A function that reads hosts for a diagnoser."""
    by_uuid = {host.uuid: host for host in hosts}
    return lambda since: by_uuid


def within(*aggregates, **fields):
    """Fields of a request for a host in all aggregates."""
    sets = tuple(frozenset([aggregate.uuid]) for aggregate in aggregates)
    return {'requested_destination': Destination(aggregates=sets, **fields)}


def providers_of(hosts, **amounts):
    """A provider for each host."""
    return [provider(host.host, **amounts) for host in hosts]


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
"""Fields of a provider that lacks the constraint, fields of a provider that meets the
constraint, fields of the request, and the cause."""


@pytest.mark.parametrize('name', CAUSES)
def test_the_headline_and_the_reasons_name_the_lack_of_a_host(name):
    """The third host lacks the constraint of the case, and the headline and the reasons
    against the host name the constraint. The first host lacks nothing, and the second
    host lacks a disk."""
    lacking, meeting, fields, cause = CAUSES[name]
    is_small = 'small' in name or 'CPUs' in name
    placement = ProvidersInMemory(
        [
            provider('a', **meeting),
            provider('b', **{**meeting, 'DISK_GB': 0}),
            provider('c', **lacking),
        ]
    )

    record, rejections = diagnose(placement, a_request(**fields))

    assert rejections.against('c') == [f'Placement: {cause}']
    words = cause.partition(': ')[0]
    counts = render.tally(record)
    assert counts.total() == 3
    assert counts[words] == (2 if is_small else 1)
    assert counts['lack DISK_GB'] == 1
    assert f'{counts[words]} {words}' in render.headline(record)
    assert render.headline(record).startswith('0 of 3 hosts: ')


DEDICATED = frozenset(range(4, 16))
PARTED = a_host(
    'parted',
    vcpus=16,
    ram=2048,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    numa=lambda: HostTopology((HostCell(0, frozenset(range(4)), 2048, DEDICATED),)),
)
"""A host with 4 shared and 12 dedicated CPUs. With overcommit, 16 vCPUs fit on the
shared CPUs."""
NICS = {
    'CUSTOM_NIC': {'total': 16, 'min_unit': 4, 'step_size': 2, 'max_unit': 8},
    'CUSTOM_SPARE': {'total': 4, 'reserved': 2},
}
AMOUNTS = [
    ('VCPU', 4, 'in use or reserved'),
    ('VCPU', 5, 'more than a server may have (4)'),
    ('VCPU', 17, 'more than there is'),
    ('PCPU', 12, 'in use or reserved'),
    ('PCPU', 13, 'more than there is'),
    ('MEMORY_MB', 2049, 'more than a server may have (2048)'),
    ('MEMORY_MB', 3073, 'more than there is'),
    ('DISK_GB', 101, 'more than there is'),
    ('CUSTOM_NIC', 2, 'at least 4 at once'),
    ('CUSTOM_NIC', 5, 'only in units of 2'),
    ('CUSTOM_NIC', 6, 'in use or reserved'),
    ('CUSTOM_NIC', 10, 'more than a server may have (8)'),
    ('CUSTOM_NIC', 18, 'more than there is'),
    ('CUSTOM_SPARE', 3, 'more than there is'),
    ('CUSTOM_OTHER', 3, None),
]


@pytest.mark.parametrize(('name', 'amount', 'cause'), AMOUNTS)
def test_an_amount_is_compared_with_the_inventory(name, amount, cause):
    """The cause of a lacking amount is told by the inventory that nova-compute reports:
    the VCPU of a host are its shared CPUs. The inventories of classes that nova does
    not count are read from Placement."""
    left = {'VCPU': 1, 'PCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1, name: 0}
    parted = replace(provider('parted', **left), inventories=NICS)
    placement = ProvidersInMemory([parted])
    request = a_request(extra_specs={f'resources:{name}': str(amount)})

    _, rejections = diagnose(placement, request, hosts=[PARTED])

    reason = f'Placement: lack {name}: {amount} {name}'
    if cause is not None:
        reason += f', {cause}'
    assert rejections.against('parted') == [reason]


def test_inventories_are_read_within_the_limit_of_queries():
    """Inventories are read for a few hosts, within the limit of queries. The amount
    has no cause on the remaining hosts."""
    hosts = named_hosts('abcdefghijkl')
    request = a_request(extra_specs={'resources:CUSTOM_NIC': '5'})
    for limit, number in ((20, MAX_INVENTORIES), (8, 3), (5, 0)):
        providers = []
        for host in hosts:
            nics = replace(provider(host.host), inventories=NICS)
            providers.append(nics)
        placement = ProvidersInMemory(providers)
        settings = Settings(decisions_questions=limit)
        record, _ = diagnose(placement, request, hosts=hosts, settings=settings)
        [stage] = record.diagnosis.lacking
        causes = {reason.reason: reason.hosts for reason in stage.rejections}
        assert causes.get('5 CUSTOM_NIC, only in units of 2', 0) == number
        assert causes.get('5 CUSTOM_NIC') == 12 - number
        assert len(placement.asked) <= limit


def test_a_provider_that_is_gone_ends_no_diagnosis():
    """The causes of amounts are missing if Placement no longer has the provider of a
    host. The remaining diagnosis stays."""

    class Gone(ProvidersInMemory):
        def request(self, path, method, **options):
            response = super().request(path, method, **options)
            if path.endswith('/inventories'):
                response.status_code = 404
            return response

    request = a_request(extra_specs={'resources:CUSTOM_NIC': '5'})
    _, rejections = diagnose(Gone(providers_of(HOSTS)), request)
    assert rejections.against('a') == ['Placement: lack CUSTOM_NIC: 5 CUSTOM_NIC']


@pytest.mark.parametrize(('disabled', 'why'), [
    (True, 'disabled: disabled, reason: rack 4'),
    (False, 'disabled: its provider is marked so, though its service is enabled'),
])  # fmt: skip
def test_a_disabled_host_has_the_words_of_compute_filter(disabled, why):
    """A disabled host has the words of ComputeFilter, also if only Placement has the
    trait."""
    off = a_host('off', disabled=disabled, why='rack 4')
    placement = ProvidersInMemory([provider('off', traits=[DISABLED])])
    request = a_request(root_forbidden=frozenset([DISABLED]))

    record, rejections = diagnose(placement, request, hosts=[off])

    assert render.headline(record) == '0 of 1 host: 1 disabled'
    assert rejections.against('off') == [f'Placement: {why}']


def test_only_the_requested_host_is_diagnosed():
    """The requested host is diagnosed, and the remaining hosts are only not
    requested."""
    placement = ProvidersInMemory(
        [provider('a'), provider('b', MEMORY_MB=3), provider('c')]
    )
    record, _ = diagnose(placement, a_request(in_tree=a_uuid('b')))
    assert render.tally(record) == {'not the requested host': 2, 'lack MEMORY_MB': 1}


def test_a_host_of_another_cell_is_not_diagnosed():
    """A host of another cell is not diagnosed."""
    hosts = [*HOSTS, a_host('far', cell='cell2')]
    placement = ProvidersInMemory(providers_of(hosts, MEMORY_MB=3))
    request = a_request(requested_destination=Destination(cell_uuid=a_uuid('cell1')))

    record, _ = diagnose(placement, request, hosts=hosts)

    assert render.tally(record) == {'lack MEMORY_MB': 3, render.LEFT_OUT: 1}


def test_a_host_without_a_provider_is_unknown_to_placement():
    """A host without a provider has other words than a full host."""
    placement = ProvidersInMemory(
        [provider('a', without='all'), provider('b', MEMORY_MB=1)]
    )

    record, rejections = diagnose(placement, a_request())

    assert render.tally(record) == {
        'unknown to Placement': 1,
        'lack DISK_GB': 1,
        'lack MEMORY_MB': 1,
    }
    assert rejections.against('c') == [
        'Placement: unknown to Placement: it has no provider of that UUID'
    ]


def test_a_host_counts_once_by_the_first_lack():
    """A host counts once, by its first lack. The reasons against a host name all its
    lacks. Constraints that are the only lack of a host are listed."""
    west = {'aggregates': [WEST]}
    placement = ProvidersInMemory(
        [
            provider('a', MEMORY_MB=1, DISK_GB=0),
            provider('b', **west, MEMORY_MB=1, DISK_GB=0),
            provider('c', **west, MEMORY_MB=1),
        ]
    )
    request = a_request(availability_zone='west', **within(WEST))

    record, rejections = diagnose(placement, request)

    assert (
        render.headline(record)
        == '0 of 3 hosts: 1 in another zone, 1 lack DISK_GB, 1 lack MEMORY_MB'
    )
    assert rejections.against('a') == [
        'Placement: in another zone: availability zone west; lack DISK_GB: 1 DISK_GB, in use or '
        'reserved; lack MEMORY_MB: 512 MEMORY_MB, in use or reserved'
    ]
    assert dict(render.facts(record))['nearest'] == '1 host but for 512 MEMORY_MB'

    table = []
    for line in explain.as_text(record, 0, None, None).splitlines():
        if line.startswith('|'):
            _, *columns, _ = map(str.strip, line.split('|'))
            table.append(columns)
    assert table == [
        ['not offered', 'in', 'out', 'why not'],
        ['in another zone', '3', '2', '1: availability zone west'],
        ['lack DISK_GB', '2', '1', '1: 1 DISK_GB, in use or reserved'],
        ['lack MEMORY_MB', '1', '0', '1: 512 MEMORY_MB, in use or reserved'],
    ]


def test_hosts_rejected_by_filters_are_not_diagnosed():
    """Hosts that Placement offered are not diagnosed, and the counts add up to all
    hosts."""
    placement = ProvidersInMemory(
        [provider('a'), provider('b', MEMORY_MB=1), provider('c', VCPU=0)]
    )

    record, rejections = diagnose(placement, a_request(), offered=['a'])

    assert render.tally(record) == {
        'rejected by Nobody': 1,
        'lack MEMORY_MB': 1,
        'lack VCPU': 1,
    }
    assert rejections.against('a') == []


@pytest.mark.parametrize(('limit', 'words'), [
    (1, 'beyond max_placement_results'), (1000, 'offered when asked again'),
])  # fmt: skip
def test_hosts_without_a_lack_are_explained_by_limit_or_change(limit, words):
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
def test_nested_providers_of_a_host_are_diagnosed_together(name):
    """The diagnosis tells if the providers of a tree meet every constraint alone, but
    no candidate meets all constraints."""
    nested, fields, words = TREES[name]
    placement = ProvidersInMemory([provider('a'), *nested])

    record, _ = diagnose(placement, a_request(**fields), hosts=HOSTS[:1])

    assert render.tally(record) == {words: 1}


@pytest.mark.parametrize(('pool', 'words'), [
    ({'DISK_GB': 100}, 'lack MEMORY_MB'), ({'DISK_GB': 0}, 'lack DISK_GB'),
])  # fmt: skip
def test_a_host_has_the_amounts_of_a_sharing_provider(pool, words):
    """Hosts have the amounts of their sharing provider. If the provider is full, the
    reason does not blame the host."""
    shared = provider(
        'nfs', without='all', traits=['MISC_SHARES_VIA_AGGREGATE'], aggregates=[SSD]
    )
    shared.left = pool
    host = provider('a', without='DISK_GB', aggregates=[SSD], MEMORY_MB=1)
    placement = ProvidersInMemory([host, shared])

    record, rejections = diagnose(placement, a_request(), hosts=HOSTS[:1])

    assert render.tally(record) == {words: 1}
    names_the_pool = (
        'Placement: lack DISK_GB: 1 DISK_GB; ' in rejections.against('a')[0]
    )
    assert names_the_pool == (pool['DISK_GB'] == 0)


def test_pinned_cpus_are_diagnosed_as_pcpu_and_as_vcpu():
    """A diagnosis queries PCPU and VCPU. The query whose first lack comes later
    counts."""
    placement = ProvidersInMemory(
        [
            provider('a', PCPU=4, MEMORY_MB=1),
            provider('b', MEMORY_MB=1),
            provider('c', VCPU=0),
        ]
    )

    record, _ = diagnose(
        placement, a_request(extra_specs={'hw:cpu_policy': 'dedicated'})
    )

    assert render.tally(record) == {'lack MEMORY_MB': 2, 'lack PCPU': 1}
    memory_alone = 'resources=MEMORY_MB%3A512'
    assert sum(query.endswith(memory_alone) for query in placement.asked) == 1


def test_a_refused_query_is_reported_with_the_reason_of_placement():
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
def test_a_diagnosis_stays_within_the_limit_of_queries(questions, counts):
    """The number of queries is limited, and an unknown lack is not claimed."""
    placement = ProvidersInMemory(
        [
            provider('a', traits=['CUSTOM_A']),
            provider('b', traits=['CUSTOM_A'], MEMORY_MB=1),
            provider('c'),
        ]
    )
    settings = Settings(decisions_questions=questions)
    request = a_request(**required('CUSTOM_A'))

    record, _ = diagnose(placement, request, settings=settings)

    assert len(placement.asked) == record.diagnosis.queries == questions
    assert render.tally(record) == counts
    assert record.diagnosis.constraints == 4


def test_an_answer_serves_refusals_that_arrived_before_the_query():
    """An answer serves all requests that arrived before its query. An older answer does
    not serve."""
    placement = ProvidersInMemory(providers_of(HOSTS, MEMORY_MB=1))
    diagnoser = Diagnoser(Settings(), placement, KNOWN, reader_of(HOSTS))
    waiting = [refused(a_request()) for _ in range(3)]

    first, second, third = (diagnoser(decision)[0] for decision in waiting)

    number = len(placement.asked)
    assert first.queries == number
    assert second.queries == 0
    assert third.queries == 0

    later, _ = diagnoser(refused(a_request()))
    assert later.queries == number
    assert first.lacking == second.lacking == third.lacking == later.lacking


@pytest.mark.parametrize('status', [None, 503])
def test_a_failure_of_placement_ends_the_diagnosis(status):
    with pytest.raises(PlacementUnavailable):
        diagnose(ProvidersInMemory([], status=status), a_request())


def test_unreadable_aggregates_are_named_by_uuid():
    """Aggregates without a known name are named by UUID."""

    class Down:
        def all(self, since):
            raise PlacementUnavailable('down')

    request = a_request(**within(SSD))
    placement = ProvidersInMemory(providers_of(HOSTS))

    _, rejections = diagnose(placement, request, aggregates=Down())

    assert rejections.against('a') == [
        f'Placement: outside of the aggregates: aggregate {SSD.uuid}'
    ]


def test_a_diagnosis_without_hosts_counts_no_lack():
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
def test_pauses_between_diagnoses_limit_the_load_of_placement(processes, status):
    """The pause after a diagnosis limits all processes together to a quarter of the
    time of a worker of Placement, whether Placement answers or not. A diagnosis without
    queries needs no pause."""
    clock = ManualClock()
    placement = SlowProviders(clock, providers_of(HOSTS, MEMORY_MB=1))
    placement.status = status
    diagnoser = Diagnoser(
        Settings(),
        placement,
        KNOWN,
        reader_of(HOSTS),
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


def test_placement_is_not_queried_while_the_circuit_is_open():
    """Diagnoses do not query Placement while the circuit is open, and a running
    diagnosis ends."""
    placement = ProvidersInMemory(providers_of(HOSTS))
    for number in (0, 1):
        placement.asked.clear()
        diagnoser = Diagnoser(
            Settings(),
            placement,
            KNOWN,
            reader_of(HOSTS),
            circuit_open=lambda number=number: len(placement.asked) >= number,
        )
        with pytest.raises(PlacementUnavailable, match='does not answer requests'):
            diagnoser(refused(a_request()))
        assert len(placement.asked) == number
