# SPDX-License-Identifier: Apache-2.0
"""What the pipeline shares among hosts and keeps between servers changes no answer."""

import logging
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import entry_points
from random import Random

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler import fitting
from novasched.scheduler.filters import Scope
from novasched.scheduler.filters.shared import CandidateFilter
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.host import Aggregate, Instance
from novasched.scheduler.model.numa import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
)
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.model.request import Destination, Retry, ServerGroup
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.requested_hosts import hosts_after_each_field
from tests.lab.builders import a_flavor, a_host, a_mapped_candidate, a_request, a_uuid
from tests.lab.logs import logged, rejections

NAMES = sorted(entry_points(group='novasched.filters').names)
LENIENT = tuple(name for name in NAMES if not name.startswith('Exact'))
"""Filters that do not reject nearly everything."""
SERVERS = tuple(a_uuid(f'server{i}') for i in range(5))
OTHERS = ('x', 'y', 'z')
KEYS = (
    *(
        f'{name}_weight_multiplier'
        for name in ('ram', 'cpu', 'io_ops', 'pci', 'metrics')
    ),
    'availability_zone',
    'failure_domain',
    'max_io_ops_per_host',
    'ram_allocation_ratio',
    'os_type',
    'fast',
)
VALUES = ('0', '1', '2.5', '-1.5', 'many', 'a', 'a,b', 'linux', '4')
CPUS = frozenset(range(4))
CELLS = [
    HostTopology((HostCell(0, CPUS, 2048, CPUS, pinned_cpus=frozenset(range(pinned))),))
    for pinned in (0, 2, 4)
]
GUESTS = [
    GuestTopology((GuestCell(0, frozenset(range(4)), 512),)),
    GuestTopology(
        (GuestCell(0, frozenset(), 512, frozenset({0}), cpu_policy='dedicated'),)
    ),
]
DEVICE = PciRequest(1, ({'product_id': 'p'},), 'gpu', 'gpu')
POOLS = [
    (Pool('p', 'v', left, 0, {'rp_uuid': 'A'}), Pool('p', 'v', 1, 0, {'rp_uuid': 'B'}))
    for left in (1, 3)
]
TRIPLES = [
    (('x86_64', 'qemu', 'hvm'),),
    (('i686', 'qemu', 'hvm'), ('x86_64', 'kvm', 'hvm')),
]


def hosts_of(random, count):
    """Hosts that have much in common; some of that is the same object, some a copy."""
    aggregates = [
        tuple(
            Aggregate(
                i,
                None,
                f'a{i}',
                {k: random.choice(VALUES) for k in random.sample(KEYS, 2)},
            )
            for i in range(random.randrange(3))
        )
        for _ in range(3)
    ]
    return [_host(random, f'h{number}', aggregates) for number in range(count)]


def _host(random, name, aggregates):
    cells = random.choice(CELLS)
    pools = random.choice(POOLS)
    host = a_host(
        name,
        ram=512 * random.randrange(4, 9),
        disk_gb=10 * random.randrange(2, 5),
        vcpus_used=random.randrange(8),
        cell=random.choice(['cell1', 'cell2']),
        up=random.random() < 0.95,
        disabled=random.random() < 0.05,
        num_io_ops=random.randrange(4),
        num_instances=random.randrange(4),
        failed_builds=random.randrange(2),
        total_usable_ram_mb=4096,
        total_usable_disk_gb=100,
        cpu_allocation_ratio=random.choice([0.5, 2.0]),
        hypervisor_type=random.choice(['QEMU', 'QEMU', None]),
        hypervisor_version=random.choice([None, 6002000, 8000000, 8000000]),
        supported_instances=tuple(random.choice(TRIPLES)),
        stats={'gpus': random.choice([1, 2, None])} if random.random() < 0.8 else {},
        metrics=({'name': 'speed', 'value': random.randrange(9)},)
        if random.random() < 0.9
        else (),
        host_ip=random.choice(['10.0.0.1', '10.0.0.2', '10.1.0.1']),
        numa=lambda: cells,
        pci=lambda: pools,
    )
    shared = random.choice(aggregates)
    instances = {
        uuid: Instance(
            uuid, 'project', 1, {'os_type': random.choice(['linux', 'windows'])}
        )
        for uuid in random.sample([*SERVERS, *OTHERS], random.choice([0, 0, 1, 2]))
    }
    return replace(
        host,
        aggregates=shared if random.random() < 0.8 else (*shared, *()),
        instances=instances,
    )


