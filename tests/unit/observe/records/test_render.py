# SPDX-License-Identifier: Apache-2.0
"""The record has the verdict of each filter and the contribution of each weigher."""

from contextlib import suppress
from dataclasses import replace

import pytest

from novasched.cmd import novaschedctl
from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.from_decision import rejections_of
from novasched.observe.records.record import Diagnosis
from novasched.observe.records.store import RecordWriter
from novasched.plugins import loading
from novasched.scheduler.decision import STEPS, Contribution
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.chance_scheduler import ChanceScheduler
from novasched.scheduler.errors import (
    DatabaseUnavailable,
    NoValidHost,
    PlacementUnavailable,
)
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.host import Instance
from novasched.scheduler.model.pci import Pool
from novasched.scheduler.model.request import Destination
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from tests.lab import topologies
from tests.lab.builders import a_flavor, a_group, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement, TraitsPlacement, slots_on
from tests.lab.decision_records import DecisionList, RecordedScheduler, record_of
from tests.lab.filter_cases import refusals

A = a_host('a', ram=8192)
B = a_host('b', ram=4096)


@pytest.fixture
def explain(tmp_path, capsys):
    """The output of the command for a decision in a file."""

    def told(decision, *arguments):
        path = str(tmp_path / 'decisions')
        store = RecordWriter(path, 10, 1)
        store.write(record_of(decision), rejections_of(decision))
        store.close()
        assert novaschedctl.main(['explain', '--last', '--file', path, *arguments]) == 0
        return capsys.readouterr().out

    return told


SERVER = a_uuid('elsewhere')


@pytest.mark.parametrize(('name', 'options', 'host', 'asked', 'why'), refusals())
def test_a_rejecting_filter_is_named_with_the_reason(
    explain, name, options, host, asked, why
):
    """The headline has the words of the filter and counts every host once. The record
    counts the reason, and the command gives the reason against the host."""
    settings = Settings(enabled_filters=('AllHostsFilter', name), **options)
    only = a_host(**host)
    placement = CountingPlacement({only.uuid: 9, A.uuid: 9})
    scheduler = RecordedScheduler([only, A, B], placement, settings=settings)

    decision = scheduler.ask(a_request(ignore_hosts=('a',), **asked))

    record = record_of(decision)
    assert record.result.refusal == 'There are not enough hosts available.'
    (attempt,) = record.attempts
    stages = [(stage.name, stage.start, stage.end) for stage in attempt.stages]
    assert stages == [('ignore_hosts', 2, 1), ('AllHostsFilter', 1, 1), (name, 1, 0)]
    (rejection,) = attempt.stages[-1].rejections
    assert (rejection.reason, rejection.hosts) == (why, 1)

    word = render.phrase(name, why)
    line = (
        f'0 of 3 hosts: 1 not offered by Placement, 1 ignored by the request, 1 {word}'
    )
    assert render.headline(record) == line
    assert render.tally(record).total() == 3
    assert rejections_of(decision).against(only.host) == [f'{name}: {why}']
    first, *others = explain(decision).splitlines()
    assert first == line
    assert _last_cell(others, name) == f'1: {why}'
    assert explain(decision, '--host', only.host).splitlines()[1:] == [
        f'{only.host}: {name}: {why}'
    ]


@pytest.mark.parametrize(
    ('name', 'why', 'phrase'),
    [
        ('ComputeFilter', 'disabled, reason: repair', 'disabled'),
        ('ComputeFilter', 'has not been heard from in a while', 'down'),
        ('CoreFilter', '0 vCPUs free, 1 wanted', 'lack free vCPUs'),
        ('NoFilter', 'why not', 'rejected by NoFilter'),
    ],
)
def test_rejected_hosts_are_described_by_the_phrase_of_the_filter(name, why, phrase):
    """The words are the phrase of the filter. Operators tell disabled hosts from hosts
    that are down."""
    assert render.phrase(name, why) == phrase


def _last_cell(lines, name):
    """The text in the last column of a table, in the row of a name. A row may have
    several lines."""
    names = []
    texts = []
    for line in lines:
        if not line.startswith('|'):
            continue
        first, *_, last = map(str.strip, line.split('|')[1:-1])
        if first:
            names.append(first)
            texts.append(last)
        else:
            texts[-1] += f' {last}'
    assert names.count(name) == 1
    return texts[names.index(name)]


