# SPDX-License-Identifier: Apache-2.0
"""A scheduler of the simulation: the product's own parts, from nova.conf to the driver.

Only Placement's HTTP and the broker are simulated. The databases are SQLite files
(``database_health.py``).
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from oslo_context.context import RequestContext

from novasched.conf import loading
from novasched.conf.errors import NovaschedError
from novasched.rpc import decode, versions, wire
from novasched.rpc.server import SchedulerEndpoint
from novasched.scheduler.attempt import End
from novasched.scheduler.claims.decision_lock import DecisionLock
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.claim import PendingClaim, Stage
from novasched.service.build import Application, compose
from tests.simulation.exchange import Broker, Release, SimulatedExchange
from tests.simulation.loop import Clocks, Loop
from tests.simulation.placement_http import SimulatedHttp

THREADS = (2, 8)
"""``executor_thread_pool_size``: fewer than by default, so that requests wait. Each
process has one of these numbers."""
CLOSE_S = 30.0
"""Seconds in which a process ends in good order."""
START_AGAIN_S = 5.0
"""Seconds before a process that could not start is started again."""
UPTIME_S = 1e6
"""The longest time since the boot of a machine, in seconds."""
CLOCK_ERROR_S = 2.0
"""The largest error of a wall clock, in seconds."""

Weights = Mapping[str, float]
"""The weights of the hosts that could take a server, by name of the host."""


class WatchedLock(DecisionLock):
    """Measures how long requests for several instances have one turn after the other,
    while a request for a single instance waits all the time.

    :ivar longest_slice: the longest time between two such turns, in seconds.
    """

    longest_slice = 0.0
    _slice_since: float | None = None

    def _begin_next(self) -> None:
        super()._begin_next()
        deciding = self._deciding
        if deciding is None or not deciding.of_several or not self._single:
            self._slice_since = None
        elif self._slice_since is None:
            self._slice_since = self._clock()
        else:
            seconds = self._clock() - self._slice_since
            self.longest_slice = max(self.longest_slice, seconds)


class SchedulerProcess:
    """A scheduler, from its start until it ends or is killed.

    :ivar name: unique among all schedulers of a day, ended ones included.
    :ivar deciding: the number of requests in progress.
    """

    def __init__(
        self,
        name: str,
        loop: Loop,
        arguments: Sequence[str],
        http: SimulatedHttp,
        broker: Broker,
    ) -> None:
        self.name = name
        self.application: Application | None = None
        self.deciding = 0
        self._loop = loop
        self._arguments = arguments
        self._http = http
        self._broker = broker
        self._endpoint: SchedulerEndpoint | None = None
        self._threads = threading.Semaphore(loop.random.choice(THREADS))

    @property
    def is_ready(self) -> bool:
        """True while requests are taken."""
        return self._endpoint is not None and not self._loop.is_dead(self.name)

    def start(self) -> None:
        """Start, in a task of the process."""
        self._loop.spawn(self._start, self.name)

    def _start(self) -> None:
        random = self._loop.random
        self._loop.clocks[self.name] = Clocks(
            random.uniform(0, UPTIME_S), random.uniform(-CLOCK_ERROR_S, CLOCK_ERROR_S)
        )
        while self.application is None:
            try:
                self.application = self._composed()
            except NovaschedError:
                # systemd starts the daemon again.
                self._loop.sleep(START_AGAIN_S)
        application = self.application
        application.hosts.prefetch(time.monotonic())
        release = random.choice([*Release])
        SimulatedExchange(self._loop, self._broker, application.peers, release).start()
        self._endpoint = SchedulerEndpoint(application.driver)

    def _composed(self) -> Application:
        """The parts of the product, made from nova.conf.

        :raises NovaschedError: a database does not answer.
        """
        conf = loading.load(self._arguments, self.name)
        settings = loading.settings(conf)
        service = loading.service_settings(conf)
        application = compose(conf, settings, service, make_http=lambda *_: self._http)
        claims = application.driver.pending_claims
        claims.decision_lock = WatchedLock(clock=claims.ledger.clock)
        return application

    def reload(self) -> None:
        """Act as upon SIGHUP."""
        self._loop.spawn(self._reload, self.name)

    def _reload(self) -> None:
        assert self.application is not None
        # The daemon logs the error, and goes on as before.
        with suppress(NovaschedError):
            self.application.hosts.renew()

    def call(
        self,
        spec: wire.RequestSpec,
        uuids: Sequence[str],
        reply: Callable[[Any], None],
    ) -> None:
        """Take a call. The reply is the answer, or the error that leaves the driver; no
        reply comes of a killed process."""
        endpoint = self._endpoint
        assert endpoint is not None
        self._loop.spawn(lambda: self._decide(endpoint, spec, uuids, reply), self.name)

    def _decide(
        self,
        endpoint: SchedulerEndpoint,
        spec: wire.RequestSpec,
        uuids: Sequence[str],
        reply: Callable[[Any], None],
    ) -> None:
        self.deciding += 1
        context = RequestContext(user_id='user', project_id='project')
        context.received = time.monotonic()
        try:
            with self._threads:
                answer: Any = endpoint.select_destinations(
                    context,
                    spec_obj=spec,
                    instance_uuids=list(uuids),
                    return_objects=True,
                    return_alternates=True,
                )
        except Exception as error:
            answer = error
        finally:
            self.deciding -= 1
        self._loop.check_alive()
        reply(answer)

    def rank(
        self,
        specs: Sequence[wire.RequestSpec],
        reply: Callable[[list[Weights]], None],
    ) -> None:
        """Rank hosts for requests, and claim nothing. Earlier readings and answers
        serve."""
        self._loop.spawn(lambda: reply([*map(self._weights, specs)]), self.name)

    def _weights(self, spec: wire.RequestSpec) -> Weights:
        assert self.application is not None
        request = decode.request(versions.read({'spec_obj': spec}), RequestContext())
        now = time.monotonic()
        for from_memory in (True, False):
            basis = Basis(began=now, read_since=now, from_memory=from_memory)
            cycle = self.application.driver._cycle(basis, seed=1)
            cycle.deps.pipeline.explained_hosts = sys.maxsize
            outcome = cycle.decide(request)
            if outcome.end is not End.STALE:
                break

        weights = {}
        for attempt in outcome.decision.attempts:
            for host in attempt.ranking.best:
                weights[host.host] = host.weight
        return weights

    def instances(self) -> set[str | None]:
        """The UUIDs of the instances with claims in the ledger."""
        if self.application is None or self._loop.is_dead(self.name):
            return set()
        # Without the lock: no task runs while a check looks.
        ledger = self.application.driver.pending_claims.ledger._ledger
        return {claim.request.instance_uuid for claim in ledger}

    @property
    def pending_deletions(self) -> int:
        """The number of claims that wait for the deletion of their allocations."""
        if self.application is None or self._loop.is_dead(self.name):
            return 0
        return self.application.placement.pending_deletions

    @property
    def longest_slice(self) -> float:
        """See :class:`WatchedLock`."""
        if self.application is None:
            return 0.0
        lock = self.application.driver.pending_claims.decision_lock
        return float(lock.longest_slice)

    def choices(self) -> Iterator[PendingClaim]:
        """The claims in the ledger that are neither made nor released."""
        if self.application is None or self._loop.is_dead(self.name):
            return
        ledger = self.application.driver.pending_claims.ledger._ledger
        for claim in ledger:
            if ledger.stage_of(claim) is Stage.CHOSEN:
                yield claim

    def stop(self) -> None:
        """Take no more requests, finish the requests in progress, and end."""
        self._endpoint = None
        self._loop.spawn(self._stop, self.name)

    def _stop(self) -> None:
        assert self.application is not None
        self.application.driver.stop(CLOSE_S)
        while self.deciding:
            self._loop.sleep(0.1)
        self.application.close(CLOSE_S)
        self._loop.kill(self.name)

    def kill(self) -> None:
        """End at once."""
        self._loop.kill(self.name)
