# SPDX-License-Identifier: Apache-2.0
"""Snapshots say which hosts have changed since an earlier snapshot."""

from contextlib import closing, suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.request import Destination
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_needs, a_request, a_uuid
from tests.lab.nova_databases import CELLS, EXAMPLE, STORY, NovaDatabases, Story

KINDS = {
    'all hosts': {},
    'one cell': {'cell': 'cell1'},
    'all instances': {'instances': True},
    'flavors': {'flavors': True},
    'named instances': {'named': ('on h0',)},
    'needed aggregate': {'aggregate': 'agg1'},
}
"""Kinds of snapshots that requests read."""


@pytest.fixture(scope='module')
def databases(tmp_path_factory):
    """nova's databases as SQLite files."""
    directory = tmp_path_factory.mktemp('databases')
    with closing(NovaDatabases(lambda name: f'sqlite:///{directory}/{name}')) as made:
        made.add(
            made.engines['cell1'], tables.instances, uuid='on h0', host='h0', deleted=0
        )
        yield made


def snapshot_of(reader, cell=None, aggregate=None, **needs):
    """A snapshot of one kind."""
    destination = None
    if cell:
        destination = Destination(cell_uuid=a_uuid(cell))
    if aggregate:
        destination = Destination(aggregates=(frozenset([a_uuid(aggregate)]),))
    request = a_request(requested_destination=destination)
    return reader.read(None, request, a_needs(**needs))


def check(earlier, later):
    """Compare the hosts of two snapshots with the answer of the later snapshot."""
    changed = later.view.changes.since(earlier.view.version)
    if changed is None:
        return
    for uuid in earlier.hosts.keys() | later.hosts.keys():
        if uuid not in changed:
            assert later.hosts[uuid] is earlier.hosts[uuid]


class Readings(Story):
    """A story in which a request of each kind reads the hosts at each ``read``.

    :ivar snapshots: all snapshots with their kinds, in order.
    """

    def __init__(self, databases):
        super().__init__(databases)
        self.snapshots = []

    def read(self):
        for kind, parameters in KINDS.items():
            # The only cell of a kind may be silent.
            with suppress(DatabaseUnavailable):
                snapshot = snapshot_of(self.reader, **parameters)
                self.snapshots.append((kind, snapshot))

    def go_silent(self, cell, table):
        """Let a cell fail at its next reading, and answer later on."""
        self.databases.sql(cell, f'ALTER TABLE {table} RENAME TO away')
        self.read()
        self.databases.sql(cell, f'ALTER TABLE away RENAME TO {table}')

    def renew(self):
        self.reader.renew()


STEP = st.one_of(
    st.tuples(
        st.just('go_silent'),
        st.sampled_from(CELLS),
        st.sampled_from(['compute_nodes', 'services']),
    ),
    st.tuples(st.just('renew')),
)


@given(steps=st.lists(st.one_of(STEP, STORY), max_size=8))
@example(steps=[EXAMPLE])
@example(steps=[[('join', 'h3', 1)], ('go_silent', 'cell1', 'services')])
@settings(max_examples=25, deadline=None)
def test_hosts_that_differ_are_reported(databases, steps):
    """A host that is another object in the later of two snapshots is reported as
    changed, after any steps in between. This holds across all kinds of snapshots."""
    story = Readings(databases)
    story.read()
    for step in steps:
        if isinstance(step, tuple):
            story.tell([step])
        else:
            story.tell(step)
    story.close()

    for number, (_, earlier) in enumerate(story.snapshots):
        for _, later in story.snapshots[number:]:
            check(earlier, later)


LASTING = ('all hosts', 'one cell', 'all instances')
"""Kinds of snapshots that know what changed since an earlier snapshot of their kind."""


@given(steps=STORY)
@example(steps=EXAMPLE)
@settings(max_examples=25, deadline=None)
def test_an_unchanged_host_stays_the_same_object(databases, steps):
    """Snapshots of lasting kinds always know the changes. A host that has not changed
    stays the same object, and is not reported."""
    story = Readings(databases)
    story.tell(steps)
    story.close()

    for kind in LASTING:
        snapshots = [snapshot for name, snapshot in story.snapshots if name == kind]
        for earlier, later in pairwise(snapshots):
            changed = later.view.changes.since(earlier.view.version)
            assert changed is not None
            for uuid in changed & earlier.hosts.keys() & later.hosts.keys():
                assert later.hosts[uuid] is not earlier.hosts[uuid]


def test_only_the_host_that_joins_an_aggregate_is_reported(databases):
    """Only the hosts that join or leave an aggregate are reported."""
    with closing(databases.reader()) as reader:
        databases.add_host('h8')
        databases.add_host('h9', 'cell2')
        before = reader.snapshot().host_snapshot.view
        databases.add_aggregate(9, ['h9'])
        after = reader.snapshot().host_snapshot.view
        assert after.changes.since(before.version) == {a_uuid('h9')}
        assert before.changes.since(after.version) is None
        assert after.changes.since(after.version) == set()
