# SPDX-License-Identifier: Apache-2.0
"""The pipeline shares results among hosts and instances without changing an answer."""

import logging
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import product
from operator import add, itemgetter
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
from tests.lab.builders import (
    a_flavor,
    a_host,
    a_mapped_candidate,
    a_request,
    a_uuid,
    numbered_uuids,
)
from tests.lab.logs import logged, rejections

NAMES = sorted(entry_points(group='novasched.filters').names)
LENIENT = tuple(name for name in NAMES if not name.startswith('Exact'))
"""Filters that do not reject nearly everything."""
SERVERS = tuple(numbered_uuids('server', 5))
OTHERS = ('x', 'y', 'z')
KEYS = (
    'ram_weight_multiplier',
    'cpu_weight_multiplier',
    'io_ops_weight_multiplier',
    'pci_weight_multiplier',
    'metrics_weight_multiplier',
    'availability_zone',
    'failure_domain',
    'max_io_ops_per_host',
    'ram_allocation_ratio',
    'os_type',
    'fast',
)
VALUES = ('0', '1', '2.5', '-1.5', 'many', 'a', 'a,b', 'linux', '4')
CPUS = frozenset(range(4))
CELLS = []
for pinned in (0, 2, 4):
    pinned_cpus = frozenset(range(pinned))
    CELLS.append(
        HostTopology((HostCell(0, CPUS, 2048, CPUS, pinned_cpus=pinned_cpus),))
    )
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
    """Hosts that have much in common: some values are the same object, some are
    copies."""
    choices_of_aggregates = [_aggregates(random) for _ in range(3)]
    return [_host(random, f'h{i}', choices_of_aggregates) for i in range(count)]


def _aggregates(random):
    aggregates = []
    for number in range(random.randrange(3)):
        metadata = {}
        for key in random.sample(KEYS, 2):
            metadata[key] = random.choice(VALUES)
        aggregates.append(Aggregate(number, None, f'a{number}', metadata))
    return tuple(aggregates)


def _host(random, name, choices_of_aggregates):
    cells = random.choice(CELLS)
    pools = random.choice(POOLS)
    stats = {}
    if random.random() < 0.8:
        stats = {'gpus': random.choice([1, 2, None])}
    metrics = ()
    if random.random() < 0.9:
        metrics = ({'name': 'speed', 'value': random.randrange(9)},)

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
        stats=stats,
        metrics=metrics,
        host_ip=random.choice(['10.0.0.1', '10.0.0.2', '10.1.0.1']),
        numa=lambda: cells,
        pci=lambda: pools,
    )

    instances = {}
    for uuid in random.sample([*SERVERS, *OTHERS], random.choice([0, 0, 1, 2])):
        os_type = random.choice(['linux', 'windows'])
        instances[uuid] = Instance(uuid, 'project', 1, {'os_type': os_type})

    aggregates = random.choice(choices_of_aggregates)
    if random.random() >= 0.8:
        aggregates = (*aggregates, *())
    return replace(host, aggregates=aggregates, instances=instances)


def rarely(*values):
    """None four times out of five."""
    return st.sampled_from([None] * 4 * len(values) + list(values))


HINTS = st.fixed_dictionaries(
    {},
    optional={
        'query': st.just(['[">=", "$free_ram_mb", 2560]']),
        'different_host': st.just(['y']),
        'build_near_host_ip': st.just(['10.0.0.9']),
    },
)


def server_groups():
    """Groups of every policy, with and without rules and hosts."""
    groups = []
    for policy, rules, hosts in product(
        ('affinity', 'anti-affinity', 'soft-affinity', 'soft-anti-affinity'),
        ({}, {'max_server_per_host': '2'}),
        (frozenset(), frozenset({'h1', 'h2'})),
    ):
        members = frozenset({*SERVERS, 'x'})
        groups.append(ServerGroup('group', 'g', policy, rules, members, hosts))
    return groups


GROUPS = rarely(*server_groups())
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
    """A plain model of the ranking: host by host, and anew for each instance.

    :param offers: host UUID to candidates; a filter removes the rejected candidates.
    :returns: the remaining hosts, the first host to try in front; and (filter, host,
        reason) for each rejected host.
    """
    remaining = list(hosts)
    for _, kept in hosts_after_each_field(hosts, request):
        remaining = list(kept)

    rejections = []
    for plugin in filters:
        if remaining and _is_asked(plugin, request, index):
            remaining = _filtered(plugin, remaining, request, offers, rejections)
    if not remaining:
        return [], rejections

    weights = [0.0] * len(remaining)
    if len(remaining) > 1:
        for weigher in weighers:
            shares = _weight_shares(weigher, remaining, request)
            weights = list(map(add, weights, shares))

    order = sorted(
        zip(weights, remaining, strict=True), key=itemgetter(0), reverse=True
    )
    if settings.shuffle_best_same_weighed_hosts:
        best = [pair for pair in order if pair[0] == order[0][0]]
        random.shuffle(best)
        order[: len(best)] = best
    best_first = [host for _, host in order]
    subset_size = min(settings.host_subset_size, len(best_first))
    drawn = best_first.pop(random.randrange(subset_size))
    return [drawn, *best_first], rejections


