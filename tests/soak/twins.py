# SPDX-License-Identifier: Apache-2.0
"""One scheduler; or two that take requests from the same queue, each with a proxy of
its own between itself and Placement, so that it is known which of them wrote what, and
one of them can be failed while the other is not."""

import json
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random

from tests.lab.daemon import Daemon
from tests.lab.proxy import Fault, Proxy, answer, dropped, lost, slow

NOVASCHED = 'novasched'
NOVA = 'nova-scheduler'
CONDUCTOR = 'conductor'
ALLOCATIONS = '/allocations'
CHANGES = ('PUT', 'POST', 'DELETE')
PLACEMENT_TIMEOUT_S = 5
NOVA_PLACEMENT_TIMEOUT_S = 60
"""Seconds that novasched waits for Placement, and nova-scheduler, whom nothing is done
to."""
CHANGE_FAULT_SHARE = 0.06
READ_FAULT_SHARE = 0.03
"""The shares of novasched's requests about allocations that fail."""
LATE_S = (PLACEMENT_TIMEOUT_S + 0.5, 3 * PLACEMENT_TIMEOUT_S)
"""Seconds after which an answer is late, or Placement begins to work."""


class Journal:
    """Everything that anybody did about a consumer's allocations, in order."""

    def __init__(self, host):
        self._host = host
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._writers: dict[str, dict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._lock = threading.Lock()
        self.claims: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def note(self, consumer, who, what):
        """Note what somebody did or was told."""
        now = time.time()
        clock = time.strftime('%H:%M:%S', time.localtime(now))
        with self._lock:
            self._lines[consumer].append(
                f'{clock}.{int(now % 1 * 1000):03} {who}: {what}'
            )

    def wrote(self, who, method, path, body, status):
        """Note a request about allocations that Placement was given."""
        for consumer, wanted in _consumers(method, path, body).items():
            hosts = [self._host(provider) for provider in wanted]
            self.note(
                consumer,
                who,
                f'{method} {" + ".join(hosts)} -> {status}'.replace('  ', ' '),
            )
            if method not in CHANGES or status >= 300:
                continue
            with self._lock:
                for provider in wanted or ('',):
                    self._writers[consumer][provider].add(who)
                self.claims[who] += bool(wanted)

    def failed(self, who, method, path, body, fault):
        """Note that a request about allocations is failed."""
        with self._lock:
            self.faults[fault] += 1
        for consumer in _consumers(method, path, body):
            self.note(consumer, who, f'{method} meets "{fault}"')

    def is_novas(self, consumer, providers=()):
        """Whether nova-scheduler alone has written the allocations of a consumer, or
        those of them that are of these providers."""
        with self._lock:
            kept = self._writers.get(consumer, {})
            who = {
                w
                for p, ws in kept.items()
                if not providers or p in providers
                for w in ws
            }
        return who == {NOVA}

    def lines(self, consumer):
        with self._lock:
            return [*self._lines[consumer]]


def _consumers(method, path, body):
    """The consumers of a request about allocations, with the providers wanted for
    each."""
    if path.startswith(f'{ALLOCATIONS}/'):
        consumer = path.removeprefix(f'{ALLOCATIONS}/').partition('?')[0]
        wanted = json.loads(body)['allocations'] if method == 'PUT' else {}
        return {consumer: list(wanted)}
    if method == 'POST' and path == ALLOCATIONS:
        return {
            each: list(wanted['allocations'])
            for each, wanted in json.loads(body).items()
        }
    return {}


def failing(who, journal, random):
    """The rule of a proxy: some requests about allocations fail, each in one of many
    ways.

    None that lets a consumer hold nothing is done late. Placement forgets such a
    consumer, and begins with the same generation when it comes anew: no client of its
    API can keep an undo that is done long after its client has given up from what
    another scheduler claims meanwhile.
    """
    lock = threading.Lock()

    def rule(method, path, body):
        is_change = method in CHANGES
        is_undo = method == 'PUT' and not any(_consumers(method, path, body).values())
        share = CHANGE_FAULT_SHARE if is_change else READ_FAULT_SHARE
        with lock:
            if not path.startswith(ALLOCATIONS) or random.random() >= share:
                return None
            late = random.uniform(*LATE_S)
            ways = {
                'dropped before it arrives': (dropped(), 2),
                '503': (answer(503), 2),
                '504': (answer(504), 1),
                'answered too late': (slow(late), 2),
            }
            if is_change:
                ways |= {
                    'done, answer lost': (lost(), 4),
                    'done, answered 503': (answer(503, work=True), 2),
                    'done, answered 504': (answer(504, work=True), 2),
                }
            if is_change and not is_undo:
                ways['done too late'] = (Fault(before=late), 4)
            [name] = random.choices(list(ways), [share for _, share in ways.values()])
        journal.failed(who, method, path, body, name)
        return ways[name][0]

    return rule


@dataclass
class Scheduler:
    name: str
    daemon: Daemon

    @property
    def is_novas(self):
        return self.name == NOVA

    def lines(self, text):
        with self.daemon.log.open(errors='replace') as log:
            return [f'{self.name}: {line.rstrip()}' for line in log if text in line]


@contextmanager
def schedulers(cloud, beside, config, journal, random):
    """novasched alone, beside another novasched, or beside nova-scheduler, which no
    fault meets."""
    if beside is None:
        with Daemon(cloud, config) as daemon:
            yield [Scheduler(NOVASCHED, daemon)]
        return
    with ExitStack() as stack:

        def scheduler(name, is_failing, timeout, *command):
            proxy = stack.enter_context(Proxy(cloud.placement_url))
            proxy.heard = lambda *what: journal.wrote(name, *what)
            if is_failing:
                proxy.faults = failing(name, journal, Random(random.random()))
            placement = {'endpoint': proxy.url, 'timeout': timeout}
            daemon = Daemon(cloud, {**config, 'placement': placement}, command)
            return Scheduler(name, stack.enter_context(daemon))

        first = scheduler(f'{NOVASCHED} 1', True, PLACEMENT_TIMEOUT_S)
        if beside == NOVA:
            command = cloud.nova.script(NOVA)
            yield first, scheduler(NOVA, False, NOVA_PLACEMENT_TIMEOUT_S, command)
        else:
            yield first, scheduler(f'{NOVASCHED} 2', True, PLACEMENT_TIMEOUT_S)
