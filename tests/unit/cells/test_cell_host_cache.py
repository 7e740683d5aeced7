# SPDX-License-Identifier: Apache-2.0
import itertools
import shutil
import sqlite3
from datetime import timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from novasched.cells.cell_host_cache import CellHostCache, lowest_version
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.conf.settings import Settings
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_uuid
from tests.lab.nova_databases import NOW


@pytest.mark.parametrize(
    ('versions', 'lowest'),
    [
        ([], 0),
        ([66], 66),
        ([67, 66], 66),
        ([None, 66], 66),
        ([' ', 66], 66),
        ([' '], 0),
    ],
)
def test_lowest_version_skips_versions_that_are_no_numbers(versions, lowest):
    """The lowest version of all services. A version that is no number does not
    count."""
    rows = [SimpleNamespace(version=version, forced_down=0) for version in versions]
    assert lowest_version(rows) == lowest


def test_lowest_version_skips_services_forced_down():
    """A service that is forced down does not count, as in nova."""
    rows = [
        SimpleNamespace(version=61, forced_down=1),
        SimpleNamespace(version=66, forced_down=0),
    ]
    assert lowest_version(rows) == 66


@pytest.fixture
def cache(two_cells):
    two_cells.cells.refresh()
    cell = two_cells.cells.get(a_uuid('cell1'))
    return CellHostCache(cell, Settings(), DatabaseServiceGroup(60))


def set_free_ram(cloud, ram):
    cloud.sql('cell1', f'UPDATE compute_nodes SET free_ram_mb = {ram}')


def test_a_refresh_without_changes_reports_no_host(two_cells, cache):
    """The mapping of hosts stays the same object, and no host is reported."""
    first = cache.refresh(NOW)
    second = cache.refresh(NOW, known_version=first.view.version)
    assert first.view.hosts.keys() == {a_uuid('h1')}
    assert (first.freed, first.changed_rows) == (set(), 2)
    assert second.view is first.view
    assert (second.freed, second.changed_rows) == (set(), 0)


def test_a_refresh_reports_changes_since_the_version_of_the_caller(two_cells, cache):
    """The next refresh reports the changes since the version that the caller knows,
    also if another refresh in between has read some of them."""
    first = cache.refresh(NOW)
    set_free_ram(two_cells, 9000)
    cache.refresh(NOW, known_version=first.view.version)
    two_cells.add_host('h3')
    third = cache.refresh(NOW, known_version=first.view.version)
    both = {a_uuid('h1'), a_uuid('h3')}
    assert third.view.changes.since(first.view.version) == both
    assert third.freed == both
    fourth = cache.refresh(NOW, known_version=third.view.version)
    assert fourth.view is third.view
    assert fourth.freed == set()


def test_a_host_is_reported_when_the_service_counts_as_down(two_cells, cache):
    """The host is reported as soon as its service counts as down, though no row has
    changed."""
    first = cache.refresh(NOW)
    second = cache.refresh(
        NOW + timedelta(seconds=61), known_version=first.view.version
    )
    assert second.view.changes.since(first.view.version) == {a_uuid('h1')}
    assert not second.view.hosts[a_uuid('h1')].service.up


def test_pending_instances_and_hosts_are_read_on_the_same_connection(
    two_cells, cache, tmp_path
):
    """The rows of pending instances and the hosts are read on one connection, since
    each further connection may lead to a database that lags behind."""
    engine = cache.cell.database.engine
    present = engine.url.database
    lagging = str(tmp_path / 'lagging.sqlite')
    cache.refresh(NOW)
    shutil.copy(present, lagging)
    set_free_ram(two_cells, 1000)
    two_cells.add(two_cells.engines['cell1'], tables.instances, uuid='here', host='h1')

    paths = itertools.chain([present], itertools.repeat(lagging))
    sa.event.listen(engine, 'do_connect', lambda *_: sqlite3.connect(next(paths)))
    refresh = cache.refresh(NOW, ['here'])
    assert refresh.instances.keys() == {'here'}
    assert refresh.view.hosts[a_uuid('h1')].free_ram_mb == 1000


def test_rows_of_pending_instances_are_read_even_if_deleted(two_cells, cache):
    """The rows of pending instances are read, deleted instances included."""
    engine = two_cells.engines['cell1']
    two_cells.add(engine, tables.instances, uuid='here', host='h1', deleted=0)
    two_cells.add(engine, tables.instances, uuid='gone', host='h1', deleted=7)
    instances = cache.refresh(NOW, ['here', 'gone', 'nowhere']).instances
    hosts = {uuid: row.host for uuid, row in instances.items()}
    assert hosts == {'here': 'h1', 'gone': 'h1'}
