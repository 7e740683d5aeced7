# SPDX-License-Identifier: Apache-2.0
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from novasched.cells.host_cache import CellHostCache
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.scheduler.errors import DatabaseUnavailable, NoValidHost
from novasched.scheduler.model.request import Destination
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid
from tests.lab.nova_databases import NOW


def names(hosts):
    return sorted(host.nodename for host in hosts.values())


def test_hosts_of_all_enabled_cells(cloud):
    """Every enabled cell answers, each host knows its cell, and cell0 is never asked."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    hosts = cloud.reader().read(None, a_request(), instances=False).hosts
    assert {host.host: host.cell_uuid for host in hosts.values()} == {
        'h1': a_uuid('cell1'), 'h2': a_uuid('cell2'),
    }  # fmt: skip


@pytest.mark.parametrize(
    ('destination', 'found'),
    [
        (None, ['h1', 'h2']),
        (Destination(cell_uuid=a_uuid('cell2')), ['h2']),
        (Destination(cell_uuid=a_uuid('cell2'), allow_cross_cell_move=True), ['h1', 'h2']),
        (Destination(cell_uuid=a_uuid('cell9')), []),
    ],
)
def test_a_requested_cell_is_the_only_one(cloud, destination, found):
    """A server stays in its cell unless it may leave it."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    request = a_request(requested_destination=destination)
    assert names(cloud.reader().read(None, request, instances=False).hosts) == found


@pytest.mark.parametrize(
    ('uuids', 'found'),
    [(None, ['h1', 'h2', 'h3']), ({a_uuid('h1'), a_uuid('x')}, ['h1']), (set(), [])],
)
def test_servers_are_read_of_candidates_alone(cloud, uuids, found):
    """Of all hosts, those that Placement named; all where it was not asked."""
    for name in ('h1', 'h2', 'h3'):
        cloud.add_host(name)
    assert names(cloud.reader().read(uuids, a_request(), instances=True).hosts) == found


def test_rows_that_are_no_hosts(cloud, caplog):
    """Deleted nodes, nodes without a service, and those that never reported are left out."""
    cloud.add_host('deleted', deleted=7)
    cloud.add_host('orphan', service=False)
    cloud.add_host('fresh', free_disk_gb=None)
    cloud.add_host('h1')
    assert names(cloud.reader().read(None, a_request(), instances=False).hosts) == ['h1']
    assert 'No compute service record found for host orphan' in caplog.text


def test_rows_that_changed_are_counted(cloud):
    """A compute node and a service each, when they are new, and no more until one changes."""
    cloud.add_host('h1')
    cloud.add_host('h2', 'cell2')
    reader, found = cloud.reader(), []
    for _ in range(2):
        reader.read(None, replace(a_request(), arrived=time.monotonic()), instances=False)
        found.append(reader.refreshed)
    cloud.add_host('h3')
    reader.read(None, replace(a_request(), arrived=time.monotonic()), instances=False)
    assert [*found, reader.refreshed] == [4, 4, 6]
    assert len(reader.host_snapshot.hosts) == 3


def test_services_of_other_kinds_do_not_count(cloud):
    """Only a nova-compute makes a host, and its own row says whether it is up."""
    cloud.add_host('h1', service=False)
    engine = cloud.engines['cell1']
    cloud.add_service('h1', engine, binary='nova-conductor')
    assert cloud.reader().read(None, a_request(), instances=False).hosts == {}
    cloud.add_service('h1', engine, disabled=True, disabled_reason='why not')
    (host,) = cloud.reader().read(None, a_request(), instances=False).hosts.values()
    assert (host.service.disabled, host.service.disabled_reason) == (True, 'why not')


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
def test_service_is_up(cloud, changes, up):
    """A service is up when it was heard of lately and nobody forced it down."""
    cloud.add_host('h1', service=False)
    cloud.add_service('h1', cloud.engines['cell1'], **changes)
    (host,) = cloud.reader().read(None, a_request(), instances=False).hosts.values()
    assert host.service.up is up


def test_aggregates(cloud):
    """A host bears the metadata of its aggregates; its zone is one of these."""
    cloud.add_host('h1')
    cloud.add_host('h2')
    cloud.add_aggregate(1, ['h1', 'h2', 'unknown'], ssd='true')
    cloud.add_aggregate(2, ['h2'], availability_zone='az2')
    hosts = cloud.reader().read(None, a_request(), instances=False).hosts
    by_name = {host.host: host for host in hosts.values()}
    assert [a.name for a in by_name['h2'].aggregates] == ['agg1', 'agg2']
    assert by_name['h1'].metadata('ssd') == {'true'}
    assert (by_name['h1'].zone('nova'), by_name['h2'].zone('nova')) == ('nova', 'az2')


