# SPDX-License-Identifier: Apache-2.0
import math
from contextlib import ExitStack
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace

import pytest

from novasched.conf.settings import Settings
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.scheduler.claims.groups import newer_members
from novasched.scheduler.claims.ledger import SHOWN_S
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import HostSnapshot, HostView
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from novasched.scheduler.model.request import REQUEST_LIMIT_S
from tests.lab.builders import (
    a_candidate,
    a_group,
    a_host,
    a_request,
    a_uuid,
    by_uuid,
)
from tests.lab.memory_schedulers import ManualClock
from tests.lab.provider_trees import Provider, a_query, an_answer

A = a_host('a', ram=4096, num_instances=2)
B = a_host('b', ram=4096)
SMALL = Flavor(memory_mb=1024, vcpus=1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def pending_claims(clock):
    return PendingClaims(Settings(), SharedLedger(60.0, clock))


def a_host_snapshot(*hosts, read_at=1000.0):
    return HostSnapshot(HostView(by_uuid(hosts or (A, B))), read_at)


def send(pending_claims, name='server', host=A):
    """Add a pending claim of an instance of 1 GiB on a host."""
    request = replace(a_request(instance_uuid=a_uuid(name)), flavor=SMALL)
    return pending_claims.choose(host, request, None, {})


def hosts_minus_pending(pending_claims, snapshot=None, **seen):
    """The hosts of a snapshot, less the resources of pending claims."""
    snapshot = snapshot or a_host_snapshot()
    pending = pending_claims.of(snapshot, **seen)
    hosts = []
    for uuid, host in snapshot.hosts.items():
        hosts.append(pending_claims.subtract(host, pending.get(uuid, ())))
    return hosts


def free_ram(pending_claims, snapshot=None, **seen):
    """The free memory of each host of a snapshot less pending claims, in MiB."""
    hosts = hosts_minus_pending(pending_claims, snapshot, **seen)
    return [host.free_ram_mb for host in hosts]


def test_pending_claims_are_subtracted_from_the_host(pending_claims):
    """Every pending claim takes its resources from the host, and counts as an
    instance."""
    first = send(pending_claims)
    _ = send(pending_claims, 'other')

    assert free_ram(pending_claims) == [2048, 4096]
    host, _ = hosts_minus_pending(pending_claims)
    assert hosts_minus_pending(pending_claims)[0] is host, 'the host is computed once'
    assert host.num_instances == 4
    assert host.num_io_ops == 2
    assert host.instances.keys() == {a_uuid('server'), a_uuid('other')}

    pending_claims.release(first)
    assert free_ram(pending_claims) == [3072, 4096]


def a_row(host='a', **columns):
    """The row of an instance that runs on a host."""
    row = {
        'host': host,
        'node': host,
        'vm_state': 'active',
        'task_state': None,
        'instance_type_id': SMALL.id,
        'deleted': 0,
    }
    return SimpleNamespace(**{**row, **columns})


@pytest.mark.parametrize(
    ('rows', 'read_at', 'expected'),
    [
        ({}, 1010.0, 3072),
        ({'other': a_row()}, 1010.0, 3072),
        ({'server': a_row('b', task_state='migrating')}, 1010.0, 3072),
        ({'server': a_row('b')}, 1010.0, 4096),
        ({'server': a_row()}, 1010.0, 4096),
        ({'server': a_row()}, 1005.0, 4096),
        ({'server': a_row()}, 1004.9, 3072),
        ({'server': a_row(deleted=7)}, 1010.0, 4096),
    ],
)
def test_a_pending_claim_counts_until_the_host_shows_the_instance(
    pending_claims, rows, read_at, expected
):
    """A pending claim counts until the host shows the instance, or the instance will
    never arrive. In snapshots that were read earlier, the claim still counts."""
    send(pending_claims)
    assert pending_claims.awaited_instances() == {A.cell_uuid: [a_uuid('server')]}

    pending_claims.note_shown({a_uuid(name): row for name, row in rows.items()}, 1005.0)

    snapshot = a_host_snapshot(read_at=read_at)
    assert free_ram(pending_claims, snapshot)[0] == expected


def test_a_claim_is_not_judged_by_rows_read_before_the_claim(clock, pending_claims):
    """A reading may wait long for a database. A claim that was made meanwhile is not
    judged by the rows of the reading, which may show the server before its move."""
    began = clock.now
    clock.now += 30
    send(pending_claims)

    pending_claims.note_shown({a_uuid('server'): a_row('b')}, began)
    assert free_ram(pending_claims, a_host_snapshot(read_at=clock.now)) == [3072, 4096]

    clock.now += MAX_READ_LAG_S
    pending_claims.note_shown({a_uuid('server'): a_row('b')}, clock.now)
    assert free_ram(pending_claims, a_host_snapshot(read_at=clock.now)) == [4096, 4096]


def test_a_claim_counts_again_beside_a_read_that_lags_behind(clock, pending_claims):
    """The next reading may come from a database that lags behind, and whose host does
    not show the instance. The claim counts beside this reading, and not beside a later
    reading that shows the instance."""
    pending_claims.claimed([send(pending_claims)])
    building = a_row(None, vm_state='building', task_state='scheduling')
    seen = []
    for row in (building, a_row(), building, a_row(), building):
        clock.now += 1
        assert pending_claims.awaited_instances() == {A.cell_uuid: [a_uuid('server')]}
        pending_claims.note_shown({a_uuid('server'): row}, clock.now)
        seen.append(free_ram(pending_claims, a_host_snapshot(read_at=clock.now))[0])
    assert seen == [3072, 4096, 3072, 4096, 3072]


def test_a_claim_shown_longer_than_the_lag_does_not_count_again(clock, pending_claims):
    """A build that fails on its host looks like a build whose host is not reached yet.
    Once an instance was shown for longer than databases lag behind, its claim does not
    count again."""
    pending_claims.claimed([send(pending_claims)])
    pending_claims.note_shown({a_uuid('server'): a_row()}, clock.now)
    clock.now += MAX_READ_LAG_S + 0.1
    assert pending_claims.awaited_instances() == {}
    building = a_row(None, vm_state='building', task_state='scheduling')
    pending_claims.note_shown({a_uuid('server'): building}, clock.now)
    assert free_ram(pending_claims, a_host_snapshot(read_at=clock.now))[0] == 4096


@pytest.mark.parametrize(
    ('is_shown', 'later', 'expected'),
    [
        (True, 119.0, 3072),
        (True, 120.0, 4096),
        (False, 60.0, 3072),
        (False, 179.0, 3072),
        (False, 180.0, 4096),
    ],
)
def test_a_claim_counts_two_more_minutes_in_older_snapshots(
    clock, pending_claims, is_shown, later, expected
):
    """A claim is kept for two minutes after hosts show the instance, or need not show it
    any more: older hosts do not show it."""
    pending_claims.claimed([send(pending_claims)])
    if is_shown:
        pending_claims.note_shown({a_uuid('server'): a_row()}, clock.now)
    older = a_host_snapshot(read_at=clock.now - 1)

    clock.now += later

    assert free_ram(pending_claims, older)[0] == expected
    assert pending_claims.count() == 0


def test_a_cell_is_asked_only_about_instances_not_yet_shown(clock, pending_claims):
    """A cell is asked only about instances that its hosts do not show yet, or have
    shown for a short time."""
    send(pending_claims, 'one')
    send(pending_claims, 'two')
    send(pending_claims, 'far', a_host('far', cell='cell2'))
    pending_claims.note_shown({a_uuid('one'): a_row()}, clock.now)
    clock.now += MAX_READ_LAG_S + 0.1
    assert pending_claims.awaited_instances() == {
        A.cell_uuid: [a_uuid('two')],
        a_uuid('cell2'): [a_uuid('far')],
    }


def test_a_successful_claim_replaces_earlier_claims_of_the_instance(pending_claims):
    """A request that places an instance again does not count earlier claims of the
    instance. After the new claim succeeds, the earlier claims count for no request.
    Before, and if the new claim is released, the earlier claims count for all other
    requests."""
    earlier_claim = send(pending_claims)
    seen = {'again': {a_uuid('server')}}
    new_claim = send(pending_claims, host=B)

    assert free_ram(pending_claims, **seen) == [4096, 4096]
    assert free_ram(pending_claims, own={new_claim}, **seen) == [4096, 3072]
    assert free_ram(pending_claims) == [3072, 3072]

    pending_claims.claimed([new_claim])
    assert free_ram(pending_claims) == [4096, 3072]

    pending_claims.release(earlier_claim)
    pending_claims.release(new_claim)
    assert free_ram(pending_claims) == [4096, 4096]


@pytest.mark.parametrize('is_answered', [False, True])
def test_a_late_announcement_does_not_undo_a_later_claim(
    pending_claims, clock, is_answered
):
    """An announcement of an earlier claim of an instance may arrive late. The later
    claim stays, and the earlier one is over once the later one is answered."""
    later = send(pending_claims, host=B)
    if is_answered:
        pending_claims.claimed([later])
    earlier = replace(later, host=A, since=clock.now - 10.0, is_ours=False)
    with pending_claims.ledger as ledger:
        ledger.chosen(earlier, 1)
    with pending_claims.ledger as ledger:
        ledger.claimed([earlier], pending_claims.ledger.clock() - 9.0)
    assert free_ram(pending_claims) == [4096 if is_answered else 3072, 3072]

    pending_claims.claimed([later])
    assert free_ram(pending_claims) == [4096, 3072]


def test_placement_answers_lack_a_claim_until_the_claim_succeeds(pending_claims, clock):
    """Placement's answers include a claim from the moment at which the claim
    succeeds."""
    request = a_request()
    candidate = a_candidate(A.uuid, VGPU=2)
    first = pending_claims.choose(A, request, candidate, {})
    second = pending_claims.choose(A, request, candidate, {})
    assert pending_claims.unclaimed(clock.now) == {A.uuid: {'VGPU': 4}}

    pending_claims.claimed([first, second])
    assert pending_claims.unclaimed(999.9) == {A.uuid: {'VGPU': 4}}
    assert pending_claims.unclaimed(clock.now) == {}


@pytest.mark.parametrize(
    ('timeout', 'fields', 'together'),
    [
        (60.0, {}, True),
        (0.0, {}, False),
        (60.0, {'instance_uuids': None, 'instance_uuid': None}, False),
        (60.0, {'hints': {'_nova_check_type': ['rebuild']}}, False),
    ],
)
def test_other_requests_count_a_claim_if_option_and_request_allow(
    clock, timeout, fields, together
):
    """Requests count the pending claims of other requests, unless the option is 0 or
    nothing is claimed. A request always counts its previous instances."""
    pending_claims = PendingClaims(Settings(), SharedLedger(timeout, clock))
    first_request = pending_claims.for_request(a_request(**fields))
    send(first_request)
    second_request = pending_claims.for_request(a_request(**fields))

    assert free_ram(first_request)[0] == 3072
    assert free_ram(second_request)[0] == (3072 if together else 4096)


def test_pending_claims_are_subtracted_from_the_changed_host_row(pending_claims):
    """When the row of a host changes, the pending claims are taken from the new row. A
    host that is gone causes no error."""
    send(pending_claims)
    changed_host = replace(A, free_ram_mb=2048)

    assert free_ram(pending_claims)[0] == 3072
    assert free_ram(pending_claims, a_host_snapshot(changed_host, B))[0] == 1024
    assert free_ram(pending_claims, a_host_snapshot(B)) == [4096]


@pytest.mark.parametrize(
    ('began', 'ended', 'later', 'expected'),
    [
        (-1.0, None, 130.0, 3072),
        (-1.0, None, REQUEST_LIMIT_S - 1, 3072),
        (-1.0, None, REQUEST_LIMIT_S, 4096),
        (-1.0, 60.0, 119.0, 3072),
        (-1.0, 60.0, 130.0, 4096),
        (-1.0, 125.0, 126.0, 4096),
        (0.0, None, 130.0, 4096),
        (math.inf, None, 130.0, 4096),
    ],
)
def test_a_claim_is_kept_while_a_try_with_older_hosts_runs(
    clock, pending_claims, began, ended, later, expected
):
    """A claim is kept while a try is in progress whose hosts were read before hosts
    showed the instance, but not for a try without an end."""
    pending_claims.claimed([send(pending_claims)])
    older = a_host_snapshot(read_at=clock.now - 1)
    shown_at = clock.now

    with ExitStack() as tries:
        tries.enter_context(pending_claims.ledger.keeping(shown_at + began))
        pending_claims.note_shown({a_uuid('server'): a_row()}, shown_at)
        if ended is not None:
            clock.now = shown_at + ended
            tries.close()
        clock.now = shown_at + later
        assert free_ram(pending_claims, older)[0] == expected
        assert free_ram(pending_claims, a_host_snapshot())[0] == 4096


class InterruptedLog(ChangeLog):
    """A log that another thread interrupts as soon as it has told the changes."""

    interrupt = staticmethod(lambda: None)

    def since(self, version):
        changed = super().since(version)
        self.interrupt()
        return changed


def test_a_thread_with_older_hosts_does_not_replace_newer_hosts(
    pending_claims, monkeypatch
):
    """A thread with hosts that were read earlier comes between two steps of a thread
    with newer hosts, and the newer hosts stay the newer hosts."""
    send(pending_claims)
    first = UNVERSIONED.with_step(())
    earlier = HostSnapshot(HostView(by_uuid((A,)), first), 1000.0)
    filled = replace(A, free_ram_mb=1024)
    log = first.with_step({A.uuid})
    log = InterruptedLog(log.version, log.steps, log.number)
    later = HostSnapshot(HostView(by_uuid((filled,)), log), 1001.0)
    pending = pending_claims.of(earlier)
    assert pending_claims.left(later, pending)[A.uuid].free_ram_mb == 0

    def interrupt():
        left = pending_claims.left(earlier, pending)
        assert left[A.uuid].free_ram_mb == 3072

    monkeypatch.setattr(InterruptedLog, 'interrupt', staticmethod(interrupt))
    for _ in range(2):
        assert pending_claims.left(later, pending)[A.uuid].free_ram_mb == 0


def test_waiting_for_a_change_requires_the_lock_of_the_ledger():
    """The ledger asserts that its lock is held: other threads may be changing it."""
    shared = SharedLedger(60.0)
    with pytest.raises(AssertionError, match='not at hand'):
        shared.wait_for(lambda: True, 0.0)
    with shared as ledger:
        shared.wait_for(lambda: not [*ledger], 0.0)


@pytest.mark.parametrize(
    ('later', 'is_remembered'),
    [
        (SHOWN_S - 1, True),
        (SHOWN_S, True),
        (REQUEST_LIMIT_S - 1, True),
        (REQUEST_LIMIT_S, False),
    ],
)
def test_a_group_member_is_remembered_until_the_request_limit(
    clock, pending_claims, later, is_remembered
):
    """A member of a server group is remembered for as long as a request may be in
    progress that began before the member was placed."""
    request = a_request(instance_uuid=a_uuid('server'), group=a_group('anti-affinity'))
    claim = pending_claims.choose(A, request, None, {})
    pending_claims.claimed([claim])
    with pending_claims.ledger as ledger:
        ledger.shown(claim, clock.now, clock.now)
    clock.now += later
    pending_claims.of(a_host_snapshot(read_at=clock.now))

    waiting = a_request(instance_uuid=a_uuid('other'), group=a_group('anti-affinity'))
    remembered = {a_uuid('server'): A.uuid} if is_remembered else {}
    assert newer_members(waiting, pending_claims.ledger) == remembered


@pytest.mark.parametrize(
    ('timeout', 'answered', 'later', 'expected'),
    [
        (60.0, 0.0, 59.0, 3072),
        (60.0, 0.0, 60.0, 4096),
        (60.0, 70.0, 70.0, 3072),
        (60.0, 70.0, 129.0, 3072),
        (60.0, 70.0, 130.0, 4096),
        (60.0, None, REQUEST_LIMIT_S - 1, 3072),
        (60.0, None, REQUEST_LIMIT_S, 4096),
        (3600.0, None, 3599.0, 3072),
        (math.inf, None, 1e6, 3072),
    ],
)
def test_a_claim_that_is_never_shown_expires_after_the_timeout(
    clock, timeout, answered, later, expected
):
    """A claim whose instance is never shown expires [novasched] in_flight_timeout after
    the answer to its request, however long the request takes. A choice without an end
    expires later, but not within a request, which has no timeout."""
    pending_claims = PendingClaims(Settings(), SharedLedger(timeout, clock))
    claim = send(pending_claims)
    began = clock.now

    if answered is not None:
        clock.now = began + answered
        pending_claims.claimed([claim])
    clock.now = began + later

    assert free_ram(pending_claims, a_host_snapshot(read_at=clock.now))[0] == expected


class Beside:
    """Another scheduler, which neither announces claims nor listens."""

    position = (0, 2)
    missed = 0
    late = 0

    def announce(self, claim, state):
        """Announce nothing."""

    def catch_up(self, claim):
        """Wait for nothing."""


@pytest.mark.parametrize(
    ('arrived', 'name', 'is_alone', 'expected'),
    [
        (999.0, 'own', False, True),
        (1000.0, 'own', False, True),
        (1001.0, 'own', False, False),
        (999.0, 'released', False, False),
        (999.0, 'own', True, False),
    ],
)
def test_a_claim_released_since_arrival_counts_as_a_freed_host(
    pending_claims, arrived, name, is_alone, expected
):
    """A request is decided again if another request has released a claim since the
    request arrived, and other schedulers choose at the same time."""
    if not is_alone:
        pending_claims.peers = Beside()
    uuid = a_uuid(name)
    request = a_request(instance_uuid=uuid, instance_uuids=(uuid,))

    pending_claims.release(send(pending_claims, 'released'))

    assert pending_claims.may_fit_now(request, arrived) is expected


def release_all(pending_claims, claims):
    for claim in claims:
        pending_claims.release(claim)


@pytest.mark.parametrize(
    ('host', 'has_devices', 'end', 'expected'),
    [
        pytest.param(A, True, PendingClaims.claimed, True, id='made'),
        pytest.param(A, True, release_all, True, id='released'),
        pytest.param(B, True, PendingClaims.claimed, False, id='not offered'),
        pytest.param(A, False, PendingClaims.claimed, False, id='left to Placement'),
    ],
)
def test_a_refused_request_waits_for_the_claims_on_offered_hosts(
    pending_claims, host, has_devices, end, expected, monkeypatch
):
    """A request may fit once the claim on an offered host is made, or is released: the
    claim was undecided when Placement was asked. Candidates on compute nodes alone are
    left to Placement, whatever is claimed."""
    answer = an_answer(
        [Provider(A.uuid, {'VCPU': 9}), Provider('x', {'GPU': 1}, A.uuid)]
    )
    query = a_query(('GPU', 1)) if has_devices else a_query()
    offered = LocalCandidates([match(answer, query, answer.capacity_left)], 999.0)
    claim = send(pending_claims, host=host)
    other = Thread(target=end, args=(pending_claims, [claim]))
    wait_for = pending_claims.ledger.wait_for

    def wait_for_other(is_over, seconds):
        # The ledger is locked until the wait begins.
        other.start()
        wait_for(is_over, seconds)

    monkeypatch.setattr(pending_claims.ledger, 'wait_for', wait_for_other)

    assert pending_claims.may_fit_now(a_request(), 999.0, offered) is expected
    other.join()
