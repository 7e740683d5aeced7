# SPDX-License-Identifier: Apache-2.0
"""Filters that were written for nova, through the filter scheduler."""

import operator
from dataclasses import replace

import pytest

from novasched.conf.settings import ALL_FILTERS, Settings
from novasched.plugins import loading
from novasched.scheduler.errors import BadPlugin, NoValidHost
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.host import HostSnapshot, Instance
from tests.lab import ports
from tests.lab.builders import a_candidate, a_host, a_request, a_uuid
from tests.lab.ports import CountingPlacement, a_driver

STYLE = 'tests.unit.plugins.nova_style'
EAST = a_host('east', metadata={'rack': 'r1'}, num_instances=1)
WEST = a_host('west', metadata={'rack': 'r2'}, num_instances=1)
BARE = a_host('bare', num_instances=3)
BUILT_IN = ('ComputeFilter', 'DifferentHostFilter', 'IoOpsFilter')
REBUILD = {'_nova_check_type': ['rebuild']}


class Cells(MemoryHosts):
    """Hosts that show all their instances to those who want all read, and else those
    named."""

    def __init__(self, hosts):
        super().__init__(hosts)
        self.reads = []

    def read(self, uuids, request, needs, basis):
        self.reads.append(needs.instances)
        found = super().read(uuids, request, needs, basis).hosts

        def shown(host):
            some = {
                uuid: instance
                for uuid, instance in host.instances.items()
                if uuid in needs.named
            }
            if needs.instances:
                return host
            return replace(host, instances=some)

        return HostSnapshot({uuid: shown(host) for uuid, host in found.items()})


def scheduler(*names, hosts=(EAST, WEST, BARE), weighers=()):
    """With these plugins of the module above, and no others."""
    settings = Settings(
        available_filters=(
            ALL_FILTERS,
            *(f'{STYLE}.{x}' for x in names if x not in BUILT_IN),
        ),
        enabled_filters=names,
        weight_classes=tuple(f'{STYLE}.{name}' for name in weighers),
    )
    found = loading.filters(settings), loading.weighers(settings)
    return a_driver(Cells(hosts), *found[0], weighers=found[1])


def ask(driver, **fields):
    """Who takes each instance, and who else could."""
    driver.parts.placement.allocations.clear()
    return ports.ask(driver, return_alternates=True, **fields)


def left(driver, **fields):
    """Who could take the only instance."""
    try:
        (row,) = ask(driver, **fields)
    except NoValidHost:
        return []
    return sorted(row)


ANY = ['bare', 'east', 'west']


@pytest.mark.parametrize(
    ('names', 'fields', 'hosts'),
    [
        (['RackFilter'], {}, ANY),
        (['RackFilter'], {'hints': {'rack': ['r3']}}, []),
        (['RackFilter', 'QuietestFilter'], {'hints': {'rack': ['r2']}}, ['west']),
        (['ComputeFilter', 'QuietestFilter'], {}, ['east', 'west']),
        (['EvenFilter'], {}, ANY),
        (['RackFilter'], {'hints': {**REBUILD, 'rack': ['r1']}}, ANY),
        (['SureFilter'], {'hints': {**REBUILD, 'rack': ['r1']}}, ['east']),
        (['QuietestFilter'], {'hints': REBUILD}, ['east', 'west']),
        (
            ['RackFilter'],
            {'hints': {'rack': ['r1']}, 'force_hosts': ['bare']},
            ['bare'],
        ),
    ],
)
def test_verdicts(names, fields, hosts):
    """A filter judges hosts one by one or all together, and sits out when it is not
    run: on a rebuild, unless it says so or judges them together, and on forced
    hosts."""
    assert left(scheduler(*names), **fields) == hosts


def test_once_per_request():
    """A filter that runs once runs for the first instance; one that says for which
    instances it runs is asked for each."""
    hints = {'rack': ['r1']}
    assert ask(scheduler('RackFilter'), count=2, hints=hints) == [['east'], ['east']]
    with pytest.raises(NoValidHost):
        ask(scheduler('EvenFilter'), count=2)


