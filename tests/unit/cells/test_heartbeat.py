# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta

import pytest

from novasched.cells.database import Database
from novasched.cells.servicegroup import Heartbeat
from tests.lab.builders import a_uuid


@pytest.fixture
def heart(cloud):
    """A heartbeat to the database of the first cell."""
    cloud.cells.refresh()
    own = Database(cloud.engines['cell1'], '[database] connection')
    return Heartbeat(own, cloud.cells.enabled, 'ctl1', lambda: cloud.now)


def row(cloud, columns):
    [row] = cloud.sql('cell1', f"SELECT {columns} FROM services WHERE host = 'ctl1'")
    return row


def test_registering_a_new_scheduler_creates_the_service_record(cloud, heart):
    """A new scheduler registers as nova-scheduler, with the newest version of all
    further services. Every report raises the count by 1 and writes the time. A row
    deleted by an operator comes back."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    cloud.add_service('h2', cloud.engines['cell2'], version=66)
    heart.register()

    assert row(cloud, 'binary, topic, version') == ('nova-scheduler', 'scheduler', 66)
    assert row(cloud, 'disabled, forced_down, deleted') == (False, False, 0)
    assert row(cloud, 'report_count, last_seen_up') == (0, f'{cloud.now}.000000')

    cloud.now += timedelta(seconds=10)
    heart.report_state()
    assert row(cloud, 'report_count, last_seen_up') == (1, f'{cloud.now}.000000')

    cloud.sql('cell1', 'DELETE FROM services')
    heart.report_state()
    assert row(cloud, 'report_count') == (0,)


@pytest.mark.parametrize(('others', 'version'), [([66], 66), ([], 60)])
def test_a_restarted_scheduler_keeps_the_service_record(cloud, heart, others, version):
    """A restarted scheduler keeps the row, also a row of nova-scheduler. Values set by
    an operator stay, and so does the version if no further service has a version."""
    before = {
        'binary': 'nova-scheduler',
        'report_count': 7,
        'version': 60,
        'disabled': True,
    }
    cloud.add_service('ctl1', cloud.engines['cell1'], **before)
    for number in others:
        cloud.add_service('h2', cloud.engines['cell2'], version=number)
    heart.register()
    assert row(cloud, 'report_count, version, disabled') == (7, version, True)


def test_versions_of_all_other_cells_count_when_a_cell_fails(cloud, heart, caplog):
    """The versions in all other cells count, and the log names the failed cell."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    cloud.sql('cell2', 'DROP TABLE services')
    heart.register()
    assert row(cloud, 'version') == (61,)
    assert caplog.messages == [
        f'Failed to get service versions for cell {a_uuid("cell2")}: '
        'cell cell2 has no table services'
    ]


def test_a_heartbeat_failure_is_logged_once(cloud, heart, caplog):
    """The log has one line when the database fails, and one line after the next
    answer."""
    caplog.set_level('INFO')
    heart.register()
    cloud.sql('cell1', 'ALTER TABLE services RENAME TO away')
    heart.report_state()
    heart.report_state()
    cloud.sql('cell1', 'ALTER TABLE away RENAME TO services')
    heart.report_state()

    messages = []
    for record in caplog.records:
        if 'servicegroup' in record.name:
            messages.append(record.getMessage())
    assert messages == [
        'Unable to update the service record: '
        '[database] connection has no table services',
        'Recovered from being unable to report status.',
    ]


def test_the_service_record_follows_the_newest_service_version(cloud, heart):
    """The row follows the newest version of all services except schedulers, so an
    upgrade of nova needs no restart. The version stays if no service has a version."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    heart.register()
    cloud.add_service('h2', cloud.engines['cell2'], version=66)
    heart.update_version()
    assert row(cloud, 'version, report_count') == (66, 0)

    cloud.sql('cell2', 'UPDATE services SET deleted = id')
    heart.update_version()
    assert row(cloud, 'version') == (61,)

    cloud.sql('cell1', "UPDATE services SET deleted = id WHERE host = 'h1'")
    heart.update_version()
    assert row(cloud, 'version') == (61,)


def test_the_version_is_not_lowered_while_a_cell_does_not_answer(cloud, heart, caplog):
    """The version is not lowered while the cell with the newest services does not
    answer. The log names the cell once."""
    cloud.add_service('h1', cloud.engines['cell1'], version=61)
    cloud.add_service('h2', cloud.engines['cell2'], version=66)
    heart.register()
    for number in (67, 68):
        cloud.sql('cell2', 'ALTER TABLE services RENAME TO away')
        for _ in range(3):
            heart.update_version()
        assert row(cloud, 'version') == (number - 1,)

        cloud.sql('cell2', 'ALTER TABLE away RENAME TO services')
        cloud.sql('cell2', f'UPDATE services SET version = {number}')
        heart.update_version()
        assert row(cloud, 'version') == (number,)

    assert caplog.text.count('Failed to get service versions') == 2


def test_a_report_asks_no_cell(cloud, heart):
    """A slow cell must not delay the report, or the scheduler would count as down."""
    heart.register()
    heart.cells = None
    heart.report_state()
    assert row(cloud, 'report_count') == (1,)


def test_a_failure_to_write_the_version_is_not_raised(cloud, heart):
    """A failure to write the version is not raised: the heartbeat reports it."""
    heart.register()
    cloud.sql('cell1', 'ALTER TABLE services RENAME TO away')
    heart.update_version()
