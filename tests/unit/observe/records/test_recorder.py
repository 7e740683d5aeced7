# SPDX-License-Identifier: Apache-2.0
import os
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.observe.records import recorder as module
from novasched.observe.records import render
from novasched.observe.records import store as store_module
from novasched.observe.records.record import (
    MAX_REJECTIONS_KEPT,
    AttemptRecord,
    Diagnosis,
    HostNames,
    Record,
    RejectionStage,
    StageRejections,
)
from novasched.observe.records.recorder import (
    MAX_ALLOWANCE_S,
    SHARE,
    DecisionRecorder,
    ReasonsAllowance,
)
from novasched.observe.records.store import (
    CLEANUP_INTERVAL,
    RecordReader,
    RecordWriter,
    UnreadableRecords,
)
from novasched.scheduler.decision import Decision
from novasched.scheduler.errors import NoValidHost, PlacementUnavailable
from tests.lab.builders import a_host, a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, write_records

A = a_host('a')
EMPTY = CountingPlacement({})
NOBODY = 65534
REFUSING = (
    "create trigger no before insert on decisions begin select raise(abort, 'no'); end"
)


def decide(recorder, *requests, placement=None):
    scheduler = RecordedScheduler([A], placement, clock=time.perf_counter)
    scheduler.driver.deps = replace(scheduler.driver.deps, recorder=recorder)
    for request in requests:
        with suppress(NoValidHost):
            scheduler.driver.select_destinations(request)
    recorder.close()
    return recorder


def written(path, *requests):
    """A file with the records of decisions on requests."""
    return write_records(
        path, RecordedScheduler([A], clock=time.perf_counter), requests
    )


def named(*names):
    requests = []
    for name in names:
        requests.append(a_request(instance_uuids=(name,), request_id=f'req-{name}'))
    return requests


def test_the_newest_records_are_kept_in_memory():
    """The memory has a bounded number of records, newest first, with the time at which
    the decision began."""
    recorder = DecisionRecorder(Settings(), clock=lambda: 1000.0)
    names = [f'first-{number}' for number in range(module.RECORDS_IN_MEMORY)]

    decide(recorder, *named(*names, 'b', 'c'))

    newest, second, *others = recorder.newest()
    assert len(others) == module.RECORDS_IN_MEMORY - 2
    assert newest.request.instance_uuids == ('c',)
    assert second.request.instance_uuids == ('b',)
    assert 999 < newest.at <= 1000
    assert 999 < second.at <= 1000
    assert newest.id != second.id


def test_each_decision_is_counted_once():
    """Each decision is counted once, also if its record is dropped. While the queue is
    full, the thread of the request counts."""
    counted = []
    begun = threading.Event()
    hold = threading.Event()

    def count(decision):
        counted.append(decision.request.request_id)
        if not begun.is_set():
            begun.set()
            assert hold.wait(10)

    recorder = DecisionRecorder(Settings(), count=count)
    requests = named(*map(str, range(module.MAX_WAITING_RECORDS + 5)))

    recorder(Decision(requests[0], 1, 0.0, 0.0))
    assert begun.wait(10)
    for request in requests[1:]:
        recorder(Decision(request, 1, 0.0, 0.0))
    assert len(counted) == 1 + 4

    hold.set()
    recorder.close()
    assert sorted(counted) == sorted(request.request_id for request in requests)


def test_records_are_found_by_page_by_id_and_by_host(tmp_path):
    """The newest records come first, page by page. A decision is found by its id and by
    its hosts."""
    reader = RecordReader(written(tmp_path / 'decisions', *named(*'01234')))

    def page(skipped):
        records = reader.newest(2, skipped)
        return [record.request.instance_uuids[0] for record in records]

    assert reader.of('req-2') == reader.of('2')
    assert [*map(page, (0, 2, 4, 6))] == [['4', '3'], ['2', '1'], ['0'], []]
    assert reader.count() == 5
    (newest, *_) = reader.newest(5)
    assert reader.by_id(newest.id) == newest
    assert reader.by_id('nothing') is None
    assert reader.of('2', 1) == reader.newest(1, 2)
    assert reader.of('2', 1, 1) == []
    assert reader.choosing('a', 3, 1000) == reader.newest(3)
    assert reader.choosing('a', 3, 2) == reader.newest(2)
    assert reader.choosing('b', 3, 1000) == []


