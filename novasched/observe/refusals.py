# SPDX-License-Identifier: Apache-2.0
"""Hosts that refuse again and again, counted from decisions.

A host refuses an instance when Placement refuses the claim though the host had room for
it as far as could be seen, and when its build fails there, so that nova-conductor asks
for another host.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.scheduler.decision import Decision, HostRefusal

LOG = logging.getLogger('nova.scheduler.manager')

CLAIM = 'claim'
BUILD = 'build'
KINDS = CLAIM, BUILD
REPORTED_LIMIT = 10
"""Instances that a host refuses until the log tells of it, where no option says how
many."""
REMEMBERED = 10_000
"""The newest refusals, each of which counts once: a request names every host that it
failed on."""

HostKey = tuple[str, str]
"""The name of a host and of its node."""


class HostRefusals:
    """The hosts that refused many instances of late. Each process counts for itself,
    from its start on. Thread-safe.

    :ivar counts: refusals, of each kind.
    """

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._is_used = settings.refusing_host_limit > 0
        self._limit = settings.refusing_host_limit or REPORTED_LIMIT
        self._period = settings.refusing_host_period
        self._clock = clock
        self._lock = threading.Lock()
        self._remembered: dict[HostRefusal, None] = {}
        # Moment and kind of the refusals of each host, which are in the order of its
        # last one.
        self._recent: dict[HostKey, deque[tuple[float, str]]] = {}
        self._until: dict[HostKey, float] = {}

    def __call__(self, decision: Decision) -> None:
        """Count the refusals of a request, if it met any, and forget what is over."""
        self.refusing()
        for kind, refusal in _refusals_of(decision):
            with self._lock:
                if refusal not in self._remembered:
                    self._remembered[refusal] = None
                    if len(self._remembered) > REMEMBERED:
                        del self._remembered[next(iter(self._remembered))]
                    self._count(kind, refusal[0])

    def refusing(self) -> Collection[HostKey]:
        """The hosts that have refused as many instances as the limit says within the
        period, until it has passed again."""
        if not self._until:
            return ()
        with self._lock:
            now = self._clock()
            for key in [key for key, until in self._until.items() if until <= now]:
                del self._until[key]
                LOG.info(
                    'Host %s is no longer one that refuses many servers', _text(key)
                )
            return frozenset(self._until)

    def lines(self) -> list[str]:
        """A line for each host that refuses, for the operator."""
        keys = self.refusing()
        with self._lock:
            return [self._line(key) for key in keys if key in self._until]

    def _count(self, kind: str, key: HostKey) -> None:
        """Count one; the lock is held."""
        now = self._clock()
        while self._recent and not self._within(
            now, next(iter(self._recent.values()))[-1]
        ):
            del self._recent[next(iter(self._recent))]
        recent = self._recent[key] = self._recent.pop(key, deque())
        recent.append((now, kind))
        while not self._within(now, recent[0]):
            recent.popleft()
        self.counts[kind] += 1
        if len(recent) >= self._limit:
            is_new = key not in self._until
            self._until[key] = now + self._period
            if is_new:
                LOG.warning('Host %s', self._line(key))

    def _within(self, now: float, refusal: tuple[float, str]) -> bool:
        return refusal[0] > now - self._period

    def _line(self, key: HostKey) -> str:
        kinds = Counter(kind for _, kind in self._recent[key])
        left = self._until[key]
        if self._is_used:
            what = f' and is tried last for {left - self._clock():.0f} s'
        else:
            what = ''
        return (
            f'{_text(key)} refused {kinds.total()} servers within {self._period:g} s '
            f'({kinds[CLAIM]} claims, {kinds[BUILD]} builds){what}'
        )


def _refusals_of(decision: Decision) -> Iterator[tuple[str, HostRefusal]]:
    """The refusals that a decision tells of, with their kinds."""
    for refusal in decision.host_refusals:
        yield CLAIM, refusal
    request = decision.request
    for host, node in request.retry.hosts if request.retry else ():
        for uuid in request.instance_uuids or (request.instance_uuid,):
            if node is not None:
                yield BUILD, ((host, node), uuid)


def _text(key: HostKey) -> str:
    host, node = key
    return one_line(host if node == host else f'{host} ({node})')
