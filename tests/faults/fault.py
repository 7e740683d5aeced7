# SPDX-License-Identifier: Apache-2.0
"""Faults, and the outcome of requests during a fault.

A request ends in one of four ways:

answered
    The caller has a host.
refused
    The caller has an error: from a scheduler, or from oslo.messaging, which could not
    deliver the request.
gone
    The caller timed out, and the broker ended meanwhile, or no scheduler had declared the
    queue at the broker again. The queues of RPC are not durable: a broker that ends
    forgets the messages, and drops messages for queues that do not exist. No scheduler
    can answer a request that never arrived, or over a reply queue that is gone.
lost
    The caller timed out although the broker lived. A scheduler took the request without
    an answer, or did not take the request.

An allocation is left over if no answer names its server and host, half a minute after
the load. The caller of a request that is gone removes the allocation, as after any other
RPC timeout: nova deletes the allocation with the server, which is in error.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

from tests.lab import broker
from tests.lab.broker import TOPIC
from tests.lab.nova_release import Config
from tests.lab.processes import Failed, wait_until
from tests.lab.rpc_load import load
from tests.lab.tables import Sheet

from .site import Site

CALLERS = 4
PAUSE = 0.05  # seconds between an answer and the next request of a caller
PATIENCE = 20  # seconds until a caller times out
GOOD_ANSWERS = 10
"""Consecutive answers without a refusal that end the recovery."""
RECOVERY = 90  # seconds that the recovery may take
SETTLED = 30  # seconds until schedulers have deleted surplus allocations
MAX_REFUSAL_LENGTH = 200  # characters of a refusal in the output of a failed test
BEFORE = 10  # answers before the fault
REMOTE = re.compile(r'RemoteError\(.Remote error: (\w+) ')
COLUMNS = (
    'fault',
    'schedulers',
    'sent',
    'answered',
    'refused',
    'gone with the broker',
    'lost',
    'allocations left over',
    'longest wait (s)',
    'seconds to recover',
)
KNOWN = ('NoValidHost', 'AllocationUpdateFailed')

Happens = Callable[[Site], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault as data centres have them. A fault begins, lasts, and ends.

    :ivar happens: a context manager in whose block the fault lasts.
    :ivar seconds: the duration.
    :ivar quick: the fault belongs to the faults that run often.
    :ivar short: the duration in a quick run, if different.
    :ivar refuses: requests may be refused, since the fault may outlast their patience.
    :ivar varied: the fault also runs with more workers, and with more schedulers.
    :ivar forgets: the broker loses its messages.
    :ivar patience: seconds until a caller times out.
    """

    name: str
    happens: Happens
    seconds: float = 3
    quick: bool = True
    short: float | None = None
    refuses: bool = False
    varied: bool = False
    forgets: bool = False
    patience: int = PATIENCE
    config: Callable[[Site], Config] = lambda _site: {}
    environment: Callable[[Site], Mapping[str, str]] = lambda _site: {}


FAULTS: dict[str, Fault] = {}


def fault(name, **fields):
    """Decorator of a generator that lets a fault begin, yields, and ends the fault."""

    def register(happens):
        assert name not in FAULTS
        FAULTS[name] = Fault(name, contextmanager(happens), **fields)  # type: ignore[arg-type]
        return FAULTS[name]

    return register


@dataclass(frozen=True)
class Outcome:
    """The numbers of requests by their end, and of allocations that are wrong.

    :ivar left_over: allocations that no answer names.
    :ivar of_gone: allocations among ``left_over`` for requests that are gone.
    :ivar missing: answers without an allocation.
    :ivar recovery: seconds from the end of the fault to the first of the good answers.
    :ivar longest: seconds of the longest request.
    :ivar why: numbers of refusals by their first words.
    :ivar unknown: errors of a scheduler that conductors do not know.
    """

    sent: int
    answered: int
    refused: int
    gone: int
    lost: int
    left_over: int
    of_gone: int
    missing: int
    recovery: float | None
    longest: float
    why: Mapping[str, int]
    unknown: tuple[str, ...]

    @property
    def unexcused(self):
        """Number of allocations left over for requests that are not gone."""
        return self.left_over - self.of_gone


def is_unknown(answer):
    """True if a scheduler raised an error that conductors do not know. The caller here
    cannot import nova's exceptions, and turns all errors into remote errors."""
    remote = REMOTE.match(str(answer.error))
    return remote is not None and remote[1] not in KNOWN


def is_timeout(answer):
    return str(answer.error).startswith('MessagingTimeout')


