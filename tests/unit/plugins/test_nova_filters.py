# SPDX-License-Identifier: Apache-2.0
"""Filters written for nova, in the filter scheduler."""

import operator
from dataclasses import replace

import pytest

from novasched.conf.settings import ALL_FILTERS, Settings
from novasched.plugins import loading
from novasched.scheduler.errors import BadPlugin, NoValidHost
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.host import HostSnapshot, HostView, Instance
from novasched.scheduler.model.request import Origin
from novasched.scheduler.plugin import Data
from tests.lab import memory_schedulers
from tests.lab.builders import a_candidate, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver

STYLE = 'tests.unit.plugins.nova_style'
EAST = a_host('east', metadata={'rack': 'r1'}, num_instances=1)
WEST = a_host('west', metadata={'rack': 'r2'}, num_instances=1)
BARE = a_host('bare', num_instances=3)
BUILT_IN = ('ComputeFilter', 'DifferentHostFilter', 'IoOpsFilter')
REBUILD = {'_nova_check_type': ['rebuild']}


class Cells(MemoryHosts):
    """Hosts in memory that show either all instances or the named instances only."""

    def __init__(self, hosts):
        super().__init__(hosts)
        self.reads = []

    def read(self, uuids, request, needs, basis):
        self.reads.append(Data.INSTANCES in needs.data)
        snapshot = super().read(uuids, request, needs, basis)
        if Data.INSTANCES in needs.data:
            return snapshot

        hosts = {}
        for host in snapshot.hosts.values():
            shown = {}
            for uuid in host.instances.keys() & needs.named:
                shown[uuid] = host.instances[uuid]
            hosts[host.uuid] = replace(host, instances=shown)
        return HostSnapshot(HostView(hosts))


def scheduler(*names, hosts=(EAST, WEST, BARE), weighers=()):
    """A scheduler with plugins of nova_style and built-in filters."""
    available = [ALL_FILTERS]
    for name in names:
        if name not in BUILT_IN:
            available.append(f'{STYLE}.{name}')
    settings = Settings(
        available_filters=tuple(available),
        enabled_filters=names,
        weight_classes=tuple(f'{STYLE}.{name}' for name in weighers),
    )

    filters = loading.filters(settings)
    return a_driver(Cells(hosts), *filters, weighers=loading.weighers(settings))


def ask(driver, **fields):
    """The hosts of each instance: the chosen host and the alternates."""
    driver.deps.placement.allocations.clear()
    return memory_schedulers.ask(driver, return_alternates=True, **fields)


def left(driver, **fields):
    """The hosts that can take the only instance."""
    try:
        (row,) = ask(driver, **fields)
    except NoValidHost:
        return []
    return sorted(row)


ANY = ['bare', 'east', 'west']


def a_rebuild(**hints):
    """The fields of a rebuild that may stay on any host."""
    return {'hints': {**REBUILD, **hints}, 'force_hosts': ANY}


@pytest.mark.parametrize(
    ('names', 'fields', 'hosts'),
    [
        (['RackFilter'], {}, ANY),
        (['RackFilter'], {'hints': {'rack': ['r3']}}, []),
        (['RackFilter', 'QuietestFilter'], {'hints': {'rack': ['r2']}}, ['west']),
        (['ComputeFilter', 'QuietestFilter'], {}, ['east', 'west']),
        (['EvenFilter'], {}, ANY),
        (['RackFilter'], a_rebuild(rack=['r1']), ANY),
        (['SureFilter'], a_rebuild(rack=['r1']), ['east']),
        (['QuietestFilter'], a_rebuild(), ['east', 'west']),
        (
            ['RackFilter'],
            {'hints': {'rack': ['r1']}, 'force_hosts': ['bare']},
            ['bare'],
        ),
    ],
)
def test_nova_filters_judge_hosts_singly_or_together(names, fields, hosts):
    """A filter may judge hosts singly or together. A filter does not run for forced
    hosts, nor on a rebuild, unless it sets RUN_ON_REBUILD or judges hosts together."""
    assert left(scheduler(*names), **fields) == hosts


def test_a_filter_may_run_once_per_request_or_for_each_instance():
    """A filter with run_filter_once_per_request runs for the first instance. A filter
    with run_filter_for_index is asked for every instance."""
    hints = {'rack': ['r1']}
    assert ask(scheduler('RackFilter'), count=2, hints=hints) == [['east'], ['east']]
    with pytest.raises(NoValidHost):
        ask(scheduler('EvenFilter'), count=2)


def test_a_filter_sees_earlier_instances_of_the_request():
    """For the second instance, a filter sees the first instance on its host. Rejected
    hosts stay rejected for the rest of the request."""
    driver = scheduler('QuietestFilter')
    assert [row[0] for row in ask(driver, count=3)] == ['east', 'west', 'west']


@pytest.mark.parametrize(
    ('names', 'hints', 'hosts'),
    [
        (['RackFilter'], {}, ['east', 'west']),
        (['RackFilter', 'NeighbourFilter'], {'neighbour': ['please']}, ['west']),
        (
            ['NeighbourFilter', 'DifferentHostFilter'],
            {'neighbour': ['please'], 'different_host': [a_uuid('elsewhere')]},
            ['west'],
        ),
    ],
)
def test_all_instances_on_hosts_are_read_once_per_request(names, hints, hosts):
    """As in nova, all instances are read once for every request, even if another filter
    names instances."""
    instances = {a_uuid('s'): Instance(a_uuid('s'), project_id='project')}
    driver = scheduler(*names, hosts=(EAST, replace(WEST, instances=instances)))
    assert left(driver, hints=hints) == hosts
    assert driver.deps.hosts.reads == [True]