def test_a_filter_sees_what_was_placed_a_moment_ago():
    """The second instance finds the host with the first one on it. Hosts that were
    rejected once stay so for the rest of the request."""
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
def test_instances_on_hosts(names, hints, hosts):
    """They are all read for every request, as in nova, and once, even where another
    filter names those that it looks for."""
    instances = {a_uuid('s'): Instance(a_uuid('s'), project_id='project')}
    driver = scheduler(*names, hosts=(EAST, replace(WEST, instances=instances)))
    assert left(driver, hints=hints) == hosts
    assert driver.parts.hosts.reads == [True]


def test_limits_reach_compute():
    """What a plugin writes as a limit is answered for the chosen host and the
    alternates, as far as nova has a name for it, in whole numbers."""
    driver = scheduler('RackFilter', 'LimitFilter')
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    assert [each.limits for each in row] == [{'memory_mb': 12288}] * 3


def test_a_limit_that_is_no_number():
    """A text is found before the claim."""
    driver = scheduler('TextLimitFilter')
    with pytest.raises(BadPlugin, match='TextLimitFilter'):
        driver.select_destinations(a_request())
    assert driver.parts.placement.allocations == {}


SHARED = a_uuid('shared')


class WidePlacement(CountingPlacement):
    """Offers each host alone, and with a second provider."""

    def __init__(self, slots):
        super().__init__(slots)
        self.free.by_provider[SHARED] = {'CUSTOM_X': 1}

    def candidates(self, request, basis=FRESH):
        alone = super().candidates(request, basis)
        return CandidateIndex(
            a_candidate(rp, *shared) for rp in alone for shared in ((), (SHARED,))
        )


def test_candidates_that_are_taken_away():
    """A plugin sees Placement's candidates of a host, and what it leaves of them is
    what is claimed and answered; a host that it leaves none is rejected."""
    driver = scheduler('WideCandidateFilter')
    driver.parts = replace(
        driver.parts, placement=WidePlacement(driver.parts.placement.slots)
    )
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    providers = {x.service_host: len(x.candidate.allocations) for x in row}
    assert providers == {'east': 1, 'west': 1, 'bare': 2}
    assert left(scheduler('WideCandidateFilter')) == ['east', 'west']


class RefusingPlacement(WidePlacement):
    """Lets nobody claim for several instances at once."""

    def claim_together(self, wanted, basis=FRESH):
        if len(wanted) == 1:
            return super().claim_together(wanted, basis)
        return None


def test_a_refused_common_claim_leaves_nothing_behind():
    """Candidates that a plugin takes away for an instance of a common claim that is
    refused are there again when the instances are claimed one by one."""
    driver = scheduler('WideCandidateFilter', hosts=[EAST])
    driver.parts = replace(driver.parts, placement=RefusingPlacement({EAST.uuid: 9}))
    rows = driver.select_destinations(a_request(count=2))
    assert [len(row[0].candidate.allocations) for row in rows] == [1, 2]
    assert [*map(len, driver.parts.placement.allocations.values())] == [1, 2]


def test_meddling_harms_nobody():
    """What a plugin changes is seen by the plugins after it, and by no other filter, no
    other request and no value of ours."""
    driver = scheduler(
        'MeddlingFilter', 'RackFilter', 'IoOpsFilter', weighers=['NoteWeigher']
    )
    request = a_request(
        hints={'rack': ['r1']}, extra_specs={'a': 'b'}, ignore_hosts=('z',)
    )
    fields = operator.attrgetter(*EAST.__dataclass_fields__)
    before = repr([request, fields(EAST), fields(WEST)])
    for _ in range(2):
        driver.parts.placement.allocations.clear()
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
def test_a_plugin_that_raises(names, weighers, why):
    """It rejects nothing: the request fails by the plugin's name, and nothing stays
    claimed."""
    quiet = [replace(host, num_instances=0) for host in (EAST, WEST)]
    driver = scheduler(*names, hosts=quiet, weighers=weighers)
    with pytest.raises(BadPlugin, match=why) as failure:
        ask(driver, count=3)
    assert failure.value.__cause__ is not None
    assert driver.parts.placement.allocations == {}
