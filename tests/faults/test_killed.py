# SPDX-License-Identifier: Apache-2.0
"""A scheduler that is killed in a step of a claim."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import proxy

from .fault import is_timeout

PATIENCE = 4  # seconds that the caller waits for an answer that cannot come


IN_QUERY = proxy.every('GET', '/allocation_candidates', proxy.hang_after())
BEFORE_CLAIM = proxy.every('PUT', '/allocations', proxy.hang(work=False))
AFTER_CLAIM = proxy.every('PUT', '/allocations', proxy.hang_after())
"""Rules of a proxy that let a scheduler hang in a step."""


def killed(site, step):
    """Kill the first scheduler in a step; the UUID of the requested server."""
    site.proxy.faults = step
    with ThreadPoolExecutor(1) as pool:
        placing = pool.submit(
            site.caller.place, server=site.daemons[0].host, timeout=PATIENCE
        )
        site.proxy.wait_for_hanging()
        site.daemons[0].kill()
        site.proxy.faults = None
        site.proxy.release()
        answer = placing.result()

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
def test_a_killed_scheduler_leaves_at_most_the_current_allocation(step, left, site):
    """At most the allocation of the current server is left over. After an answer of
    another scheduler, the server has the host of the answer beside the allocation that
    was left over."""
    with site.running(2):
        server = killed(site, step)
        before = site.cloud.allocations(server).keys()
        assert len(before) == left

        answer = site.caller.place(server, server=site.daemons[1].host)

        assert answer.error is None
        assert site.cloud.allocations(server).keys() == {answer.host, *before}


@pytest.mark.long
def test_a_leftover_allocation_stays_beside_the_next_allocation(site):
    """The allocation that is left over stays beside the allocation of the next answer,
    as if the server were evacuated."""
    with site.running(2):
        server = killed(site, AFTER_CLAIM)
        [first_host] = site.cloud.allocations(server)
        cell = site.cloud.cells[site.cloud.computes[first_host].cell]
        [row] = cell.rows('compute_nodes', host=first_host)
        free_ram_mb = row['free_ram_mb']

        cell.update('compute_nodes', {'free_ram_mb': 1024}, host=first_host)
        try:
            answer = site.caller.place(server, server=site.daemons[1].host)
        finally:
            cell.update('compute_nodes', {'free_ram_mb': free_ram_mb}, host=first_host)

        assert answer.host not in (None, first_host)
        assert site.cloud.allocations(server).keys() == {first_host, answer.host}


@pytest.mark.long
def test_the_allocation_of_an_answered_request_stays_after_a_kill(site):
    """The allocation of an answered request stays."""
    with site.running() as running:
        answer = site.caller.place()
        running.daemons[0].kill()
        assert site.cloud.allocations(answer.server).keys() == {answer.host}
