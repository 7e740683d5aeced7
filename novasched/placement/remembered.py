# SPDX-License-Identifier: Apache-2.0
"""Remembered answers: answers of Placement about all hosts serve requests for seconds.

Most requests ask for resources of compute nodes and of their nested providers
(:class:`novasched.placement.query.LocalQuery`). The answer to a single base query
serves all such requests. The answer has the unused capacity and the traits of all
providers; amounts and traits are compared in memory.

A remembered answer can accept a request and never refuses a request. Without a fitting
host, or after a refused claim, the driver asks Placement the query of the request.

A thread refreshes answers in the background, and only while requests come. The first
request after a pause asks Placement for itself. The second request starts a refresh and
waits for the answer.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from novasched.placement.api import OutcomeUnknown
from novasched.placement.base_answer import BaseAnswer, Column
from novasched.placement.local_candidates import LocalCandidates, MatchedHosts, match
from novasched.placement.query import Query
from novasched.placement.tree_search import SearchTooLong
from novasched.placement.trees import TreeQuery
from novasched.placement.wire import UnusableAnswer
from novasched.scheduler.claims.ledger import TakenAmounts
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.changes import UNVERSIONED

LOG = logging.getLogger(__name__)

MAX_AGE_PER_HOST_S = 0.0032
"""Default of the maximum age of an answer, in seconds for each host of the answer. At
5,000 hosts, the candidates that nova-scheduler claims are 16 s old. An answer that took
Placement long, as an answer about many devices, serves until the next answer."""
MAX_AGE_S = 60.0
"""Upper limit of the default of the maximum age, in seconds. Before the first answer, a
second request within this time makes an answer worthwhile: with 50,000 hosts, the first
request itself waits ten seconds for Placement."""
SHARE = 0.25
"""Share of the time of one Placement worker that all background queries together may
take, unless an answer would be too old before the next answer. An answer is refreshed
at half of its maximum age."""
MAX_ANSWERS = 8
"""Base queries that are remembered."""
UNFIT_S = 60.0
"""Seconds after an unusable answer in which a base query is not repeated."""
MAX_FAILURES = 2
"""Consecutive failures after which the answer to a base query counts as unusable."""

Taken = Callable[[float, int | None], TakenAmounts]
"""Returns the amounts of claims that Placement may not have counted at a moment
(monotonic seconds), as changes since a change number, or in full for None. See
:meth:`novasched.scheduler.claims.pending_claims.PendingClaims.taken`."""


def nothing_taken(moment: float, since: int | None) -> TakenAmounts:
    """Implements :data:`Taken` where no claims are known."""
    return TakenAmounts(0, since is None, {})


class RememberedAnswer:
    """An answer to a base query, less the amounts of pending claims.

    :ivar answer: the answer.
    :ivar asked_at: when Placement was asked (monotonic seconds).
    """

    def __init__(self, answer: BaseAnswer) -> None:
        self.answer = answer
        self.asked_at = answer.asked_at
        # The capacity of the answer, less claims up to a change number.
        self._left: Mapping[str, Column] = answer.capacity_left
        self._change: int | None = None
        self._changes = UNVERSIONED.with_step(())
        self._refused = np.zeros(len(answer.trees.host_uuids), bool)

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self._refused)

    def follow(self, earlier: 'RememberedAnswer') -> None:
        """Note the hosts whose unused capacity differs from an earlier answer, less the
        claims subtracted there. The caller holds the lock of
        :class:`RememberedAnswers`."""
        trees = self.answer.trees
        if not trees.have_rows_of(earlier.answer.trees):
            return
        # Lists of the same text objects are compared without reading the texts.
        trees = replace(trees, uuids=earlier.answer.trees.uuids)
        self.answer.trees = trees

        unused = np.zeros(len(trees.uuids), np.int64)
        is_changed = np.zeros(len(trees.uuids), bool)
        for name in self._left.keys() | earlier._left.keys():
            column = self._left.get(name, unused)
            is_changed |= column != earlier._left.get(name, unused)
        rows = np.flatnonzero(is_changed).tolist()
        self._changes = earlier._changes.with_step(trees.hosts_of_rows(rows))

    def subtract(self, taken: Taken) -> None:
        """Subtract the amounts of claims that Placement had not counted. The caller
        holds the lock of :class:`RememberedAnswers`."""
        is_first = self._change is None
        self._change, is_all, amounts = taken(self.asked_at, self._change)
        if is_all:
            left = {}
            for name, column in self.answer.capacity_left.items():
                left[name] = column.copy()
            self._left = left
        if is_all and not is_first:
            # The hosts of claims that no longer count are unknown.
            self._changes = UNVERSIONED.with_step(())

        trees = self.answer.trees
        rows = []
        for uuid in amounts.keys() & trees.row_of.keys():
            row = trees.row_of[uuid]
            rows.append(row)
            for name in amounts[uuid].keys() & self._left.keys():
                self._left[name][row] -= amounts[uuid][name]
        if rows:
            self._changes = self._changes.with_step(trees.hosts_of_rows(rows))

    def refuse(self, providers: Sequence[str]) -> None:
        """Exclude the hosts of a refused claim."""
        host_of = self.answer.trees.host_of
        hosts = [host_of[uuid] for uuid in providers if uuid in host_of]
        self._refused[hosts] = True

    def match(self, query: TreeQuery) -> MatchedHosts | None:
        """Find the hosts for a query. None if Placement may not know a forbidden
        trait.

        :raises SearchTooLong: a tree has too many possibilities.
        """
        if self.answer.unknown_traits(query):
            return None
        allowed = ~self._refused
        return match(self.answer, query, self._left, allowed, self._changes)


@dataclass(eq=False, slots=True)
class _BaseQuery:
    """A base query with its latest answer. Moments are monotonic seconds.

    :ivar needed_at: when a request last needed the answer.
    :ivar is_needed_often: True if two requests needed the answer within its maximum
        age.
    :ivar unusable_until: when Placement may be asked again after an unusable answer.
    :ivar failures: the number of consecutive failures: Placement has not answered in
        time, or with more than ``[novasched] max_answer_size``.
    """

    base: Query
    needed_at: float = -math.inf
    is_needed_often: bool = False
    answer: RememberedAnswer | None = None
    unusable_until: float = 0.0
    failures: int = 0

    @property
    def asked_at(self) -> float:
        """When Placement was asked for the answer; minus infinity without an answer."""
        if self.answer is None:
            return -math.inf
        return self.answer.asked_at


class _BaseQueries:
    """The latest base queries of requests, without lock or clock.

    :ivar max_age: the option ``[novasched] candidates_max_age`` in seconds.
    :ivar pause_factor: seconds of pause for each second that Placement took.
    """

    def __init__(self, max_age: float | None, pause_factor: float) -> None:
        self.max_age = max_age
        self.pause_factor = pause_factor
        self._queries: dict[str, _BaseQuery] = {}

    def __iter__(self) -> Iterator[_BaseQuery]:
        """The queries, the latest need last."""
        return iter(self._queries.values())

    def max_age_of(self, answer: RememberedAnswer | None) -> float:
        """Seconds for which an answer serves requests."""
        if self.max_age is not None:
            return self.max_age
        if answer is None:
            return MAX_AGE_S
        # The query, the pause after the query, and the next query.
        until_next = (1 + self.pause_factor + 1) * answer.answer.seconds
        return min(MAX_AGE_S, max(MAX_AGE_PER_HOST_S * answer.hosts, until_next))

    def pause_after(self, seconds: float, answer: RememberedAnswer | None) -> float:
        """Seconds until the next refresh may begin.

        :param seconds: for which the last refresh has lasted.
        :param answer: the answer of the last refresh; None if it failed.
        """
        pause = self.pause_factor * seconds
        if answer is None:
            return pause
        # Without a valid answer, each request would query Placement for itself, which
        # takes more of Placement's time than the next refresh.
        until_needed = self.max_age_of(answer) - 2 * seconds
        return max(0.0, min(pause, until_needed))

    def get(self, base: Query) -> _BaseQuery | None:
        """The base query; None if no request has needed it."""
        return self._queries.get(base.string)

    def need(self, base: Query, now: float) -> _BaseQuery:
        """Note the need of a request for the answer to a base query."""
        # Popped and added again, so that the latest need is the last key.
        query = self._queries.pop(base.string, None) or _BaseQuery(base)
        max_age = self.max_age_of(query.answer)
        query.is_needed_often = now - query.needed_at < max_age
        query.needed_at = now
        self._queries[base.string] = query
        if len(self._queries) > MAX_ANSWERS:
            del self._queries[next(iter(self._queries))]
        return query

    def is_stale(self, query: _BaseQuery, now: float) -> bool:
        """True if a query has no answer, or if the answer is too old."""
        return now - query.asked_at > self.max_age_of(query.answer)

    def next_to_refresh(self, now: float) -> _BaseQuery | None:
        """The query to refresh now. Among the queries that are needed often and have
        answers of half the maximum age, the query with the oldest answer."""
        due = []
        for query in self._queries.values():
            max_age = self.max_age_of(query.answer)
            is_needed = query.is_needed_often and now - query.needed_at < max_age
            is_old = now - query.asked_at >= max_age / 2
            if is_needed and is_old and now >= query.unusable_until:
                due.append(query)
        return min(due, key=attrgetter('asked_at'), default=None)


@dataclass(frozen=True, slots=True)
class _Refresh:
    """The current or the latest refresh of an answer."""

    query: _BaseQuery
    ended: futures.Future[None]


class RememberedAnswers:
    """The remembered answers of one process."""

    def __init__(
        self,
        max_age: float | None,
        get: Callable[[Query], bytes],
        taken: Taken = nothing_taken,
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param max_age: seconds for which an answer serves requests. 0 disables
            remembered answers. None: see :data:`MAX_AGE_PER_HOST_S`.
        :param get: asks Placement a query. Raises PlacementUnavailable.
        :param taken: see :data:`Taken`.
        :param processes: the number of processes among which :data:`SHARE` is divided.
        """
        self._get = get
        self._taken = taken
        self._clock = clock
        self._pool = futures.ThreadPoolExecutor(1, 'candidates')
        # Guards the fields below against the threads of requests and of the pool.
        self._lock = threading.Lock()
        self._queries = _BaseQueries(max_age, pause_factor=processes / SHARE - 1)
        self._refresh: _Refresh | None = None
        self._pause_until = 0.0
        self._forgotten_at = -math.inf

    @property
    def age(self) -> float | None:
        """Seconds since Placement was asked for the newest answer; None without an
        answer."""
        with self._lock:
            moments = map(attrgetter('asked_at'), self._queries)
            newest = max(moments, default=-math.inf)
        if newest == -math.inf:
            return None
        return self._clock() - newest

    def close(self) -> None:
        """Stop to refresh answers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def offer(self, queries: Sequence[Query]) -> LocalCandidates | None:
        """Candidates for the queries of a request; None if Placement is to be asked."""
        local = [query.local for query in queries if query.local is not None]
        if self._queries.max_age == 0 or len(local) < len(queries):
            return None
        if any(query.is_for_one_host for query in local):
            return None

        answers = self._answers([query.base for query in local])
        if answers is None:
            return None

        matches = []
        for answer, query in zip(answers, local, strict=True):
            try:
                matched = answer.match(query.trees)
            except SearchTooLong:
                return None
            if matched is None:
                return None
            matches.append(matched)

        asked_at = min(answer.asked_at for answer in answers)
        candidates = LocalCandidates(matches, asked_at, self._clock() - asked_at)
        if candidates.count == 0:
            return None
        return candidates

    def _answers(self, bases: Sequence[Query]) -> Sequence[RememberedAnswer] | None:
        """The answers to base queries, less the pending claims; None if an answer is
        missing or too old.

        If a single answer is missing or too old, and a refresh is asking for the
        answer, wait for the refresh: an answer to the query of the request would come
        no sooner, and all waiting requests share the answer. Do not wait for a query
        with an earlier failure.
        """
        now = self._clock()
        with self._lock:
            queries = [self._queries.need(base, now) for base in bases]
            self._begin_refresh(now)
            stale = {query for query in queries if self._queries.is_stale(query, now)}
            refresh = self._refresh

        if stale:
            if refresh is None or refresh.query.failures or stale != {refresh.query}:
                return None
            refresh.ended.result()

        now = self._clock()
        with self._lock:
            if any(self._queries.is_stale(query, now) for query in queries):
                return None
            answers = [query.answer for query in queries if query.answer is not None]
            for answer in answers:
                answer.subtract(self._taken)
        return answers

    def keep(self, base: Query, answer: BaseAnswer) -> None:
        """Remember the answer to a base query that a request has asked."""
        with self._lock:
            query = self._queries.get(base)
            if query is None:
                return
            if answer.asked_at > max(query.asked_at, self._forgotten_at):
                query.answer = RememberedAnswer(answer)

    def refuse(self, providers: Sequence[str]) -> None:
        """Exclude the providers of a refused claim until the next refresh."""
        with self._lock:
            for query in self._queries:
                if query.answer is not None:
                    query.answer.refuse(providers)

    def forget(self) -> None:
        """Drop all answers, and the answer of a running refresh.

        Placement has lost a provider, and may have lost more, as after a restore from a
        backup.
        """
        with self._lock:
            self._forgotten_at = self._clock()
            for query in self._queries:
                query.answer = None

    def _begin_refresh(self, now: float) -> None:
        """Begin a due refresh unless a refresh runs. The caller holds the lock."""
        is_running = self._refresh is not None and not self._refresh.ended.done()
        if is_running or now < self._pause_until:
            return
        query = self._queries.next_to_refresh(now)
        if query is not None:
            self._refresh = _Refresh(query, self._pool.submit(self._ask, query))

    def _ask(self, query: _BaseQuery) -> None:
        """Ask Placement a base query, in the thread of the pool."""
        began = self._clock()
        answer = None
        is_answered = True
        is_usable = False
        failures = 0
        try:
            text = self._get(query.base)
            answer = RememberedAnswer(BaseAnswer(text, began, self._clock() - began))
            is_usable = True
        except OutcomeUnknown as error:
            LOG.debug('No answer about all hosts: %s', error)
            is_answered = False
            failures = query.failures + 1
            is_usable = failures < MAX_FAILURES  # the next answer may be
        except UnusableAnswer as error:
            LOG.debug('Hosts are asked for by each request: %s', error)
        except PlacementUnavailable as error:
            LOG.debug('Placement was not asked about all hosts: %s', error)
            is_answered = False
            failures = query.failures
            is_usable = True
        except Exception:
            # The log is the only place for an error of this thread. As after an
            # unusable answer, the query is not repeated at once.
            LOG.exception('Cannot remember an answer about all hosts')

        now = self._clock()
        seconds = now - began
        with self._lock:
            query.failures = failures
            if began < self._forgotten_at:
                answer = None
            if not is_usable or seconds > self._queries.max_age_of(answer):
                answer = None
                query.unusable_until = now + UNFIT_S
            if answer is not None and query.answer is not None:
                answer.follow(query.answer)
            if is_answered:
                # Without a response, the earlier answer serves until it is too old.
                query.answer = answer
            self._pause_until = now + self._queries.pause_after(seconds, answer)
