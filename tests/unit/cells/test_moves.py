# SPDX-License-Identifier: Apache-2.0
"""The steps of builds and moves in nova, and the step at which the host of the instance
reports it."""

from types import SimpleNamespace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.claim import is_pending
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import HostSnapshot, HostView
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import Needs
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_host, a_request, a_uuid, by_uuid
from tests.lab.memory_schedulers import ManualClock
from tests.lab.nova_databases import hosts_of

SMALL_FLAVOR = 99
"""The id of the flavor before a resize."""
BEFORE = ['no row', 'building scheduling -', 'building - -']
BEGUN = [*BEFORE, 'building - dest']
MOVES = {
    'build': (
        BEGUN,
        [
            'building networking dest',
            'building block_device_mapping dest',
            'building spawning dest',
            'active - dest',
        ],
    ),
    'build that is deleted': (
        BEFORE,
        ['building deleting dest', 'deleted - dest deleted'],
    ),
    'build that fails on its host, where the claim is taken back': (
        BEGUN,
        ['building networking dest', 'building spawning -', 'error - -'],
    ),
    'build that goes to an alternate once the claim is taken back': (
        BEGUN,
        [
            'building networking dest',
            'building networking -',
            'building - alternate',
            'building networking alternate',
            'active - alternate',
        ],
    ),
    'build that goes to another node of its host': (
        BEFORE,
        ['building - dest/other', 'building networking dest/other'],
    ),
    'live migration': (['active migrating source'], ['active - dest']),
    'resize': (
        ['active resize_prep source'],
        [
            'active resize_migrating source',
            'active resize_migrated dest',
            'active resize_finish dest',
            'resized - dest',
        ],
    ),
    'resize to the same host': (
        ['active resize_prep dest small'],
        [
            'active resize_migrating dest small',
            'active resize_migrated dest',
            'resized - dest',
        ],
    ),
    'resize that is confirmed': (
        [],
        ['resized - dest', 'resized deleting dest', 'active - dest'],
    ),
    'resize that is reverted': (
        [],
        [
            'resized - dest',
            'resized resize_reverting dest',
            'resized resize_reverting source',
            'active - source',
        ],
    ),
    'evacuation': (
        ['active rebuilding source'],
        [
            'active rebuild_block_device_mapping source',
            'active rebuild_spawning source',
            'active - source',
            'active - dest',
        ],
    ),
    'unshelving': (
        [
            'shelved_offloaded unshelving -',
            'shelved_offloaded spawning -',
            'shelved_offloaded spawning dest',
        ],
        ['active - dest'],
    ),
    'unshelving that fails': (
        ['shelved_offloaded unshelving -', 'shelved_offloaded spawning -'],
        ['shelved_offloaded - -'],
    ),
    'rebuild in place soon after a build': (
        [],
        ['active rebuilding dest', 'active rebuild_spawning dest'],
    ),
    'live migration soon after a build': (
        [],
        ['active migrating dest', 'active - elsewhere'],
    ),
    'resize soon after a build': (
        [],
        ['active resize_prep dest', 'active resize_migrating dest'],
    ),
    'shelving soon after a build': (
        [],
        ['active shelving_offloading dest', 'shelved_offloaded - -'],
    ),
}
"""Kind of move to its steps: those at which an instance on its way to ``dest`` is still
to be counted there, and those that follow. A step is the row of the instance: vm_state,
task_state, host and perhaps node; - is null."""


def row_of(step, flavor=None):
    """The columns of the instance's row at a step.

    :param flavor: the id of the flavor that the instance gets.
    """
    words = []
    for word in step.split():
        if word == '-':
            words.append(None)
        else:
            words.append(word)
    vm_state, task_state, host, *more = words
    host, _, node = (host or '').partition('/')
    if 'small' in more:
        flavor = SMALL_FLAVOR
    return {
        'vm_state': vm_state, 'task_state': task_state, 'host': host or None,
        'node': node or host or None, 'instance_type_id': flavor,
        'deleted': more.count('deleted'),
    }  # fmt: skip


@pytest.mark.parametrize(('pending', 'shown'), MOVES.values(), ids=MOVES)
def test_a_pending_claim_counts_until_the_host_reports_the_instance(pending, shown):
    """A pending claim counts from the choice of the host to the step at which nova-
    compute has written the resources of the instance, or at which the instance can no
    longer go to the host."""
    request = a_request(flavor=Flavor(id=1))
    claim = PendingClaims(Settings()).choose(a_host('dest'), request, None, {})

    counted = []
    for step in with_row((*pending, *shown)):
        row = SimpleNamespace(**row_of(step, request.flavor.id))
        if is_pending(row, claim):
            counted.append(step)
    assert counted == with_row(pending)


