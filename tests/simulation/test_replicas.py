# SPDX-License-Identifier: Apache-2.0
from random import Random

import sqlalchemy as sa

from novasched.tools.sandbox import databases as db
from tests.simulation.loop import Loop
from tests.simulation.replicas import Replicas

LONGEST_S = 2.0


def test_a_replica_shows_commits_after_the_lag(tmp_path):
    """Rows from before the copy and rows that are written and deleted afterwards appear
    in the order of the commits, at the latest after the lag; what is rolled back never
    appears."""
    loop = Loop(seed=1)
    databases = db.Databases(tmp_path, ['cell1'])
    primary = databases.cells['cell1']
    replicas = Replicas(loop)

    def insert(*uuids):
        with primary.begin() as connection:
            rows = [{'uuid': uuid} for uuid in uuids]
            connection.execute(sa.insert(db.instances), rows)

    insert('old')
    replicas.follow({'cell1': primary})
    replicas.begin_lag(Random(1), LONGEST_S)

    loop.owner = 'scheduler-1'
    engine = sa.create_engine(databases.url('cell1'), poolclass=sa.NullPool)
    sa.event.listen(engine, 'do_connect', replicas.connect)

    def seen():
        """The UUIDs that several connections read now."""
        replicas.catch_up('cell1')
        uuids = set()
        for _ in range(10):
            with engine.connect() as connection:
                uuids.add(frozenset(connection.scalars(sa.select(db.instances.c.uuid))))
        return uuids

    insert('new', 'further')
    with primary.connect() as connection:
        connection.execute(sa.insert(db.instances), [{'uuid': 'rolled back'}])
        connection.rollback()
    assert seen() == {frozenset({'old'})}

    loop.run_until(loop.now + LONGEST_S)
    assert seen() == {frozenset({'old', 'new', 'further'})}

    with primary.begin() as connection:
        connection.execute(sa.delete(db.instances))
    loop.run_until(loop.now + LONGEST_S / 2)
    assert seen() <= {frozenset(), frozenset({'old', 'new', 'further'})}
    replicas.end_lag()
    assert seen() == {frozenset()}
    databases.close()
