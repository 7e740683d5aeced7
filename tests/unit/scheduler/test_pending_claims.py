# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import HostSnapshot
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.shared_ledger import SharedLedger
from tests.lab.builders import a_candidate, a_host, a_request, a_uuid
from tests.lab.memory_schedulers import ManualClock

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
    return HostSnapshot({host.uuid: host for host in hosts or (A, B)}, read_at)


def send(pending_claims, name='server', host=A):
    """A server of 1 GiB goes to a host."""
    request = replace(a_request(instance_uuid=a_uuid(name)), flavor=SMALL)
    return pending_claims.add(host, request, None, {})


def hosts_left(pending_claims, snapshot=None, **seen):
    """The hosts of a snapshot, less what is in flight to them."""
    snapshot = snapshot or a_host_snapshot()
    pending = pending_claims.of(snapshot, **seen)
    return [
        pending_claims.subtract(x, pending.get(x.uuid, ()))
        for x in snapshot.hosts.values()
    ]


def ram(pending_claims, snapshot=None, **seen):
    """The memory that each host of a snapshot has left, in MiB."""
    return [host.free_ram_mb for host in hosts_left(pending_claims, snapshot, **seen)]


def test_what_is_in_flight_is_taken_off(pending_claims):
    """A host has less left by every server on its way to it, and one more of them
    each."""
    first = send(pending_claims)
    _ = send(pending_claims, 'other')
    assert ram(pending_claims) == [2048, 4096]
    host, _ = hosts_left(pending_claims)
    assert hosts_left(pending_claims)[0] is host, 'it is worked out once'
    assert host.num_instances == 4
    assert host.num_io_ops == 2
    assert host.instances.keys() == {a_uuid('server'), a_uuid('other')}
    pending_claims.drop(first)
    assert ram(pending_claims) == [3072, 4096]


def a_row(host='a', **columns):
    """The row of an instance that runs on a host."""
    row = {
        'host': host,
        'node': host,
        'vm_state': 'active',
        'task_state': None,
        'deleted': 0,
    }
    return SimpleNamespace(**{**row, **columns})


@pytest.mark.parametrize(
    ('rows', 'read_at', 'left'),
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
def test_hosts_that_show_a_server_are_believed(pending_claims, rows, read_at, left):
    """A server counts until its host shows it, or it will not come; and for whoever
    works on hosts that were read before, it counts still."""
    send(pending_claims)
    assert pending_claims.instances_awaited_in(A.cell_uuid) == [a_uuid('server')]
    pending_claims.note_shown({a_uuid(name): row for name, row in rows.items()}, 1005.0)
    assert ram(pending_claims, a_host_snapshot(read_at=read_at))[0] == left


def test_only_those_are_awaited_that_are_not_shown(pending_claims):
    """The cells are asked about what is open alone, each about its own hosts."""
    send(pending_claims, 'one')
    send(pending_claims, 'two')
    send(pending_claims, 'far', a_host('far', cell='cell2'))
    pending_claims.note_shown({a_uuid('one'): a_row()}, 1005.0)
    assert pending_claims.instances_awaited_in(A.cell_uuid) == [a_uuid('two')]
    assert pending_claims.instances_awaited_in(a_uuid('cell3')) == []


def test_an_instance_goes_to_one_place_at_a_time(pending_claims):
    """Who places an instance again does not see where others have sent it; once that
    stands, nobody does. Until then, and if it comes to nothing, the others count for
    everybody."""
    before = send(pending_claims)
    seen = {'again': {a_uuid('server')}}
    now = send(pending_claims, host=B)
    assert ram(pending_claims, **seen) == [4096, 4096]
    assert ram(pending_claims, own={now}, **seen) == [4096, 3072]
    assert ram(pending_claims) == [3072, 3072]
    pending_claims.settle([now])
    assert ram(pending_claims) == [4096, 3072]
    pending_claims.drop(before)
    pending_claims.drop(now)
    assert ram(pending_claims) == [4096, 4096]


def test_what_placement_does_not_have_yet(pending_claims, clock):
    """Placement's answers count a claim from the moment on at which it stands."""
    request = a_request()
    candidate = a_candidate(A.uuid, VGPU=2)
    one, two = (pending_claims.add(A, request, candidate, {}) for _ in range(2))
    assert pending_claims.unclaimed(clock.now) == {A.uuid: {'VGPU': 4}}
    pending_claims.settle([one, two])
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
def test_who_sees_whom(clock, timeout, fields, together):
    """Requests see each other's servers unless the option is 0 or nothing is claimed;
    its own servers a request always sees."""
    pending_claims = PendingClaims(Settings(), SharedLedger(timeout, clock))
    mine = pending_claims.for_request(a_request(**fields))
    send(mine)
    assert ram(mine)[0] == 3072
    assert ram(pending_claims.for_request(a_request(**fields)))[0] == (
        3072 if together else 4096
    )


def test_a_host_that_reports_anew_is_counted_from_there(pending_claims):
    """When the row changes for another reason, what is in flight is taken off the new
    one; a host that is gone harms nobody."""
    send(pending_claims)
    assert ram(pending_claims)[0] == 3072
    assert (
        ram(pending_claims, a_host_snapshot(replace(A, free_ram_mb=2048), B))[0] == 1024
    )
    assert ram(pending_claims, a_host_snapshot(B)) == [4096]


@pytest.mark.parametrize(
    ('timeout', 'later', 'left'),
    [(60.0, 59.0, 3072), (60.0, 60.0, 4096), (math.inf, 1e6, 3072)],
)
def test_nothing_is_in_flight_for_ever(clock, timeout, later, left):
    """A server that its host never shows is forgotten after [novasched]
    in_flight_timeout, but not within a request, however long that takes."""
    pending_claims = PendingClaims(Settings(), SharedLedger(timeout, clock))
    send(pending_claims)
    clock.now += later
    assert ram(pending_claims)[0] == left


class Beside:
    """Another scheduler, which neither tells anything nor listens."""

    position = (0, 2)
    missed = 0
    late = 0

    def announce(self, claim, state):
        """Announce nothing."""

    def catch_up(self, claim):
        """Wait for nothing."""


@pytest.mark.parametrize(
    ('arrived', 'own', 'is_alone', 'came_free'),
    [
        (999.0, 'own', False, True),
        (1000.0, 'own', False, True),
        (1001.0, 'own', False, False),
        (999.0, 'released', False, False),
        (999.0, 'own', True, False),
    ],
)
def test_a_host_that_came_free(pending_claims, arrived, own, is_alone, came_free):
    """A request is decided again where another request has released a claim since this
    one arrived, and other schedulers choose at the same time."""
    if not is_alone:
        pending_claims.peers = Beside()
    pending_claims.drop(send(pending_claims, 'released'))
    uuid = a_uuid(own)
    request = a_request(instance_uuid=uuid, instance_uuids=(uuid,))
    assert pending_claims.came_free(request, arrived) is came_free