def rarely(*others):
    """None but for one time in five."""
    return st.sampled_from([None] * 4 * len(others) + list(others))


HINTS = st.fixed_dictionaries(
    {},
    optional={
        'query': st.just(['[">=", "$free_ram_mb", 2560]']),
        'different_host': st.just(['y']),
        'build_near_host_ip': st.just(['10.0.0.9']),
    },
)
GROUPS = rarely(
    *(
        ServerGroup('group', 'g', policy, rules, frozenset({*SERVERS, 'x'}), hosts)
        for policy in (
            'affinity',
            'anti-affinity',
            'soft-affinity',
            'soft-anti-affinity',
        )
        for rules in ({}, {'max_server_per_host': '2'})
        for hosts in (frozenset(), frozenset({'h1', 'h2'}))
    )
)
EXTRA_SPECS = st.dictionaries(
    st.sampled_from(['capabilities:hypervisor_type', 'gpus', 'fast', 'nobodys']),
    st.sampled_from(['QEMU', '>= 1', 'a', '<in> 2']),
    max_size=1,
)
REQUESTS = st.builds(
    a_request,
    count=st.integers(1, len(SERVERS)),
    flavor=st.builds(
        a_flavor,
        EXTRA_SPECS,
        id=st.just(1),
        vcpus=st.integers(0, 2),
        memory_mb=st.sampled_from([0, 512]),
    ),
    image=rarely(
        {'os_type': 'linux'}, {'img_hv_type': 'kvm', 'img_hv_requested_version': '>=7'}
    ),
    hints=HINTS | rarely({'_nova_check_type': ['rebuild']}, {'same_host': ['x']}),
    group=GROUPS,
    availability_zone=rarely('a'),
    requested_destination=rarely(
        Destination(cell_uuid=a_uuid('cell1'), allow_cross_cell_move=True)
    ),
    ignore_hosts=st.just(()) | st.just(('h2',)),
    force_hosts=st.sampled_from([()] * 7 + [('h0', 'h1', 'h2')]),
    retry=rarely(Retry(1, (('h3', 'h3'),))),
    numa_topology=st.sampled_from([None, None, *GUESTS]),
    pci_requests=st.sampled_from([(), (), (DEVICE,)]),
)
SETTINGS = st.builds(
    Settings,
    enabled_filters=st.sampled_from([tuple(NAMES), LENIENT, LENIENT, LENIENT])
    | st.lists(st.sampled_from(LENIENT), max_size=6, unique=True).map(tuple),
    host_subset_size=st.integers(1, 3),
    shuffle_best_same_weighed_hosts=st.booleans(),
    num_instances_weight_multiplier=st.sampled_from([0.0, -0.5]),
    ram_weight_multiplier=st.sampled_from([1.0, 0.0, -1.0]),
    image_props_weight_multiplier=st.sampled_from([0.0, 1.0]),
    build_failure_weight_multiplier=st.sampled_from([1000000.0, 0.1]),
    metrics_weight_setting=st.just(()) | st.just(('speed=0.7',)),
    metrics_required=st.just(False),
    isolated_images=st.just(()) | st.just(('isolated',)),
    isolated_hosts=st.just(()) | st.just(('h4',)),
    max_io_ops_per_host=st.just(4),
    default_availability_zone=st.just('nova'),
)


def ranked(hosts, request, index, random, filters, weighers, settings, offers):
    """Ranking done the plain way, one host after the other, everything anew for each
    instance: the hosts that are left, the first one to try in front; and why the others
    are not. The candidates that are left of the offers replace them."""
    left = list(hosts)
    reasons = []
    for _, kept in hosts_after_each_field(hosts, request):
        left = list(kept)
    for each in () if request.skips_filters else filters:
        if (
            not left
            or not each.applies(request)
            or (index and each.scope is Scope.REQUEST)
        ):
            continue
        if request.is_rebuild and not each.on_rebuild:
            continue
        verdicts = [(host, _reason(each, host, request, offers)) for host in left]
        reasons += [
            (type(each).__name__, host, why)
            for host, why in verdicts
            if why is not None
        ]
        left = [host for host, why in verdicts if why is None]
    if not left:
        return [], reasons
    weights = [0.0] * len(left)
    for weigher in weighers if len(left) > 1 else ():
        added = _added(weigher, left, request)
        weights = [weight + each for weight, each in zip(weights, added, strict=True)]
    order = sorted(
        zip(weights, left, strict=True), key=lambda each: each[0], reverse=True
    )
    if settings.shuffle_best_same_weighed_hosts:
        best = [each for each in order if each[0] == order[0][0]]
        random.shuffle(best)
        order[: len(best)] = best
    best_first = [host for _, host in order]
    drawn = best_first.pop(
        random.randrange(min(settings.host_subset_size, len(best_first)))
    )
    return [drawn, *best_first], reasons


