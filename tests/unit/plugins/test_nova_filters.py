# SPDX-License-Identifier: Apache-2.0
"""Filters that were written for nova, through the filter scheduler."""

from dataclasses import replace

import pytest

from novasched import plugins
from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import BadPlugin, NoValidHost
from novasched.model.host import Fleet, Instance
from novasched.model.settings import ALL_FILTERS, Settings
from tests.builders import a_candidate, a_host, a_request, a_uuid
from tests.ports import CountingPlacement, StillHosts

STYLE = 'tests.unit.plugins.nova_style'
EAST = a_host('east', metadata={'rack': 'r1'}, num_instances=1)
WEST = a_host('west', metadata={'rack': 'r2'}, num_instances=1)
BARE = a_host('bare', num_instances=3)
BUILT_IN = ('ComputeFilter', 'IoOpsFilter')
REBUILD = {'_nova_check_type': ['rebuild']}


class Cells(StillHosts):
    """Hosts that show their servers only to those who want them read."""

    def __init__(self, hosts):
        super().__init__(hosts)
        self.reads = []

    def read(self, uuids, request, instances, images=False):
        self.reads.append(instances)
        found = super().read(uuids, request, instances, images).hosts
        return Fleet(
            {
                uuid: host if instances else replace(host, instances={})
                for uuid, host in found.items()
            }
        )


def scheduler(*names, hosts=(EAST, WEST, BARE), weighers=()):
    """With these plugins of the module above, and no others."""
    settings = Settings(
        available_filters=(ALL_FILTERS, *(f'{STYLE}.{x}' for x in names if x not in BUILT_IN)),
        enabled_filters=names,
        weight_classes=tuple(f'{STYLE}.{name}' for name in weighers),
    )
    placement = CountingPlacement({host.uuid: 10 for host in hosts})
    made = plugins.filters(settings), plugins.weighers(settings)
    return FilterScheduler(Parts(settings, [], placement, Cells(hosts), *made))


def ask(driver, **fields):
    """Who takes each server, and who else could."""
    driver.placement.allocations.clear()
    rows = driver.select_destinations(a_request(return_alternates=True, **fields))
    return [[selection.service_host for selection in row] for row in rows]


def left(driver, **fields):
    """Who could take the only server."""
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
        (['RackFilter'], {'hints': {'rack': ['r1']}}, ['east']),
        (['RackFilter'], {'hints': {'rack': ['r3']}}, []),
        (['QuietestFilter'], {}, ['east', 'west']),
        (['RackFilter', 'QuietestFilter'], {'hints': {'rack': ['r2']}}, ['west']),
        (['ComputeFilter', 'QuietestFilter'], {}, ['east', 'west']),
        (['EvenFilter'], {}, ANY),
        (['RackFilter'], {'hints': {**REBUILD, 'rack': ['r1']}}, ANY),
        (['SureFilter'], {'hints': {**REBUILD, 'rack': ['r1']}}, ['east']),
        (['QuietestFilter'], {'hints': REBUILD}, ['east', 'west']),
        (['RackFilter'], {'hints': {'rack': ['r1']}, 'force_hosts': ['bare']}, ['bare']),
    ],
)
def test_verdicts(names, fields, hosts):
    """A filter judges hosts one by one or all together, and sits out when it is not run:
    on a rebuild, unless it says so or judges them together, and on forced hosts."""
    assert left(scheduler(*names), **fields) == hosts


def test_once_per_request():
    """A filter that runs once runs for the first server; one that says for which servers it
    runs is asked for each."""
    hints = {'rack': ['r1']}
    assert ask(scheduler('RackFilter'), count=2, hints=hints) == [['east'], ['east']]
    with pytest.raises(NoValidHost):
        ask(scheduler('EvenFilter'), count=2)


def test_a_filter_sees_what_was_placed_a_moment_ago():
    """The second server finds the host with the first one on it. Hosts that were rejected
    once stay so for the rest of the request."""
    driver = scheduler('QuietestFilter')
    assert [row[0] for row in ask(driver, count=3)] == ['east', 'west', 'west']


