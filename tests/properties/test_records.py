# SPDX-License-Identifier: Apache-2.0
"""The counts of a record add up, whatever the decision."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.from_decision import (
    MAX_REASONS,
    grouped,
    rejections_of,
)
from novasched.observe.records.record import from_json, to_json
from novasched.observe.tracing import spans_of
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
from novasched.tools.simulate.sources import rebuilt
from tests.lab import topologies
from tests.lab.builders import a_flavor, a_group, a_host, a_request, a_uuid
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
    assert sum(each.hosts for each in causes) == sum(reasons.values())
    assert len(causes) <= MAX_REASONS
    assert all('\0' not in each.reason for each in causes)


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
    took = Counter()
    for step in steps:
        took[step.name] += step.end - step.start
    assert dict(took) == record.steps
    assert took.total() == whole.end - record.at


def recounted(record, causes, hosts):
    """The outcome of each host, counted host by host from the reasons."""
    counts = Counter()
    last = record.attempts[-1]
    offered = set(causes.ranked.hosts)
    for stage in causes.dropped:
        offered.update(stage.names.hosts)
    for host in hosts:
        against = [
            each for each in causes.against(host.host) if not each.startswith('fit, ')
        ]
        if against:
            stage, _, reason = against[0].partition(': ')
            counts[render.phrase(stage, reason)] += 1
        elif host.host not in offered:
            counts[render.NOT_OFFERED] += 1
        elif record.result.refusal is None:
            counts[render.FIT] += 1
        elif host.host in (*last.refused, *last.unfit):
            counts[render.REFUSED if host.host in last.refused else render.UNFIT] += 1
        else:
            counts[render.UNTRIED] += 1
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
    """Hosts that Placement does not offer, that a field or a filter rejects, that are
    lost to other requests, and that fit are all hosts. Each stage begins with the hosts
    that the stage before passed, and the names are as many as the numbers."""
    settings = Settings()
    hosts = [a_host(f'h{i}', ram=1024 * (i % 3)) for i in range(len(slots))]
    placement = CountingPlacement(
        {host.uuid: max(left, 0) for host, left in zip(hosts, slots, strict=True)},
        stale=frozenset(hosts[i].uuid for i in stale if i < len(hosts)),
    )
    filters = [RamFilter(settings), ServerGroupAntiAffinityFilter(settings)]
    decided = RecordedScheduler(
        hosts, placement, [*filters, EvenOnly(settings)] if picky else filters
    )
    request = a_request(count=count, flavor=a_flavor(memory_mb=ram))
    request = replace(
        request,
        ignore_hosts=tuple(f'h{i}' for i in ignored),
        force_hosts=tuple(f'h{i}' for i in forced if i < len(hosts)),
        instance_group=a_group('anti-affinity', request.instance_uuids)
        if apart
        else None,
    )
    decision = decided.ask(request)
    record = record_of(decision)
    assert from_json(to_json(record)) == record
    check_times(decision, record)
    if not record.counts.candidates:  # no host is read for that
        assert not render.tally(record)
        return
    assert render.tally(record).total() == len(hosts)
    for attempt in record.attempts:
        left = attempt.start
        for stage in attempt.stages:
            assert stage.start == left
            assert stage.start - stage.end == sum(
                cause.hosts for cause in stage.rejections
            )
            left = stage.end
        assert attempt.passed == left
        assert len(attempt.refused) + len(attempt.unfit) <= left
    starts = [record.counts.hosts, *(attempt.passed for attempt in record.attempts)]
    assert [attempt.start for attempt in record.attempts] == starts[
        : len(record.attempts)
    ]
    causes = rejections_of(decision)
    assert render.tally(record) == recounted(record, causes, hosts)
    dropped = []
    for stage in causes.dropped:
        dropped += stage.names.hosts
    assert len(dropped) == len(set(dropped))
    rejected = 0
    for attempt in record.attempts:
        for stage in attempt.stages:
            rejected += stage.start - stage.end
    assert len(dropped) == rejected
    assert all(causes.against(name) for name in dropped)


WORDS = {
    'not offered': 'not offered by Placement',
    'ignored': 'ignored by the request',
    'disabled': 'disabled',
    'down': 'down',
    'memory': 'lack free memory',
    'I/O': 'busy with I/O',
    'zone': 'in another zone',
    'odd': 'rejected by EvenOnly',
    'taken': 'claimed by others',
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
def test_the_first_line_is_that_of_a_recount(data, number, zone):
    """The headline has the counts of a model that finds the first reason against each
    host in plain words."""
    hosts = [data.draw(some_hosts(i)) for i in range(number)]
    some = st.sets(st.integers(0, number - 1))
    offered = data.draw(some)
    ignored = data.draw(some)
    taken = data.draw(some)
    ram = data.draw(st.sampled_from([0, 1024, 3000]))

    def against(place, host):
        mine = [each.metadata.get('availability_zone') for each in host.aggregates] or [
            'nova'
        ]
        facts = {
            'not offered': place not in offered,
            'ignored': place in ignored,
            'disabled': host.service.disabled,
            'down': not host.service.up,
            'memory': host.free_ram_mb < ram,
            'I/O': host.num_io_ops >= 8,
            'zone': zone is not None and zone not in mine,
            'odd': place % 2,
        }
        return next((why for why, is_so in facts.items() if is_so), 'fit')

    counts = Counter(against(place, host) for place, host in enumerate(hosts))
    fit = [place for place, host in enumerate(hosts) if against(place, host) == 'fit']
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
    placement = CountingPlacement(
        {hosts[place].uuid: place not in taken for place in sorted(offered)},
        stale=frozenset(hosts[place].uuid for place in taken),
    )
    request = a_request(
        flavor=a_flavor(memory_mb=ram),
        availability_zone=zone,
        ignore_hosts=tuple(hosts[place].host for place in ignored),
    )
    record = record_of(
        RecordedScheduler(hosts, placement, filters, settings=settings).ask(request)
    )
    if not offered:
        assert render.headline(record) == 'Placement offers no host'
        return
    told = {WORDS.get(why, why): each for why, each in counts.items()}
    assert render.tally(record) == told
    head, _, tail = render.headline(record).partition(': ')
    parts = tail.split(', ')
    if record.result.hosts:
        assert (
            parts.pop(0)
            == f'{told.pop("fit")} of {number} host{"s" * (number > 1)} fit'
        )
    else:
        assert head == f'0 of {number} host{"s" * (number > 1)}'
    assert {*parts} == {f'{each} {words}' for words, each in told.items()}


def test_fields_of_a_record():
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
IDS = [a_uuid(f'member{i}') for i in range(4)]
some_names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
some_ids = st.frozensets(st.sampled_from(IDS), max_size=3)
some_traits = st.frozensets(st.sampled_from(['CUSTOM_A', 'CUSTOM_B']), max_size=2)
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
    'retry': st.none()
    | st.builds(Retry, hosts=some_names.map(lambda x: tuple((n, n) for n in x))),
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
def test_a_record_is_decided_as_the_request_was(parts, seed):
    """The request of a record is decided like the original request, host by host and
    reason by reason, groups, destinations, devices and ports included."""
    settings = Settings()
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
    kinds = [
        'PciPassthroughFilter',
        'NUMATopologyFilter',
        'SameHostFilter',
        'DifferentHostFilter',
    ]
    settings = Settings(enabled_filters=(*settings.enabled_filters, *kinds))
    request = a_request(**parts)
    usual = numa.topology(request.flavor, request.requirements.properties)
    request = replace(request, numa_topology=request.numa_topology or usual)
    record = record_of(
        RecordedScheduler(hosts, settings=settings).driver.decide(request, seed)
    )
    again = rebuilt(from_json(to_json(record)), settings)
    assert not isinstance(again, str)
    same = record_of(
        RecordedScheduler(hosts, settings=settings).driver.decide(again, seed)
    )
    assert replace(same, steps=record.steps) == record
