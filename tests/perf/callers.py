# SPDX-License-Identifier: Apache-2.0
"""How the schedulers are asked, and what stands beside them: computes that tell of
their instances, a flood of HTTP requests, Placement's log, and its bare client, which
the schedulers are compared with."""

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
from tests.lab.large_cloud_requests import KINDS, REFUSALS, STREAMED
from tests.lab.placement_api import PlacementApi
from tests.lab.processes import Failed
from tests.lab.rpc_load import Caller

PATIENCE = 300  # seconds
QUERY = '/allocation_candidates'
CLAIM = '/allocations'
LAST_WORDS = 25  # lines of a log
OWNER = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}

_LOGGED = re.compile(r'"([A-Z]+) (\S+)" status: (\d+) ')


def sync(caller, host, computes):
    """Tell a scheduler, as each compute does from time to time, which instances it has;
    returns when it has been told. nova takes the first word of a host that it does
    not know for a reason to look, and trusts the second."""
    ping = {'namespace': 'baseapi', 'version': '1.1', 'timeout': PATIENCE}
    for _ in range(2):
        for name, uuids in computes.items():
            told = {'host_name': name, 'instance_uuids': uuids}
            caller.cast('sync_instance_info', told, server=host, version='4.2')
        caller.call('ping', {'arg': 'all told'}, server=host, **ping)


class PlacementLog:
    """What Placement was asked, read from its log."""

    def __init__(self, log):
        self._log = log
        self._read = 0

    def drain(self):
        """The paths of the queries since the last time, and the statuses of the
        claims."""
        with self._log.open(errors='replace') as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        asked = _LOGGED.findall(text)
        queries = [
            path
            for method, path, _ in asked
            if method == 'GET' and path.startswith(QUERY)
        ]
        changes = [each for each in asked if each[0] in ('PUT', 'POST')]
        return queries, [
            int(status) for _, path, status in changes if path.startswith(CLAIM)
        ]


class Bare(PlacementApi):
    """Asks Placement what a scheduler asks, and nothing else: the queries, then the
    claim of the first candidate. One connection, kept open; answers are read and not
    decoded."""

    def __init__(self, url):
        super().__init__(url)
        self._claims: dict[str, dict[str, Any]] = {}

    def measure(self, queries):
        """Seconds for the queries and one claim, which is given back after that."""
        body = self._claim(queries[0])
        [server] = new_uuids()
        start = time.perf_counter()
        for query in queries:
            self.send('GET', query)
        self.send('PUT', f'{CLAIM}/{server}', body)
        taken = time.perf_counter() - start
        self.release(server)
        return taken

    def pace(self, query, clients, seconds):
        """Claims a second that Placement takes from so many clients for so long, each
        with a connection of its own, on all hosts in turn. They are given back after
        that."""
        offers = self._offers(query)
        servers = []
        start = time.perf_counter()

        def claim(first):
            with closing(Bare(self._url)) as bare:
                for offer in itertools.cycle(offers[first::clients]):
                    if time.perf_counter() >= start + seconds:
                        break
                    [server] = new_uuids()
                    bare.send('PUT', f'{CLAIM}/{server}', {**offer, **OWNER})
                    servers.append(server)

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(claim, range(clients)))
        found = len(servers) / (time.perf_counter() - start)
        self.give_back(servers)
        return found

    def give_back(self, servers):
        for server in servers:
            self.release(server)

    def _claim(self, query):
        if query not in self._claims:
            self._claims[query] = {**self._offers(query)[0], **OWNER}
        return self._claims[query]

    def _offers(self, query):
        return self.send('GET', query).json()['allocation_requests']


@dataclass
class Scheduler:
    """One of the two, and how it is asked."""

    daemon: Daemon
    caller: Caller
    bare: Bare
    log: PlacementLog

    def place(self, kind):
        """Seconds for a request."""
        servers = new_uuids(KINDS[kind].count)
        arguments = KINDS[kind].arguments(servers)
        start = time.perf_counter()
        self._ask(arguments)
        taken = time.perf_counter() - start
        self.bare.give_back(servers)
        return taken

    def refuse(self, kind):
        """Seconds until a request is refused."""
        arguments = REFUSALS[kind].arguments(new_uuids())
        start = time.perf_counter()
        assert self._ask(arguments, is_refused=True) == []
        return time.perf_counter() - start

    def burst(self, size):
        """So many requests at once, each for one server."""
        self.log.drain()
        servers = new_uuids(size)
        asked = [KINDS['plain'].arguments([each]) for each in servers]
        with ThreadPoolExecutor(size) as pool:
            start = time.perf_counter()
            answers = list(pool.map(self._answered, asked))
        times = [answered - start for _, answered in answers]
        queries, claims = self.log.drain()
        self.bare.give_back(servers)
        return Burst(times, len({host for [host], _ in answers}), len(queries), claims)

    def stream(self, clients, seconds):
        """So many clients for so long, each with one request after the other, of four
        flavors."""
        self.log.drain()
        servers = []
        end = time.perf_counter() + seconds

        def ask(first):
            times = []
            flavors = itertools.islice(itertools.cycle(STREAMED), first, None)
            while (start := time.perf_counter()) < end:
                [server] = new_uuids()
                [host] = self._ask(next(flavors).arguments([server]))
                times.append(time.perf_counter() - start)
                servers.append((server, host))
            return times

        start = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            times = [each for its in pool.map(ask, range(clients)) for each in its]
        lasted = time.perf_counter() - start
        queries, claims = self.log.drain()
        self.bare.give_back([server for server, _ in servers])
        hosts = len({host for _, host in servers})
        return Burst(times, hosts, len(queries), claims, lasted)

    def _answered(self, arguments):
        """The hosts of new servers, and when they came."""
        return self._ask(arguments), time.perf_counter()

    def queries(self, kind):
        self.log.drain()
        self.place(kind)
        return self.log.drain()[0]

    def _ask(self, arguments, is_refused=False):
        """The hosts of new servers; none where the request is to be refused, and is.

        :raises Failed: there is another answer, or none; the text has the scheduler's
            last words.
        """
        try:
            found = self.caller.call(
                'select_destinations',
                arguments,
                server=self.daemon.host,
                timeout=PATIENCE,
            )
        except oslo_messaging.MessagingException as error:
            if is_refused and getattr(error, 'exc_type', None) == 'NoValidHost':
                return []
            last = '\n'.join(self.daemon.text().splitlines()[-LAST_WORDS:])
            raise Failed(f'{error}\n{last}') from error
        return [
            selections[0]['nova_object.data']['service_host'] for selections in found
        ]


@dataclass(frozen=True)
class Burst:
    """How requests at once went: seconds for each, different hosts, queries to
    Placement, and the statuses of the claims. A stream lasted so many seconds."""

    times: Sequence[float]
    hosts: int
    queries: int
    claims: Sequence[int]
    lasted: float | None = None

    @property
    def pace(self):
        """Requests a second, until the last is answered."""
        return len(self.times) / (self.lasted or max(self.times))


@contextmanager
def flooding(bind, tell):
    """A flood from another process, of the lowest priority; at the end it tells how
    much was sent."""
    command = ['nice', '-n', '19', sys.executable, '-m', 'tests.lab.http_flood', bind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == 'begun\n'
        yield
        said, _ = child.communicate('enough\n')
        tell(f'{int(said):,} times something was sent to {bind}')
