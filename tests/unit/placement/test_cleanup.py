# SPDX-License-Identifier: Apache-2.0
import itertools
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from novasched.placement import cleanup as cleanup_module
from novasched.placement.allocations import Claim
from novasched.placement.api import Response
from novasched.placement.claim_protocol import PROXY_PATIENCE_S
from novasched.placement.cleanup import (
    LOOK_LIMIT_S,
    AllocationCleanup,
    AllocationDeleter,
)
from novasched.placement.cleanup_task import (
    AFTER_WORK_S,
    CLEANUP_LIMIT_S,
    LATE_CLAIM_S,
    CleanupTask,
    Doubt,
    TaskEnd,
    doubt_about,
)
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.instance import MAX_READ_LAG_S, InstanceState
from novasched.scheduler.model.request import REQUEST_LIMIT_S
from tests.lab.builders import a_candidate, a_uuid
from tests.lab.memory_schedulers import ManualClock

AWAY = 'away'
DOUBT = Doubt('it is on the host one')
AT_WORK = Doubt('its build has not ended', may_pass=True)


class Script:
    """Outcomes of attempts in order, the last repeated: an error, a doubt, None, or the
    result of a function. ``tried`` counts the attempts."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.tried = threading.Semaphore(0)

    def __call__(self, asked):
        self.tried.release()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome is AWAY:
            raise PlacementUnavailable('no answer')
        if callable(outcome):
            return outcome()
        return outcome

    def wait_for(self, tries):
        for _ in range(tries):
            assert self.tried.acquire(timeout=10)


@pytest.fixture
def clock():
    return ManualClock()


class Cleanup(AllocationCleanup):
    """Deletes by scripts, a script for each instance."""

    def __init__(self, clock):
        self.scripts = {}
        delete = lambda claim, requested: self.scripts[claim.uuid](requested)  # noqa: E731
        super().__init__(delete, first_pause=1e-3, capacity=3, clock=clock)

    def queue(self, uuid, *outcomes, may_come=False):
        script = self.scripts[uuid] = Script(*outcomes)
        self.add(Claim(uuid, a_candidate(a_uuid('one')), {}, is_uncertain=may_come))
        return script


@pytest.fixture
def cleanup(clock):
    cleanup = Cleanup(clock)
    yield cleanup
    cleanup.close(0)


def ended(cleanup):
    """Wait for the end of the thread. The thread ends without tasks."""
    if thread := cleanup._thread:
        thread.join(10)
        assert not thread.is_alive()


def errors(caplog, level=logging.ERROR):
    return [each.getMessage() for each in caplog.records if each.levelno == level]


@pytest.mark.parametrize(
    ('outcomes', 'may_come', 'seconds', 'logged'),
    [
        pytest.param([None], False, 0, [], id='deleted'),
        pytest.param([AWAY, AWAY, None], False, 0, [], id='until it is deleted'),
        pytest.param([DOUBT, DOUBT, None], False, 0, [], id='doubt that goes'),
        pytest.param(
            [None] * 5, True, LATE_CLAIM_S, [], id='until nothing can come any more'
        ),
        pytest.param([AWAY] * 9 + [None], False, 0, [], id='Placement away for long'),
        pytest.param(
            [DOUBT] * 2,
            True,
            CLEANUP_LIMIT_S,
            [
                (logging.WARNING, 'server is left'),
                (logging.WARNING, DOUBT.why),
                (logging.WARNING, 'nova-manage placement audit'),
            ],
            id='doubt that stays',
        ),
    ],
)
def test_a_deletion_is_repeated_until_done_or_given_up_with_a_warning(
    cleanup, clock, caplog, outcomes, may_come, seconds, logged
):
    """The deletion is repeated; the log names the instance of a task that is given up
    or in doubt."""
    script = cleanup.queue('server', *outcomes, may_come=may_come)
    script.wait_for(len(outcomes))
    clock.now += seconds
    ended(cleanup)
    assert seconds or not script.tried.acquire(blocking=False)
    lines = []
    for record in caplog.records:
        if record.levelno >= logging.WARNING:
            lines.append((record.levelno, record.getMessage()))
    assert len(lines) == bool(logged)
    for level, part in logged:
        assert level == lines[0][0]
        assert part in lines[0][1]


@pytest.mark.parametrize('outcome', [AWAY, AT_WORK], ids=['away', 'at work'])
def test_no_task_is_given_up_while_placement_is_away_or_nova_works(
    cleanup, clock, caplog, outcome
):
    """The time limit ends no task without a look at the allocations, and none while
    nova works on the instance: a request may last for long."""
    until = clock.now + CLEANUP_LIMIT_S
    script = cleanup.queue('server', outcome)
    while clock.now < until:
        script.wait_for(2)
        clock.now += AFTER_WORK_S - 1
    script.wait_for(2)
    script.outcomes = [None]
    ended(cleanup)
    assert not errors(caplog, logging.WARNING)
    assert not errors(caplog)


@pytest.mark.parametrize(
    ('doubt', 'seconds', 'until'),
    [
        (None, 200.0, CLEANUP_LIMIT_S),
        (DOUBT, 200.0, CLEANUP_LIMIT_S),
        (AT_WORK, 100.0, CLEANUP_LIMIT_S),
        (AT_WORK, 200.0, 200.0 + AFTER_WORK_S),
        (AT_WORK, REQUEST_LIMIT_S - 1, REQUEST_LIMIT_S),
    ],
)
def test_nova_work_on_an_instance_postpones_the_last_look(doubt, seconds, until):
    """Nova's work on an instance postpones the last look, as long as a request may be
    in progress."""
    claim = Claim('server', a_candidate(a_uuid('one')), {})
    task = CleanupTask(claim, LATE_CLAIM_S, CLEANUP_LIMIT_S, REQUEST_LIMIT_S)
    assert task.after_look(doubt, seconds).until == until


EARLY = Doubt('the database may not show yet that it has a task', proves_nothing=True)
PART = Doubt('it holds more', is_part=True)
AGAIN = 'again'


@pytest.mark.parametrize(
    ('doubt', 'has_successor', 'seconds', 'is_last', 'expected'),
    [
        # Placement may make the claim until LATE_CLAIM_S.
        (None, False, LATE_CLAIM_S - 1, False, AGAIN),
        (None, False, LATE_CLAIM_S, False, TaskEnd.OVER),
        (None, False, 0.0, True, TaskEnd.OVER),
        # Another request may own the allocations.
        (DOUBT, False, CLEANUP_LIMIT_S - 1, False, AGAIN),
        (DOUBT, False, CLEANUP_LIMIT_S, False, TaskEnd.LEFT),
        (DOUBT, False, 0.0, True, TaskEnd.LEFT),
        # nova works on the instance.
        (AT_WORK, False, CLEANUP_LIMIT_S, False, AGAIN),
        (AT_WORK, False, REQUEST_LIMIT_S, False, TaskEnd.LEFT),
        (AT_WORK, False, 0.0, True, TaskEnd.LEFT),
        # The database lags behind.
        (EARLY, False, LATE_CLAIM_S, False, AGAIN),
        (EARLY, False, 0.0, True, AGAIN),
        # The first look for a long time, after an outage of Placement.
        (EARLY, False, REQUEST_LIMIT_S, False, AGAIN),
        # The amounts alone belong to the successor.
        (DOUBT, True, LATE_CLAIM_S - 1, False, AGAIN),
        (DOUBT, True, LATE_CLAIM_S, False, TaskEnd.OVER),
        (PART, True, LATE_CLAIM_S, False, AGAIN),
        (EARLY, True, LATE_CLAIM_S, False, AGAIN),
    ],
)
def test_a_look_decides_whether_a_cleanup_task_ends_or_goes_on(
    doubt, has_successor, seconds, is_last, expected
):
    """A task ends once no allocations of its claim are left or can come, or at its last
    look."""
    claim = Claim('server', a_candidate(a_uuid('one')), {})
    task = CleanupTask(claim, LATE_CLAIM_S, CLEANUP_LIMIT_S, REQUEST_LIMIT_S)
    if has_successor:
        task = task.after(claim)
    following = task.following(doubt, seconds, is_last)
    if expected is AGAIN:
        assert isinstance(following, CleanupTask)
    else:
        assert following is expected


def test_a_failing_cleanup_task_does_not_delay_other_tasks(cleanup):
    """A failing task does not delay the other tasks."""
    failing = cleanup.queue('one', AWAY)
    failing.wait_for(2)
    cleanup.queue('two', None).wait_for(1)
    failing.wait_for(2)


def a_bug():
    raise ZeroDivisionError('a bug')


def test_an_unexpected_error_does_not_stop_the_cleanup_thread(cleanup, caplog):
    """An unexpected error ends neither the thread nor the round of the tasks."""
    failing = cleanup.queue('one', a_bug)
    other = cleanup.queue('two', None)
    failing.wait_for(2)
    other.wait_for(1)
    assert 'instance one' in errors(caplog)[0]


def test_a_new_thread_is_started_after_the_cleanup_thread_died(cleanup, monkeypatch):
    """The next task begins another thread."""
    monkeypatch.setattr(threading, 'excepthook', lambda args: None)
    dying = cleanup.queue('one', sys.exit, None)
    dying.wait_for(1)
    ended(cleanup)
    cleanup.queue('two', None).wait_for(1)


def test_the_number_of_pending_cleanup_tasks_is_limited(cleanup, caplog):
    """The number of tasks is limited."""
    assert cleanup.pending == 0
    for number in range(5):
        cleanup.queue(f'server{number}', AWAY)
    assert cleanup.pending == 3
    assert ['server3' in errors(caplog)[0], 'server4' in errors(caplog)[1]] == [
        True,
        True,
    ]


def test_closing_the_cleanup_attempts_all_tasks_and_logs_failures(cleanup, caplog):
    """All tasks are attempted once more; the log names the instances of the failed
    tasks."""
    cleanup.queue('there', None, may_come=True).wait_for(1)
    cleanup.queue('away', AWAY)
    cleanup.close(0.5)
    ended(cleanup)
    [error] = errors(caplog)
    assert 'instance away: given up' in error


def test_lost_claims_are_deleted_before_the_next_claim_of_an_instance(cleanup, caplog):
    """Lost claims are deleted before the next claim. Late claims are left to the
    caller, and without an answer of Placement the next claim fails. A claim in doubt
    stays, and does not prevent the next claim."""
    cleanup.queue('had', AWAY, None)
    cleanup.queue('comes', AWAY, None, may_come=True)
    cleanup.queue('other', AWAY).wait_for(1)
    assert cleanup.take(['had']) == []
    [task] = cleanup.take(['comes'])
    assert cleanup.take(['comes']) == []
    with pytest.raises(PlacementUnavailable):
        cleanup.take(['other'])
    cleanup.put_back([task])
    assert [each.claim.uuid for each in cleanup.take(['comes'])] == ['comes']
    cleanup.queue('doubtful', DOUBT).wait_for(1)
    [task] = cleanup.take(['doubtful'])
    assert (task.claim.uuid, task.in_doubt) == ('doubtful', True)
    cleanup.queue('early', EARLY).wait_for(1)
    [task] = cleanup.take(['early'])
    assert (task.claim.uuid, task.in_doubt) == ('early', True)
    [warning] = errors(caplog, logging.WARNING)
    assert 'instance doubtful is left' in warning


@pytest.mark.parametrize(
    ('state', 'moves', 'doubtful', 'asked'),
    [
        pytest.param(None, False, False, False, id='nova does not know it'),
        pytest.param(None, True, True, True, id='nova does not know one that moved'),
        pytest.param(InstanceState(gone=True), False, False, False, id='deleted'),
        pytest.param(
            InstanceState(gone=True, host='one'), True, False, False, id='deleted there'
        ),
        pytest.param(
            InstanceState(building=True), False, True, False, id='its build goes on'
        ),
        pytest.param(InstanceState(), True, False, False, id='shelved'),
        pytest.param(
            InstanceState(task='unshelving'), True, True, False, id='unshelving'
        ),
        pytest.param(
            InstanceState(host='old', hosts=frozenset({'one'})),
            True,
            False,
            False,
            id='elsewhere',
        ),
        pytest.param(
            InstanceState(host='one', hosts=frozenset({'one'})),
            True,
            True,
            True,
            id='there',
        ),
        pytest.param(
            InstanceState(host='old'), True, True, True, id='on a host, of one unknown'
        ),
        pytest.param(
            InstanceState(host='old', task='migrating', hosts=frozenset({'one'})),
            True,
            True,
            False,
            id='on its way',
        ),
    ],
)
def test_the_state_of_an_instance_decides_doubt_about_a_claim(
    state, moves, doubtful, asked
):
    """A task in progress is no doubt for the request of the task."""
    claim = Claim('server', a_candidate(a_uuid('one')), {}, moves=moves)
    assert bool(doubt_about(claim, state, requested=False)) is doubtful
    assert bool(doubt_about(claim, state, requested=True)) is asked


@pytest.mark.parametrize(
    ('evacuated_from', 'is_part', 'doubtful'),
    [
        ({'one'}, True, True),
        ({'two'}, True, False),
        ({'one'}, False, True),
        ({'two'}, False, False),
    ],
)
def test_a_claim_on_an_evacuated_source_host_is_in_doubt(
    evacuated_from, is_part, doubtful
):
    """The allocations on a host that is not back after an evacuation belong to the
    instance. They may equal a claim for an evacuation in the opposite direction."""
    state = InstanceState(
        host='new',
        hosts=frozenset({'one'}),
        evacuated_from=frozenset(evacuated_from),
    )
    claim = Claim('server', a_candidate(a_uuid('one')), {}, moves=True)
    doubt = doubt_about(claim, state, requested=False, is_part=is_part)
    assert bool(doubt) is doubtful


TREE = a_candidate(a_uuid('one'), a_uuid('card'))
"""A candidate of a compute node and a device."""


@pytest.mark.parametrize(
    ('host', 'listed', 'is_deleted'),
    [
        pytest.param('old', ('one', 'card', 'spare'), True, id='devices'),
        pytest.param('old', ('one',), False, id='shared storage'),
        pytest.param('one', ('one', 'card'), False, id='there'),
    ],
)
def test_a_claim_of_a_tree_beside_other_allocations_is_removed(
    monkeypatch, clock, host, listed, is_deleted
):
    """Placement may make a claim with devices late, beside the allocations that the
    instance has by now. The compute node and the devices of one tree are removed while
    the instance is on another host. A provider outside of the tree may be shared by
    both hosts."""
    monkeypatch.setattr(cleanup_module, 'time', SimpleNamespace(monotonic=clock))
    held = {a_uuid('old'): {'resources': {'VCPU': 1}}}
    for provider, amounts in TREE.resources().items():
        held[provider] = {'resources': amounts}
    tree = []
    for name in listed:
        tree.append({'uuid': a_uuid(name), 'root_provider_uuid': a_uuid('one')})
    api = SlowApi(clock, 0.0, {'allocations': held, 'consumer_generation': 1}, tree)
    state = InstanceState(host=host, hosts=frozenset({'one'}))
    deleter = AllocationDeleter(
        api, SimpleNamespace(find=lambda uuid, providers: state)
    )
    claim = Claim('server', TREE, {}, moves=True, is_uncertain=True)

    doubt = deleter.delete_unless_in_doubt(claim, requested=True)
    assert (doubt is None) is is_deleted
    left = [[*body['allocations']] for body in api.written]
    assert left == ([[a_uuid('old')]] if is_deleted else [])


def test_closing_the_cleanup_does_not_wait_for_the_end_of_a_doubt(cleanup, caplog):
    """The cleanup does not wait for the end of a doubt."""
    cleanup.queue('server', DOUBT, may_come=True).wait_for(1)
    cleanup.close(3600)
    [warning] = errors(caplog, logging.WARNING)
    assert 'instance server is left' in warning


def test_a_claim_waits_for_the_cleanup_of_the_same_instance_only(cleanup):
    """While Placement is asked about an instance, claims for another instance go on,
    and claims for the same instance wait."""
    gate = threading.Event()

    def slow():
        assert gate.wait(30)

    cleanup.queue('slow', slow).wait_for(1)
    cleanup.queue('other', None)
    with ThreadPoolExecutor(3) as pool:
        try:
            assert pool.submit(cleanup.take, ['other']).result(5) == []
            assert pool.submit(cleanup.take, ['third']).result(5) == []
            itself = pool.submit(cleanup.take, ['slow'])
            assert wait([itself], 0.1).not_done
        finally:
            gate.set()
        assert itself.result(10) == []


def test_cleanup_skips_an_instance_while_a_request_deletes_a_claim(clock):
    """While a request deletes a lost claim, the cleanup leaves the instance alone."""
    tried = []
    in_hand = threading.Event()
    gate = threading.Event()

    def delete(claim, requested):
        tried.append(requested)
        if not requested:
            return DOUBT
        in_hand.set()
        assert gate.wait(30)
        return None

    cleanup = AllocationCleanup(delete, first_pause=1e-3, clock=clock)
    cleanup.add(Claim('server', a_candidate(a_uuid('one')), {}))
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(cleanup.take, ['server'])
        try:
            assert in_hand.wait(10)
            before = [*tried]
            cleanup.close(0.1)  # tries all that it may try
            assert tried == before
        finally:
            gate.set()
        assert taking.result(10) == []


class SlowApi:
    """Answers a question about allocations, or about a tree, after some seconds."""

    def __init__(self, clock, seconds, held, tree=()):
        self.clock = clock
        self.seconds = seconds
        self.held = held
        self.tree = tree
        self.written = []

    def send(self, method, path, trace_id, body=None, **_):
        self.clock.now += self.seconds
        if path.startswith('/resource_providers?in_tree='):
            listed = {'resource_providers': self.tree}
            return Response(200, msgspec.json.encode(listed))
        if method == 'GET':
            return Response(200, msgspec.json.encode(self.held))
        self.written.append(body)
        return Response(204, b'')


@pytest.mark.parametrize(
    ('seconds', 'may_come_again'),
    [(PROXY_PATIENCE_S, False), (PROXY_PATIENCE_S + 1, True)],
)
def test_a_slow_deletion_counts_as_possibly_repeated_by_a_proxy(
    monkeypatch, clock, seconds, may_come_again
):
    """A proxy may have sent a slow deletion to a second Placement, so that the first
    one carries out the deletion later."""
    monkeypatch.setattr(cleanup_module, 'time', SimpleNamespace(monotonic=clock))
    held = ConsumerAllocations({}, 1)
    deleter = AllocationDeleter(SlowApi(clock, seconds, {}), None)
    deleter.delete(Claim('server', a_candidate(a_uuid('one')), {}), held)
    assert ('server' in deleter.lost) is may_come_again


def a_look(monkeypatch, clock, instances, generations):
    """The deleter of a claim, and a function that looks once at its allocations, of
    which each look finds the next generation.

    :param instances: finds the state of the instance.
    """
    monkeypatch.setattr(cleanup_module, 'time', SimpleNamespace(monotonic=clock))
    allocations = {a_uuid('one'): {'resources': {'VCPU': 1}}}
    api = SlowApi(clock, 0.0, {'allocations': allocations})
    deleter = AllocationDeleter(api, SimpleNamespace(find=instances))
    claim = Claim('server', a_candidate(a_uuid('one')), {}, moves=True)

    def look(requested=False):
        api.held['consumer_generation'] = next(generations)
        return deleter.delete_unless_in_doubt(claim, requested)

    return api, look


REST = InstanceState(host='old', hosts=frozenset({'one'}))
"""An instance without a task on another host than that of the claim."""


def test_allocations_stay_while_a_lagging_database_may_hide_a_move(monkeypatch, clock):
    """Another scheduler has just claimed the same for a move, of which a lagging
    database does not show the task yet. These allocations stay."""
    begun = clock.now

    def lagging(uuid, providers):
        if clock.now - 2.0 <= begun:
            return REST
        return replace(REST, task='rebuilding')

    api, look = a_look(monkeypatch, clock, lagging, itertools.repeat(1))
    for seconds in (0.1, 1.0, 2.0, 4.0, 8.0):
        clock.now += seconds
        assert look() is not None
    assert api.written == []


@pytest.mark.parametrize(
    ('generations', 'looks'),
    [((1, 1, 1), 2), ((1, 2, 2), 3), ((1, 2, 3, 3), 4)],
)
def test_allocations_are_deleted_once_older_than_the_database_lag(
    monkeypatch, clock, generations, looks
):
    """The allocations of an instance at rest are deleted as soon as they have existed
    for longer than a database lags behind, by their generation."""
    find = lambda uuid, providers: REST  # noqa: E731
    api, look = a_look(monkeypatch, clock, find, iter(generations))
    for _ in range(looks - 1):
        assert look().proves_nothing
        clock.now += MAX_READ_LAG_S
    assert api.written == []
    assert look() is None
    assert len(api.written) == 1


def test_allocations_are_deleted_at_once_for_a_request(monkeypatch, clock):
    """A request about the instance does not wait for a later look."""
    find = lambda uuid, providers: REST  # noqa: E731
    api, look = a_look(monkeypatch, clock, find, iter((1,)))
    assert look(requested=True) is None
    assert len(api.written) == 1


def test_closing_the_cleanup_waits_for_a_look_past_the_database_lag(cleanup, caplog):
    """At the end, the cleanup waits for a later look at allocations."""
    early = Doubt('too early', proves_nothing=True)
    cleanup.queue('server', early, early, early, early, None)
    cleanup.close(60)
    assert errors(caplog, logging.WARNING) == []


@pytest.mark.parametrize(
    ('seconds', 'is_deleted'),
    [(LOOK_LIMIT_S / 2, True), (LOOK_LIMIT_S / 2 + 1, False)],
)
def test_allocations_stay_after_a_look_that_took_too_long(
    monkeypatch, clock, seconds, is_deleted
):
    """After two slow answers the allocations may belong to another claim."""
    monkeypatch.setattr(cleanup_module, 'time', SimpleNamespace(monotonic=clock))
    held = {
        'allocations': {a_uuid('one'): {'resources': {'VCPU': 1}}},
        'consumer_generation': 1,
    }
    api = SlowApi(clock, seconds, held)
    gone = SimpleNamespace(find=lambda uuid, providers: InstanceState(gone=True))
    deleter = AllocationDeleter(api, gone)
    doubt = deleter.delete_unless_in_doubt(
        Claim('server', a_candidate(a_uuid('one')), {}), requested=False
    )
    assert bool(api.written) is is_deleted
    if is_deleted:
        assert doubt is None
    else:
        # A later look may be quicker.
        assert doubt.proves_nothing
