# SPDX-License-Identifier: Apache-2.0
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from novasched.observe.page.watch import SILENT, UNREAD, Watch
from novasched.scheduler.errors import DatabaseUnavailable
from tests.lab.builders import a_host
from tests.lab.page_sample import Cells

SECRET = 'mysql://nova:sesame@db'


@pytest.fixture
def clock():
    """A clock that only the test moves."""
    return SimpleNamespace(now=100.0)


@pytest.fixture
def cells():
    return Cells({'north': [a_host('n')], 'south': [a_host('s')]})


@pytest.fixture
def watch(cells, clock):
    return Watch(lambda: cells.read, lambda: clock.now, timeout=30.0)


def ages(view):
    ages = {}
    for cell in view.cells:
        names = [host.host for host in cell.hosts]
        ages[cell.name] = (cell.age, cell.answers, names)
    return ages


def test_several_requests_share_a_reading_of_hosts(watch, cells, clock):
    """Several requests share a reading until the reading is too old."""
    with ThreadPoolExecutor(20) as pool:
        assert len([*pool.map(lambda _: watch.hosts(), range(20))]) == 20
    assert cells.readings == 1
    clock.now += 2.5
    assert ages(watch.hosts()) == {
        'north': (2.5, True, ['n']),
        'south': (2.5, True, ['s']),
    }
    clock.now += 0.5
    assert watch.hosts().cells[0].age == 0.0
    assert cells.readings == 2


def test_a_silent_cell_keeps_the_former_hosts_with_the_age(watch, cells, clock):
    """A cell that does not answer keeps its former hosts, with their age. A cell that
    has never answered has no hosts."""
    cells.silent = {'south'}
    assert ages(watch.hosts())['south'] == (None, False, [])
    cells.silent = set()
    clock.now += 10
    watch.hosts()
    cells.silent = {'north'}
    clock.now += 10
    assert ages(watch.hosts()) == {
        'north': (10.0, False, ['n']),
        'south': (0.0, True, ['s']),
    }
    cells.silent = set()
    clock.now += 10
    assert not [*watch.hosts().warnings()]


@pytest.mark.parametrize('error', [DatabaseUnavailable(SECRET), RuntimeError(SECRET)])
def test_former_hosts_are_shown_while_the_databases_are_silent(
    watch, cells, clock, caplog, error
):
    """The former hosts are shown with their age until the databases answer. The log has
    the error once, and the page never."""
    watch.hosts()
    cells.error = error
    clock.now += 10
    watch.hosts()
    clock.now += 10
    found = watch.hosts()
    assert found.failure == SILENT
    assert ages(found)['north'] == (20.0, True, ['n'])
    assert caplog.text.count('The page cannot show the hosts as they are') == 1
    assert SECRET not in ' '.join(found.warnings())
    cells.error = None
    clock.now += 10
    assert watch.hosts().failure is None


def test_databases_that_cannot_be_opened_are_tried_again(cells, clock):
    refusals = [DatabaseUnavailable('down'), DatabaseUnavailable('down')]

    def connect():
        if refusals:
            raise refusals.pop()
        return cells.read

    watch = Watch(connect, lambda: clock.now, timeout=30.0)
    for _ in range(2):
        assert (watch.hosts().failure, watch.hosts().known) == (SILENT, False)
        clock.now += 10
    assert ages(watch.hosts()).keys() == {'north', 'south'}


def test_a_request_does_not_wait_for_slow_databases(cells, clock):
    """While the databases take their time, a request gets the former hosts."""
    go = threading.Event()
    known = cells.read

    def slowly():
        assert go.wait(30)
        return known()

    cells.read = slowly
    watch = Watch(lambda: cells.read, lambda: clock.now, timeout=0.0)
    assert [*watch.hosts().warnings()] == [UNREAD]
    assert not watch.hosts().known
    go.set()
    watch._thread.shutdown(wait=True)
    assert ages(watch.hosts()).keys() == {'north', 'south'}


def test_deleted_cells_disappear_and_new_cells_appear(watch, cells, clock):
    """A deleted cell disappears."""
    watch.hosts()
    del cells.known['south']
    cells.known['west'] = [a_host('w')]
    cells.old = True
    clock.now += 10
    found = watch.hosts()
    assert ages(found).keys() == {'north', 'west'}
    assert found.stale
