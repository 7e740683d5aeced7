# SPDX-License-Identifier: Apache-2.0
"""A scheduler, or two schedulers on the same queue.

Each of two schedulers has a proxy before Placement. The proxies record the scheduler of
an allocation, and fail the requests of novasched alone.
"""

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
"""Seconds that novasched waits for Placement."""
NOVA_PLACEMENT_TIMEOUT_S = 60
"""Seconds that nova-scheduler waits for Placement, whose answers to nova-scheduler do
not fail."""
CHANGE_FAULT_SHARE = 0.06
READ_FAULT_SHARE = 0.03
"""The shares of novasched's requests about allocations that fail."""
LATE_S = (PLACEMENT_TIMEOUT_S + 0.5, 3 * PLACEMENT_TIMEOUT_S)
"""Seconds after which a late answer comes, or Placement begins to work."""


class Journal:
    """The history of the allocations of each consumer.

    :param host_of: a function from the UUID of a provider to the name of its host.
    :ivar claims: number of claims by the name of the scheduler or conductor.
    :ivar faults: number of failed requests by the name of the fault.
    """

    def __init__(self, host_of):
        self._host_of = host_of
        self._lines: dict[str, list[str]] = defaultdict(list)
        # The names of writers by consumer and provider.
        self._writers: dict[str, dict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._lock = threading.Lock()
        self.claims: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def note(self, consumer, actor, event):
        """Append an event to the history of a consumer.

        :param actor: the name of the scheduler or conductor.
        """
        now = time.time()
        clock = time.strftime('%H:%M:%S', time.localtime(now))
        milliseconds = int(now % 1 * 1000)
        with self._lock:
            self._lines[consumer].append(f'{clock}.{milliseconds:03} {actor}: {event}')

    def wrote(self, actor, method, path, body, status):
        """Note a request about allocations that reached Placement, and its status."""
        for consumer, providers in _providers_by_consumer(method, path, body).items():
            hosts = ' + '.join(self._host_of(provider) for provider in providers)
            event = f'{method} {hosts} -> {status}'.replace('  ', ' ')
            self.note(consumer, actor, event)

            if method not in CHANGES or status >= 300:
                continue
            with self._lock:
                for provider in providers or ('',):
                    self._writers[consumer][provider].add(actor)
                self.claims[actor] += bool(providers)

    def failed(self, actor, method, path, body, fault):
        """Note that a proxy fails a request about allocations."""
        with self._lock:
            self.faults[fault] += 1
        for consumer in _providers_by_consumer(method, path, body):
            self.note(consumer, actor, f'{method} meets "{fault}"')

    def is_novas(self, consumer, providers=()):
        """True if nova-scheduler alone has written the allocations of a consumer.

        :param providers: look at the allocations of these providers only, if there are
            any.
        """
        writers = set()
        with self._lock:
            for provider, names in self._writers.get(consumer, {}).items():
                if not providers or provider in providers:
                    writers |= names
        return writers == {NOVA}

    def lines(self, consumer):
        with self._lock:
            return [*self._lines[consumer]]


def _providers_by_consumer(method, path, body):
    """The consumers of a request about allocations, with the providers from which the
    request claims."""
    if path.startswith(f'{ALLOCATIONS}/'):
        consumer = path.removeprefix(f'{ALLOCATIONS}/').partition('?')[0]
        providers = []
        if method == 'PUT':
            providers = list(json.loads(body)['allocations'])
        return {consumer: providers}

    if method == 'POST' and path == ALLOCATIONS:
        bodies = json.loads(body)
        return {uuid: list(part['allocations']) for uuid, part in bodies.items()}

    return {}


def failing(actor, journal, random):
    """The rule of a proxy that fails requests about allocations by chance.

    A request that removes all allocations of a consumer is never done late. Placement
    forgets such a consumer, and begins with the same generation when the consumer comes
    anew: no client of Placement's API can protect later claims of another scheduler
    from a removal that Placement does long after the client has given up.
    """
    lock = threading.Lock()

    def rule(method, path, body):
        is_change = method in CHANGES
        providers = _providers_by_consumer(method, path, body)
        is_undo = method == 'PUT' and not any(providers.values())
        fault_share = READ_FAULT_SHARE
        if is_change:
            fault_share = CHANGE_FAULT_SHARE

        with lock:
            if not path.startswith(ALLOCATIONS) or random.random() >= fault_share:
                return None
            late = random.uniform(*LATE_S)
            faults = _faults(late, is_change, is_undo)
            weights = [weight for _, weight in faults.values()]
            [name] = random.choices(list(faults), weights)
        journal.failed(actor, method, path, body, name)
        return faults[name][0]

    return rule


def _faults(late, is_change, is_undo):
    """The faults that may meet a request, each with a weight.

    :param late: seconds after which an answer is late.
    """
    faults = {
        'dropped before it arrives': (dropped(), 2),
        '503': (answer(503), 2),
        '504': (answer(504), 1),
        'answered too late': (slow(late), 2),
    }
    if is_change:
        faults['done, answer lost'] = (lost(), 4)
        faults['done, answered 503'] = (answer(503, work=True), 2)
        faults['done, answered 504'] = (answer(504, work=True), 2)
    if is_change and not is_undo:
        faults['done too late'] = (Fault(before=late), 4)
    return faults


@dataclass
class Scheduler:
    """A running scheduler."""

    name: str
    daemon: Daemon

    @property
    def is_novas(self):
        return self.name == NOVA

    def lines(self, text):
        """The lines of the log that contain a text."""
        with self.daemon.log.open(errors='replace') as log:
            return [f'{self.name}: {line.rstrip()}' for line in log if text in line]


@contextmanager
def schedulers(cloud, beside, config, journal, random):
    """novasched alone, beside another novasched, or beside nova-scheduler, whose
    requests do not fail."""
    if beside is None:
        with Daemon(cloud, config) as daemon:
            yield [Scheduler(NOVASCHED, daemon)]
        return

    with ExitStack() as stack:

        def scheduler(name, is_failing, timeout, *command):
            proxy = stack.enter_context(Proxy(cloud.placement_url))
            proxy.heard = lambda *request: journal.wrote(name, *request)
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