def _is_asked(plugin, request, index):
    """True if a filter judges hosts for the instance of an index."""
    if request.skips_filters or not plugin.applies(request):
        return False
    if index and plugin.scope is Scope.REQUEST:
        return False
    return plugin.on_rebuild or not request.is_rebuild


def _filtered(plugin, hosts, request, offers, rejections):
    """The hosts that pass a filter. The rejections are added to ``rejections``."""
    passed = []
    for host in hosts:
        reason = _reason(plugin, host, request, offers)
        if reason is None:
            passed.append(host)
        else:
            rejections.append((type(plugin).__name__, host, reason))
    return passed


def _reason(plugin, host, request, offers):
    """The reason against a host, or None."""
    if not isinstance(plugin, CandidateFilter):
        return plugin.reject(host, request)

    reasons = []
    passed = []
    for candidate in offers[host.uuid]:
        mappings = fitting.mappings_of(request, candidate)
        reason = plugin.reject_candidate(host, request, mappings)
        reasons.append(reason)
        if reason is None:
            passed.append(candidate)
    if None not in reasons:
        return reasons[0]
    offers[host.uuid] = passed
    return None


def _weight_shares(weigher, hosts, request):
    """The contribution of a weigher to the weight of each host."""
    scales = [_scale(weigher, host) for host in hosts]
    if not weigher.applies(request) or not any(scales):
        return [0.0] * len(hosts)

    raw_values = []
    for host in hosts:
        value = weigher.weigh(host, request)
        if weigher.minval is not None:
            value = max(value, weigher.minval)
        if weigher.maxval is not None:
            value = min(value, weigher.maxval)
        raw_values.append(value)

    low = min(raw_values) if weigher.minval is None else weigher.minval
    high = max(raw_values) if weigher.maxval is None else weigher.maxval
    shares = []
    for value, scale in zip(raw_values, scales, strict=True):
        normalised = 0.0
        if low != high:
            normalised = (value - low) / (high - low)
        shares.append(normalised * scale)
    return shares


def _scale(weigher, host):
    try:
        return weigher.scale(host)
    except ValueError:
        return weigher.default_scale


@hypothesis_settings(max_examples=150)
@given(
    count=st.integers(1, 30),
    requests=st.lists(REQUESTS, min_size=1, max_size=3),
    settings=SETTINGS,
    seed=st.integers(),
    busy=st.booleans(),
)
def test_the_pipeline_ranks_like_a_plain_host_by_host_model(
    count, requests, settings, seed, busy
):
    """For each instance of several requests, the pipeline has the remaining hosts,
    candidates, order and reasons of the plain model, which asks every filter and
    weigher about each host. A host may change between two instances."""
    hosts = hosts_of(Random(seed), count)
    filters = loading.filters(settings)
    weighers = loading.weighers(settings)
    candidates = []
    for host in hosts:
        for card in 'AB':
            candidates.append(a_mapped_candidate(host.uuid, 'gpu', [card]))
    offers = CandidateIndex(candidates)
    shared = Pipeline(settings, filters, weighers)

    for request in requests:
        pipeline = shared.for_request()
        # The second attempt follows a refusal of the chosen candidates by Placement.
        for _attempt in range(2):
            random = Random(seed)
            _compare(pipeline, hosts, request, offers, random, filters, weighers, busy)


def _compare(pipeline, hosts, request, candidates, random, filters, weighers, busy):
    offers = dict(candidates)
    settings = pipeline.settings
    for index, uuid in enumerate(request.instance_uuids):
        request = request.for_instance(uuid)
        same_random = deepcopy(random)
        expected_hosts, expected_rejections = ranked(
            hosts, request, index, same_random, filters, weighers, settings, offers
        )

        with logged('nova.filters', logging.DEBUG) as log:
            ranking = pipeline.filter(hosts, request, index, candidates)
            ranking = pipeline.weigh(ranking, request, index, random)

        candidates = ranking.candidates
        assert list(map(id, ranking.hosts)) == list(map(id, expected_hosts))
        assert rejections(log) == expected_rejections
        assert candidates == offers
        if not ranking.hosts:
            break

        best, *alternates = ranking.hosts
        candidate = candidates[best.uuid][0]
        limits = pipeline.limits(best, request)
        fit = fitting.claimed_fit(best, request, candidate, limits, settings)
        claimed = fitting.with_instance_claimed(best, request, candidate, fit)
        hosts = [claimed, *alternates]
        if busy:
            hosts[-1] = replace(hosts[-1], free_ram_mb=9999, num_io_ops=0)
        group = request.instance_group
        if group:
            group = replace(group, hosts=group.hosts | {claimed.host})
        request = replace(request, instance_group=group)
