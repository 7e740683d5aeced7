# SPDX-License-Identifier: Apache-2.0
"""Answers of Placement about all hosts, remembered for the requests that come soon
after.

Most requests ask for resources that each host gives by itself
(:class:`query.FlatQuery`). One base query then does for all of them: how much each host
has left of these resources, and its traits. Amounts and traits are compared in memory.
An answer is only ever used to accept: where it offers nothing, or a claim is refused,
Placement is asked the real query.

Answers are asked for behind the requests, one at a time, and only while requests come.
The first requests after a pause come too early for one: they wait for it, but for the
very first.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass

import msgspec
import numpy as np

from novasched.placement.api import OutcomeUnknown
from novasched.placement.candidates import MatchedHosts, RememberedCandidates
from novasched.placement.query import FlatQuery, Query
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequest,
    HostSummary,
)
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.pending_claims import TakenAmounts, nothing_taken

LOG = logging.getLogger(__name__)

MAX_AGE_PER_HOST_S = 0.0032
"""Seconds for which an answer is used, for each host in it, unless an option says how
long: what nova-scheduler claims on is 16 s old among 5,000 hosts."""
MAX_AGE_S = 60.0
"""Maximum age of an answer in seconds, unless an option sets the age."""
SHARE = 0.25
"""Of the time of one of Placement's workers, for all that is asked behind requests. An
answer is asked for again when it is half as old as it may be."""
MAX_ANSWERS = 8
SOON_S = 10.0
"""Seconds in which a second request has to come, for an answer to be worth the first
time."""
UNFIT_S = 60.0
"""Seconds after an answer that cannot be used in which it is not asked for again."""
MAX_FAILURES = 2
"""Consecutive failures after which the answer to a query counts as unusable."""
CUSTOM = 'CUSTOM_'
"""Traits of that prefix may be unknown to Placement, which then refuses a query."""

Taken = Callable[[float, int | None], TakenAmounts]
"""Amounts of claims that Placement may not have had at a moment (monotonic seconds),
since the change of that number; all of them for None. See
:meth:`PendingClaims.taken`."""


_decode_answer = msgspec.json.Decoder(
    AllocationCandidates[AllocationRequest, HostSummary]
).decode


class RememberedAnswer:
    """An answer in columns: capacity that hosts had left when Placement was asked, and
    traits.

    :ivar sent: when it was asked (monotonic seconds).
    """

    def __init__(self, text: bytes, sent: float) -> None:
        """Parse an answer of Placement that was asked for at the moment ``sent``.

        :raises ValueError: it is no list of candidates, or not each is a host's own.
        """
        answer = _decode_answer(text)
        summaries = answer.provider_summaries
        uuids = [
            uuid for each in answer.allocation_requests for uuid in each.allocations
        ]
        self.row_of = {uuid: row for row, uuid in enumerate(uuids)}
        if not len(self.row_of) == len(uuids) == len(answer.allocation_requests):
            raise ValueError('hosts share providers, or offer several')
        if any(summaries[uuid].root_provider_uuid != uuid for uuid in uuids):
            raise ValueError('hosts offer what nested providers have')
        self.sent = sent
        self.uuids = uuids
        hosts = [summaries[uuid] for uuid in uuids]
        self._answered = {
            name: np.array([x.resources[name].capacity_left for x in hosts])
            for name in (hosts[0].resources if hosts else ())
            if all(name in each.resources for each in hosts)
        }
        # The same, less the claims up to a change.
        self._left = self._answered
        self._change: int | None = None
        # Many hosts have the same traits, in a few orders.
        numbers: dict[bytes, int] = {}
        self._traits_of = np.array(
            [numbers.setdefault(bytes(each.traits), len(numbers)) for each in hosts],
            np.intp,
        )
        self._traits = [
            frozenset(msgspec.json.decode(text, type=list[str])) for text in numbers
        ]
        self._known = frozenset[str]().union(*self._traits)
        self._refused = np.zeros(len(uuids), bool)

    def take(self, taken: Taken) -> None:
        """Leave out what was claimed since. For one thread at a time."""
        self._change, is_all, amounts = taken(self.sent, self._change)
        if is_all:
            self._left = {
                name: column.copy() for name, column in self._answered.items()
            }
        for uuid in amounts.keys() & self.row_of.keys():
            row = self.row_of[uuid]
            for name in amounts[uuid].keys() & self._left.keys():
                self._left[name][row] -= amounts[uuid][name]

    def refuse(self, providers: Sequence[str]) -> None:
        """Offer no more what Placement has refused."""
        self._refused[
            [self.row_of[uuid] for uuid in providers if uuid in self.row_of]
        ] = True

    def offer(self, asked: FlatQuery) -> MatchedHosts | None:
        """The hosts that serve a query; None if that cannot be told."""
        unknown = asked.forbidden - self._known
        if (
            any(name.startswith(CUSTOM) for name in unknown)
            or asked.amounts.keys() - self._left
        ):
            return None
        has_traits = [
            asked.required <= traits and traits.isdisjoint(asked.forbidden)
            for traits in self._traits
        ]
        fits = np.array(has_traits, bool)[self._traits_of] & ~self._refused
        for name, amount in asked.amounts.items():
            fits &= self._left[name] >= amount
        kinds = self._traits_of, self._traits
        return MatchedHosts(asked.amounts, self.uuids, self.row_of, fits, *kinds)


@dataclass(eq=False, slots=True)
class _Base:
    """A base query.

    :ivar needed: when a request last needed it.
    :ivar failures: the number of consecutive failures: Placement has not answered the
        query in time, or with more than ``max_answer_size``.
    """

    string: str
    needed: float = -SOON_S
    is_needed_often: bool = False
    answer: RememberedAnswer | None = None
    unfit_until: float = 0.0
    failures: int = 0

    def max_age(self, option: float | None) -> float:
        """Seconds for which its answer is used."""
        if option is not None:
            return option
        if self.answer is None:
            return SOON_S
        return min(MAX_AGE_S, MAX_AGE_PER_HOST_S * len(self.answer.uuids))


class RememberedAnswers:
    """The answers to the base queries that requests need.

    :param max_age: seconds for which an answer is used; 0 for no answers at all, None
        for what nova-scheduler takes among as many hosts.
    :param get: asks Placement a query. Raises PlacementUnavailable.
    :param processes: that do the same, and share the time that this may take of
        Placement's.
    """

    def __init__(
        self,
        max_age: float | None,
        get: Callable[[Query], bytes],
        taken: Taken = nothing_taken,
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pauses = processes / SHARE - 1
        self._max_age = max_age
        self._get = get
        self._taken = taken
        self._clock = clock
        self._bases: dict[str, _Base] = {}
        self._pool = futures.ThreadPoolExecutor(1, 'candidates')
        self._lock = threading.Lock()
        self._asking: futures.Future[None] | None = None
        self._asked: _Base | None = None
        self._pause_until = 0.0
        self._forgotten = -math.inf

    @property
    def age(self) -> float | None:
        """Seconds since the newest answer was asked for; None without one."""
        with self._lock:
            sent = max(map(_sent, self._bases.values()), default=-math.inf)
        if sent == -math.inf:
            return None
        return self._clock() - sent

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def offer(self, queries: Sequence[Query]) -> RememberedCandidates | None:
        """Candidates for queries by remembered answers; None where Placement is to be
        asked. Where the answer that is needed is being asked for, it is waited for: it
        is no older than one to the query itself would be by then, and Placement is
        asked once for all who wait. A query that failed the last time is not waited
        for."""
        flat = [each.flat for each in queries if each.flat is not None]
        if self._max_age == 0 or len(flat) < len(queries):
            return None
        now = self._clock()
        with self._lock:
            bases = [self._base(each.base, now) for each in flat]
            if (oldest := self._to_be_asked(now)) is not None:
                self._asking = self._pool.submit(self._ask, oldest)
                self._asked = oldest
            lacking = {x.string for x in bases if self._too_old(x, now)}
            asking = None
            asked = self._asked
            if asked is not None and not asked.failures and lacking == {asked.string}:
                asking = self._asking
        if lacking and asking is None:
            return None
        if asking is not None:
            asking.result()
            now = self._clock()
        with self._lock:
            if any(self._too_old(base, now) for base in bases):
                return None
            answers = [base.answer for base in bases if base.answer is not None]
            for answer in answers:
                answer.take(self._taken)
        offers = [
            answer.offer(asked) for answer, asked in zip(answers, flat, strict=True)
        ]
        sent = min(answer.sent for answer in answers)
        whole = [offer for offer in offers if offer is not None]
        if len(whole) < len(offers):
            return None
        candidates = RememberedCandidates(whole, sent, now - sent)
        if candidates.count == 0:
            return None
        return candidates

    def refused(self, providers: Sequence[str]) -> None:
        """Offer no more what was refused, until Placement is asked again."""
        with self._lock:
            for base in self._bases.values():
                if base.answer is not None:
                    base.answer.refuse(providers)

    def forget(self) -> None:
        """Use no answer that was asked for before: Placement has lost a provider, and
        others may have gone with it, as where it was restored from a backup."""
        with self._lock:
            self._forgotten = self._clock()
            for base in self._bases.values():
                base.answer = None

    def _base(self, string: str, now: float) -> _Base:
        """The base query, now that a request needs it; the lock is held."""
        base = self._bases.pop(string, None) or _Base(string)
        base.is_needed_often = now - base.needed < base.max_age(self._max_age)
        base.needed = now
        self._bases[string] = base
        if len(self._bases) > MAX_ANSWERS:
            del self._bases[next(iter(self._bases))]
        return base

    def _too_old(self, base: _Base, now: float) -> bool:
        """True for one without an answer that may be used; the lock is held."""
        return base.answer is None or now - base.answer.sent > base.max_age(
            self._max_age
        )

    def _to_be_asked(self, now: float) -> _Base | None:
        """The one of the base queries that are needed whose answer is the oldest, if
        one may be asked now; the lock is held."""
        if now < self._pause_until or not (self._asking is None or self._asking.done()):
            return None
        needed = [
            base
            for base in self._bases.values()
            if base.is_needed_often
            and now - base.needed < base.max_age(self._max_age)
            and now >= base.unfit_until
            and now - _sent(base) >= base.max_age(self._max_age) / 2
        ]
        return min(needed, key=_sent, default=None)

    def _ask(self, base: _Base) -> None:
        began = self._clock()
        answer = None
        failures = 0
        is_answered = True
        is_fit = False
        try:
            answer = RememberedAnswer(self._get(Query(base.string)), began)
            is_fit = True
        except OutcomeUnknown as error:
            LOG.debug('No answer about all hosts: %s', error)
            failures = base.failures + 1
            is_answered = False
            is_fit = failures < MAX_FAILURES  # the next answer may be
        except PlacementUnavailable as error:
            LOG.debug('Placement was not asked about all hosts: %s', error)
            failures = base.failures
            is_answered = False
            is_fit = True
        except (ValueError, KeyError, RecursionError) as error:
            LOG.debug('Hosts are asked for by each request: %s', error)
        except (
            Exception
        ):  # nobody waits for this thread, and it is not to ask again at once
            LOG.exception('Cannot remember an answer about all hosts')
        now = self._clock()
        with self._lock:
            base.failures = failures
            earlier = None if is_answered else base.answer
            base.answer = answer if began >= self._forgotten else None
            if not is_fit or now - began > base.max_age(self._max_age):
                base.answer = None
                base.unfit_until = now + UNFIT_S
            if earlier is not None:
                base.answer = earlier  # it serves until it is too old
            self._pause_until = now + self._pauses * (now - began)


def _sent(base: _Base) -> float:
    if base.answer:
        return base.answer.sent
    return -math.inf
