# SPDX-License-Identifier: Apache-2.0
"""The steps of builds and moves in nova, and the step at which the host of the instance
reports it."""

from types import SimpleNamespace

import pytest

from novasched.scheduler.model.claim import is_pending
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request
from tests.lab.nova_databases import hosts_of

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
        ['active resize_prep dest'],
        [
            'active resize_migrating dest',
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
    'shelving soon after a build': (
        [],
        ['active shelving_offloading dest', 'shelved_offloaded - -'],
    ),
}
"""Kind of move to its steps: those at which an instance on its way to ``dest`` is still
to be counted there, and those that follow. A step is the row of the instance: vm_state,
task_state, host and perhaps node; - is null."""


def row_of(step):
    """The columns of the instance's row at a step."""
    words = []
    for word in step.split():
        if word == '-':
            words.append(None)
        else:
            words.append(word)
    vm_state, task_state, host, *gone = words
    host, _, node = (host or '').partition('/')
    return {
        'vm_state': vm_state, 'task_state': task_state, 'host': host or None,
        'node': node or host or None, 'deleted': len(gone),
    }  # fmt: skip


@pytest.mark.parametrize(('pending', 'shown'), MOVES.values(), ids=MOVES)
def test_an_instance_counts_until_its_host_shows_it(pending, shown):
    """A pending claim counts from the choice of the host to the step at which nova-
    compute has written the resources of the instance, or at which the instance can no
    longer go to the host."""
    counted = []
    for step in with_row((*pending, *shown)):
        row = SimpleNamespace(**row_of(step))
        if is_pending(row, ('dest', 'dest')):
            counted.append(step)
    assert counted == with_row(pending)


def with_row(steps):
    """The steps at which the instance has a row."""
    return [step for step in steps if step != 'no row']


@pytest.mark.parametrize('step', ['building deleting dest', 'deleted - dest deleted'])
def test_rows_are_read(cloud, step):
    """The rows of instances on their way to a host are read, deleted instances
    included."""
    cloud.add_host('dest')
    reader = cloud.reader()
    request = a_request()
    [host] = hosts_of(reader, request).values()
    claim = reader.pending_claims.add(host, request, None, {})
    for row, pending in (('building - -', {host.uuid: (claim,)}), (step, {})):
        cloud.sql('cell1', 'DELETE FROM instances')
        values = {'uuid': request.instance_uuid, **row_of(row)}
        cloud.add(cloud.engines['cell1'], tables.instances, **values)
        snapshot = reader.read(None, request)
        assert reader.pending_claims.of(snapshot) == pending
