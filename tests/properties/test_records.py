# SPDX-License-Identifier: Apache-2.0
"""The counts in the record of any decision add up."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.from_decision import (
    MAX_REASONS,
    grouped,
    rejections_of,
)
from novasched.observe.records.record import (
    from_json,
    rejections_from_json,
    rejections_to_json,
    to_json,
)
from novasched.observe.tracing import spans_of
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.filters.availability_zone import AvailabilityZoneFilter
from novasched.scheduler.filters.capacity import RamFilter
from novasched.scheduler.filters.compute import ComputeFilter
from novasched.scheduler.filters.io_ops import IoOpsFilter
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.model.request import (
    Destination,
    RequestedNetwork,
    Retry,
    ServerGroup,
)
from novasched.scheduler.requirements import numa
from novasched.scheduler.weighers import Weigher
from novasched.tools.simulate.sources import rebuilt
from tests.lab import topologies
from tests.lab.builders import (
    a_flavor,
    a_group,
    a_host,
    a_request,
    a_uuid,
    numbered_uuids,
)
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, record_of

TEXTS = st.sampled_from(
    ['{} MiB free', '{} of {} cells', 'disabled', 'host {} lacks {}', 'a.b.{}']
)


@given(
    st.dictionaries(
        st.builds(str.format, TEXTS, st.integers(-9, 9), st.integers(0, 99)),
        st.integers(1, 9),
    )
)
def test_grouping_loses_no_host(reasons):
    """Every host counts under one of a few reasons, the most frequent reason first."""
    causes = grouped(reasons)

    assert sum(cause.hosts for cause in causes) == sum(reasons.values())
    assert len(causes) <= MAX_REASONS
    for cause in causes:
        assert '\0' not in cause.reason


class EvenOnly(Filter):
    """A filter that rejects a part of the hosts."""

    def reject(self, host, request):
        if int(host.host[1:]) % 2:
            return f'{host.host} is odd'
        return None


def check_times(decision, record):
    """The steps fill the request without a gap, and have the durations of the
    record."""
    whole, *steps = spans_of(decision, record)
    edges = [whole.start, *(step.end for step in steps)]
    assert [(step.start, step.end) for step in steps] == [*pairwise(edges)]
    assert edges == sorted(edges)
    assert edges[-1] == whole.end

    durations = Counter()
    for step in steps:
        durations[step.name] += step.end - step.start
    assert dict(durations) == record.steps
    assert durations.total() == whole.end - record.at


def recounted(record, causes, hosts):
    """The outcome of each host, counted host by host from the reasons."""
    counts = Counter()
    last = record.attempts[-1]
    offered = set(causes.ranked.hosts)
    for stage in causes.dropped:
        offered.update(stage.names.hosts)

    def outcome_of(host):
        reasons = []
        for text in causes.against(host.host):
            if not text.startswith('fit, '):
                reasons.append(text)
        if reasons:
            stage, _, reason = reasons[0].partition(': ')
            return render.phrase(stage, reason)
        if host.host not in offered:
            return render.NOT_OFFERED
        if record.result.refusal is None:
            return render.FIT
        if host.host in last.refused:
            return render.REFUSED
        if host.host in last.unfit:
            return render.UNFIT
        return render.UNTRIED

    counts.update(map(outcome_of, hosts))
    return counts


@given(
    slots=st.lists(st.integers(-1, 2), min_size=1, max_size=8),
    stale=st.sets(st.integers(0, 7)),
    count=st.integers(1, 4),
    ram=st.sampled_from([0, 512, 1500, 4000]),
    apart=st.booleans(),
    ignored=st.sets(st.integers(0, 7), max_size=3),
    forced=st.sets(st.integers(0, 7), max_size=2),
    picky=st.booleans(),
)
def test_every_host_is_counted_once(
    slots, stale, count, ram, apart, ignored, forced, picky
):
    """Every host counts once: as not offered by Placement, as rejected by a field or a
    filter, as lost to another request, or as fit. A stage begins with the hosts that
    passed the stage before, and the record has as many names as the counts say."""
    settings = Settings()
    hosts = []
    free_slots = {}
    stale_hosts = set()
    forced_names = []
    for i, count_of_slots in enumerate(slots):
        host = a_host(f'h{i}', ram=1024 * (i % 3))
        hosts.append(host)
        free_slots[host.uuid] = max(count_of_slots, 0)
        if i in stale:
            stale_hosts.add(host.uuid)
        if i in forced:
            forced_names.append(host.host)
    placement = CountingPlacement(free_slots, stale=frozenset(stale_hosts))

    filters = [RamFilter(settings), ServerGroupAntiAffinityFilter(settings)]
    if picky:
        filters.append(EvenOnly(settings))
    decided = RecordedScheduler(hosts, placement, filters)

    request = a_request(count=count, flavor=a_flavor(memory_mb=ram))
    group = a_group('anti-affinity', request.instance_uuids) if apart else None
    request = replace(
        request,
        ignore_hosts=tuple(f'h{i}' for i in ignored),
        force_hosts=tuple(forced_names),
        instance_group=group,
    )

    decision = decided.ask(request)
    record = record_of(decision)

    assert from_json(to_json(record)) == record
    check_times(decision, record)
    if not record.counts.candidates:  # the scheduler reads no host then
        assert not render.tally(record)
        return
    assert render.tally(record).total() == len(hosts)
    check_counts(record)
    causes = rejections_of(decision)
    assert render.tally(record) == recounted(record, causes, hosts)
    check_names(record, causes)


def check_counts(record):
    """The hosts of a stage are the hosts that passed the stage before, and the hosts of
    an attempt are the hosts that passed the attempt before."""
    passed_before = record.counts.hosts
    for attempt in record.attempts:
        assert attempt.start == passed_before

        remaining = attempt.start
        for stage in attempt.stages:
            rejected = sum(cause.hosts for cause in stage.rejections)
            assert stage.start == remaining
            assert stage.start - stage.end == rejected
            remaining = stage.end
        assert attempt.passed == remaining
        assert len(attempt.refused) + len(attempt.unfit) <= remaining

        passed_before = attempt.passed


def check_names(record, causes):
    """Every rejected host has its name and its reason once."""
    names = []
    for stage in causes.dropped:
        names += stage.names.hosts
    assert len(names) == len(set(names))
    assert all(causes.against(name) for name in names)

    rejected = 0
    for attempt in record.attempts:
        for stage in attempt.stages:
            rejected += stage.start - stage.end
    assert len(names) == rejected


WORDS = {
    'not offered': 'not offered by Placement',
    'ignored': 'ignored by the request',
    'disabled': 'disabled',
    'down': 'down',
    'memory': 'lack free memory',
    'I/O': 'busy with I/O',
    'zone': 'in another zone',
    'odd': 'rejected by EvenOnly',
    'taken': 'refused by Placement',
}


@st.composite
def some_hosts(draw, number):
    """A host that some filters may reject."""
    zone = draw(st.sampled_from(['', 'west', 'east']))
    return a_host(
        f'h{number}',
        ram=draw(st.sampled_from([512, 2048, 4096])),
        num_io_ops=draw(st.integers(0, 16)),
        disabled=draw(st.booleans()),
        up=draw(st.booleans()),
        metadata={'availability_zone': zone} if zone else (),
    )


@given(
    data=st.data(),
    number=st.integers(1, 12),
    zone=st.sampled_from([None, 'west', 'nova']),
)
def test_the_headline_counts_equal_a_recount_of_all_hosts(data, number, zone):
    """The headline has the counts of a model that finds the first reason against each
    host in plain words."""
    hosts = [data.draw(some_hosts(i)) for i in range(number)]
    some_indexes = st.sets(st.integers(0, number - 1))
    offered = data.draw(some_indexes)
    ignored = data.draw(some_indexes)
    taken = data.draw(some_indexes)
    ram = data.draw(st.sampled_from([0, 1024, 3000]))

    def first_reason(index, host):
        zones = ['nova']
        if host.aggregates:
            zones = [row.metadata['availability_zone'] for row in host.aggregates]
        verdicts = {
            'not offered': index not in offered,
            'ignored': index in ignored,
            'disabled': host.service.disabled,
            'down': not host.service.up,
            'memory': host.free_ram_mb < ram,
            'I/O': host.num_io_ops >= 8,
            'zone': zone is not None and zone not in zones,
            'odd': index % 2,
        }
        for reason, is_rejected in verdicts.items():
            if is_rejected:
                return reason
        return 'fit'

    counts = Counter()
    fit = []
    for index, host in enumerate(hosts):
        reason = first_reason(index, host)
        counts[reason] += 1
        if reason == 'fit':
            fit.append(index)
    if fit and taken.issuperset(fit):
        counts['taken'] = counts.pop('fit')

    settings = Settings(initial_ram_allocation_ratio=1.0)
    filters = [
        ComputeFilter(settings),
        RamFilter(settings),
        IoOpsFilter(settings),
        AvailabilityZoneFilter(settings),
        EvenOnly(settings),
    ]
    slots = {}
    for index in sorted(offered):
        slots[hosts[index].uuid] = index not in taken
    stale = frozenset(hosts[index].uuid for index in taken)
    placement = CountingPlacement(slots, stale=stale)
    request = a_request(
        flavor=a_flavor(memory_mb=ram),
        availability_zone=zone,
        ignore_hosts=tuple(hosts[index].host for index in ignored),
    )
    decided = RecordedScheduler(hosts, placement, filters, settings=settings)
    record = record_of(decided.ask(request))

    if not offered:
        assert render.headline(record) == 'Placement offers no host'
        return
    phrases = {}
    for reason, count in counts.items():
        phrases[WORDS.get(reason, reason)] = count
    assert render.tally(record) == phrases
    head, _, tail = render.headline(record).partition(': ')
    parts = tail.split(', ')
    all_hosts = f'{number} host{"s" * (number > 1)}'
    if record.result.hosts:
        assert parts.pop(0) == f'{phrases.pop("fit")} of {all_hosts} fit'
    else:
        assert head == f'0 of {all_hosts}'
    expected_parts = set()
    for phrase, count in phrases.items():
        expected_parts.add(f'{count} {phrase}')
    assert {*parts} == expected_parts


class AnyWeigher(Weigher):
    """A weigher of a plugin, with the raw weights of a test by host."""

    multiplier = 'any_weight_multiplier'

    def __init__(self, raw):
        super().__init__(Settings())
        self.raw = raw

    def weigh(self, host, request):
        return self.raw[host.host]


class AnyReason(Filter):
    """A filter of a plugin, with the reasons of a test by host."""

    def __init__(self, reasons):
        super().__init__(Settings())
        self.reasons = reasons

    def reject(self, host, request):
        return self.reasons[host.host]


NUMBER = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 10**400])
REASON = st.none() | st.text(st.characters(), max_size=9) | st.just('\ud800 \U0001f600')


@given(
    hosts=st.lists(
        st.tuples(
            NUMBER, st.sampled_from(['1', 'nan', 'inf', '-inf', '1e400']), REASON
        ),
        min_size=1,
        max_size=5,
    ),
    count=st.integers(1, 2),
)
@example(hosts=[(math.nan, '1', None), (1.0, '1', None)], count=1)
@example(hosts=[(math.inf, '1', None), (1.0, '1', None)], count=1)
@example(hosts=[(1.0, '1', None), (1.0, 'inf', None)], count=1)
def test_a_record_with_any_weights_and_reasons_is_read_as_written(hosts, count):
    """A record of any weights, multipliers and reasons is read as it was written."""
    rows = []
    raw = {}
    reasons = {}
    for i, (weight, multiplier, reason) in enumerate(hosts):
        metadata = {'ram_weight_multiplier': multiplier, 'any_weight_multiplier': '-2'}
        rows.append(a_host(f'h{i}', ram=1024 * i, metadata=metadata))
        raw[f'h{i}'] = weight
        reasons[f'h{i}'] = reason
    scheduler = RecordedScheduler(
        rows, filters=[AnyReason(reasons)], weighers=[AnyWeigher(raw)]
    )

    try:
        decision = scheduler.ask(a_request(count=count))
    except BadPlugin:
        decision = scheduler.log.decisions[-1]

    record = record_of(decision)
    assert from_json(to_json(record)) == record
    rejections = rejections_from_json(rejections_to_json(rejections_of(decision)))
    assert rejections.ranked.hosts == rejections_of(decision).ranked.hosts


def test_a_record_with_missing_and_unknown_fields_is_read():
    """Fields that are missing have their defaults, and unknown fields are skipped."""
    text = (
        b'{"id":"x","at":1.5,"seed":1,"request_id":null,"global_request_id":null,'
        b'"request":{"flavor":{}},"new":[]}'
    )
    assert from_json(text).request.count == 1
    document = msgspec.json.decode(to_json(from_json(text)))
    assert document['result']['hosts'] == []
    assert list(document['request']) == ['flavor']


NAMES = [f'h{i}' for i in range(4)]
IDS = numbered_uuids('member', 4)
some_names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
some_ids = st.frozensets(st.sampled_from(IDS), max_size=3)
some_traits = st.frozensets(st.sampled_from(['CUSTOM_A', 'CUSTOM_B']), max_size=2)
some_retries = some_names.map(
    lambda names: Retry(hosts=tuple(zip(names, names, strict=True)))
)
GROUPS = st.builds(
    ServerGroup,
    uuid=st.just(a_uuid('group')),
    policy=st.sampled_from(
        ['affinity', 'anti-affinity', 'soft-affinity', 'soft-anti-affinity', None]
    ),
    rules=st.sampled_from([{}, {'max_server_per_host': '2'}]),
    members=some_ids,
    hosts=st.frozensets(st.sampled_from(NAMES)),
)
REQUEST_PARTS = {
    'availability_zone': st.sampled_from([None, 'west']),
    'extra_specs': st.sampled_from([{}, {'hw:numa_nodes': '1'}, {'long:x': 'y' * 300}]),
    'image': st.sampled_from(
        [None, {}, {'hw_cpu_policy': 'dedicated', 'traits_required': ['X']}]
    ),
    'hints': st.sampled_from([{}, {'different_host': IDS}, {'same_host': IDS[:1]}]),
    'group': st.none() | GROUPS,
    'ignore_hosts': some_names,
    'force_hosts': some_names,
    'requested_destination': st.none()
    | st.builds(
        Destination,
        host=st.sampled_from([None, *NAMES]),
        cell_uuid=st.sampled_from([None, a_uuid('cell1'), a_uuid('cell2')]),
        aggregates=st.sampled_from([(), (frozenset(IDS[:2]), frozenset(IDS[1:]))]),
        forbidden_aggregates=some_ids,
        allow_cross_cell_move=st.booleans(),
    ),
    'retry': st.none() | some_retries,
    'numa_topology': st.builds(
        topologies.a_guest, st.builds(topologies.a_pinned, st.integers(1, 6))
    ),
    'physnets': st.none() | some_traits,
    'tunneled': st.booleans(),
    'pci_requests': st.lists(
        st.builds(
            PciRequest,
            count=st.integers(1, 3),
            spec=st.just(({'vendor_id': 'v', 'product_id': 'p'},)),
            alias_name=st.sampled_from([None, 'gpu']),
            request_id=st.sampled_from(IDS),
            numa_policy=st.sampled_from([None, 'required']),
        ),
        max_size=2,
    ).map(tuple),
    'requested_resources': st.lists(
        st.builds(
            RequestGroup,
            requester_id=st.sampled_from(IDS),
            resources=st.just({'CUSTOM_X': 1}),
            required_traits=some_traits,
            aggregates=st.sampled_from([(), (frozenset(IDS[:1]),)]),
        ),
        max_size=2,
    ).map(tuple),
    'requested_networks': st.sampled_from([(), (RequestedNetwork(*IDS[:3]),)]),
    'root_required': some_traits,
    'same_subtree': st.lists(some_traits, max_size=2).map(tuple),
}


@given(
    parts=st.fixed_dictionaries({}, optional=REQUEST_PARTS), seed=st.integers(0, 2**32)
)
def test_a_rebuilt_request_is_decided_like_the_original_request(parts, seed):
    """The request of a record is decided like the original request, host by host and
    reason by reason, groups, destinations, devices and ports included."""
    cells = topologies.a_host(
        topologies.a_cell(0, cores=2), topologies.a_cell(1, cores=1)
    )
    hosts = []
    for number, name in enumerate(NAMES):
        host = a_host(
            name,
            cell=f'cell{1 + number % 2}',
            metadata={'availability_zone': 'west'} if number > 1 else (),
            instances=IDS[number : number + 1],
            numa=lambda number=number: None if number == 3 else cells,
            pci=lambda number=number: (Pool('p', 'v', number, 0),),
        )
        hosts.append(host)
    settings = Settings(
        enabled_filters=(
            *Settings().enabled_filters,
            'PciPassthroughFilter',
            'NUMATopologyFilter',
            'SameHostFilter',
            'DifferentHostFilter',
        )
    )
    request = a_request(**parts)
    topology = request.numa_topology
    if not topology:
        topology = numa.topology(request.flavor, request.requirements.properties)
    request = replace(request, numa_topology=topology)

    def decide(request):
        driver = RecordedScheduler(hosts, settings=settings).driver
        return record_of(driver.decide(request, seed))

    record = decide(request)
    rebuilt_request = rebuilt(from_json(to_json(record)), settings)
    assert not isinstance(rebuilt_request, str)
    second_record = decide(rebuilt_request)

    assert replace(second_record, steps=record.steps) == record
