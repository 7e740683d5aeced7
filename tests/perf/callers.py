# SPDX-License-Identifier: Apache-2.0
"""Callers of the schedulers, and the surroundings: computes that announce their
instances, a flood of HTTP requests, Placement's log, and a bare client of Placement for
comparison with the schedulers."""

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import oslo_messaging

from tests.lab.daemon import Daemon, new_uuids
from tests.lab.large_cloud_requests import (
    DEVICE_KINDS,
    HUNDRED,
    KINDS,
    REFUSALS,
    STREAMED,
    Kind,
)
from tests.lab.placement_api import PlacementApi
from tests.lab.processes import Failed
from tests.lab.rpc_load import Caller

PATIENCE = 300  # seconds
QUERY = '/allocation_candidates'
CLAIM = '/allocations'
LAST_WORDS = 25  # lines of a log
OWNER = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}
PLACED = {**KINDS, **DEVICE_KINDS, 'hundred': HUNDRED}
"""Requests that fit, by name."""

_LOGGED = re.compile(r'"([A-Z]+) (\S+)" status: (\d+) ')


def sync(caller, host, computes):
    """Announce the instances of all computes to a scheduler, as computes do
    periodically; returns when the scheduler has read the announcements.

    nova reacts to the first announcement of an unknown host by reading the host, and
    accepts the second announcement.
    """
    ping = {'namespace': 'baseapi', 'version': '1.1', 'timeout': PATIENCE}
    for _ in range(2):
        for name, uuids in computes.items():
            arguments = {'host_name': name, 'instance_uuids': uuids}
            caller.cast('sync_instance_info', arguments, server=host, version='4.2')
        caller.call('ping', {'arg': 'all told'}, server=host, **ping)


class PlacementLog:
    """The requests to Placement, read from its log."""

    def __init__(self, log):
        self._log = log
        self._read = 0

    def drain(self):
        """The paths of the queries and the statuses of the claims since the last
        call."""
        with self._log.open(errors='replace') as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()

        queries = []
        statuses = []
        for method, path, status in _LOGGED.findall(text):
            if method == 'GET' and path.startswith(QUERY):
                queries.append(path)
            elif method in ('PUT', 'POST') and path.startswith(CLAIM):
                statuses.append(int(status))
        return queries, statuses


class Bare(PlacementApi):
    """A client that sends a scheduler's queries to Placement, and claims the first
    candidate. The client has one open connection, and does not decode answers."""

    def __init__(self, url):
        super().__init__(url)
        self._claims: dict[str, dict[str, Any]] = {}

    def measure(self, queries, allocations=None):
        """Seconds for the queries and a claim, without the deletion of the claim.

        :param allocations: the allocations to claim, by default of the first
            candidate of the first query.
        """
        if allocations is None:
            body = self._claim(queries[0])
        else:
            body = {'allocations': allocations, **OWNER}
        [server] = new_uuids()
        start = time.perf_counter()
        for query in queries:
            self.send('GET', query)
        self.send('PUT', f'{CLAIM}/{server}', body)
        taken = time.perf_counter() - start
        self.release(server)
        return taken

    def pace(self, offers, clients, seconds, again=True):
        """Claims per second that Placement grants to a number of clients with separate
        connections. The claims are deleted afterwards.

        :param offers: allocation requests, which are claimed in turn.
        :param again: claim each of them again and again; otherwise once.
        """
        servers = []
        start = time.perf_counter()

        def claim(first):
            with closing(Bare(self._url)) as bare:
                of_client = offers[first::clients]
                if again:
                    of_client = itertools.cycle(of_client)
                for offer in of_client:
                    if time.perf_counter() >= start + seconds:
                        break
                    [server] = new_uuids()
                    bare.send('PUT', f'{CLAIM}/{server}', {**offer, **OWNER})
                    servers.append(server)

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(claim, range(clients)))
        pace = len(servers) / (time.perf_counter() - start)

        self.give_back(servers)
        return pace

    def give_back(self, servers):
        for server in servers:
            self.release(server)

    def _claim(self, query):
        if query not in self._claims:
            self._claims[query] = {**self.offers(query)[0], **OWNER}
        return self._claims[query]

    def offers(self, query):
        """The allocation requests of Placement's answer to a query."""
        return self.send('GET', query).json()['allocation_requests']


