# SPDX-License-Identifier: Apache-2.0
import sqlite3
import threading

import pytest

from novasched.errors import PlacementUnavailable
from novasched.model.settings import Settings
from novasched.recorder import keeper as module
from novasched.recorder.keeper import Keeper
from novasched.recorder.store import SLACK, Archive, Store, Unreadable
from novasched.records.causes import DETAILED
from novasched.records.record import Inquiry
from tests.builders import a_host, a_request
from tests.decided import Decided
from tests.ports import CountingPlacement

A = a_host('a')
EMPTY = CountingPlacement({})


def decide(keeper, *requests, placement=None):
    """Let a keeper keep what comes of these, and close it."""
    decided = Decided([A], placement)
    decided.driver.records = decided.notebook = keeper
    for request in requests:
        with_suppressed(decided.driver, request)
    keeper.close()
    return keeper


def with_suppressed(driver, request):
    try:
        driver.select_destinations(request)
    except Exception as error:
        return error


def read_all(path):
    archive = Archive(path)
    return [archive.of(str(number)) for number in range(20)]


def named(*names):
    return [a_request(instance_uuids=(name,), request_id=f'req-{name}') for name in names]


def test_the_newest_are_kept_in_memory():
    """So many as the option says, the newest first, with the time at which each began."""
    settings = Settings(decisions_kept=2)
    kept = decide(Keeper(settings, clock=lambda: 1000.0), *named('a', 'b', 'c')).newest()
    assert [each.asked.servers for each in kept] == [('c',), ('b',)]
    assert all(999 < each.at <= 1000 for each in kept)
    assert len({each.id for each in kept}) == 2


def test_accounts_that_are_counted():
    """Each is counted once though none is kept, and by the request itself when many wait."""
    counted, begun, hold = [], threading.Event(), threading.Event()

    def count(account):
        counted.append(account.request.request_id)
        if not begun.is_set():
            begun.set()
            assert hold.wait(10)

    keeper = Keeper(Settings(decisions_kept=0), count=count)
    wanted = [keeper.opened(each, 1) for each in named(*map(str, range(module.ROOM + 5)))]
    keeper.closed(wanted[0])
    assert begun.wait(10)
    for account in wanted[1:]:
        keeper.closed(account)
    assert len(counted) == 1 + 4
    hold.set()
    keeper.close()
    assert sorted(counted) == sorted(account.request.request_id for account in wanted)
    assert keeper.dropped == 0
    assert keeper.newest() == []


@pytest.mark.parametrize(('kept', 'detail', 'wanted'), [(0, 'none', False), (0, 'counts', True), (1, 'none', True)])  # fmt: skip
def test_accounts_that_nobody_wants(kept, detail, wanted):
    """None is begun where none is kept, nor shown to users."""
    keeper = Keeper(Settings(decisions_kept=kept, fault_detail=detail))
    assert (keeper.opened(a_request(), 1) is not None) is wanted
    assert len(decide(keeper, a_request()).newest()) == kept


def test_a_file_that_is_read(tmp_path):
    """A decision is found by its server and its request; of hosts it is told why not."""
    path = str(tmp_path / 'decisions')
    decide(Keeper(Settings(), Store(path, 10)), *named('a', 'b'))
    archive = Archive(path)
    (record,) = archive.of('a')
    assert archive.of('req-a') == [record]
    assert archive.of('c') == []
    assert archive.last() == archive.of('b')
    assert archive.causes(record).against('a') == ['fit, number 1 of 1 by weight']
    assert (tmp_path / 'decisions').stat().st_mode & 0o777 == 0o600
    archive.close()


def test_a_file_that_is_leafed_through(tmp_path):
    """The newest come first, some at a time; a decision is found by its id and its hosts."""
    path = str(tmp_path / 'decisions')
    names = [str(number) for number in range(5)]
    decide(Keeper(Settings(), Store(path, 10)), *named(*names))
    archive = Archive(path)
    pages = [archive.newest(2, skipped) for skipped in (0, 2, 4, 6)]
    assert [[each.asked.servers[0] for each in page] for page in pages] == [
        ['4', '3'], ['2', '1'], ['0'], [],
    ]  # fmt: skip
    assert archive.count() == 5
    (newest, *_) = archive.newest(5)
    assert archive.by_id(newest.id) == newest
    assert archive.by_id('nothing') is None
    assert archive.of('2', 1) == archive.newest(1, 2)
    assert archive.of('2', 1, 1) == []
    assert archive.choosing('a', 3, 1000) == archive.newest(3)
    assert archive.choosing('a', 3, 2) == archive.newest(2)
    assert archive.choosing('b', 3, 1000) == []


