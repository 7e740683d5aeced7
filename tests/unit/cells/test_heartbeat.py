# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta

import pytest
import sqlalchemy as sa

from novasched.cells.database import Database
from novasched.cells.servicegroup import Heartbeat
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_uuid


class Pulse:
    """A heartbeat into the first cell's database, which is as good as any."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.engine = cloud.engines['cell1']
        cloud.cells.refresh()
        own = Database(self.engine, '[database] connection')
        self.heart = Heartbeat(own, cloud.cells.enabled, 'ctl1', lambda: cloud.now)

    @property
    def row(self):
        with self.engine.connect() as connection:
            select = sa.select(tables.services).where(tables.services.c.host == 'ctl1')
            return connection.execute(select).one()


@pytest.fixture
def pulse(cloud):
    return Pulse(cloud)


def test_joining_makes_the_row(pulse, cloud):
    """A new scheduler appears as nova-scheduler, with the newest version of the others."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    cloud.add_service('h2', cloud.engines['cell2'], version=66)
    pulse.heart.register()
    row = pulse.row
    assert (row.binary, row.topic, row.report_count, row.version) == (
        'nova-scheduler',
        'scheduler',
        0,
        66,
    )
    assert (row.last_seen_up, row.disabled, row.forced_down, row.deleted) == (
        cloud.now,
        False,
        False,
        0,
    )


def test_each_beat_counts(pulse, cloud):
    """A beat raises the count by one and notes the time."""
    pulse.heart.register()
    cloud.now += timedelta(seconds=10)
    pulse.heart.report_state()
    assert (pulse.row.report_count, pulse.row.last_seen_up) == (1, cloud.now)


@pytest.mark.parametrize(('others', 'version'), [([66], 66), ([], 60)])
def test_joining_again_keeps_the_row(pulse, cloud, others, version):
    """A restarted scheduler goes on with its row, also one that nova-scheduler left; what an
    operator set in it stays, and the version where no other service tells one."""
    cloud.add_service(
        'ctl1', pulse.engine, binary='nova-scheduler', report_count=7, version=60, disabled=True
    )
    for number in others:
        cloud.add_service('h2', cloud.engines['cell2'], version=number)
    pulse.heart.register()
    assert (pulse.row.report_count, pulse.row.version, pulse.row.disabled) == (7, version, True)


def test_a_dead_cell_says_nothing(pulse, cloud, caplog):
    """The versions of the other cells count, and the log names the dead one."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    tables.services.drop(cloud.engines['cell2'])
    pulse.heart.register()
    assert pulse.row.version == 61
    assert caplog.messages == [
        f'Failed to get service versions for cell {a_uuid("cell2")}: cell cell2 has no table services'
    ]


def test_a_row_that_vanished_is_made_again(pulse):
    """An operator who deletes the row of a living scheduler sees it come back."""
    pulse.heart.register()
    with pulse.engine.begin() as connection:
        connection.execute(sa.delete(tables.services))
    pulse.heart.report_state()
    assert pulse.row.report_count == 0


def test_a_failure_is_logged_once(pulse, caplog):
    """While the database is away, one line says so, and one that it is back."""
    caplog.set_level('INFO')
    pulse.heart.register()
    tables.services.drop(pulse.engine)
    pulse.heart.report_state()
    pulse.heart.report_state()
    tables.services.create(pulse.engine)
    pulse.heart.report_state()
    assert [record.getMessage() for record in caplog.records if 'servicegroup' in record.name] == [
        'Unable to update the service record: [database] connection has no table services',
        'Recovered from being unable to report status.',
    ]
