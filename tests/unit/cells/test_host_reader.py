# SPDX-License-Identifier: Apache-2.0
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from novasched.cells.cell_host_cache import CellHostCache
from novasched.cells.regrouping import AGGREGATES_LAG_S
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.concurrency.single_flight import FROM_NOW
from novasched.scheduler.errors import DatabaseUnavailable, NoValidHost, StaleData
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Destination
from novasched.scheduler.ports import NEEDS_NOTHING
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid
from tests.lab.memory_schedulers import ManualClock
from tests.lab.nova_databases import NOW, hosts_of


@pytest.fixture
def clock(monkeypatch):
    """A clock of monotonic seconds that only tests move."""
    clock = ManualClock()
    monkeypatch.setattr('time.monotonic', clock)
    return clock


@pytest.mark.parametrize(
    ('destination', 'found'),
    [
        (None, {'h1': 'cell1', 'h2': 'cell2'}),
        (Destination(cell_uuid=a_uuid('cell2')), {'h2': 'cell2'}),
        (
            Destination(cell_uuid=a_uuid('cell2'), allow_cross_cell_move=True),
            {'h1': 'cell1', 'h2': 'cell2'},
        ),
        (Destination(cell_uuid=a_uuid('cell9')), {}),
    ],
)
def test_a_request_gets_hosts_of_the_requested_cell_or_of_all_cells(
    two_cells, destination, found
):
    """An instance stays in the same cell unless a cross-cell move is allowed. Every
    host names its cell."""
    hosts = hosts_of(two_cells.reader(), a_request(requested_destination=destination))
    assert hosts.keys() == found.keys()
    for name, host in hosts.items():
        assert host.cell_uuid == a_uuid(found[name])


def test_nodes_deleted_or_without_service_or_report_are_left_out(cloud, caplog):
    """Deleted nodes, nodes without a nova-compute, and nodes without a report are left
    out. The service record tells whether the host is disabled."""
    engine = cloud.engines['cell1']
    cloud.add_host('deleted', deleted=7)
    cloud.add_host('orphan', service=False)
    cloud.add_service('orphan', engine, binary='nova-conductor')
    cloud.add_host('fresh', free_disk_gb=None)
    cloud.add_host('old', uuid=None)
    cloud.add_host('h1', service=False)
    cloud.add_service('h1', engine, disabled=True, disabled_reason='why not')
    [host] = hosts_of(cloud.reader()).values()
    assert (host.host, host.service.disabled_reason) == ('h1', 'why not')
    assert host.service.disabled
    assert 'No compute service record found for host orphan' in caplog.text


def test_rows_that_changed_are_counted(two_cells):
    """A new host counts as two rows, node and service. Unchanged rows do not count."""
    reader = two_cells.reader()
    refreshed = []
    for new in ((), (), ('h3',)):
        for name in new:
            two_cells.add_host(name)
        hosts_of(reader)
        refreshed.append(reader.refreshed)

    assert refreshed == [4, 4, 6]
    assert len(reader.host_snapshot.hosts) == 3


@pytest.mark.parametrize(
    ('changes', 'up'),
    [
        ({}, True),
        ({'last_seen_up': NOW - timedelta(seconds=60)}, True),
        ({'last_seen_up': NOW - timedelta(seconds=61)}, False),
        ({'last_seen_up': NOW + timedelta(seconds=30)}, True),
        ({'last_seen_up': NOW + timedelta(seconds=90)}, False),
        ({'last_seen_up': None, 'updated_at': NOW}, False),
        ({'last_seen_up': None, 'updated_at': None, 'created_at': NOW}, True),
        ({'last_seen_up': None}, False),
        ({'forced_down': True}, False),
    ],
)
def test_a_service_is_up_after_a_timely_report_unless_forced_down(cloud, changes, up):
    """A service is up after a timely report, unless forced down."""
    cloud.add_host('h1', service=False)
    cloud.add_service('h1', cloud.engines['cell1'], **changes)
    assert hosts_of(cloud.reader())['h1'].service.up is up


