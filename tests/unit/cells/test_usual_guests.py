# SPDX-License-Identifier: Apache-2.0
"""The usual guests, learned from instances or listed by the option."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from novasched.cells.usual_guests import (
    MAX_AGE_S,
    MAX_USUAL_GUESTS,
    UsualGuestsReader,
    UsualGuestsSource,
)
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import HostView
from novasched.scheduler.model.usual_guests import UsualGuest
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_host, a_uuid

PINNED = {'hw:cpu_policy': 'dedicated'}
SMALL = {'vcpus': 1, 'memory_mb': 512, 'root_gb': 5, 'ephemeral_gb': 0}


HOST = a_host(ram=2048, vcpus=4, disk_gb=1, cpu_allocation_ratio=2.0)
CELL = HostView({HOST.uuid: HOST})


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def make_reader(two_cells):
    """A function that makes a reader. The attributes ``clock`` and ``views`` of the
    reader are its clock and the cells that answer."""
    two_cells.cells.refresh()
    with ThreadPoolExecutor(4) as pool:

        def make(*flavors):
            clock = Clock()
            views = {a_uuid('cell1'): CELL}
            source = UsualGuestsSource(
                two_cells.cells, flavors, 10.0, pool, lambda: views
            )
            reader = UsualGuestsReader(source, clock)
            reader.clock = clock
            reader.views = views
            return reader

        yield make


def boot(cloud, cell, flavor_id, count, **columns):
    """Add instances of a flavor to a cell."""
    rows = []
    for number in range(count):
        row = {
            'uuid': f'{cell}-{flavor_id}-{number}',
            'host': 'h1',
            'deleted': 0,
            'instance_type_id': flavor_id,
            **SMALL,
            **columns,
        }
        rows.append(row)
    with cloud.engines[cell].begin() as connection:
        connection.execute(sa.insert(tables.instances), rows)


def guest(flavor_id, number, extra_specs=None, **sizes):
    """A usual guest as learned from instances."""
    return UsualGuest(
        Flavor(id=flavor_id, extra_specs=extra_specs or {}, **{**SMALL, **sizes}),
        number,
    )


def add_spec(cloud, flavor_id):
    """Give a flavor the extra spec of pinned CPUs."""
    [(key, value)] = PINNED.items()
    cloud.add(
        cloud.api, tables.flavor_extra_specs, flavor_id=flavor_id, key=key, value=value
    )


def test_usual_guests_are_learned_from_instances_of_all_cells(two_cells, make_reader):
    """Instances of all cells count by flavor, the most frequent flavors first. Deleted
    instances and instances without a host do not count."""
    boot(two_cells, 'cell1', 7, 2)
    boot(two_cells, 'cell2', 7, 3)
    boot(two_cells, 'cell2', 8, 4, vcpus=8, root_gb=None)
    boot(two_cells, 'cell1', 9, 9, deleted=1)
    boot(two_cells, 'cell2', 9, 9, host=None)
    add_spec(two_cells, 7)
    two_cells.add(
        two_cells.api, tables.flavors, id=7, name='pinned', flavorid='f7', **SMALL
    )

    # The flavor with the id 8 is deleted.
    usual = make_reader().latest()
    pinned = guest(7, 5, PINNED, name='pinned', flavorid='f7')
    assert usual.guests == (pinned, guest(8, 4, vcpus=8, root_gb=0))
    assert usual.capacity == {'VCPU': 8.0, 'MEMORY_MB': 2048.0, 'DISK_MB': 1024.0}


def test_only_the_most_frequent_flavors_become_usual_guests(two_cells, make_reader):
    """Each cell sends its most frequent flavors only, and few flavors of all cells
    count."""
    for flavor_id in range(1, MAX_USUAL_GUESTS + 9):
        boot(two_cells, 'cell1', flavor_id, 1 + flavor_id)
    boot(two_cells, 'cell2', 100, 99)
    with two_cells.watched() as statements:
        guests = make_reader().latest().guests
    assert [guest.flavor.id for guest in guests[:2]] == [100, MAX_USUAL_GUESTS + 8]
    assert len(guests) == MAX_USUAL_GUESTS
    counting = [sql for sql, _ in statements if 'FROM instances' in sql]
    assert len(counting) == 2
    assert all('LIMIT' in sql for sql in counting)


def test_usual_guests_listed_by_the_option_read_no_instances(two_cells, make_reader):
    """The flavors of the option are read by id or name, and instances are not read. A
    flavor that does not exist is left out."""
    two_cells.add(
        two_cells.api, tables.flavors, id=3, name='m1', flavorid='f3', **SMALL
    )
    add_spec(two_cells, 3)
    flavor = Flavor(id=3, name='m1', flavorid='f3', extra_specs=PINNED, **SMALL)
    for name in ('m1', 'f3'):
        with two_cells.watched() as statements:
            usual = make_reader(name, 'unheard-of').latest()
        assert usual.guests == (UsualGuest(flavor, 1),)
        assert not [sql for sql, _ in statements if 'FROM instances' in sql]


def test_outdated_usual_guests_are_read_again_in_the_background(two_cells, make_reader):
    """Guests are read again in the background once they are outdated. The same guests
    stay the same object."""
    boot(two_cells, 'cell1', 7, 1)
    reader = make_reader()
    usual = reader.latest()

    boot(two_cells, 'cell1', 8, 5)
    reader.clock.now = MAX_AGE_S
    assert reader.latest() is usual
    assert reader.end_reading() is usual

    reader.clock.now += 1.0
    assert reader.latest() is usual
    later = reader.end_reading()
    assert later.guests == (guest(8, 5), guest(7, 1))
    reader.clock.now += MAX_AGE_S + 1.0
    reader.latest()
    assert reader.end_reading() is later


def memory_mb(reader):
    """The memory of the cloud after the end of a reading, if a reading has begun."""
    reader.latest()
    return reader.end_reading().capacity['MEMORY_MB']


def test_capacity_covers_all_enabled_cells_that_have_answered(two_cells, make_reader):
    """A cell that did not answer counts as soon as it answers, and a cell that answers
    no more counts as before. Further hosts count at the next reading, also for listed
    flavors. A disabled cell does not count."""
    two_cells.add(
        two_cells.api, tables.flavors, id=3, name='m1', flavorid='f3', **SMALL
    )
    reader = make_reader('m1')
    assert memory_mb(reader) == 2048.0

    large = a_host('large', ram=4096)
    reader.views[a_uuid('cell2')] = HostView({large.uuid: large})
    assert memory_mb(reader) == 6144.0
    usual = reader.latest()

    del reader.views[a_uuid('cell2')]
    reader.clock.now += MAX_AGE_S + 1.0
    assert memory_mb(reader) == 6144.0
    assert reader.latest() is usual

    reader.views[a_uuid('cell1')] = HostView({HOST.uuid: HOST, large.uuid: large})
    assert memory_mb(reader) == 6144.0
    reader.clock.now += MAX_AGE_S + 1.0
    assert memory_mb(reader) == 10240.0

    two_cells.sql('api', "UPDATE cell_mappings SET disabled = 1 WHERE name = 'cell2'")
    two_cells.cells.refresh()
    reader.clock.now += MAX_AGE_S + 1.0
    assert memory_mb(reader) == 6144.0


def test_usual_guests_stay_while_the_api_database_fails(two_cells, make_reader):
    """The last guests stay while the API database fails, and there are none before the
    first reading."""
    boot(two_cells, 'cell1', 7, 1)
    reader = make_reader()
    two_cells.sql('api', 'ALTER TABLE flavor_extra_specs RENAME TO away')
    assert reader.latest().guests == ()
    two_cells.sql('api', 'ALTER TABLE away RENAME TO flavor_extra_specs')

    reader.clock.now += MAX_AGE_S + 1.0
    usual = reader.latest()
    assert usual.guests == (guest(7, 1),)
    two_cells.sql('api', 'ALTER TABLE flavor_extra_specs RENAME TO away')
    reader.clock.now += MAX_AGE_S + 1.0
    reader.latest()
    assert reader.end_reading() is usual