MOVING = Destination(cell_uuid=a_uuid('near'), allow_cross_cell_move=True)
SERVERS = {SERVER: Instance(SERVER, image_properties={'os': 'linux'})}
RACK = {'failure_domain': 'rack1'}
TWO_CPUS_TO_PIN = topologies.a_host(topologies.a_cell(cores=1))
PINNED = a_flavor({'hw:cpu_policy': 'dedicated'}, vcpus=2)
PINNED_GUESTS = UsualGuests((UsualGuest(PINNED, 1),), {'PCPU': 2})
NAUGHT = 0.0
LEAST = None
"""What normalises to 0: that value, or the least found."""

WEIGHERS = [
    ('BuildFailureWeigher', {}, {'failed_builds': 1}, {}, (0, 1), LEAST, -1e6),
    ('CPUWeigher', {}, {'vcpus_used': 3}, {}, (8, 5), NAUGHT, 1),
    (
        'CrossCellWeigher',
        {'cell': 'near'},
        {'cell': 'far'},
        {'requested_destination': MOVING},
        (1, -1),
        LEAST,
        1e6,
    ),
    ('DiskWeigher', {'disk_gb': 2}, {'disk_gb': 1}, {}, (2048, 1024), NAUGHT, 1),
    (
        'FailureDomainWeigher',
        {'metadata': RACK, 'instances': SERVERS},
        {},
        {'group': a_group('affinity', [SERVER])},
        (1, 0),
        LEAST,
        2,
    ),
    (
        'FragmentationWeigher',
        {},
        {'numa': lambda: TWO_CPUS_TO_PIN},
        {'numa_topology': topologies.a_guest(topologies.a_pinned(1))},
        (0, -7),
        LEAST,
        1,
    ),
    (
        'HypervisorVersionWeigher',
        {'hypervisor_version': 9},
        {'hypervisor_version': 8},
        {},
        (9, 8),
        LEAST,
        1,
    ),
    (
        'ImagePropertiesWeigher',
        {'instances': SERVERS},
        {},
        {'image': {'os': 'linux'}},
        (1, 0),
        LEAST,
        1,
    ),
    ('IoOpsWeigher', {}, {'num_io_ops': 4}, {}, (0, 4), NAUGHT, -1),
    (
        'MetricsWeigher',
        {'metrics': ({'name': 'load', 'value': 5},)},
        {'metrics': ({'name': 'load', 'value': 1},)},
        {},
        (5, 1),
        LEAST,
        1,
    ),
    ('NumInstancesWeigher', {}, {'num_instances': 4}, {}, (0, 4), LEAST, -2),
    ('PCIWeigher', {}, {'pci': lambda: (Pool('p', 'v', 2),)}, {}, (100, 98), LEAST, 1),
    ('RAMWeigher', {'ram': 4096}, {'ram': 1024}, {}, (4096, 1024), NAUGHT, 1),
    (
        'ServerGroupSoftAffinityWeigher',
        {'instances': SERVERS},
        {},
        {'group': a_group('soft-affinity', [SERVER])},
        (1, 0),
        LEAST,
        1,
    ),
    (
        'ServerGroupSoftAntiAffinityWeigher',
        {},
        {'instances': SERVERS},
        {'group': a_group('soft-anti-affinity', [SERVER])},
        (0, -1),
        LEAST,
        1,
    ),
    (
        'TraitsWeigher',
        {'traits': ['CUSTOM_FAST']},
        {},
        {'extra_specs': {'trait:CUSTOM_FAST': 'preferred'}},
        (1, 0),
        LEAST,
        1000,
    ),
]