@pytest.mark.parametrize(
    ('table', 'changes', 'is_freer'),
    [
        ('compute_nodes', {'vcpus_used': 1}, False),
        ('compute_nodes', {'vcpus_used': -1}, True),
        ('compute_nodes', {'vcpus': 9}, True),
        ('compute_nodes', {'vcpus': 9, 'vcpus_used': 1}, False),
        ('compute_nodes', {'free_ram_mb': 8191}, False),
        ('compute_nodes', {'free_ram_mb': 8193}, True),
        ('compute_nodes', {'free_disk_gb': 101}, True),
        ('services', {'disabled': True}, True),
        (None, {}, True),
    ],
)
def test_the_snapshot_tells_when_a_host_became_freer(
    two_cells, clock, monkeypatch, table, changes, is_freer
):
    """The snapshot tells when a host was seen to be freer, new, or changed in the
    service record: at the end of the reading, which may take long. Hosts of the first
    reading do not count."""
    reader = two_cells.reader()
    assert reader.snapshot().host_snapshot.freed == {}

    if table:
        engine = two_cells.engines['cell1']
        with engine.begin() as connection:
            which = sa.update(tables.main.tables[table])
            connection.execute(
                which.where(which.table.c.host == 'h1').values(**changes)
            )
    else:
        two_cells.add_host('h3')

    refresh = CellHostCache.refresh

    def slow(*args):
        clock.now += 1
        return refresh(*args)

    monkeypatch.setattr(CellHostCache, 'refresh', slow)
    clock.now += 1
    snapshot = reader.snapshot().host_snapshot

    freed = {}
    if is_freer:
        freed[a_uuid('h1' if table else 'h3')] = clock.now
    assert snapshot.freed == freed
    assert reader.snapshot().host_snapshot.freed == freed


def test_changed_aggregates_settle_after_the_lag_of_placement(two_cells, clock):
    """Placement may lack a change of aggregates for several seconds after the scheduler
    has read the change. The first reading may show a change from just before the
    start."""
    reader = two_cells.reader()
    first = reader.snapshot().host_snapshot
    assert first.aggregates_settled == clock.now + AGGREGATES_LAG_S
    clock.now += 1
    second = reader.snapshot().host_snapshot
    assert second.aggregates_settled == first.aggregates_settled

    two_cells.add_aggregate(1, ['h1'])
    clock.now += 1
    changed = reader.snapshot().host_snapshot
    assert changed.aggregates_settled == clock.now + AGGREGATES_LAG_S
    clock.now += 1
    assert (
        reader.snapshot().host_snapshot.aggregates_settled == changed.aggregates_settled
    )


def test_the_lag_of_placement_counts_from_the_end_of_a_reading(
    two_cells, clock, monkeypatch
):
    """The database of the API hangs, and a host joins an aggregate just before the
    answer. Placement may learn of the change several seconds after the answer."""
    reader = two_cells.reader()
    reader.snapshot()
    clock.now += 1
    began = clock.now
    read = reader.aggregates.api.read

    def hanging(work):
        clock.now += 30
        two_cells.add_aggregate(1, ['h1'])
        return read(work)

    monkeypatch.setattr(reader.aggregates.api, 'read', hanging)
    changed = reader.snapshot().host_snapshot
    assert changed.read_at == began
    assert changed.aggregates_settled == began + 30 + AGGREGATES_LAG_S


def test_aggregates_do_not_settle_while_the_api_database_fails(
    two_cells, clock, monkeypatch
):
    """While the API database does not answer, Placement may know changes of aggregates
    that no reading shows."""
    reader = two_cells.reader()
    first = reader.snapshot().host_snapshot

    def failing(work):
        raise DatabaseUnavailable('away')

    with monkeypatch.context() as patch:
        patch.setattr(reader.aggregates.api, 'read', failing)
        clock.now += 1
        during = reader.snapshot().host_snapshot
    assert during.aggregates_settled == clock.now + AGGREGATES_LAG_S
    assert during.aggregates_settled > first.aggregates_settled
    clock.now += 1
    afterwards = reader.snapshot().host_snapshot
    assert afterwards.aggregates_settled == during.aggregates_settled


def in_zones(*zones, forbidden=()):
    destination = Destination(
        aggregates=tuple(frozenset(zone) for zone in zones),
        forbidden_aggregates=frozenset(forbidden),
    )
    return a_request(requested_destination=destination)


