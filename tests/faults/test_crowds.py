# SPDX-License-Identifier: Apache-2.0
"""More requests than can be answered at once, and requests that nobody waits for any more."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from tests.lab.processes import Failed
from tests.lab.steady import Answer, Crowd, Load, crowd

from .fault import Fault, Outcome, Result, judge, run
from .site import Site

PATIENCE = 1800  # seconds: nova's long_rpc_timeout
GIVEN_UP = 500
EXPIRATION = 1.0


def held(site: Site, servers: Collection[str]) -> set[tuple[str, str]]:
    every = site.cloud.all_allocations()
    return {(server, host) for server in servers for host in every.get(server, ())}


def counted(site: Site, callers: Crowd, seconds: float) -> Outcome:
    """What became of a crowd's requests, as if each had waited to the end."""

    def answer(server: str) -> Answer:
        host = callers.hosts.get(server)
        error = None if host else 'refused' if server in callers.hosts else 'MessagingTimeout'
        return Answer(0.0, seconds, server, host, error)

    return judge(site, Load([answer(server) for server in callers.asked]), None, seconds)


@pytest.mark.long
def test_all_at_once(site: Site, results: list[Result], pytestconfig: pytest.Config) -> None:
    """Each request of a great many is answered once, before its caller gives up."""
    count = pytestconfig.getoption('--at-once')
    with site.running(), crowd(site.rabbitmq.url) as callers:
        begun = time.monotonic()
        servers = callers.ask(count)
        with suppress(Failed):  # the outcome says how many are lost
            callers.listen(lambda: callers.answered(servers), PATIENCE, 'answer to each')
        outcome = counted(site, callers, time.monotonic() - begun)
        results.append(Result(f'{count:,} requests at once', 'one', outcome))
        assert [outcome.lost, outcome.refused, outcome.left_over, outcome.missing] == [0] * 4
        assert set(callers.answers.values()) == {1}


def test_given_up(site: Site, results: list[Result]) -> None:
    """A scheduler that was held up finds a queue full of calls that have expired: those who
    call now are answered, and for those who have given up nothing is claimed."""
    expired: list[str] = []

    with site.running(), crowd(site.rabbitmq.url) as callers:

        @contextmanager
        def held_up(_site: Site) -> Iterator[None]:
            with site.frozen_workers():
                expired.extend(callers.ask(GIVEN_UP, lifetime=EXPIRATION))
                yield

        outcome = run(site, Fault('queue full of expired calls', held_up, seconds=3))
        outcome = replace(outcome, left_over=outcome.left_over + len(held(site, expired)))
        results.append(Result('queue full of expired calls', 'one', outcome))
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.missing, outcome.left_over] == [0, 0, 0]
