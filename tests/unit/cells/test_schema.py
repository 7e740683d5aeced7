# SPDX-License-Identifier: Apache-2.0
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import sqlalchemy as sa

from novasched.cells.schema import Database


def test_threads_share_a_table(cloud):
    """Threads that look a table up at the same time get the same one, as statements of
    either must refer to one table."""
    engine = cloud.engines['cell1']
    both = threading.Barrier(2)

    def meet(*_):
        with suppress(threading.BrokenBarrierError):
            both.wait(1)

    sa.event.listen(engine, 'before_cursor_execute', meet)
    database = Database(engine, 'cell1')
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(database.table, ['services'] * 2)
    assert first is second is database.table('services')