def test_hosts_that_just_left_a_needed_aggregate_are_left_out(two_cells, clock):
    """Hosts just gone from a needed aggregate are left out, and so are hosts just added
    to a forbidden aggregate: Placement may still offer the hosts. A host in the needed
    aggregate in Placement only stays."""
    agg1 = a_uuid('agg1')
    agg2 = a_uuid('agg2')
    placements = a_uuid('known to Placement')
    two_cells.add_aggregate(1, ['h1', 'h2'])
    two_cells.add_aggregate(2, ['h2'])
    reader = two_cells.reader()
    reader.snapshot()

    def offered(request, began=0.0):
        uuids = [a_uuid('h1'), a_uuid('h2')]
        basis = Basis(began=began)
        snapshot = reader.read(uuids, request, NEEDS_NOTHING, basis)
        return {host.host for host in snapshot.hosts.values()} & {'h1', 'h2'}

    with two_cells.api.begin() as connection:
        members = tables.aggregate_hosts
        connection.execute(members.delete().where(members.c.host == 'h1'))
        row = {'aggregate_id': 2, 'host': 'h1'}
        connection.execute(members.insert(), [row])
    clock.now += 1
    reader.snapshot()
    seen = clock.now

    assert offered(in_zones([agg1])) == {'h2'}
    assert offered(in_zones([agg1, agg2])) == {'h1', 'h2'}
    assert offered(in_zones([agg2], [agg1])) == {'h2'}
    assert offered(in_zones(forbidden=[agg2])) == {'h2'}
    assert offered(in_zones([placements])) == {'h1', 'h2'}
    assert offered(a_request()) == {'h1', 'h2'}
    assert offered(in_zones([agg1]), seen + AGGREGATES_LAG_S) == {'h1', 'h2'}


def test_hosts_have_the_metadata_and_zone_of_aggregates(two_cells):
    """A host has the metadata of its aggregates, the availability zone included."""
    two_cells.add_aggregate(1, ['h1', 'h2', 'unknown'], ssd='true')
    two_cells.add_aggregate(2, ['h2'], availability_zone='az2')
    hosts = hosts_of(two_cells.reader())
    assert [a.name for a in hosts['h2'].aggregates] == ['agg1', 'agg2']
    assert hosts['h1'].metadata('ssd') == {'true'}
    assert (hosts['h1'].zone('nova'), hosts['h2'].zone('nova')) == ('nova', 'az2')


def to(**fields):
    return {'requested_destination': Destination(**fields)}


@pytest.mark.parametrize(
    ('fields', 'in_tree', 'unlimited', 'destination'),
    [
        ({}, None, False, None),
        ({'force_hosts': ('h1',)}, 'h1', False, None),
        ({'force_nodes': ('n2',)}, 'n2', False, None),
        ({'force_hosts': ('iron',)}, None, True, None),
        ({'force_hosts': ('iron',), 'force_nodes': ('n1',)}, 'n1', False, None),
        (to(host='h1'), 'h1', False, ('h1', 'h1')),
        (to(node='n1'), 'n1', False, ('iron', 'n1')),
        (to(host='iron'), None, True, ('iron', None)),
        (to(host='h1', cell_uuid=a_uuid('cell1')), 'h1', False, ('h1', 'h1')),
        (to(cell_uuid=a_uuid('cell1')), None, False, (None, None)),
    ],
)
def test_a_named_host_is_looked_up(cloud, fields, in_tree, unlimited, destination):
    """If the name leads to one node, Placement is asked for the tree of that node. A
    query cannot name several trees."""
    cloud.add_host('h1')
    cloud.add_service('iron', cloud.engines['cell2'])
    cloud.add(cloud.api, tables.host_mappings, cell_id=3, host='iron')
    for node in ('n1', 'n2'):
        cloud.add_host('iron', 'cell2', node=node, service=False)
    request = cloud.reader().with_requested_destination(a_request(**fields))
    assert request.in_tree == (in_tree and a_uuid(in_tree))
    assert request.unlimited is unlimited
    wanted = request.requested_destination
    assert (wanted and (wanted.host, wanted.node)) == destination


NO_HOST = pytest.raises(NoValidHost, match='No such host')
NO_CELL = pytest.raises(DatabaseUnavailable, match=r'^no answer of cell ')


def away(cloud, *cells):
    """Make the hosts of these cells unreadable."""
    for cell in cells:
        cloud.sql(cell, 'ALTER TABLE compute_nodes RENAME TO away')


@pytest.mark.parametrize(
    ('gone', 'fields', 'error'),
    [
        ([], {'force_hosts': ('nobody',)}, NO_HOST),
        ([], to(host='h1', cell_uuid=a_uuid('cell2')), NO_HOST),
        (['cell1'], {'force_hosts': ('h1',)}, NO_CELL),
        (['cell1'], {'force_nodes': ('h1',)}, NO_CELL),
    ],
)
def test_a_missing_named_host_is_refused_unless_a_cell_is_silent(
    two_cells, gone, fields, error
):
    """A host in no cell is refused before Placement is asked. A host possibly in a
    silent cell is not refused."""
    away(two_cells, *gone)
    with error:
        two_cells.reader().with_requested_destination(a_request(**fields))


REBUILT = a_uuid('rebuilt')


def a_rebuild(*hosts, uuids=(REBUILT,), nodes=()):
    return {
        'instance_uuids': uuids,
        'instance_uuid': REBUILT,
        'force_hosts': hosts,
        'force_nodes': nodes,
    }