@pytest.mark.parametrize(('wanted', 'servers'), [(True, {'s1', 's2'}), (False, set())])
def test_servers_are_read_for_those_who_look(cloud, wanted, servers):
    """Servers on a host, without deleted ones and those that are nowhere."""
    cloud.add_host('h1')
    engine = cloud.engines['cell1']
    for uuid, host, deleted in [('s1', 'h1', 0), ('s2', 'h1', 0), ('s3', 'h1', 3), ('s4', None, 0)]:
        cloud.add(engine, tables.instances, uuid=uuid, host=host, deleted=deleted)
    (host,) = cloud.reader().read(None, a_request(), instances=wanted).hosts.values()
    assert host.instances.keys() == servers


def test_a_dead_cell_is_logged_and_left_out(cloud, caplog):
    """One cell's failure costs its own hosts alone."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    tables.main.drop_all(cloud.engines['cell1'])
    assert names(cloud.reader().read(None, a_request(), instances=False).hosts) == ['h2']
    assert f'Failed to get computes for cell {a_uuid("cell1")}' in caplog.text


def test_older_schemas(cloud):
    """A column that a release does not have yet reads as if it were null."""
    cloud.add_host('h1')
    with cloud.engines['cell1'].begin() as connection:
        connection.execute(sa.text('alter table compute_nodes drop column disk_allocation_ratio'))
        connection.execute(sa.text('alter table services drop column forced_down'))
    (host,) = cloud.reader().read(None, a_request(), instances=False).hosts.values()
    assert (host.disk_allocation_ratio, host.service.up) == (1.0, True)


@pytest.mark.parametrize(
    ('fields', 'in_tree', 'unlimited', 'destination'),
    [
        ({}, None, False, None),
        ({'force_hosts': ('h1',)}, 'h1', False, None),
        ({'force_nodes': ('n2',)}, 'n2', False, None),
        ({'force_hosts': ('iron',)}, None, True, None),
        ({'force_hosts': ('iron',), 'force_nodes': ('n1',)}, 'n1', False, None),
        ({'requested_destination': Destination(host='h1')}, 'h1', False, ('h1', 'h1')),
        ({'requested_destination': Destination(node='n1')}, 'n1', False, ('iron', 'n1')),
        ({'requested_destination': Destination(host='iron')}, None, True, ('iron', None)),
        (
            {'requested_destination': Destination(host='h1', cell_uuid=a_uuid('cell1'))},
            'h1',
            False,
            ('h1', 'h1'),
        ),
        (
            {'requested_destination': Destination(cell_uuid=a_uuid('cell1'))},
            None,
            False,
            (None, None),
        ),
    ],
)
def test_a_named_host_is_looked_up(cloud, fields, in_tree, unlimited, destination):
    """One node found is Placement's tree to look in; of several it cannot name all."""
    cloud.add_host('h1')
    cloud.add_service('iron', cloud.engines['cell2'])
    cloud.add(cloud.api, tables.host_mappings, cell_id=3, host='iron')
    for node in ('n1', 'n2'):
        cloud.add_host('iron', 'cell2', node=node, service=False)
    request = cloud.reader().aimed(a_request(**fields))
    assert request.in_tree == (in_tree and a_uuid(in_tree))
    assert request.unlimited is unlimited
    wanted = request.requested_destination
    assert (wanted and (wanted.host, wanted.node)) == destination


@pytest.mark.parametrize(
    'fields',
    [
        {'force_hosts': ('nobody',)},
        {'requested_destination': Destination(host='h1', cell_uuid=a_uuid('cell2'))},
    ],
)
def test_a_host_that_is_not_there(cloud, fields):
    """A named host that no cell has is refused before Placement is asked."""
    cloud.add_host('h1')
    with pytest.raises(NoValidHost, match='No such host'):
        cloud.reader().aimed(a_request(**fields))


@pytest.mark.parametrize(
    ('changes', 'found'),
    [({'disabled': True}, ['h2']), ({'name': 'renamed'}, ['h1', 'h2'])],
)
def test_renewal(cloud, changes, found):
    """What an operator does to a cell counts when the reader is renewed, and not before."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    reader = cloud.reader()
    with cloud.api.begin() as connection:
        mapping = tables.cell_mappings
        connection.execute(
            sa.update(mapping).where(mapping.c.uuid == a_uuid('cell1')).values(changes)
        )
    assert names(reader.read(None, a_request(), instances=False).hosts) == ['h1', 'h2']
    reader.renew()
    assert names(reader.read(None, a_request(), instances=False).hosts) == found


def test_a_cell_that_fails_at_a_renewal(cloud):
    """What is known of it stays, and counts again as soon as it answers."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    reader = cloud.reader()
    reader.read(None, a_request(), instances=False)
    rename = 'ALTER TABLE {} RENAME TO {}'.format
    with cloud.engines['cell1'].begin() as connection:
        connection.execute(sa.text(rename('compute_nodes', 'lost')))
    reader.renew()
    assert names(reader.read(None, a_request(), instances=False).hosts) == ['h2']
    with cloud.engines['cell1'].begin() as connection:
        connection.execute(sa.text(rename('lost', 'compute_nodes')))
    assert names(reader.read(None, a_request(), instances=False).hosts) == ['h1', 'h2']