def test_several_workers_write_the_same_file_without_loss(tmp_path):
    """No worker loses records to another worker or to a restart."""
    path = str(tmp_path / 'decisions')
    recorders = []
    for _ in range(4):
        writer = RecordWriter(path, 1000, 10)
        recorders.append(DecisionRecorder(Settings(), writer))

    names = []
    with ThreadPoolExecutor() as pool:
        for number, recorder in enumerate(recorders):
            names_of_worker = [f'{number}-{i}' for i in range(10)]
            names += names_of_worker
            pool.submit(decide, recorder, *named(*names_of_worker))

    reader = RecordReader(written(path, *named('after')))
    assert all(map(reader.of, names))
    assert reader.newest(1)[0].request.instance_uuids == ('after',)


def test_the_number_of_records_in_the_file_is_bounded(tmp_path):
    """Old records are deleted, and the reasons against single hosts earlier."""
    names = [str(number) for number in range(2 * CLEANUP_INTERVAL)]
    path = str(tmp_path / 'decisions')

    decide(DecisionRecorder(Settings(), RecordWriter(path, 150, 10)), *named(*names))

    with sqlite3.connect(path) as base:
        for table in ('decisions', 'instances'):
            assert base.execute(f'select count(*) from {table}').fetchone() == (150,)
        detailed = 'select count(*) from decisions where rejections is not null'
        assert base.execute(detailed).fetchone() == (MAX_REJECTIONS_KEPT,)


def incompressible(number, size):
    """A record with a text of ``size`` random bytes."""
    text = Random(number).randbytes(size).hex()
    attempts = (AttemptRecord(None, 1, stages=(RejectionStage(text, 1, 0),)),)
    return Record(
        str(number),
        0.0,
        1,
        None,
        None,
        a_request(instance_uuids=('a',)),
        attempts=attempts,
    )


def test_the_file_is_bounded_in_size(tmp_path):
    """The file is no larger than decisions_size and has the newest records. A larger
    single record stays until the next record."""
    path = tmp_path / 'decisions'
    with closing(RecordWriter(str(path), 10_000, 1)) as writer:
        for number in range(400):
            writer.write(incompressible(number, 8192))
            assert path.stat().st_size <= 2**20 + 2**15

        kept = ids_in(path)
        assert 60 < len(kept) < 128
        assert kept == [str(399 - place) for place in range(len(kept))]
        assert len(RecordReader(str(path)).of('a')) == len(kept)

        for number in (400, 401):
            writer.write(incompressible(number, 2**21))
            assert ids_in(path) == [str(number)]


def ids_in(path):
    """The IDs of the records in a file, the newest first."""
    with closing(RecordReader(str(path))) as reader:
        return newest_ids(reader)


def newest_ids(reader):
    """The IDs of the records of a reader, the newest first."""
    return [record.id for record in reader.newest()]


@pytest.mark.parametrize('leaves_journals', [False, True])
@pytest.mark.parametrize('is_moved', [False, True])
def test_a_deleted_or_moved_file_is_created_again(
    tmp_path, caplog, is_moved, leaves_journals
):
    """If a file is deleted or moved, the next record of any worker creates a new file,
    and the moved file has the records until then. Journals of the old file do not
    damage the new file."""
    caplog.set_level('INFO')
    path = tmp_path / 'decisions'
    old_path = tmp_path / 'old'
    with (
        closing(RecordWriter(str(path), 100, 1)) as first,
        closing(RecordWriter(str(path), 100, 1)) as second,
    ):
        first.write(incompressible(1, 100))
        second.write(incompressible(2, 100))

        if is_moved:
            path.rename(old_path)
        else:
            path.unlink()
        if not leaves_journals:
            unlink_journals(path)

        for number in (3, 5, 7):
            first.write(incompressible(number, 5000))
            second.write(incompressible(number + 1, 5000))
        assert ids_in(path) == ['8', '7', '6', '5', '4', '3']
        with closing(sqlite3.connect(path)) as base:
            assert base.execute('pragma integrity_check').fetchone() == ('ok',)

    if is_moved:
        assert ids_in(old_path) == ['2', '1']
    line = f'{path} was deleted or moved; decision records go to a new file'
    assert caplog.messages == [line] * 2