@pytest.mark.parametrize(
    ('fields', 'is_there'),
    [
        (a_rebuild('h1', nodes=('h1',)), True),
        (a_rebuild('H1'), True),
        (a_rebuild('h1', uuids=None), True),
        (a_rebuild(nodes=('h1',)), True),
        (a_rebuild(), False),
        (a_rebuild('h2', nodes=('h2',)), False),
        (a_rebuild('h1', nodes=('h2',)), False),
        (a_rebuild('h1', uuids=(a_uuid('new'),)), False),
        (a_rebuild('h1', uuids=(a_uuid('building'),)), False),
        (a_rebuild('h1', uuids=(a_uuid('deleted'),)), False),
        (a_rebuild('h1', uuids=('no UUID',)), False),
        (a_rebuild('h1', uuids=(REBUILT, a_uuid('new'))), False),
        (a_rebuild('nobody'), False),
    ],
)
def test_the_row_tells_if_an_instance_is_on_the_forced_host(
    two_cells, fields, is_there
):
    """The row of the instance has the host, and the node if the request forces one. A
    request without such a host reads no database."""
    engine = two_cells.engines['cell1']
    rows = [
        {'uuid': REBUILT, 'host': 'h1'},
        {'uuid': a_uuid('building'), 'host': None},
        {'uuid': a_uuid('deleted'), 'host': 'h1', 'deleted': 7},
    ]
    for row in rows:
        two_cells.add(engine, tables.instances, **{'node': row['host'], **row})
    reader = two_cells.reader()
    with two_cells.watched() as asked:
        assert reader.is_on_forced_host(a_request(**fields)) is is_there
    if not (fields['force_hosts'] or fields['force_nodes']):
        assert asked == []


@pytest.mark.parametrize(
    ('gone', 'fields', 'answer'),
    [
        ('cell1', a_rebuild('h1'), NO_CELL),
        ('cell1', a_rebuild(nodes=('h1',)), NO_CELL),
        ('cell2', a_rebuild('h1'), nullcontext(True)),
        ('cell2', a_rebuild(nodes=('h1',)), nullcontext(True)),
    ],
)
def test_only_a_silent_cell_of_the_instance_delays_a_rebuild(
    two_cells, gone, fields, answer
):
    """A rebuild in a cell that does not answer has to wait. Other cells do not
    matter."""
    two_cells.add(
        two_cells.engines['cell1'],
        tables.instances,
        uuid=REBUILT,
        host='h1',
        node='h1',
    )
    two_cells.sql(gone, 'ALTER TABLE instances RENAME TO away')
    with answer as expected:
        found = two_cells.reader().is_on_forced_host(a_request(**fields))
        assert found is expected


@pytest.mark.parametrize(
    ('gone', 'uuids', 'destination', 'found'),
    [
        (['cell1'], None, None, ['h2']),
        (['cell1'], [a_uuid('h1'), a_uuid('h2')], None, ['h2']),
        (['cell2'], None, Destination(cell_uuid=a_uuid('cell1')), ['h1']),
        (['cell1'], [a_uuid('h1')], None, None),
        (['cell1'], None, Destination(cell_uuid=a_uuid('cell1')), None),
        (['cell1', 'cell2'], None, None, None),
        (['cell1', 'cell2'], [a_uuid('h1'), a_uuid('h2')], None, None),
        ([], [a_uuid('h3')], None, []),
    ],
)
@pytest.mark.parametrize('instances', [False, True])
def test_hosts_of_a_silent_cell_are_left_out(
    two_cells, caplog, gone, uuids, destination, found, instances
):
    """The hosts of a silent cell are left out. Without further hosts the request fails,
    but is not refused."""
    away(two_cells, *gone)
    request = a_request(requested_destination=destination)
    reader = two_cells.reader()
    if found is None:
        with NO_CELL:
            hosts_of(reader, request, uuids, instances=instances)
    else:
        hosts = hosts_of(reader, request, uuids, instances=instances)
        wanted = []
        for name in hosts:
            if uuids is None or a_uuid(name) in uuids:
                wanted.append(name)
        assert wanted == found
    for cell in gone:
        assert f'Failed to get computes for cell {a_uuid(cell)}' in caplog.text


def test_hosts_of_a_failed_cell_count_once_the_cell_answers_again(two_cells):
    """The hosts of the cell stay in memory, and count again as soon as the cell
    answers."""
    reader = two_cells.reader()
    hosts_of(reader)
    away(two_cells, 'cell1')
    reader.renew()
    assert [*hosts_of(reader)] == ['h2']

    two_cells.sql('cell1', 'ALTER TABLE away RENAME TO compute_nodes')
    assert [*hosts_of(reader)] == ['h1', 'h2']