def test_several_workers_write_one_file(tmp_path):
    """Records of one are not lost to another, nor to a restart."""
    path = str(tmp_path / 'decisions')
    keepers = [Keeper(Settings(), Store(path, 1000)) for _ in range(4)]
    names = [[f'{number}-{i}' for i in range(10)] for number in range(4)]
    threads = [
        threading.Thread(target=decide, args=(keeper, *named(*some)))
        for keeper, some in zip(keepers, names, strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    decide(Keeper(Settings(), Store(path, 1000)), *named('after'))
    archive = Archive(path)
    assert all(archive.of(name) for some in names for name in some)
    assert archive.last()[0].asked.servers == ('after',)


def test_the_file_is_bounded(tmp_path):
    """Old records go, those of single hosts earlier."""
    path = str(tmp_path / 'decisions')
    names = [str(number) for number in range(2 * SLACK)]
    decide(Keeper(Settings(), Store(path, 150)), *named(*names))
    with sqlite3.connect(path) as base:
        for table in ('decisions', 'servers'):
            assert base.execute(f'select count(*) from {table}').fetchone() == (150,)
        detailed = 'select count(*) from decisions where causes is not null'
        assert base.execute(detailed).fetchone() == (DETAILED,)


@pytest.mark.parametrize('damage', ['cut', 'text', 'folder', 'other form'])
def test_a_file_that_is_damaged(tmp_path, caplog, damage):
    """The command says so; the scheduler tells it once, and decides on."""
    path = tmp_path / 'decisions'
    decide(Keeper(Settings(), Store(str(path), 1000)), *named(*map(str, range(20))))
    with sqlite3.connect(path) as base:
        base.execute('pragma wal_checkpoint(truncate)')
        if damage == 'other form':
            base.execute('pragma user_version = 99')
    base.close()
    if damage == 'cut':
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == 'text':
        path.write_text('this is no database' * 100)
    elif damage == 'folder':
        path.unlink()
        path.mkdir()
    with pytest.raises(Unreadable, match=str(path)):
        read_all(str(path))
    kept = decide(Keeper(Settings(), Store(str(path), 1000)), *named('x', 'y')).newest()
    assert len(kept) == 2
    assert caplog.text.count('Decision records are kept in memory alone') == 1


def test_why_placement_offers_nothing(tmp_path):
    """It is asked once the request is answered, and the record tells what it says."""
    path = str(tmp_path / 'decisions')
    found = Inquiry(('trait A',), 1, 1)
    keeper = Keeper(Settings(), Store(path, 10), ask=lambda request: found)
    (kept,) = decide(keeper, *named('a'), placement=EMPTY).newest()
    assert kept.inquiry == found
    assert Archive(path).of('a') == [kept]


@pytest.mark.parametrize(('questions', 'placement'), [(0, EMPTY), (9, None)])
def test_no_reason_to_ask(questions, placement):
    """Placement is not asked where the option says so, nor if it offered something."""
    asked = []
    keeper = Keeper(Settings(decisions_questions=questions), ask=asked.append)
    decide(keeper, a_request(), placement=placement)
    assert asked == []


def test_placement_that_does_not_answer():
    """The record stays as it is."""

    def ask(request):
        raise PlacementUnavailable('down')

    (kept,) = decide(Keeper(Settings(), ask=ask), a_request(), placement=EMPTY).newest()
    assert kept.inquiry is None


def test_nobody_waits_for_placement(monkeypatch, tmp_path):
    """While it is slow requests are answered, and what is not asked about is kept as it is."""
    monkeypatch.setattr(module, 'QUESTIONS', 1)
    busy, go = threading.Event(), threading.Event()

    def ask(request):
        busy.set()
        assert go.wait(30)
        return Inquiry(passing=True)

    keeper = Keeper(Settings(), Store(str(tmp_path / 'decisions'), 10), ask)
    driver = Decided([A], EMPTY).driver
    driver.records = keeper
    with_suppressed(driver, a_request())
    assert busy.wait(30)
    for _ in range(4):
        with_suppressed(driver, a_request())
    keeper._accounts.close()  # all are kept, while Placement is being asked about the first
    go.set()
    keeper.close()
    inquiries = [each.inquiry for each in keeper.newest()]
    assert len(inquiries) == 5
    assert inquiries.count(None) == 3


def test_fault_detail():
    """Users are told the counts where the option says so, else what nova tells them."""
    told = []
    for detail in ('none', 'counts'):
        decided = Decided([a_host('a', disabled=True)], settings=Settings(fault_detail=detail))
        decided.driver.records = Keeper(Settings(fault_detail=detail))
        told.append(str(with_suppressed(decided.driver, a_request())))
    assert told == [
        'No valid host was found. There are not enough hosts available.',
        'No valid host was found. There are not enough hosts available. 0 of 1 host: 1 disabled.',
    ]