def unlink_journals(path):
    for suffix in ('-wal', '-shm'):
        Path(f'{path}{suffix}').unlink()


def test_workers_write_to_a_file_that_replaces_the_open_file(tmp_path):
    """Workers write to a file that replaces the open file."""
    path = tmp_path / 'decisions'
    other = tmp_path / 'other'
    with closing(RecordWriter(str(other), 100, 1)) as writer:
        writer.write(incompressible(1, 100))
    with closing(RecordWriter(str(path), 100, 1)) as writer:
        writer.write(incompressible(2, 100))
        writer.close()
        writer.write(incompressible(3, 100))

        unlink_journals(path)
        other.rename(path)

        writer.write(incompressible(4, 100))
        assert ids_in(path) == ['4', '1']


def test_a_file_that_exceeds_the_size_is_shrunk_on_opening(tmp_path):
    """A file that exceeds decisions_size is shrunk when it is opened, and keeps the
    newest records."""
    path = tmp_path / 'decisions'
    with closing(RecordWriter(str(path), 10_000, 4)) as writer:
        for number in range(200):
            writer.write(incompressible(number, 16_384))
    assert path.stat().st_size > 2 * 2**20

    with closing(RecordWriter(str(path), 10_000, 1)) as writer:
        writer.open()
        assert path.stat().st_size <= 2**20
        kept = ids_in(path)
        assert len(kept) > 30
        assert kept == [str(199 - place) for place in range(len(kept))]
        assert len(RecordReader(str(path)).of('a')) == len(kept)
        size = path.stat().st_size
        writer.write(incompressible(200, 100))

    with closing(RecordWriter(str(path), 10_000, 1)) as writer:
        writer.open()
        # The file fits already, and is not shrunk again.
        assert path.stat().st_size >= size - 2**13


def test_reasons_that_are_too_long_are_not_kept(tmp_path, monkeypatch):
    """The record is kept without the reasons."""
    monkeypatch.setattr(store_module, 'MAX_REJECTIONS_SIZE', 20)
    reader = RecordReader(written(tmp_path / 'decisions', *named('a')))
    (record,) = reader.of('a')
    assert reader.rejections(record) is None


@pytest.mark.parametrize(
    ('spent', 'passed', 'for_a_host', 'for_a_refusal'),
    [
        (0.0, 0.0, True, True),
        (MAX_ALLOWANCE_S, 0.0, False, True),
        (MAX_ALLOWANCE_S, 1.0, True, True),
        (2 * MAX_ALLOWANCE_S, 0.0, False, False),
        (2 * MAX_ALLOWANCE_S, 1.0, False, True),
        (2 * MAX_ALLOWANCE_S, MAX_ALLOWANCE_S / SHARE + 1.0, True, True),
        (-1.0, 0.0, True, True),
    ],
)
def test_time_for_reasons_is_left_as_long_as_little_of_it_is_spent(
    spent, passed, for_a_host, for_a_refusal
):
    """Time for the reasons comes back as time passes. Refusals may take time in
    advance."""
    now = 100.0
    allowance = ReasonsAllowance(lambda: now)
    allowance.spend(spent)
    now += passed
    assert allowance.is_left(for_refusal=False) == for_a_host
    assert allowance.is_left(for_refusal=True) == for_a_refusal