class Interrupted(DatabaseServiceGroup):
    """A service group that calls a function with the host names before it judges the
    services."""

    def __init__(self, before):
        super().__init__(60)
        self.before = before

    def down(self, binary, services):
        self.before({row.host for row in services.values()})
        return super().down(binary, services)


def test_a_cell_with_an_endless_reading_is_left_out(two_cells, caplog):
    """A cell with an endless reading is left out of the next readings, and returns
    after the end of the reading."""
    stuck = threading.Event()
    over = threading.Event()

    def wait_in_first_cell(hosts):
        if 'h1' in hosts:
            stuck.set()
            assert over.wait(10)

    group = two_cells.group = Interrupted(wait_in_first_cell)
    reader = two_cells.reader()
    with ThreadPoolExecutor(1) as pool:
        first = reader.cells.get(a_uuid('cell1'))
        cache = CellHostCache(first, reader.settings, group)
        reader._reader._caches.replace({first: cache}, [first])
        reading = pool.submit(cache.refresh, two_cells.now)
        assert stuck.wait(10)
        assert [*hosts_of(reader)] == ['h2']
        over.set()
        reading.result()

    assert [*hosts_of(reader)] == ['h1', 'h2']
    assert caplog.messages == [f'Timeout getting computes for cell {a_uuid("cell1")}']


def test_a_cut_reading_is_repeated_without_losing_changes(cloud):
    """The reading is repeated, and changes read by the first try are not lost."""
    failures = []

    def fail(_hosts):
        if failures:
            raise failures.pop()

    cloud.add_host('h1')
    cloud.sql('api', "DELETE FROM cell_mappings WHERE name = 'cell2'")
    cloud.group = Interrupted(fail)
    reader = cloud.reader()
    hosts_of(reader)

    cloud.sql('cell1', 'UPDATE services SET disabled = true')
    failures.append(db_exc.DBConnectionError(OSError('cut')))
    assert hosts_of(reader)['h1'].service.disabled
    assert not failures


VERSION_60 = {'version': 60}
VERSION_73 = {'version': 73}


@pytest.mark.parametrize(
    ('cell1', 'cell2', 'least'),
    [
        ([], [], 0),
        ([VERSION_73], [], 73),
        ([{'version': 74}, VERSION_73], [{'version': 75}], 73),
        ([{'version': 60, 'forced_down': True}, VERSION_73], [], 73),
        ([{'version': 60, 'deleted': 1}, VERSION_73], [], 73),
        ([{'version': 60, 'binary': 'nova-conductor'}, VERSION_73], [], 73),
        ([{'version': 60, 'disabled': True}], [VERSION_73], 60),
        ([{'version': 0}, VERSION_60], [VERSION_73], 73),
        ([{'version': None}], [VERSION_73], 73),
    ],
)
def test_the_minimum_version_covers_disabled_but_not_silent_cells(
    cloud, cell1, cell2, least, caplog
):
    """The minimum version covers all cells, including disabled cells: operators upgrade
    disabled cells, too. Services forced down or deleted do not count, nor do services
    of a silent cell: the cell gets no instances."""
    for name, services in (('cell1', cell1), ('cell2', cell2)):
        for number, columns in enumerate(services):
            values = {'forced_down': False, **columns}
            cloud.add_service(f'h{number}', cloud.engines[name], **values)
    for disabled in ('false', 'true'):
        cloud.sql('api', f'UPDATE cell_mappings SET disabled = {disabled}')
        assert cloud.reader().minimum_version(FROM_NOW) == least

    if least and cell2:
        cloud.sql('cell1', 'DROP TABLE services')
        assert cloud.reader().minimum_version(FROM_NOW) == cell2[0]['version']
        assert 'Failed to get computes for cell' in caplog.text


def test_a_request_with_an_outdated_minimum_version_fails(two_cells):
    """A request with an outdated minimum version fails when the hosts are read. The
    next request gets the new version."""
    reader = two_cells.reader()
    for version in (60, 73):
        for cell in ('cell1', 'cell2'):
            two_cells.sql(cell, f'UPDATE services SET version = {version}')
        hosts_of(reader, a_request())
        basis = Basis(minimum_version=reader.minimum_version(FROM_NOW))
        hosts_of(reader, basis=basis)
    assert basis.minimum_version == 73
    two_cells.sql('cell2', 'UPDATE services SET version = 61')
    with pytest.raises(StaleData, match='the minimum version of nova-compute is 61'):
        hosts_of(reader, basis=basis)
    assert reader.minimum_version(FROM_NOW) == 61
