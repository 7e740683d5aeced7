# SPDX-License-Identifier: Apache-2.0
"""The steps through which nova takes an instance, and at which of them its host shows it."""

import pytest

from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid

NO_ROW = None
BUILD = [
    (NO_ROW, True),
    ('building scheduling -', True),
    ('building - -', True),
    ('building - dest', True),
    ('building networking dest', False),
    ('building block_device_mapping dest', False),
    ('building spawning dest', False),
    ('active - dest', False),
]
MOVES = {
    'build': BUILD,
    'build that is deleted': [
        *BUILD[:3],
        ('building deleting dest', False),
        ('deleted - dest deleted', False),
    ],
    'build that fails before its claim, and nobody tries again': [
        *BUILD[:3],
        ('error - -', False),
    ],
    'build that fails on its host': [
        *BUILD[:5],
        ('building spawning -', False),  # the claim is taken back
        ('error - -', False),
    ],
    'build that goes to an alternate': [
        *BUILD[:5],
        ('building networking -', False),  # the claim is taken back
        ('building - alternate', False),
        ('building networking alternate', False),
        ('active - alternate', False),
    ],
    'build that goes to another node of its host': [
        *BUILD[:3],
        ('building - dest/other', False),
        ('building networking dest/other', False),
    ],
    'live migration': [
        ('active migrating source', True),
        ('active - dest', False),
    ],
    'live migration of what is paused, which fails': [
        ('paused migrating source', True),
        ('paused - source', False),
    ],
    'live migration that ends in an error': [
        ('active migrating source', True),
        ('error - source', False),
    ],
    'resize': [
        ('active resize_prep source', True),
        ('active resize_migrating source', False),
        ('active resize_migrated dest', False),
        ('active resize_finish dest', False),
        ('resized - dest', False),
    ],
    'cold migration of what is stopped': [
        ('stopped resize_prep source', True),
        ('stopped resize_migrating source', False),
        ('resized - dest', False),
    ],
    'resize to the same host': [
        ('active resize_prep dest', True),
        ('active resize_migrating dest', False),
        ('active resize_migrated dest', False),
        ('resized - dest', False),
    ],
    'resize that goes to an alternate': [
        ('active resize_prep source', True),
        ('active resize_migrating source', False),
        ('active resize_migrated alternate', False),
        ('resized - alternate', False),
    ],
    'resize that finds no host to go to': [
        ('active resize_prep source', True),
        ('active - source', False),
    ],
    'resize that is confirmed': [
        ('resized - dest', False),
        ('resized deleting dest', False),
        ('active - dest', False),
    ],
    'resize that is reverted': [
        ('resized - dest', False),
        ('resized resize_reverting dest', False),
        ('resized resize_reverting source', False),
        ('active - source', False),
    ],
    'evacuation': [
        ('active rebuilding source', True),
        ('active rebuild_block_device_mapping source', False),
        ('active rebuild_spawning source', False),
        ('active - source', False),
        ('active - dest', False),
    ],
    'evacuation of what is in error': [
        ('error rebuilding source', True),
        ('error rebuild_spawning source', False),
        ('active - dest', False),
    ],
    'evacuation that fails': [
        ('stopped rebuilding source', True),
        ('stopped - source', False),
    ],
    'unshelving': [
        ('shelved_offloaded unshelving -', True),
        ('shelved_offloaded spawning -', True),
        ('shelved_offloaded spawning dest', True),
        ('active - dest', False),
    ],
    'unshelving what has not let go of its host': [
        ('shelved_offloaded unshelving source', True),
        ('shelved_offloaded spawning source', True),
        ('active - dest', False),
    ],
    'unshelving that fails': [
        ('shelved_offloaded unshelving -', True),
        ('shelved_offloaded spawning -', True),
        ('shelved_offloaded - -', False),
    ],
    'rebuild in place soon after a build': [
        ('active rebuilding dest', False),
        ('active rebuild_spawning dest', False),
    ],
    'live migration soon after a build': [
        ('active migrating dest', False),
        ('active - elsewhere', False),
    ],
    'shelving soon after a build': [
        ('active shelving_offloading dest', False),
        ('shelved_offloaded - -', False),
    ],
}
"""Kind of move to its steps: the row of the instance (vm_state, task_state, host and perhaps
node; - is null) and whether an instance on its way to ``dest`` is still to be counted there."""


def columns(step):
    """The columns of the instance's row."""
    vm_state, task_state, host, *gone = (None if x == '-' else x for x in step.split())
    host, _, node = (host or '').partition('/')
    return {
        'vm_state': vm_state,
        'task_state': task_state,
        'host': host or None,
        'node': node or host or None,
        'deleted': 1 if gone else 0,
    }


@pytest.fixture
def reader(cloud):
    """A reader of a cloud of one host."""
    cloud.add_host('dest')
    return cloud.reader()


def counts(reader, request):
    """Whether the request's instance counts on its way to the host, beside what that shows."""
    hosts = reader.read(None, request, instances=False).hosts
    flight = reader.pending_claims.add(hosts[a_uuid('dest')], request, None, {})
    host_snapshot = reader.read(None, request, instances=False)
    pending = reader.pending_claims.of(host_snapshot)
    reader.pending_claims.drop(flight)
    return pending == {a_uuid('dest'): (flight,)}


@pytest.mark.parametrize('move', MOVES)
def test_an_instance_counts_until_its_host_shows_it(cloud, reader, move):
    """From the choice of its host up to the first step at which nova-compute has written what
    it takes there, or at which it can go there no more, and not a step longer."""
    engine, request = cloud.engines['cell1'], a_request()
    seen = []
    for step, _ in MOVES[move]:
        if step is not NO_ROW:
            with engine.begin() as connection:
                connection.execute(tables.instances.delete())
            values = {'uuid': request.instance_uuid, **columns(step)}
            cloud.add(engine, tables.instances, **values)
        seen.append((step, counts(reader, request)))
    assert seen == MOVES[move]