@pytest.mark.parametrize(
    ('name', 'better', 'worse', 'asked', 'raw', 'floor', 'multiplier'), WEIGHERS
)
def test_the_weights_of_the_best_hosts_are_shown_by_weigher(
    explain, name, better, worse, asked, raw, floor, multiplier
):
    """The weigher decides which host wins. The command shows the raw, normalised and
    multiplied weight of the best hosts, for the weigher alone."""
    settings = Settings(
        enabled_filters=(), metrics_weight_setting=('load=1',), metrics_required=False
    )
    kind = loading._entry_points('novasched.weighers')[name].load()
    settings = replace(settings, **{kind.multiplier: multiplier / kind.sign})
    hosts = []
    for host_name, fields in (('worse', worse), ('better', better)):
        own_fields = dict(fields)
        instances = own_fields.pop('instances', {})
        own_fields.pop('traits', None)
        hosts.append(replace(a_host(host_name, **own_fields), instances=instances))
    traits = {a_uuid('better'): better.get('traits', ())}
    placement = TraitsPlacement(slots_on(hosts, 9), traits)
    scheduler = RecordedScheduler(hosts, placement, settings=settings)
    scheduler.driver.deps.hosts.usual = PINNED_GUESTS
    decision = scheduler.ask(a_request(**asked))
    record = record_of(decision)
    assert record.result.hosts == ('better',)
    lines = explain(decision).splitlines()
    assert lines[0] == 'better: 2 of 2 hosts fit'
    cells = []
    for line in lines:
        cells += map(str.strip, line.split('|'))

    low = min(raw) if floor is None else floor
    winner, loser = record.attempts[0].best
    assert (winner.host, loser.host) == ('better', 'worse')
    other_weights = []
    for best, value in zip((winner, loser), raw, strict=True):
        share = (value - low) / (max(raw) - low)
        added = share * multiplier
        contributions = {each.weigher: each for each in best.shares}
        contribution = contributions.pop(name)
        assert contribution == Contribution(name, value, share, multiplier, added)
        other_weights.append({key: each.added for key, each in contributions.items()})
        assert best.weight == pytest.approx(added + sum(other_weights[-1].values()))
        assert f'{added:.4g} ({share:.4g} of {value:g})' in cells
    assert other_weights[0] == other_weights[1]
    assert winner.weight > loser.weight
    assert rejections_of(decision).against('worse') == ['fit, number 2 of 2 by weight']


@pytest.mark.parametrize('name', sorted(loading._entry_points('novasched.weighers')))
def test_every_weigher_has_a_row_in_the_test_table(name):
    assert name in {row[0] for row in WEIGHERS}, (
        f'{name} is in setup.cfg and has no row in WEIGHERS of '
        'tests/unit/observe/records/test_render.py: add one with two hosts that it tells apart'
    )


NARROWED = [
    (
        {'ignore_hosts': ('a',)},
        'b',
        '1 ignored by the request',
        'ignore_hosts: the request rules it out',
    ),
    (
        {'force_hosts': ('b',)},
        'b',
        '1 not forced by the request',
        'force_hosts: not the host that the request forces',
    ),
    (
        {'force_nodes': ('b',)},
        'b',
        '1 not forced by the request',
        'force_nodes: not the node that the request forces',
    ),
    (
        {'requested_destination': Destination(host='b')},
        'b',
        '1 not the requested destination',
        'requested_destination: not the host that the server is to move to',
    ),
]


@pytest.mark.parametrize(('asked', 'chosen', 'line', 'why'), NARROWED)
def test_hosts_ruled_out_by_the_request_count_apart(asked, chosen, line, why):
    """Hosts that the request rules out count apart from the hosts that filters
    reject."""
    decision = RecordedScheduler([A, B]).ask(a_request(**asked))
    assert render.headline(record_of(decision)) == f'{chosen}: 1 of 2 hosts fit, {line}'
    assert rejections_of(decision).against('a') == [why]


def test_hosts_of_refused_claims_are_named(explain):
    """The record names the hosts of refused claims, and the duration of the claims. If
    the second server finds its host taken, the record has only that host."""
    off = a_host('off', disabled=True)
    slots = slots_on((A, B, off), 0)
    placement = CountingPlacement(slots, stale=frozenset(slots))
    decision = RecordedScheduler([A, B, off], placement).ask(a_request())
    assert record_of(decision).attempts[0].refused == ('a', 'b')
    first, *others = explain(decision).splitlines()
    assert first == '0 of 3 hosts: 2 refused by Placement, 1 disabled'
    assert 'claims     refused on a, b' in others
    why = explain(decision, '--host', 'b').splitlines()[1:]
    assert why == ['b: Placement refused the claim', 'b: fit, number 2 of 2 by weight']
    one_left = CountingPlacement(
        {A.uuid: 1, B.uuid: 0}, stale=frozenset((A.uuid, B.uuid))
    )
    first, *_ = explain(
        RecordedScheduler([A, B], one_left).ask(a_request(count=2))
    ).splitlines()
    assert first == '0 of 2 hosts for server 2 of 2: 2 refused by Placement'