def test_a_renewal_that_fails(cloud):
    """While the mappings cannot be read, all stays as it was."""
    cloud.add_host('h1', 'cell1')
    reader = cloud.reader()
    with cloud.api.begin() as connection:
        connection.execute(sa.text('ALTER TABLE cell_mappings RENAME TO lost'))
    with pytest.raises(DatabaseUnavailable):
        reader.renew()
    assert names(reader.read(None, a_request(), instances=False).hosts) == ['h1']


def test_without_the_api_database(cloud):
    """Hosts stay in the aggregates that are known; nobody knows which cell a host is in."""
    cloud.add_host('h1')
    cloud.add_aggregate(1, ['h1'], ssd='true')
    reader = cloud.reader()
    reader.read(None, a_request(), instances=False)
    tables.api.drop_all(cloud.api)
    (host,) = reader.read(None, a_request(), instances=False).hosts.values()
    assert host.metadata('ssd') == {'true'}
    with pytest.raises(DatabaseUnavailable):
        reader.aimed(a_request(force_hosts=('h1',)))


class Stuck(DatabaseServiceGroup):
    """Does not come to an end with the first cell, and nobody ends it."""

    def __init__(self, while_up):
        super().__init__(while_up)
        self.stuck, self.over = threading.Event(), threading.Event()

    def down(self, base, *asked):
        if base.name == 'cell cell1':
            self.stuck.set()
            assert self.over.wait(10)
        return super().down(base, *asked)


def test_a_reading_that_does_not_end(cloud, caplog):
    """The cell is left out of the next ones too, and back when it has ended."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    cloud.group = Stuck(60)
    reader = cloud.reader()
    with ThreadPoolExecutor(1) as pool:
        first = reader.cells.get(a_uuid('cell1'))
        cache = reader._caches[first] = CellHostCache(first, reader.settings, cloud.group)
        reading = pool.submit(cache.refresh, cloud.now)
        assert cloud.group.stuck.wait(10)
        assert names(reader.read(None, a_request(), instances=False).hosts) == ['h2']
        cloud.group.over.set()
        reading.result()
    assert names(reader.read(None, a_request(), instances=False).hosts) == ['h1', 'h2']
    assert caplog.messages == [f'Timeout getting computes for cell {a_uuid("cell1")}']


class Interrupted(DatabaseServiceGroup):
    """Tells of services, but for once."""

    cut = False

    def down(self, *asked):
        if self.cut:
            self.cut = False
            raise db_exc.DBConnectionError(OSError('cut'))
        return super().down(*asked)


def test_a_reading_that_is_cut(cloud):
    """It is done once more, and what the first half has seen is not forgotten."""
    cloud.add_host('h1')
    with cloud.api.begin() as connection:
        connection.execute(sa.text("DELETE FROM cell_mappings WHERE name = 'cell2'"))
    cloud.group = Interrupted(60)
    reader = cloud.reader()
    reader.read(None, a_request(), instances=False)
    cloud.change(cloud.engines['cell1'], tables.services, disabled=True)
    cloud.group.cut = True
    (host,) = reader.read(None, a_request(), instances=False).hosts.values()
    assert host.service.disabled
    assert not cloud.group.cut


def away(cloud, *cells):
    """Let nobody read what is in these cells."""
    for cell in cells:
        with cloud.engines[cell].begin() as connection:
            connection.exec_driver_sql('ALTER TABLE compute_nodes RENAME TO away')


IN_CELL_1 = Destination(cell_uuid=a_uuid('cell1'))


@pytest.mark.parametrize(
    ('gone', 'uuids', 'destination', 'found'),
    [
        (['cell1'], None, None, ['h2']),
        (['cell1'], [a_uuid('h1'), a_uuid('h2')], None, ['h2']),
        (['cell2'], None, IN_CELL_1, ['h1']),
        (['cell1'], [a_uuid('h1')], None, None),
        (['cell1'], None, IN_CELL_1, None),
        (['cell1', 'cell2'], None, None, None),
        (['cell1', 'cell2'], [a_uuid('h1'), a_uuid('h2')], None, None),
        ([], [a_uuid('h3')], None, []),
    ],
)
@pytest.mark.parametrize('instances', [False, True])
def test_cells_that_are_away(cloud, gone, uuids, destination, found, instances):
    """Their hosts are left out, but where a request has no others: that is no refusal."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    away(cloud, *gone)
    request = replace(a_request(), requested_destination=destination)
    reader = cloud.reader()
    if found is None:
        with pytest.raises(DatabaseUnavailable, match=r'^no answer of cell '):
            reader.read(uuids, request, instances)
    else:
        hosts = reader.read(uuids, request, instances).hosts
        chosen = [name for name in names(hosts) if uuids is None or a_uuid(name) in uuids]
        assert chosen == found


@pytest.mark.parametrize('forced', [{'force_hosts': ('h1',)}, {'force_nodes': ('h1',)}])
def test_a_host_in_a_cell_that_is_away(cloud, forced):
    """It may be there: nobody is told that it is not."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    away(cloud, 'cell1')
    with pytest.raises(DatabaseUnavailable, match=r'^no answer of cell '):
        cloud.reader().aimed(replace(a_request(), **forced))