class TestServersOnHosts:
    """They are read once a plugin is seen to look at them."""

    MINE = {a_uuid('s'): Instance(a_uuid('s'), project_id='project')}
    HOSTS = (EAST, replace(WEST, instances=MINE))
    LOOK = {'hints': {'neighbour': ['please']}}

    def test_nobody_looks(self):
        """As long as no plugin looks, no server is read."""
        driver = scheduler('NeighbourFilter', 'RackFilter', hosts=self.HOSTS)
        assert left(driver) == ['east', 'west']
        assert driver.hosts.reads == [False]

    @pytest.mark.parametrize('name', ['NeighbourFilter', 'CarefulNeighbourFilter'])
    def test_somebody_looks(self, name):
        """The first to look has the request answered anew, even one that catches errors;
        from then on servers are read at once."""
        driver = scheduler('RackFilter', name, hosts=self.HOSTS)
        assert left(driver, **self.LOOK) == ['west']
        assert driver.hosts.reads == [False, True]
        assert left(driver, **self.LOOK) == ['west']
        assert left(driver) == ['east', 'west']
        assert driver.hosts.reads == [False, True, True, True]
        assert len(driver.placement.allocations) == 1


def test_limits_reach_compute():
    """What a plugin writes as a limit is answered for the chosen host and the alternates,
    as far as nova has a name for it, in whole numbers."""
    driver = scheduler('RackFilter', 'LimitFilter')
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    assert [each.limits for each in row] == [{'memory_mb': 12288}] * 3


class WidePlacement(CountingPlacement):
    """Offers each host alone, and with a second provider."""

    def candidates(self, request):
        return {
            rp: [a_candidate(rp), a_candidate(rp, a_uuid('shared'))]
            for rp in super().candidates(request)
        }

    def claim(self, request, candidate):
        first, *_ = candidate.allocations
        return super().claim(request, a_candidate(first)) and [*candidate.allocations]

    def give_back(self, claim):
        raise AssertionError('nothing fails here')


def test_candidates_that_are_taken_away():
    """A plugin sees Placement's candidates of a host, and what it leaves of them is what is
    claimed and answered; a host that it leaves none is rejected."""
    driver = scheduler('SecondCandidateFilter')
    placement = WidePlacement(driver.placement.slots)
    driver.placement = placement
    (row,) = driver.select_destinations(a_request(return_alternates=True))
    assert [len(each.candidate.allocations) for each in row] == [2, 2, 2]
    assert left(scheduler('SecondCandidateFilter')) == []


def test_meddling_harms_nobody():
    """What a plugin changes is seen by the plugins after it, and by no other filter, no
    other request and no value of ours."""
    driver = scheduler('MeddlingFilter', 'RackFilter', 'IoOpsFilter', weighers=['NoteWeigher'])
    request = a_request(hints={'rack': ['r1']}, extra_specs={'a': 'b'}, ignore_hosts=('z',))
    before = repr(request), [repr(vars_of(host)) for host in (EAST, WEST)]
    for _ in range(2):
        driver.placement.allocations.clear()
        assert driver.select_destinations(request)[0][0].service_host == 'east'
    assert (repr(request), [repr(vars_of(host)) for host in (EAST, WEST)]) == before
    assert left(scheduler('RackFilter'), hints={'rack': ['r1']}) == ['east']


def vars_of(host):
    return {name: getattr(host, name) for name in host.__dataclass_fields__}


@pytest.mark.parametrize(
    ('names', 'weighers', 'why'),
    [
        (['BrokenFilter'], [], 'BrokenFilter raised RuntimeError: out of order'),
        (['RackFilter'], ['BrokenWeigher'], 'BrokenWeigher raised TypeError'),
        (['RackFilter'], ['NoteWeigher'], 'NoteWeigher raised NotKnown: HostState.note is not'),
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
    assert driver.placement.allocations == {}
