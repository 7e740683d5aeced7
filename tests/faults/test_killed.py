# SPDX-License-Identifier: Apache-2.0
"""A scheduler that is killed, in every step of a claim."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import proxy

from .fault import is_timeout

PATIENCE = 4  # seconds that the caller waits for an answer that cannot come


IN_QUERY = proxy.every('GET', '/allocation_candidates', proxy.hang_after())
BEFORE_CLAIM = proxy.every('PUT', '/allocations', proxy.hang(work=False))
AFTER_CLAIM = proxy.every('PUT', '/allocations', proxy.hang_after())
"""Where a scheduler hangs when it is killed."""


def killed(site, step):
    """Let the first scheduler die in a step; the server that was asked for."""
    site.proxy.faults = step
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            site.caller.place, server=site.daemons[0].host, timeout=PATIENCE
        )
        site.proxy.wait_for_hanging()
        site.daemons[0].kill()
        site.proxy.faults = None
        site.proxy.release()
        answer = asked.result()
    assert is_timeout(answer)
    return answer.server


@pytest.mark.parametrize(
    ('step', 'left'),
    [
        pytest.param(
            IN_QUERY, 0, id='before the query is answered', marks=pytest.mark.long
        ),
        pytest.param(
            BEFORE_CLAIM, 0, id='before the claim is made', marks=pytest.mark.long
        ),
        pytest.param(AFTER_CLAIM, 1, id='before the claim is answered'),
    ],
)
def test_killed_in(step, left, site):
    """At the most the allocation of the one server in hand is left. Its caller asks
    again, and another scheduler answers: then the server has what was answered, and
    that."""
    with site.running(2):
        server = killed(site, step)
        before = site.cloud.allocations(server).keys()
        assert len(before) == left
        again = site.caller.place(server, server=site.daemons[1].host)
        assert again.error is None
        assert site.cloud.allocations(server).keys() == {again.host, *before}


@pytest.mark.long
def test_another_host_is_better_by_then(site):
    """What is left stays beside what is answered then, as if the server were
    evacuated."""
    with site.running(2):
        server = killed(site, AFTER_CLAIM)
        [left] = site.cloud.allocations(server)
        cell = site.cloud.cells[site.cloud.computes[left].cell]
        [before] = cell.rows('compute_nodes', host=left)
        cell.update('compute_nodes', {'free_ram_mb': 1024}, host=left)
        try:
            again = site.caller.place(server, server=site.daemons[1].host)
        finally:
            cell.update(
                'compute_nodes', {'free_ram_mb': before['free_ram_mb']}, host=left
            )
        assert again.host not in (None, left)
        assert site.cloud.allocations(server).keys() == {left, again.host}


@pytest.mark.long
def test_killed_after(site):
    """What was answered stays."""
    with site.running() as running:
        answer = site.caller.place()
        running.daemons[0].kill()
        assert site.cloud.allocations(answer.server).keys() == {answer.host}