LAGGING = {
    'live migration': (
        'active - source',
        'active migrating source',
        'active - dest',
    ),
    'resize': (
        'active - source',
        'active resize_prep source',
        'active resize_migrated dest',
    ),
    'resize to the same host': (
        'active - dest small',
        'active resize_prep dest small',
        'resized - dest',
    ),
    'evacuation of a failed instance': (
        'error - source',
        'error rebuilding source',
        'active - dest',
    ),
    'unshelving': (
        'shelved_offloaded - -',
        'shelved_offloaded unshelving -',
        'active - dest',
    ),
    'another try after a failed build, before Queens': (
        'building spawning source',
        'building scheduling -',
        'building networking dest',
    ),
}
"""Kind of move to the steps before its task, with its task, and once it has arrived."""
ARRIVES_S = 20.0
"""Seconds from the task of a move to the arrival of the instance."""


@pytest.mark.parametrize('steps', LAGGING.values(), ids=LAGGING)
@pytest.mark.parametrize('lag_s', [0.05, 0.2, 0.5, 2.0])
@pytest.mark.parametrize('choice_s', [0.1, 0.3, 1.0])
def test_claim_of_a_move_counts_until_lagging_reads_show_the_arrival(
    steps, lag_s, choice_s
):
    """A claim of a move counts until a database that lags behind shows the arrival,
    also where the lag is longer than the time from the task to the choice."""
    clock = ManualClock()
    clock.now = choice_s
    claims = PendingClaims(Settings(), SharedLedger(60.0, clock))
    host = a_host('dest')
    request = a_request(flavor=Flavor(id=1))
    claim = claims.choose(host, request, None, {})
    claims.claimed([claim])

    counted = []
    for number in range(250):
        clock.now = choice_s + number / 10
        is_there = clock.now - lag_s >= ARRIVES_S
        step = steps[bool(clock.now > lag_s) + is_there]
        row = SimpleNamespace(**row_of(step, request.flavor.id))
        claims.note_shown({request.instance_uuid: row}, clock.now)
        snapshot = HostSnapshot(HostView(by_uuid([host])), clock.now)
        counted.append(bool(claims.of(snapshot)) is not is_there)
    assert all(counted), f'wrong after {counted.index(False) / 10} s'


def with_row(steps):
    """The steps at which the instance has a row."""
    return [step for step in steps if step != 'no row']


@pytest.mark.parametrize('step', ['building deleting dest', 'deleted - dest deleted'])
def test_rows_of_claimed_instances_are_read_even_if_deleted(cloud, step):
    """The rows of instances on their way to a host are read, deleted instances
    included."""
    cloud.add_host('dest')
    reader = cloud.reader()
    request = a_request()
    [host] = hosts_of(reader, request).values()
    claim = reader.pending_claims.choose(host, request, None, {})
    for row, pending in (('building - -', {host.uuid: (claim,)}), (step, {})):
        cloud.sql('cell1', 'DELETE FROM instances')
        values = {'uuid': request.instance_uuid, **row_of(row)}
        cloud.add(cloud.engines['cell1'], tables.instances, **values)
        snapshot = reader.read(None, request)
        assert reader.pending_claims.of(snapshot) == pending


MOVING = a_uuid('moving')


@pytest.mark.parametrize(('needs', 'counts'), [
    (Needs(named=[MOVING]), True),
    (Needs(located=[MOVING]), True),
    (Needs(frozenset([Data.INSTANCES])), True),
    (Needs(named=[a_uuid('other')], located=[a_uuid('other')]), False),
    (Needs(), False),
])  # fmt: skip
def test_a_claim_counts_where_the_reading_lacks_a_needed_instance(cloud, needs, counts):
    """The instances for a request are read on a connection of their own, which may lead
    to a database that lags behind. The claim of an instance that is missing there
    counts beside this reading."""
    cloud.add_host('dest')
    reader = cloud.reader()
    request = a_request(instance_uuid=MOVING)
    [host] = hosts_of(reader, request).values()
    claim = reader.pending_claims.choose(host, request, None, {})
    reader.pending_claims.claimed([claim])

    row = {'uuid': MOVING, **row_of('building networking dest')}
    cloud.add(cloud.engines['cell1'], tables.instances, **row)
    assert reader.pending_claims.of(reader.read(None, request)) == {}

    cloud.sql('cell1', 'DELETE FROM instances')
    missing = reader.pending_claims.of(reader.read(None, request, needs))
    assert missing == ({host.uuid: (claim,)} if counts else {})

    cloud.add(cloud.engines['cell1'], tables.instances, **row)
    assert reader.pending_claims.of(reader.read(None, request, needs)) == {}


def test_the_claim_of_an_instance_seen_as_deleted_does_not_count(cloud):
    """An instance that has arrived and was deleted is missing for good reason."""
    cloud.add_host('dest')
    reader = cloud.reader()
    request = a_request(instance_uuid=MOVING)
    [host] = hosts_of(reader, request).values()
    reader.pending_claims.choose(host, request, None, {})
    for step in ('building networking dest', 'deleted - dest deleted'):
        cloud.sql('cell1', 'DELETE FROM instances')
        row = {'uuid': MOVING, **row_of(step)}
        cloud.add(cloud.engines['cell1'], tables.instances, **row)
        snapshot = reader.read(None, request, Needs(named=[MOVING]))
        assert reader.pending_claims.of(snapshot) == {}