def test_limits_set_by_a_filter_are_in_the_selections():
    """The selections have the limits that a filter sets, as whole numbers. Names that
    nova does not have are left out."""
    driver = scheduler('RackFilter', 'LimitFilter')
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    assert [selection.limits for selection in row] == [{'memory_mb': 12288}] * 3


def test_an_invalid_limit_is_an_error_before_the_claim():
    """An invalid limit is an error before the claim."""
    driver = scheduler('TextLimitFilter')
    with pytest.raises(BadPlugin, match='TextLimitFilter'):
        driver.select_destinations(a_request())
    assert driver.deps.placement.allocations == {}


SHARED = a_uuid('shared')


class WidePlacement(CountingPlacement):
    """Offers each host alone, and with a second provider."""

    def __init__(self, slots):
        super().__init__(slots)
        self.free.by_provider[SHARED] = {'CUSTOM_X': 1}

    def candidates(self, request, basis=FRESH):
        alone = super().candidates(request, basis)
        candidates = []
        for provider in alone:
            candidates.append(a_candidate(provider))
            candidates.append(a_candidate(provider, SHARED))
        return CandidateIndex(candidates)


def test_candidates_dropped_by_a_filter_are_not_claimed():
    """A filter sees Placement's candidates of a host. The remaining candidates are
    claimed and returned; a host without candidates is rejected."""
    driver = scheduler('WideCandidateFilter')
    driver.deps = replace(
        driver.deps, placement=WidePlacement(driver.deps.placement.slots)
    )
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    providers = {}
    for selection in row:
        providers[selection.service_host] = len(selection.candidate.allocations)
    assert providers == {'east': 1, 'west': 1, 'bare': 2}
    assert left(scheduler('WideCandidateFilter')) == ['east', 'west']


class RefusingPlacement(WidePlacement):
    """Refuses claims for several instances."""

    def claim_together(self, wanted, basis=FRESH):
        if len(wanted) == 1:
            return super().claim_together(wanted, basis)
        return None


def test_a_filter_sees_all_candidates_after_a_refused_common_claim():
    """After a refused common claim, a filter sees all candidates again when the
    instances are claimed one by one."""
    driver = scheduler('WideCandidateFilter', hosts=[EAST])
    driver.deps = replace(driver.deps, placement=RefusingPlacement({EAST.uuid: 9}))
    rows = driver.select_destinations(a_request(count=2))
    assert [len(row[0].candidate.allocations) for row in rows] == [1, 2]
    assert [*map(len, driver.deps.placement.allocations.values())] == [1, 2]


def test_changes_by_a_plugin_are_seen_only_by_later_plugins():
    """Later plugins of the same request see the changes of a plugin. Built-in filters,
    other requests and values of novasched do not."""
    driver = scheduler(
        'MeddlingFilter', 'RackFilter', 'IoOpsFilter', weighers=['NoteWeigher']
    )
    request = a_request(
        hints={'rack': ['r1']}, extra_specs={'a': 'b'}, ignore_hosts=('z',)
    )
    fields = operator.attrgetter(*EAST.__dataclass_fields__)
    before = repr([request, fields(EAST), fields(WEST)])

    for _ in range(2):
        driver.deps.placement.allocations.clear()
        assert driver.select_destinations(request)[0][0].service_host == 'east'

    assert repr([request, fields(EAST), fields(WEST)]) == before
    assert left(scheduler('RackFilter'), hints={'rack': ['r1']}) == ['east']


@pytest.mark.parametrize(
    ('names', 'weighers', 'why'),
    [
        (['BrokenFilter'], [], 'BrokenFilter raised RuntimeError: out of order'),
        (['RackFilter'], ['BrokenWeigher'], 'BrokenWeigher raised TypeError'),
        (
            ['RackFilter'],
            ['NoteWeigher'],
            'NoteWeigher raised NotKnown: HostState.note is not',
        ),
        (['DatabaseFilter'], [], 'DatabaseFilter raised '),
    ],
)
def test_an_error_of_a_plugin_fails_the_request(names, weighers, why):
    """An error of a plugin rejects no host: the request fails with the name of the
    plugin, and nothing stays claimed."""
    quiet = [replace(host, num_instances=0) for host in (EAST, WEST)]
    driver = scheduler(*names, hosts=quiet, weighers=weighers)
    with pytest.raises(BadPlugin, match=why) as failure:
        ask(driver, count=3)
    assert failure.value.__cause__ is not None
    assert driver.deps.placement.allocations == {}


def test_a_filter_sees_the_roles_of_the_caller_of_each_request():
    """A filter judges by the roles in the message, which differ from request to
    request."""
    driver = scheduler('RolesFilter', hosts=[a_host('one', metadata={'role': 'ops'})])

    def chosen(*roles):
        origin = Origin(None, None, caller={'roles': list(roles)})
        try:
            [[host, *_]] = ask(driver, origin=origin)
        except NoValidHost:
            return None
        driver.deps.placement.allocations.clear()
        return host

    assert [chosen('ops'), chosen(), chosen('member', 'ops')] == ['one', None, 'one']
