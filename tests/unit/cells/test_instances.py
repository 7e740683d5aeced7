# SPDX-License-Identifier: Apache-2.0
"""Instances read for a request, and the statements of the reading."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from novasched.cells.instances import NAMES_PER_QUERY, InstanceDetail, InstanceReader
from novasched.conf.settings import DEFAULT_FILTERS, Settings
from novasched.plugins import loading
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.model.basis import Basis
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_flavor, a_group, a_needs, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.nova_databases import hosts_of

HOSTS = {'h1': 'cell1', 'h2': 'cell1', 'h3': 'cell2'}
MANY = 50  # instances on each host
QUERY = '["not", ["=", "$instances.x.uuid", "x"]]'


def on_hosts(cloud, cell, *rows):
    """Add instances to a cell: pairs of UUID and host."""
    values = []
    for uuid, host in rows:
        values.append({'uuid': uuid, 'host': host, 'deleted': 0, 'instance_type_id': 1})
    with cloud.engines[cell].begin() as connection:
        connection.execute(sa.insert(tables.instances), values)


@pytest.fixture
def full(cloud):
    """A cloud with many instances on every host."""
    for name, cell in HOSTS.items():
        cloud.add_host(name, cell)
        on_hosts(cloud, cell, *((f'{name}-{i}', name) for i in range(MANY)))
    return cloud


def of_instances(asked):
    """The statements for instances, with parameters."""
    return [statement for statement in asked if 'FROM instances' in statement[0]]


def asked_for(cloud, filters, fields):
    """The statements for instances, with parameters, of a request with some filters and
    all weighers."""
    settings = Settings(enabled_filters=filters)
    deps = SchedulerDeps(
        settings,
        [],
        CountingPlacement(dict.fromkeys(map(a_uuid, HOSTS), 9)),
        cloud.reader(),
        loading.filters(settings),
        loading.weighers(settings),
    )
    scheduler = FilterScheduler(deps)

    with cloud.watched() as asked:
        scheduler.select_destinations(a_request(**fields))
    return of_instances(asked)


@pytest.mark.parametrize(
    ('filters', 'fields', 'names'),
    [
        (
            DEFAULT_FILTERS,
            {'group': a_group('anti-affinity', ['h1-0', 'h2-7'])},
            ['h1-0', 'h2-7'],
        ),
        (DEFAULT_FILTERS, {'group': a_group('soft-affinity', ['h1-0'])}, ['h1-0']),
        (DEFAULT_FILTERS, {'group': a_group('soft-anti-affinity', ['h1-0'])}, ['h1-0']),
        (['SameHostFilter'], {'hints': {'same_host': ['h2-1']}}, ['h2-1']),
        (['DifferentHostFilter'], {'hints': {'different_host': ['h2-1']}}, ['h2-1']),
    ],
)
def test_only_the_instances_named_in_a_request_are_read(full, filters, fields, names):
    """The named instances are read by UUID, in one query a cell, no matter how many
    instances the cell has."""
    statements = asked_for(full, filters, fields)

    assert len(statements) == 2
    for statement, parameters in statements:
        assert 'instances.uuid IN' in statement
        assert set(names) <= set(parameters)
        assert len(parameters) <= 2 + len(names)


@pytest.mark.parametrize(
    ('filters', 'fields'),
    [
        (
            DEFAULT_FILTERS,
            {'group': a_group('affinity', ['h1-0'], hosts=frozenset(['h1']))},
        ),
        (['JsonFilter'], {'hints': {'query': ['[">=", "$free_ram_mb", 1024]']}}),
        (['TypeAffinityFilter'], {'force_hosts': ('h1',)}),
        *(
            (['DifferentHostFilter'], {'hints': {'different_host': [text, 'x' * 40]}})
            for text in ('', 'x' * 37, '\ud800', 'é', '\0', '\N{PILE OF POO}')
        ),
    ],
)
def test_no_instances_are_read_if_no_filter_needs_instances(full, filters, fields):
    """No instances are read for inactive filters, nor for filters of the hosts of a
    group. A hint beyond the character set of databases reaches no database."""
    assert asked_for(full, filters, fields) == []


def test_a_rebuild_reads_only_the_row_of_the_rebuilt_instance(full):
    """A rebuild reads the row of its instance, and no instances for the filters that
    do not run on a rebuild."""
    fields = {
        'hints': {'_nova_check_type': ['rebuild']},
        'force_hosts': ('h1',),
        'instance_uuids': ('h1-0',),
    }
    [(statement, parameters)] = asked_for(full, ['TypeAffinityFilter'], fields)
    assert statement.startswith('SELECT instances.host, instances.node')
    assert 'h1-0' in parameters


@pytest.mark.parametrize(
    ('filters', 'fields', 'is_grouped'),
    [
        (['JsonFilter'], {'hints': {'query': [QUERY]}}, False),
        (['TypeAffinityFilter'], {'flavor': a_flavor(id=1)}, True),
        (
            ['TypeAffinityFilter', 'JsonFilter'],
            {'hints': {'query': [QUERY]}, 'flavor': a_flavor(id=1)},
            False,
        ),
    ],
)
def test_instances_are_grouped_by_flavor_if_only_flavors_count(
    full, filters, fields, is_grouped
):
    """If only the flavors of instances count, the database sends one instance a
    flavor."""
    (statement, parameters), *_ = asked_for(full, filters, fields)

    assert 'instances.uuid IN' not in statement
    grouping = 'GROUP BY instances.host, instances.instance_type_id'
    assert (grouping in statement) == is_grouped
    assert HOSTS.keys() & set(parameters)


def flavors_of(hosts):
    """Host to the flavor ids of all instances, sorted, with repetitions."""
    flavors = {}
    for name, host in hosts.items():
        instances = host.instances.values()
        flavors[name] = sorted(instance.instance_type_id for instance in instances)
    return flavors


def test_an_instance_of_each_flavor_and_named_instances_are_read(full):
    """The reader reads an instance for each flavor, and the named instances of the
    request."""
    on_hosts(full, 'cell1', ('large', 'h1'), ('large too', 'h1'), ('gone', 'h2'))
    full.sql(
        'cell1', "UPDATE instances SET instance_type_id = 2 WHERE uuid LIKE 'large%'"
    )
    full.sql(
        'cell1',
        "UPDATE instances SET instance_type_id = 3, deleted = 1 WHERE uuid = 'gone'",
    )
    reader = full.reader()
    assert flavors_of(hosts_of(reader, flavors=True)) == {
        'h1': [1, 2],
        'h2': [1],
        'h3': [1],
    }

    named = hosts_of(reader, flavors=True, named=['h1-7', 'h3-9'])
    assert flavors_of(named) == {'h1': [1, 1, 2], 'h2': [1], 'h3': [1, 1]}
    assert 'h1-7' in named['h1'].instances


@pytest.mark.parametrize('how', [{'flavors': True}, {'instances': True}])
def test_a_host_with_unchanged_instances_stays_the_same_object(full, how):
    """A host with unchanged instances is the same object, so filters and weighers need
    not judge the host again. Requests of the same reading share the mapping."""
    reader = full.reader()
    first = reader.read(None, a_request(), a_needs(**how))
    before = first.hosts
    second = reader.read({*before}, a_request(), a_needs(**how))
    assert [*map(id, second.hosts.values())] == [*map(id, before.values())]

    full.sql(
        'cell1', "UPDATE instances SET instance_type_id = 2 WHERE uuid LIKE 'h1-%'"
    )
    full.sql('cell2', "UPDATE instances SET deleted = 1 WHERE uuid LIKE 'h3-%'")
    after = reader.read(None, a_request(), a_needs(**how)).hosts
    assert after[a_uuid('h1')] is not before[a_uuid('h1')]
    assert after[a_uuid('h2')] is before[a_uuid('h2')]
    assert after[a_uuid('h3')] is not before[a_uuid('h3')]
    assert set(flavors_of(after)[a_uuid('h1')]) == {2}
    assert not after[a_uuid('h3')].instances


def test_hosts_with_instances_are_freed_after_the_last_request(full):
    """Hosts with instances are freed once no request uses them."""
    reader = full.reader()
    snapshot = reader.read(None, a_request(), a_needs(instances=True))
    kept = weakref.ref(snapshot.view)
    again = reader.read(None, a_request(), a_needs(instances=True))
    assert again.hosts[a_uuid('h1')] is snapshot.hosts[a_uuid('h1')]

    del snapshot, again
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    ('uuids', 'found'),
    [(None, ['h1', 'h2', 'h3']), ({a_uuid('h1'), a_uuid('x')}, ['h1']), (set(), [])],
)
def test_instances_are_read_only_on_candidates(full, uuids, found):
    """Instances are read on the candidates of Placement, and on all hosts if Placement
    was not asked."""
    assert [*hosts_of(full.reader(), uuids=uuids, instances=True)] == found


@pytest.fixture
def mixed(cloud):
    """Two instances on a host, a deleted instance, and an instance without a host, with
    the same image property."""
    engine = cloud.engines['cell1']
    kept = tables.instance_system_metadata
    cloud.add_host('h1')
    rows = ('a', 'h1', 0), ('b', 'h1', 0), ('gone', 'h1', 3), ('new', None, 0)
    for uuid, host, deleted in rows:
        cloud.add(engine, tables.instances, uuid=uuid, host=host, deleted=deleted)
        cloud.add(engine, kept, instance_uuid=uuid, key='image_hw_pmu', value='1')
    cloud.add(engine, kept, instance_uuid='a', key='imageXos_type', value='x')
    cloud.add(engine, kept, instance_uuid='a', key='boot_roles', value='admin')
    cloud.add(
        engine, kept, instance_uuid='b', key='image_os_type', value='x', deleted=7
    )
    return cloud


@pytest.mark.parametrize(
    ('how', 'found'),
    [
        ({}, {}),
        ({'named': ['b', 'gone', 'new', 'nobody']}, {'b': {}}),
        ({'instances': True}, {'a': {}, 'b': {}}),
        (
            {'instances': True, 'images': True},
            {'a': {'hw_pmu': True}, 'b': {'hw_pmu': True}},
        ),
    ],
)
def test_a_host_gets_the_wanted_instances_and_image_properties(mixed, how, found):
    """A host gets the wanted instances, on demand with the properties of the images.
    Metadata that a rebuild has replaced does not count."""
    [host] = hosts_of(mixed.reader(), **how).values()
    properties = {}
    for uuid, instance in host.instances.items():
        properties[uuid] = instance.image_properties
    assert properties == found


def test_hosts_of_a_cell_that_fails_are_left_out(full):
    """The hosts of a failed cell are left out: the instances are unknown."""
    reader = full.reader()
    hosts_of(reader)
    full.sql('cell1', 'ALTER TABLE instances RENAME TO lost')
    assert [*hosts_of(reader, named=['h1-1'])] == ['h3']


def located_hosts(snapshot):
    """Instance UUID to the name of the host on which the instance was located."""
    return {uuid: host.host for uuid, host in snapshot.located.items()}


@pytest.mark.parametrize(
    'how',
    [
        {},
        {'uuids': {a_uuid('h2')}, 'instances': True},
        {'request': a_request().with_requested_destination(cell_uuid=a_uuid('cell1'))},
    ],
)
def test_instances_are_located_on_hosts_outside_the_request(full, how):
    """The host of an instance is located even if the request may not go there.
    Instances in a failed cell are not located."""
    full.add_aggregate(1, ['h3'], rack='r')
    uuids = how.get('uuids')
    request = how.get('request', a_request())
    needs = a_needs(
        instances=how.get('instances', False), located=['h1-0', 'h3-1', 'nobody']
    )
    reader = full.reader()

    snapshot = reader.read(uuids, request, needs)
    assert located_hosts(snapshot) == {'h1-0': 'h1', 'h3-1': 'h3'}
    assert snapshot.located['h3-1'].metadata('rack') == {'r'}
    assert snapshot.everywhere.keys() == {*map(a_uuid, HOSTS)}

    full.sql('cell2', 'ALTER TABLE instances RENAME TO lost')
    assert [*reader.read(uuids, request, needs).located] == ['h1-0']


def test_instances_are_located_in_a_disabled_cell(full):
    """A move within a disabled cell sees the hosts of instances in the cell, and
    pending claims on the hosts."""
    full.sql(
        'api', f"UPDATE cell_mappings SET disabled = 1 WHERE uuid = '{a_uuid('cell2')}'"
    )
    request = a_request().with_requested_destination(cell_uuid=a_uuid('cell2'))
    reader = full.reader()

    snapshot = reader.read(None, request, a_needs(located=['h1-0', 'h3-1']))

    assert located_hosts(snapshot) == {'h1-0': 'h1', 'h3-1': 'h3'}
    [host] = snapshot.hosts.values()
    claims = PendingClaims(Settings())
    claim = claims.choose(host, request, None, {})
    assert claims.of(snapshot) == {host.uuid: (claim,)}


def test_many_named_instances_are_read_in_chunks(full):
    """A statement has a bounded number of names. All instances are found."""
    names = []
    for host in HOSTS:
        names += [f'{host}-{i}' for i in range(NAMES_PER_QUERY)]
    reader = full.reader()
    with full.watched() as asked:
        hosts = hosts_of(reader, named=names)

    numbers = [len(parameters) for _, parameters in of_instances(asked)]
    assert numbers == [1001] * 6
    assert len(hosts) == len(HOSTS)
    for host in hosts.values():
        assert len(host.instances) == MANY


class Gate:
    """Holds back all statements for instances until the gate is opened."""

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


def test_simultaneous_requests_share_a_reading(full):
    """Requests arriving during a reading share the next reading."""
    reader = full.reader()
    basis = Basis(began=time.monotonic())
    request = a_request()
    hosts_of(reader, request, basis=basis)
    gate = Gate(full)
    readings = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            reading = pool.submit(
                hosts_of, reader, request, basis=basis, instances=True
            )
            readings.append(reading)
        assert gate.waiting.acquire(timeout=10)
        gate.open.set()
    reader.close()

    assert gate.read < 8 * len(set(HOSTS.values()))
    for reading in readings:
        hosts = reading.result(10)
        assert {len(host.instances) for host in hosts.values()} == {MANY}


def test_a_request_for_further_hosts_waits_for_the_next_reading(full):
    """A request for a host outside the current reading waits for the next reading. A
    reading is forgotten once no request needs it."""
    base = full.reader().cells.get(a_uuid('cell1')).database
    reader = InstanceReader(base, InstanceDetail.ALL)
    gate = Gate(full)
    moment = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(reader.on, {'h1'}, moment)
        assert gate.waiting.acquire(timeout=10)
        second = pool.submit(reader.on, {'h2', 'h3'}, moment)
        gate.open.set()
        assert set(first.result(10).instances) == {'h1'}
        assert 'h2' in second.result(10).instances
    assert gate.read == 2

    reader.on({'h1'}, moment)
    assert gate.read == 3


def test_a_reading_of_instances_begins_after_the_hosts_are_read(full):
    """All instances are read after the hosts. A report of the host ends the pending
    claim, so a later reading of instances must find the instance."""
    reader = full.reader()
    base = reader.cells.get(a_uuid('cell1')).database
    whole = InstanceReader(base, InstanceDetail.ALL)
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
    assert 'late' in whole.on({'h1'}, complete).instances['h1']