def _reason(each, host, request, offers):
    if not isinstance(each, CandidateFilter):
        return each.reject(host, request)
    reasons = [
        each.reject_candidate(host, request, fitting.mappings_of(request, candidate))
        for candidate in offers[host.uuid]
    ]
    if None not in reasons:
        return reasons[0]
    pairs = zip(offers[host.uuid], reasons, strict=True)
    offers[host.uuid] = [candidate for candidate, reason in pairs if reason is None]
    return None


def _added(weigher, hosts, request):
    scales = [_scale(weigher, host) for host in hosts]
    if not weigher.applies(request) or not any(scales):
        return [0.0] * len(hosts)
    raw = []
    for host in hosts:
        value = weigher.weigh(host, request)
        value = value if weigher.minval is None else max(value, weigher.minval)
        raw.append(value if weigher.maxval is None else min(value, weigher.maxval))
    low = min(raw) if weigher.minval is None else weigher.minval
    high = max(raw) if weigher.maxval is None else weigher.maxval
    shares = [(value - low) / (high - low) if low != high else 0.0 for value in raw]
    return [share * scale for share, scale in zip(shares, scales, strict=True)]


def _scale(weigher, host):
    try:
        return weigher.scale(host)
    except ValueError:
        return weigher.default_scale


@hypothesis_settings(max_examples=300)
@given(
    count=st.integers(1, 30),
    requests=st.lists(REQUESTS, min_size=1, max_size=3),
    settings=SETTINGS,
    seed=st.integers(),
    busy=st.booleans(),
)
def test_as_if_one_host_came_after_the_other(count, requests, settings, seed, busy):
    """For each server of several requests, the hosts that are left, their candidates,
    their order and the reasons against the others are those of asking every filter and
    weigher about each host; also where a host that was not chosen changes meanwhile."""
    begun = hosts_of(Random(seed), count)
    filters = loading.filters(settings)
    weighers = loading.weighers(settings)
    offers = CandidateIndex(
        a_mapped_candidate(host.uuid, 'gpu', [card]) for host in begun for card in 'AB'
    )
    shared = Pipeline(settings, filters, weighers)
    for request in requests:
        line = shared.for_request()
        for _ in range(
            2
        ):  # the second time as if Placement had refused what was chosen
            _compare(
                line, begun, request, offers, Random(seed), filters, weighers, busy
            )


def _compare(line, hosts, request, candidates, random, filters, weighers, busy):
    plain = dict(candidates)
    settings = line.settings
    for index, uuid in enumerate(request.instance_uuids):
        request = request.for_instance(uuid)
        same = deepcopy(random)
        wanted, why = ranked(
            hosts, request, index, same, filters, weighers, settings, plain
        )
        with logged('nova.filters', logging.DEBUG) as told:
            ranking = line.filter(hosts, request, index, candidates)
            ranking = line.weigh(ranking, request, index, random)
        found = ranking.hosts
        candidates = ranking.candidates
        assert list(map(id, found)) == list(map(id, wanted))
        assert rejections(told) == why
        assert candidates == plain
        if not found:
            break
        claimed = best, _, _ = found[0], request, candidates[found[0].uuid][0]
        place = fitting.claimed_fit(*claimed, line.limits(best, request), settings)
        after = fitting.with_instance_claimed(*claimed, place)
        hosts = [after, *found[1:]]
        if busy:
            hosts[-1] = replace(hosts[-1], free_ram_mb=9999, num_io_ops=0)
        if group := request.instance_group:
            group = replace(group, hosts=group.hosts | {after.host})
        request = replace(request, instance_group=group)
