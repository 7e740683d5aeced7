# SPDX-License-Identifier: Apache-2.0
"""What stands beside the schedulers: computes that tell of their instances, Placement's log, and
its bare client that the schedulers are compared with."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.client import new_uuids
from tests.lab.placement_api import PlacementApi
from tests.lab.steady import Caller

PATIENCE = 300  # seconds
QUERY = '/allocation_candidates'
CLAIM = '/allocations'

_LOGGED = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+)" status: (?P<status>\d+) ')


def sync(caller: Caller, host: str, computes: Mapping[str, Sequence[str]]) -> None:
    """Tell a scheduler, as each compute does from time to time, which instances it has;
    returns when it has been told. nova takes the first word of a host that it does
    not know for a reason to look, and trusts the second."""
    ping = {'namespace': 'baseapi', 'version': '1.1', 'timeout': PATIENCE}
    for _ in range(2):
        for name, uuids in computes.items():
            told = {'host_name': name, 'instance_uuids': uuids}
            caller.cast('sync_instance_info', told, server=host, version='4.2')
        caller.call('ping', {'arg': 'all told'}, server=host, **ping)


@dataclass(frozen=True)
class Exchange:
    method: str
    path: str
    status: int

    @property
    def is_query(self) -> bool:
        return self.method == 'GET' and self.path.startswith(QUERY)

    @property
    def is_claim(self) -> bool:
        return self.method in ('PUT', 'POST') and self.path.startswith(CLAIM)


class PlacementLog:
    """What Placement was asked, read from its log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def drain(self) -> list[Exchange]:
        """The requests since the last time, in the order in which they were answered."""
        with self._log.open(errors='replace') as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        return [
            Exchange(match['method'], match['path'], int(match['status']))
            for match in _LOGGED.finditer(text)
        ]


class Bare(PlacementApi):
    """Asks Placement what a scheduler asks, and nothing else: the queries, then the claim of
    the first candidate. One connection, kept open; answers are read and not decoded."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._claims: dict[str, dict[str, Any]] = {}

    def measure(self, queries: Sequence[str]) -> float:
        """Seconds for the queries and one claim, which is given back after that."""
        body, [server] = self._claim(queries[0]), new_uuids()
        start = time.perf_counter()
        for query in queries:
            self.send('GET', query)
        self.send('PUT', f'{CLAIM}/{server}', body)
        taken = time.perf_counter() - start
        self.release(server)
        return taken

    def give_back(self, servers: Sequence[str]) -> None:
        for server in servers:
            self.release(server)

    def _claim(self, query: str) -> dict[str, Any]:
        if query not in self._claims:
            first = self.send('GET', query).json()['allocation_requests'][0]
            owner = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}
            self._claims[query] = {**first, **owner}
        return self._claims[query]