def test_reasons_are_left_out_if_records_take_too_long(tmp_path, monkeypatch):
    """If the reasons against single hosts take too much time, they are left out."""
    monkeypatch.setattr(module, 'MAX_ALLOWANCE_S', 0.0)
    reader = RecordReader(written(tmp_path / 'decisions', *named('a', 'b')))
    assert [*map(reader.rejections, reader.newest())] == [None, None]
    assert render.why_not(reader.newest(1)[0], 'b', None) == [
        'not kept; it is of the newest 100, and under load of fewer'
    ]


def as_nobody(work):
    """Run a function as a user without privileges, in a child process."""
    child = os.fork()
    if not child:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def owners_of_files(folder):
    return {path.stat().st_uid for path in Path(folder).iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can be somebody else')
@pytest.mark.parametrize('is_killed', [False, True])
def test_root_reads_records_that_the_user_of_the_daemon_writes(is_killed):
    """Root reads the file while the daemon writes, after the daemon has ended, and
    after the daemon was killed. The user of the daemon stays the owner of the files and
    can go on writing."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        path = str(Path(folder, 'decisions.sqlite'))

        def write(*numbers):
            writer = RecordWriter(path, 10, 1)
            for number in numbers:
                writer.write(Record(str(number), 0.0, 1, None, None, a_request()))
            if is_killed:
                # Exit before the writer is collected, which would close the file.
                os._exit(0)
            writer.close()

        def read():
            with closing(RecordReader(path)) as reader:
                ids = newest_ids(reader)
                assert owners_of_files(folder) == {NOBODY}
            assert owners_of_files(folder) == {NOBODY}
            return ids

        as_nobody(lambda: write(1))
        assert (len(os.listdir(folder)) > 1) is is_killed
        assert read() == ['1']

        as_nobody(lambda: write(2))
        with closing(RecordReader(path)) as reader:
            as_nobody(lambda: write(3))
            assert newest_ids(reader) == ['3', '2', '1']
        assert read() == ['3', '2', '1']


ROOT_ALONE = pytest.mark.skipif(
    os.geteuid() != 0, reason='only root can write such a file'
)


@pytest.mark.parametrize(
    ('before', 'after'),
    [
        (None, 0o600),
        (0o600, 0o600),
        (0o666, 0o640),
        (0o640, 0o640),
        (0o677, 0o640),
        pytest.param(0o400, 0o600, marks=ROOT_ALONE),
    ],
)
def test_only_the_owner_and_a_permitted_group_may_read_the_file(
    tmp_path, before, after
):
    """The owner may read the file, and the group if the operator permits. The umask has
    no effect. The journals have the same permissions."""
    path = tmp_path / 'decisions'
    if before is not None:
        path.touch()
        path.chmod(before)

    umask = os.umask(0)
    try:
        store = RecordWriter(str(path), 10, 1)
        decide(DecisionRecorder(Settings(), store), *named('a'))
        store.open()
        modes = {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert modes == {after}
        store.close()
    finally:
        os.umask(umask)


@pytest.mark.parametrize('target', ['decisions', 'nothing'])
def test_a_link_is_not_followed(tmp_path, caplog, target):
    """A symbolic link leads neither a writer nor a reader to its target."""
    other = tmp_path / target
    if target == 'decisions':
        written(other, *named('a'))
    path = tmp_path / 'link'
    path.symlink_to(other)

    def content():
        if not other.exists():
            return None
        return other.read_bytes()

    before = content()
    written(path, *named('b'))

    assert content() == before
    assert 'this is a symbolic link, which is not followed' in caplog.text
    with pytest.raises(UnreadableRecords, match='this is a symbolic link'):
        RecordReader(str(path))


def changed(path, statement):
    with closing(sqlite3.connect(path)) as base:
        base.execute(statement)


DAMAGES = {
    'cut': lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    'text': lambda path: path.write_text('this is no database' * 100),
    'folder': lambda path: path.unlink() or path.mkdir(),
    'other form': lambda path: changed(path, 'pragma user_version = 99'),
    'refusing': lambda path: changed(path, REFUSING),
}


@pytest.mark.parametrize('place', ['', 'novasched', 'further/novasched'])
def test_the_folder_of_the_file_is_made(tmp_path, place):
    """The folder is created, but not its parent, which is missing where the option has
    a wrong path. Every record tries again to open the file, without another line in the
    log."""
    path = tmp_path / place / 'decisions'
    recorder = DecisionRecorder(Settings(), RecordWriter(str(path), 10, 1))

    failure = recorder.open()
    decide(recorder, *named('a'))
    if place.startswith('further'):
        assert 'No such file or directory' in failure
        assert not (tmp_path / 'further').exists()
        path.parent.parent.mkdir()
    else:
        assert failure is None

    decide(recorder, *named('b'))
    assert RecordReader(str(path)).of('b')


@pytest.mark.parametrize('is_told', [False, True])
def test_a_worker_does_not_log_the_failure_of_the_start_again(
    tmp_path, caplog, is_told
):
    """A worker does not log the failure of the start again, but logs the first
    success."""
    path = tmp_path / 'decisions'
    path.mkdir()
    recorder = DecisionRecorder(Settings(), RecordWriter(str(path), 10, 1))
    caplog.set_level('INFO')
    if is_told:
        assert recorder.open()

    decide(recorder, *named('a', 'b'))
    failures = caplog.text.count('Decision records are kept in memory only')
    assert failures == (0 if is_told else 1)

    path.rmdir()
    decide(recorder, *named('c', 'd'))
    assert caplog.text.count(f'Decision records are kept in {path} again') == 1


@pytest.mark.parametrize('damage', DAMAGES)
def test_a_damaged_file_is_logged_once_and_decisions_go_on(tmp_path, caplog, damage):
    """The scheduler logs the damage once, and continues to decide."""
    path = tmp_path / 'decisions'
    written(path, *named(*map(str, range(20))))
    DAMAGES[damage](path)
    recorder = DecisionRecorder(Settings(), RecordWriter(str(path), 1000, 10))
    assert len(decide(recorder, *named('x', 'y')).newest()) == 2
    assert caplog.text.count('Decision records are kept in memory only') == 1


def test_a_refusal_by_placement_is_recorded_with_a_diagnosis(tmp_path):
    """Placement is queried after the request has been answered, and the record has the
    diagnosis."""
    path = str(tmp_path / 'decisions')
    lacking = (RejectionStage('lack A', 1, 0),)
    diagnosis = Diagnosis(queries=1, constraints=1, lacking=lacking)
    rejections = StageRejections(
        'Placement', HostNames(['b']), ['lack A: trait A'], [0]
    )
    recorder = DecisionRecorder(
        Settings(),
        RecordWriter(path, 10, 1),
        diagnose=lambda decision: (diagnosis, rejections),
    )

    (record,) = decide(recorder, *named('a'), placement=EMPTY).newest()

    assert record.diagnosis == diagnosis
    reader = RecordReader(path)
    assert reader.of('a') == [record]
    assert reader.rejections(record).against('b') == ['Placement: lack A: trait A']


@pytest.mark.parametrize(
    ('questions', 'placement', 'times'), [(0, EMPTY, 0), (9, None, 0), (9, EMPTY, 1)]
)
def test_records_have_no_diagnosis_if_disabled_needless_or_failed(
    tmp_path, questions, placement, times
):
    """No diagnosis is made if the option disables diagnoses, or if Placement offered a
    host. In both cases, and if Placement does not answer, the record has no
    diagnosis."""
    diagnosed = []
    store = RecordWriter(str(tmp_path / 'decisions'), 10, 1)

    def diagnose(decision):
        diagnosed.append(decision)
        raise PlacementUnavailable('down')

    settings = Settings(decisions_questions=questions)
    recorder = DecisionRecorder(settings, store, diagnose)

    (record,) = decide(recorder, a_request(), placement=placement).newest()

    assert record.diagnosis is None
    assert len(diagnosed) == times


def test_requests_and_records_do_not_wait_for_a_slow_diagnosis(monkeypatch, tmp_path):
    """While Placement is slow, requests are answered, and records are kept without a
    diagnosis."""
    monkeypatch.setattr(module, 'MAX_WAITING_DIAGNOSES', 1)
    is_diagnosing = threading.Event()
    placement_answers = threading.Event()

    def diagnose(decision):
        is_diagnosing.set()
        assert placement_answers.wait(30)
        return Diagnosis(queries=1), StageRejections('Placement', HostNames(), [], [])

    recorder = DecisionRecorder(
        Settings(), RecordWriter(str(tmp_path / 'decisions'), 10, 1), diagnose
    )
    scheduler = RecordedScheduler([A], EMPTY)
    scheduler.ask(a_request())
    (decision,) = scheduler.log.decisions

    recorder(decision)
    assert is_diagnosing.wait(30)
    for _ in range(4):
        recorder(decision)
    # All records are kept during the diagnosis of the first decision.
    recorder._records.close()
    placement_answers.set()
    recorder.close()

    diagnoses = [record.diagnosis for record in recorder.newest()]
    assert len(diagnoses) == 5
    assert diagnoses.count(None) == 3


class Held:
    """An observer that stops the recording thread until the test sets ``go_on``."""

    def __init__(self):
        self.busy = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, decision, record):
        self.busy.set()
        assert self.go_on.wait(30)


def test_dropped_records_are_logged_once_per_interval(caplog):
    """The log has one line with the number of records dropped in an interval."""
    now = [1000.0]
    hold = Held()
    recorder = DecisionRecorder(Settings(), observers=[hold], monotonic=lambda: now[0])
    decision = Decision(a_request(), 1, 0.0, 0.0)

    def overrun(number):
        hold.busy.clear()
        hold.go_on.clear()
        recorder(decision)
        assert hold.busy.wait(30)
        for _ in range(module.MAX_WAITING_RECORDS + number):
            recorder(decision)
        hold.go_on.set()
        recorder.wait()

    overrun(1000)
    overrun(20)
    assert [record.levelname for record in caplog.records] == ['WARNING']

    now[0] += module.DROP_LOG_INTERVAL_S
    recorder(decision)
    recorder.close()

    first, second = caplog.messages
    assert first.startswith('1000 decision records')
    assert second.startswith('20 decision records')
    assert recorder.dropped == 1020


def test_refusals_wait_for_the_pause_between_diagnoses(tmp_path):
    """Refusals wait for the pause between diagnoses. A process that ends does not
    diagnose the waiting refusals, and their records have no diagnosis."""
    diagnosed = []
    paused = threading.Event()

    def diagnose(decision):
        diagnosed.append(decision)
        return Diagnosis(queries=1), StageRejections('Placement', HostNames(), [], [])

    def pause():
        if not diagnosed:
            return 0.0
        paused.set()
        return 3600.0

    store = RecordWriter(str(tmp_path / 'decisions'), 10, 1)
    recorder = DecisionRecorder(Settings(), store, diagnose, pause=pause)
    scheduler = RecordedScheduler([A], EMPTY)
    scheduler.driver.deps = replace(scheduler.driver.deps, recorder=recorder)

    for name in 'abc':
        with suppress(NoValidHost):
            scheduler.driver.select_destinations(a_request(request_id=name))
    assert paused.wait(30)
    recorder.close()

    third, second, first = recorder.newest()
    assert first.diagnosis is not None
    assert second.diagnosis is None
    assert third.diagnosis is None
    assert len(diagnosed) == 1


def test_the_thread_of_a_request_only_queues_the_decision():
    """The thread of a request only queues a reference to the decision."""
    recorder = DecisionRecorder(Settings())
    decision = Decision(a_request(), 1, 0.0, 0.0)
    entered = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == 'call' and '/novasched/' in code.co_filename:
            entered.add((Path(code.co_filename).stem, code.co_name))

    sys.setprofile(note)
    try:
        recorder(decision)
    finally:
        sys.setprofile(None)
    recorder.close()
    assert entered == {
        ('recorder', '__call__'), ('worker_queue', 'put'), ('worker_queue', '_start'),
    }  # fmt: skip
