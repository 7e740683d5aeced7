# SPDX-License-Identifier: Apache-2.0
"""What a guest leaves of a host."""

from __future__ import annotations

import pytest

from novasched.model.numa import Fit
from novasched.numa.fit import fit
from novasched.numa.usage import consume, release
from tests.unit.numa.topologies import a_cell, a_guest, a_host, a_pinned, a_shared, some_pages

PAGES = (some_pages(4, 1048576, used=10), some_pages(2048, 100))


@pytest.mark.parametrize(
    ('guest', 'memory', 'cpus', 'pinned', 'pages'),
    [
        (a_shared(3), 256, 3, set(), [65546, 0]),
        (a_shared(3, pagesize=2048, memory=64), 64, 3, set(), [10, 32]),
        (a_pinned(3), 256, 0, {0, 1, 2}, [65546, 0]),
        (a_pinned(2, cpu_thread_policy='isolate'), 256, 0, {0, 1, 2, 3}, [65546, 0]),
        (a_pinned(2, cpuset=frozenset({7}), cpu_policy='mixed'), 256, 1, {0, 1}, [65546, 0]),
    ],
)
def test_consumed(guest, memory, cpus, pinned, pages):
    """Memory, pages and CPUs are used, siblings of isolated CPUs too; then given back."""
    host = a_host(a_cell(mempages=PAGES), a_cell(1, mempages=PAGES))
    asked = a_guest(guest)
    found = fit(host, asked)
    assert isinstance(found, Fit)
    used, other = consume(host, found, asked).cells
    assert (used.memory_usage, used.cpu_usage, used.pinned_cpus) == (memory, cpus, pinned)
    assert [each.used for each in used.mempages] == pages
    assert other == host.cells[1]
    assert release(consume(host, found, asked), found, asked) == host


def test_emulator_threads_keep_their_cpu():
    """It counts as pinned."""
    host, guest = a_host(a_cell()), a_guest(a_pinned(2), emulator='isolate')
    found = fit(host, guest)
    assert isinstance(found, Fit)
    assert consume(host, found, guest).cells[0].pinned_cpus == {0, 1, 2}


@pytest.mark.parametrize(
    ('change', 'taken', 'words'),
    [(consume, True, 'host cell 0: CPUs [0, 1] are pinned already'),
     (release, False, 'host cell 0: CPUs [0, 1] are not pinned')],
)  # fmt: skip
def test_fits_of_other_hosts(change, taken, words):
    """CPUs cannot be taken twice, nor given back by a guest that has none."""
    host, guest = a_host(a_cell()), a_guest(a_pinned(2))
    found = fit(host, guest)
    assert isinstance(found, Fit)
    if taken:
        host = consume(host, found, guest)
    with pytest.raises(ValueError, match='pinned') as raised:
        change(host, found, guest)
    assert str(raised.value) == words
