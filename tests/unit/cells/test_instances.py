# SPDX-License-Identifier: Apache-2.0
"""Which instances are read for a request, and how."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from novasched.cells.instances import NAMES_PER_QUERY, InstanceReader
from novasched.conf.settings import DEFAULT_FILTERS, Settings
from novasched.plugins import loading
from novasched.scheduler.drivers import Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_flavor, a_group, a_request, a_uuid
from tests.lab.ports import CountingPlacement

HOSTS = {'h1': 'cell1', 'h2': 'cell1', 'h3': 'cell2'}
MANY = 50  # instances on each host


def on_hosts(cloud, cell, *rows):
    """Put instances on hosts of a cell: UUID and host."""
    values = [
        {'uuid': uuid, 'host': host, 'deleted': 0, 'instance_type_id': 1} for uuid, host in rows
    ]
    with cloud.engines[cell].begin() as connection:
        connection.execute(sa.insert(tables.instances), values)


@pytest.fixture
def full(cloud):
    """A cloud whose hosts have many instances each."""
    for name, cell in HOSTS.items():
        cloud.add_host(name, cell)
        on_hosts(cloud, cell, *((f'{name}-{i}', name) for i in range(MANY)))
    return cloud


def driver(cloud, *names, **settings):
    """A scheduler with these filters, and all weighers, on hosts that are read."""
    values = Settings(enabled_filters=names or DEFAULT_FILTERS, **settings)
    made = loading.filters(values), loading.weighers(values)
    placement = CountingPlacement({a_uuid(name): 9 for name in HOSTS})
    return FilterScheduler(Parts(values, [], placement, cloud.reader(), *made))


def of_instances(asked):
    """The statements that read instances, with their parameters."""
    return [each for each in asked if 'FROM instances' in each[0]]


@pytest.mark.parametrize(
    ('filters', 'fields', 'names'),
    [
        (DEFAULT_FILTERS, {'group': a_group('anti-affinity', ['h1-0', 'h2-7'])}, ['h1-0', 'h2-7']),
        (DEFAULT_FILTERS, {'group': a_group('soft-affinity', ['h1-0'])}, ['h1-0']),
        (DEFAULT_FILTERS, {'group': a_group('soft-anti-affinity', ['h1-0'])}, ['h1-0']),
        (['SameHostFilter'], {'hints': {'same_host': ['h2-1']}}, ['h2-1']),
        (['DifferentHostFilter'], {'hints': {'different_host': ['h2-1']}}, ['h2-1']),
    ],
)
def test_a_request_that_names_instances_has_those_read_alone(full, filters, fields, names):
    """One query in each cell, by UUID, however many instances there are."""
    scheduler = driver(full, *filters)
    with full.watched() as asked:
        scheduler.select_destinations(
            a_request(instance_uuids=('new',), instance_uuid='new', **fields)
        )
    found = of_instances(asked)
    assert len(found) == 2
    for statement, parameters in found:
        assert 'instances.uuid IN' in statement
        assert set(names) <= set(parameters)
        assert len(parameters) <= 2 + len(names)


@pytest.mark.parametrize(
    ('filters', 'fields'),
    [
        (DEFAULT_FILTERS, {'group': a_group('affinity', ['h1-0'], hosts=frozenset(['h1']))}),
        (['JsonFilter'], {'hints': {'query': ['[">=", "$free_ram_mb", 1024]']}}),
        (['TypeAffinityFilter'], {'force_hosts': ('h1',)}),
        (['TypeAffinityFilter'], {'hints': {'_nova_check_type': ['rebuild']}}),
    ],
)
def test_who_looks_at_no_instances_has_none_read(full, filters, fields):
    """Neither those who look at the hosts of a group, nor filters that do not run."""
    scheduler = driver(full, *filters)
    with full.watched() as asked:
        scheduler.select_destinations(a_request(**fields))
    assert of_instances(asked) == []


def test_named_instances_are_found_where_they_are(full):
    """On their hosts in any cell; not those that are deleted, nowhere, or not named."""
    full.add_host('far', 'cell2')
    full.add(full.engines['cell2'], tables.instances, uuid='x', host='far', deleted=0)
    full.add(full.engines['cell2'], tables.instances, uuid='gone', host='far', deleted=3)
    full.add(full.engines['cell2'], tables.instances, uuid='new', host=None, deleted=0)
    named = ['h1-3', 'h1-4', 'x', 'gone', 'new', 'nobody']
    host_snapshot = full.reader().read(None, a_request(), instances=False, named=named)
    assert {host.host: set(host.instances) for host in host_snapshot.hosts.values()} == {
        'h1': {'h1-3', 'h1-4'}, 'h2': set(), 'h3': set(), 'far': {'x'},
    }  # fmt: skip


def test_hosts_of_a_cell_that_fails_are_left_out(full):
    """Nobody knows which of the instances are on them."""
    full.add_host('far', 'cell2')
    reader = full.reader()
    reader.read(None, a_request(), instances=False)
    with full.engines['cell1'].begin() as connection:
        connection.execute(sa.text('ALTER TABLE instances RENAME TO lost'))
    host_snapshot = reader.read(None, a_request(), instances=False, named=['h1-1'])
    assert sorted(host.host for host in host_snapshot.hosts.values()) == ['far', 'h3']


@pytest.mark.parametrize('text', ['', 'x' * 37, '\ud800', 'é', '\0', '\N{PILE OF POO}'])
def test_texts_that_are_no_uuids_are_not_asked_for(full, text):
    """Whatever a user writes into a hint, no database hears of what it cannot hold."""
    scheduler = driver(full, 'DifferentHostFilter')
    request = a_request(hints={'different_host': [text, 'x' * 40]})
    with full.watched() as asked:
        scheduler.select_destinations(request)
    assert of_instances(asked) == []


def test_many_names_are_asked_for_in_chunks(full):
    """No statement has more than so many, and all are found."""
    names = [f'{host}-{i}' for host in HOSTS for i in range(NAMES_PER_QUERY)]
    reader = full.reader()
    with full.watched() as asked:
        host_snapshot = reader.read(None, a_request(), instances=False, named=names)
    assert sorted(len(parameters) for _, parameters in of_instances(asked)) == [1001] * 6
    assert sum(len(host.instances) for host in host_snapshot.hosts.values()) == len(HOSTS) * MANY


class Gate:
    """Lets statements that read instances pass when it is opened."""

    def __init__(self, cloud):
        self.waiting = threading.Semaphore(0)
        self.open = threading.Event()
        self.read = 0
        for cell in cloud.cells.enabled():
            sa.event.listen(cell.database.engine, 'before_cursor_execute', self._note)

    def _note(self, connection, cursor, statement, *rest):
        if 'FROM instances' in statement:
            self.read += 1
            self.waiting.release()
            assert self.open.wait(10)


def test_requests_at_once_share_a_reading(full):
    """However many come while the instances of a cell are being read, they are read once
    more."""
    reader = full.reader()
    request = replace(a_request(), arrived=time.monotonic())
    reader.read(None, request, instances=False)
    gate = Gate(full)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(reader.read, None, request, True) for _ in range(8)]
        assert gate.waiting.acquire(timeout=10)
        gate.open.set()
        snapshots = [each.result(10) for each in asked]
    reader.close()
    assert gate.read < 8 * len(set(HOSTS.values()))
    for host_snapshot in snapshots:
        assert {len(host.instances) for host in host_snapshot.hosts.values()} == {MANY}


def test_a_reading_that_does_not_have_all_hosts(full):
    """Whoever needs another host waits for the next reading, which has it; what was read is
    forgotten when nobody needs it."""
    base = full.reader().cells.get(a_uuid('cell1')).database
    reader = InstanceReader(base, images=False)
    gate = Gate(full)
    moment = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(reader.on, {'h1'}, moment)
        assert gate.waiting.acquire(timeout=10)
        second = pool.submit(reader.on, {'h2', 'h3'}, moment)
        gate.open.set()
        assert set(first.result(10)) == {'h1'}
        assert 'h2' in set(second.result(10))
    assert gate.read == 2
    reader.on({'h1'}, moment)
    assert gate.read == 3


def test_instances_that_came_while_hosts_were_read_are_seen(full):
    """All instances are read after the hosts: a pending claim that the hosts show is over, and
    whoever reads the instances must find it there."""
    reader = full.reader()
    base = reader.cells.get(a_uuid('cell1')).database
    whole = InstanceReader(base, images=False)
    before = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        gate = Gate(full)
        early = pool.submit(whole.on, {'h1'}, before)
        assert gate.waiting.acquire(timeout=10)
        complete = reader.snapshot(before).complete
        gate.open.set()
        early.result(10)
    assert complete > before
    on_hosts(full, 'cell1', ('late', 'h1'))
    assert 'late' in whole.on({'h1'}, complete)['h1']


def test_all_instances_are_read_where_all_count(full):
    """TypeAffinityFilter looks at every instance on a host; images come along in chunks."""
    scheduler = driver(full, 'TypeAffinityFilter')
    with full.watched() as asked:
        scheduler.select_destinations(a_request(flavor=a_flavor(id=1)))
    (statement, parameters) = of_instances(asked)[0]
    assert 'instances.uuid IN' not in statement
    assert HOSTS.keys() & set(parameters)