def run(site, fault):
    """The outcome of a load of requests during a fault."""
    recovery = None
    with load(site.caller, CALLERS, pause=PAUSE, timeout=fault.patience) as requests:
        wait_until(
            lambda: _good_since(requests, BEFORE) is not None,
            RECOVERY,
            'answers before',
        )

        begin = time.monotonic()
        with fault.happens(site):
            time.sleep(fault.seconds)  # the duration of the fault
        end = time.monotonic()

        broker_outage = None
        if fault.forgets:
            wait_until(
                lambda: broker.consumers(site.rabbitmq.url, TOPIC) > 0,
                RECOVERY,
                'consumer',
            )
            broker_outage = (begin, time.monotonic())

        try:
            wait_until(
                lambda: _good_since(requests, GOOD_ANSWERS, end) is not None,
                RECOVERY,
                'good answers',
            )
        except Failed as error:
            print(error)
        else:
            recovery = (_good_since(requests, GOOD_ANSWERS, end) or end) - end

    site.cloud.disconnect()
    # Schedulers delete surplus allocations as soon as Placement works.
    with suppress(Failed):
        wait_until(
            lambda: not judge(site, requests, broker_outage, recovery).unexcused,
            SETTLED,
            'order',
            pause=0.5,
        )
    return judge(site, requests, broker_outage, recovery)


def judge(site, requests, broker_outage, recovery):
    """The outcome of requests.

    :param requests: a :class:`tests.lab.rpc_load.Load`.
    :param broker_outage: when the broker ended, and when a scheduler had its queue at
        the broker again; None if the broker lived.
    """
    answers = requests.answers
    placed = {(answer.server, answer.host) for answer in answers if not answer.error}
    timeouts = [answer for answer in answers if is_timeout(answer)]

    gone = set()
    if broker_outage:
        begin, end = broker_outage
        for answer in timeouts:
            timed_out_at = answer.asked_at + answer.seconds
            if answer.asked_at < end and timed_out_at > begin:
                gone.add(answer.server)

    allocated = allocations_of(site, {answer.server for answer in answers})
    left_over = allocated - placed
    failures = requests.failures()
    reasons: Counter[str] = Counter()
    unknown = []
    for failure in failures:
        first_line = str(failure.error).partition('\\n')[0]
        reasons[first_line[:MAX_REFUSAL_LENGTH]] += 1
        if is_unknown(failure):
            unknown.append(str(failure.error))

    return Outcome(
        sent=len(answers),
        answered=len(placed),
        refused=len(answers) - len(placed) - len(timeouts),
        gone=len(gone),
        lost=len(timeouts) - len(gone),
        left_over=len(left_over),
        of_gone=len([server for server, _ in left_over if server in gone]),
        missing=len(placed - allocated),
        recovery=recovery,
        longest=max((answer.seconds for answer in answers), default=0.0),
        why=reasons,
        unknown=tuple(unknown),
    )


def allocations_of(site, servers):
    """The pairs of server and host for which there are allocations.

    :param servers: the UUIDs of the servers.
    """
    pairs = set()
    for server, hosts in site.cloud.all_allocations().items():
        if server in servers:
            pairs |= {(server, host) for host in hosts}
    return pairs


def _good_since(requests, count, since=0.0):
    """When the first of ``count`` answers came without a refusal between the answers;
    None if there are too few answers.

    :param since: leave out answers that came earlier.
    """
    row: list[float] = []
    for answer in sorted(requests.answers, key=_arrival):
        arrival = _arrival(answer)
        if arrival < since:
            continue
        # A timeout tells nothing of now: the trouble of the request was earlier.
        if answer.error and not is_timeout(answer):
            row.clear()
        elif not answer.error:
            row.append(arrival)
        if len(row) == count:
            return row[0]
    return None


def _arrival(answer):
    return answer.asked_at + answer.seconds


@dataclass(frozen=True)
class Result:
    """A row of the table of faults."""

    fault: str
    schedulers: str
    outcome: Outcome

    def texts(self):
        outcome = self.outcome
        counts = (
            outcome.sent,
            outcome.answered,
            outcome.refused,
            outcome.gone,
            outcome.lost,
            outcome.left_over,
        )
        recovery = 'never'
        if outcome.recovery is not None:
            recovery = f'{outcome.recovery:.1f}'
        return [
            self.fault,
            self.schedulers,
            *[f'{count:,}' for count in counts],
            f'{outcome.longest:.1f}',
            recovery,
        ]


def sheet(results):
    """The table of faults."""
    return Sheet('Faults', COLUMNS, [result.texts() for result in results], words=2)