@dataclass
class Scheduler:
    """nova-scheduler or novasched, and the means to call the scheduler.

    :ivar is_shared: send requests to the common queue of all schedulers, as conductors
        do, in place of the queue of this scheduler.
    """

    daemon: Daemon
    caller: Caller
    bare: Bare
    log: PlacementLog
    is_shared: bool = False

    def place(self, kind):
        """Seconds for a request, whose claims are deleted afterwards."""
        servers = new_uuids(PLACED[kind].count)
        arguments = PLACED[kind].arguments(servers)
        start = time.perf_counter()
        self._ask(arguments)
        taken = time.perf_counter() - start
        self.bare.give_back(servers)
        return taken

    def hosts_of(self, kind, servers):
        """The hosts of new servers, whose claims stay; none if the request is
        refused."""
        return self._ask(PLACED[kind].arguments(servers), is_refused=True)

    def refuse(self, kind):
        """Seconds until a request is refused."""
        arguments = REFUSALS[kind].arguments(new_uuids())
        start = time.perf_counter()
        assert self._ask(arguments, is_refused=True) == []
        return time.perf_counter() - start

    def burst(self, size):
        """Send concurrent requests, every request for a server."""
        self.log.drain()
        servers = new_uuids(size)
        requests = [KINDS['plain'].arguments([server]) for server in servers]
        with ThreadPoolExecutor(size) as pool:
            start = time.perf_counter()
            answers = list(pool.map(self._answered, requests))

        times = [answered - start for _, answered in answers]
        hosts = {host for [host], _ in answers}
        queries, claims = self.log.drain()
        self.bare.give_back(servers)
        return Burst(times, len(hosts), queries, claims)

    def stream(self, clients, seconds, kinds=STREAMED):
        """See :meth:`streaming`. The claims are deleted."""
        with self.streaming(clients, seconds, kinds) as stream:
            return stream

    @contextmanager
    def streaming(self, clients, seconds, kinds=STREAMED):
        """Let clients send requests for a number of seconds, one request of a client
        after the other. The claims stay until the end of the context.

        :param kinds: the requests of a client, in turn; by default four flavors.
        """
        self.log.drain()
        servers = []
        end = time.perf_counter() + seconds

        def ask(first):
            waits = []
            turns = itertools.islice(itertools.cycle(kinds), first, None)
            while (start := time.perf_counter()) < end:
                kind = next(turns)
                [server] = new_uuids()
                [host] = self._ask(kind.arguments([server]))
                waits.append((kind, time.perf_counter() - start))
                servers.append((server, host))
            return waits

        start = time.perf_counter()
        waits = []
        with ThreadPoolExecutor(clients) as pool:
            for waits_of_client in pool.map(ask, range(clients)):
                waits += waits_of_client
        lasted = time.perf_counter() - start

        queries, claims = self.log.drain()
        hosts = len({host for _, host in servers})
        times = [seconds for _, seconds in waits]
        kinds_asked = [kind for kind, _ in waits]
        yield Burst(times, hosts, queries, claims, lasted, kinds_asked)
        self.bare.give_back([server for server, _ in servers])

    def _answered(self, arguments):
        """The hosts of new servers, and the time of the answer."""
        return self._ask(arguments), time.perf_counter()

    def queries(self, kind):
        self.log.drain()
        self.place(kind)
        return self.log.drain()[0]

    def _ask(self, arguments, is_refused=False):
        """The hosts of new servers; none for a refusal if ``is_refused`` expects it.

        :raises Failed: another answer, or none. The text has the last lines of the
            scheduler's log.
        """
        server = None if self.is_shared else self.daemon.host
        try:
            answer = self.caller.call(
                'select_destinations', arguments, server=server, timeout=PATIENCE
            )
        except oslo_messaging.MessagingException as error:
            if is_refused and getattr(error, 'exc_type', None) == 'NoValidHost':
                return []
            last = '\n'.join(self.daemon.text().splitlines()[-LAST_WORDS:])
            raise Failed(f'{error}\n{last}') from error

        selected = [selections[0]['nova_object.data'] for selections in answer]
        return [selection['service_host'] for selection in selected]


@dataclass(frozen=True)
class Burst:
    """The figures of concurrent requests.

    :ivar times: seconds of every request.
    :ivar hosts: the number of different hosts.
    :ivar paths: the paths of the queries to Placement.
    :ivar claims: the statuses of the claims.
    :ivar lasted: seconds of a stream.
    :ivar kinds: the kind of every request of a stream, in the order of ``times``.
    """

    times: Sequence[float]
    hosts: int
    paths: Sequence[str]
    claims: Sequence[int]
    lasted: float | None = None
    kinds: Sequence[Kind] = ()

    @property
    def queries(self):
        """The number of queries to Placement."""
        return len(self.paths)

    @property
    def pace(self):
        """Requests a second, until the last is answered."""
        return len(self.times) / (self.lasted or max(self.times))

    def times_of(self, kind):
        """Seconds of the requests of a kind in a stream."""
        waits = zip(self.kinds, self.times, strict=True)
        return [seconds for asked, seconds in waits if asked is kind]


def refused_share(bursts):
    """The share of claims that Placement refused."""
    statuses = []
    for burst in bursts:
        statuses += burst.claims
    return statuses.count(409) / len(statuses)


@contextmanager
def flooding(bind, tell):
    """Send a flood of HTTP requests from a process of the lowest priority while the
    context lasts; at the end tell the number of requests."""
    command = ['nice', '-n', '19', sys.executable, '-m', 'tests.lab.http_flood', bind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == 'begun\n'
        yield
        said, _ = child.communicate('enough\n')
        tell(f'{int(said):,} times something was sent to {bind}')
