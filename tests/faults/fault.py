# SPDX-License-Identifier: Apache-2.0
"""What a fault is, and what becomes of requests under it.

Each request that is sent ends in one of four ways:

answered
    its caller has a host;
refused
    its caller was told why not: by a scheduler, or by its own library that nobody got it;
gone
    its caller waited its whole time in vain, and the broker ended meanwhile, or no scheduler
    had its queue there again. It forgets the messages in it, since the queues of RPC are not
    durable, and drops those for which it has no queue: no scheduler can answer what it never
    got, or over a reply queue that is no more;
lost
    its caller waited its whole time in vain, although the broker lived. That is a
    scheduler's fault: it took the request and did not answer, or it did not take it.

An allocation is left over if no answer names its server and host, half a minute after
the load. One that is there for a request that is gone is the caller's to remove, as for
any other RPC that timed out: nova does so when the server, which is in error, is
deleted.
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
PAUSE = 0.05  # seconds that a caller rests before each request
PATIENCE = 20  # seconds that a caller waits
IN_A_ROW = 10  # answers without a refusal between them: then all is well again
RECOVERY = 90  # seconds until then, at the most
SETTLED = 30  # seconds until what is to be given back is
WORDS = 200  # characters of a refusal that are shown with a test that fails
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
    """Something that happens in data centres: it begins, lasts for some seconds, and
    ends."""

    name: str
    happens: Happens
    seconds: float = 3
    quick: bool = True  # part of the half that runs often
    short: float | None = None  # seconds in that half, if others
    refuses: bool = (
        False  # requests may be refused, since nobody could wait for its end
    )
    varied: bool = False  # also with more workers, and with more schedulers
    forgets: bool = False  # messages that are in the broker
    patience: int = PATIENCE
    config: Callable[[Site], Config] = lambda _site: {}
    environment: Callable[[Site], Mapping[str, str]] = lambda _site: {}


FAULTS: dict[str, Fault] = {}


def fault(name, **how):
    """Decorator of a generator that lets a fault begin, yields, and ends it."""

    def made(happens):
        assert name not in FAULTS
        FAULTS[name] = Fault(name, contextmanager(happens), **how)  # type: ignore[arg-type]
        return FAULTS[name]

    return made


@dataclass(frozen=True)
class Outcome:
    sent: int
    answered: int
    refused: int
    gone: int
    lost: int
    left_over: int  # allocations that no answer names, ...
    of_gone: int  # ... and how many of them are for requests that are gone
    missing: int  # answers without an allocation
    recovery: (
        float | None
    )  # seconds from the fault's end to the first of the good answers
    longest: float  # seconds that one of them waited
    why: Mapping[str, int]  # refusals by their first words
    unknown: tuple[str, ...]  # errors of a scheduler that no conductor knows

    @property
    def unexcused(self):
        """Allocations left over for which there is no excuse."""
        return self.left_over - self.of_gone


def is_unknown(answer):
    """Whether a scheduler raised what a conductor does not know; this caller has no
    exceptions of nova's, so that it calls them remote errors, too."""
    remote = REMOTE.match(str(answer.error))
    return remote is not None and remote[1] not in KNOWN


def is_timeout(answer):
    return str(answer.error).startswith('MessagingTimeout')


def run(site, fault):
    recovery = None
    with load(site.caller, CALLERS, pause=PAUSE, timeout=fault.patience) as found:
        wait_until(
            lambda: _in_a_row(found, BEFORE) is not None, RECOVERY, 'answers before'
        )
        begun = time.monotonic()
        with fault.happens(site):
            time.sleep(fault.seconds)  # the time that has to pass
        ended = back = time.monotonic()
        if fault.forgets:
            wait_until(
                lambda: broker.consumers(site.rabbitmq.url, TOPIC) > 0,
                RECOVERY,
                'consumer',
            )
            back = time.monotonic()
        try:
            wait_until(
                lambda: _in_a_row(found, IN_A_ROW, ended) is not None,
                RECOVERY,
                'good answers',
            )
        except Failed as error:
            print(error)
        else:
            recovery = (_in_a_row(found, IN_A_ROW, ended) or ended) - ended
    site.cloud.disconnect()
    forgot = (begun, back) if fault.forgets else None
    # Schedulers give back what was left to them, once Placement lets them.
    with suppress(Failed):
        wait_until(
            lambda: not judge(site, found, forgot, recovery).unexcused,
            SETTLED,
            'order',
            pause=0.5,
        )
    return judge(site, found, forgot, recovery)


def judge(site, found, forgot, recovery):
    """Count what became of requests.

    :param forgot: when the broker ended, if it did, and when a scheduler had its queue
        there again.
    """
    answered = {each.server: each.host for each in found.answers if not each.error}
    waited = [each for each in found.answers if is_timeout(each)]
    gone = {
        each.server
        for each in waited
        if forgot
        and each.asked_at < forgot[1]
        and each.asked_at + each.seconds > forgot[0]
    }
    sent = {each.server for each in found.answers}
    held = {
        (server, host)
        for server, hosts in site.cloud.all_allocations().items()
        for host in hosts
        if server in sent
    }
    over = held - set(answered.items())
    failures = found.failures()
    return Outcome(
        sent=len(found.answers),
        answered=len(answered),
        refused=len(found.answers) - len(answered) - len(waited),
        gone=len(gone),
        lost=len(waited) - len(gone),
        left_over=len(over),
        of_gone=len([server for server, _ in over if server in gone]),
        missing=len(set(answered.items()) - held),
        recovery=recovery,
        longest=max((each.seconds for each in found.answers), default=0.0),
        why=Counter(str(each.error).partition('\\n')[0][:WORDS] for each in failures),
        unknown=tuple(str(each.error) for each in failures if is_unknown(each)),
    )


def _in_a_row(found, count, since=0.0):
    """When the first of so many answers came of which none between is a refusal, among
    those that came after a moment; None if there are not so many yet."""
    row: list[float] = []
    for each in sorted(found.answers, key=lambda x: x.asked_at + x.seconds):
        came = each.asked_at + each.seconds
        if came < since:
            continue
        # Who waited in vain had its trouble earlier.
        if each.error and not is_timeout(each):
            row.clear()
        elif not each.error:
            row.append(came)
        if len(row) == count:
            return row[0]
    return None


@dataclass(frozen=True)
class Result:
    fault: str
    schedulers: str
    outcome: Outcome

    def texts(self):
        of = self.outcome
        counts = (of.sent, of.answered, of.refused, of.gone, of.lost, of.left_over)
        recovery = 'never' if of.recovery is None else f'{of.recovery:.1f}'
        return [
            self.fault, self.schedulers, *(f'{each:,}' for each in counts),
            f'{of.longest:.1f}', recovery,
        ]  # fmt: skip


def sheet(results):
    return Sheet('Faults', COLUMNS, [each.texts() for each in results], words=2)