def test_a_record_counts_hosts_with_pending_claims():
    """For the second request a host has less by the claim of the first request."""
    scheduler = RecordedScheduler([A, B])
    first = record_of(scheduler.ask(a_request(instance_uuids=('one',))))
    second = record_of(scheduler.ask(a_request(instance_uuids=('two',))))
    assert [each.attempts[0].pending for each in (first, second)] == [0, 1]
    assert set(second.steps) == set(STEPS)


@pytest.mark.parametrize(
    ('error', 'line', 'refusal'),
    [
        (
            NoValidHost('No such host'),
            'Refused before Placement was asked: No such host',
            'No such host',
        ),
        (PlacementUnavailable('it is down'), 'Not decided: it is down', None),
        (DatabaseUnavailable('cell1 is down'), 'Not decided: cell1 is down', None),
        (ZeroDivisionError('a secret'), 'Not decided: ZeroDivisionError', None),
    ],
)
def test_the_headline_has_the_error_that_prevents_a_decision(
    explain, error, line, refusal
):
    """The record has a refusal before Placement is asked, and a failure. Of a foreign
    error the text is not kept."""

    def failing(request, basis):
        raise error

    settings = Settings(placement_patience=0, database_patience=0)
    scheduler = RecordedScheduler([A], prefilters=[failing], settings=settings)
    with suppress(type(error)):
        scheduler.ask(a_request())
    (decision,) = scheduler.log.decisions
    assert explain(decision).splitlines()[0] == line
    assert record_of(decision).result.refusal == refusal


def test_the_chance_scheduler_records_disabled_and_down_hosts():
    """Without filters the record has the hosts that are down or disabled, and no
    weights."""
    hosts = [A, a_host('off', disabled=True), a_host('away', up=False)]
    notebook = DecisionList()
    placement = CountingPlacement(slots_on(hosts, 1))
    parts = SchedulerDeps(
        Settings(), [], placement, MemoryHosts(hosts), recorder=notebook
    )
    driver = ChanceScheduler(parts)
    driver.select_destinations(a_request())
    with pytest.raises(NoValidHost):
        driver.select_destinations(
            a_request(ignore_hosts=('a',), instance_uuids=('other',))
        )
    lines = [render.headline(record) for record in notebook.records]
    assert lines == [
        'a: 1 of 3 hosts fit, 2 disabled or down',
        '0 of 3 hosts: 2 disabled or down, 1 not offered by Placement',
    ]


INQUIRIES = [
    (None, 'Placement offers no host'),
    (
        Diagnosis(('trait A', '9 VCPU'), 3, 3),
        'Placement offers no host, but would without trait A or without 9 VCPU',
    ),
    (Diagnosis((), 3, 3), 'Placement offers no host'),
    (Diagnosis((), 0, 3), 'Placement offers no host'),
    (
        Diagnosis((), 1, 1, refusal='No such trait'),
        'Placement offers no host: it refuses the query: No such trait',
    ),
]


@pytest.mark.parametrize(('inquiry', 'line'), INQUIRIES)
def test_the_headline_names_the_constraint_that_leaves_no_host(inquiry, line):
    """The headline names the constraint that leaves no host."""
    record = record_of(RecordedScheduler([A], CountingPlacement({})).ask(a_request()))
    assert render.headline(replace(record, diagnosis=inquiry)) == line


@pytest.mark.parametrize('fault_detail', ['none', 'counts'])
def test_the_report_says_that_placement_offered_no_candidates(explain, fault_detail):
    """The caller gets nova's standard text without a reason, or with the headline. The
    report says that Placement offered no candidates."""
    settings = Settings(fault_detail=fault_detail)
    scheduler = RecordedScheduler([A], CountingPlacement({}), settings=settings)
    decision = scheduler.ask(a_request())
    assert decision.refusal == ''
    assert record_of(decision).result.refusal == ''
    assert 'refused    Placement offered no allocation candidates\n' in explain(
        decision
    )


def test_a_refusal_without_a_reason_has_the_text_of_nova(explain):
    """A refusal has nova's standard text if Placement did offer candidates and the
    record has no reason."""
    decision = RecordedScheduler([A]).ask(a_request(ignore_hosts=('a',)))
    text = explain(replace(decision, refusal=''))
    assert 'refused    No valid host was found\n' in text
