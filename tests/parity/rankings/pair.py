# SPDX-License-Identifier: Apache-2.0
"""nova-scheduler and novasched side by side. Both run, both get the same calls in their
own queues, and the differences of their answers and effects are found."""

import ast
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from novasched.placement.query import HOST_CLASSES
from tests.lab.daemon import Daemon, NovaClient, Refused
from tests.lab.descriptions import Case
from tests.lab.nova_cloud import NovaCloud
from tests.lab.proxy import Proxy
from tests.parity.comparison import Difference, close
from tests.parity.rankings.requests import Call

QUERY = '/allocation_candidates'
PATIENCE = 60.0
PARTS = 20
"""Largest number of reported parts of a difference; more parts follow from the same
mistakes."""
LOGGING = {
    'debug': False,
    'default_log_levels': 'nova.filters=DEBUG,nova.weights=DEBUG,nova.scheduler.manager=DEBUG',
}
"""Loggers whose lines are read. More logging would cost more than the decisions."""

NAMES = ('host', 'node')
OTHERWISE = 'answers otherwise'
"""An outcome: the same hosts in the same order, with different providers."""
CANDIDATE = ('allocations', 'mappings', 'allocation_request')
"""Keys of claims and answers with the resources by provider."""

_RANKED = re.compile(
    r'host: \((?P<host>\S+), (?P<node>\S+)\) ram: (?P<ram>-?\d+)MB disk: (?P<disk>-?\d+)MB '
    r'io_ops: (?P<io_ops>-?\d+) instances: (?P<instances>-?\d+)[^]]*?, weight: (?P<weight>[^]]+)\]'
)
_FILTERED = re.compile(
    r'(?:Starting with|Filter (?P<name>\w+) returned) (?P<left>\d+) host'
)
_RAW = re.compile(r'nova\.weights .* (?P<name>\w+): raw weights (?P<weights>\{.*\})')


Ranked = dict[str, Any]
"""A host in a ranking: its free resources (MiB), its statistics and its weight."""


@dataclass
class Seen:
    """The answer or the fault of a scheduler for a call, and the observed effects.

    :ivar fault: module, class and first line of the client's exception.
    :ivar failed: the conductor does not expect the fault.
    :ivar claims: allocations afterwards: {server: {provider: resources}}.
    :ivar written: the remaining claims: path and body.
    :ivar began_again: Placement refused the claim for all servers, so that the servers
        were ranked again.
    :ivar tried: all claims, with the deleted claims of a request that was refused.
    :ivar filtered: number of hosts after every filter; the first entry, without a
        name, is before the filters.
    :ivar weighed: names of the weighers with different weights in nova's log.
    :ivar rankings: the hosts that the filters passed, best first, for every ranking.
    """

    answer: Any = None
    fault: str | None = None
    failed: bool = False
    claims: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    written: list[tuple[str, Any]] = field(default_factory=list)
    began_again: bool = False
    tried: list[tuple[str, Any]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    filtered: list[tuple[str | None, int]] = field(default_factory=list)
    weighed: set[str] = field(default_factory=set)
    rankings: list[list[Ranked]] = field(default_factory=list)

    def read(self, log: str) -> None:
        """Add the filters, weighers and rankings of a log."""
        for line in log.splitlines():
            if match := _FILTERED.search(line):
                self.filtered.append((match['name'], int(match['left'])))
            elif ' Weighed [' in line:
                self.rankings.append(list(map(_ranked, _RANKED.finditer(line))))
            elif match := _RAW.search(line):
                weights = set(ast.literal_eval(match['weights']).values())
                if len(weights) > 1:
                    self.weighed.add(match['name'])

    @property
    def left(self) -> list[tuple[str | None, int]]:
        """The numbers of hosts after the filters, without filters that had no host to
        judge: a scheduler without hosts logs the first filter, or no filter."""
        numbers = []
        before = 0
        for name, count in self.filtered:
            if count or (name and before):
                numbers.append((name, count))
            before = count
        return numbers

    @property
    def outcome(self) -> str:
        if self.fault is None:
            return 'answers'
        if self.failed:
            return 'fails'
        return 'refuses'


@dataclass(frozen=True)
class Exchange:
    """A request to Placement, its body, and the status of the answer."""

    method: str
    target: str
    body: bytes
    status: int

    @property
    def path(self) -> str:
        return self.target.partition('?')[0]


class Scheduler:
    """nova-scheduler or novasched, behind a proxy to Placement."""

    def __init__(
        self, daemon: Daemon, between: Proxy, cloud: NovaCloud, client: NovaClient
    ) -> None:
        self.daemon = daemon
        self._exchanges: list[Exchange] = []
        between.heard = lambda *what: self._exchanges.append(Exchange(*what))
        self._cloud = cloud
        self._client = client
        self._read = 0

    def ask(self, call: Call) -> Seen:
        self._exchanges.clear()
        self._log()
        seen = Seen()
        try:
            seen.answer = self._client.raw_call(
                'select_destinations',
                call.arguments,
                server=self.daemon.host,
                timeout=PATIENCE,
            )
        except Refused as error:
            if error.name == 'MessagingTimeout':
                raise
            line = (error.message.splitlines() or [''])[0].strip()
            seen.fault = f'{error.module}.{error.name}: {line}'
            seen.failed = not error.no_valid_host

        _read_exchanges(seen, [*self._exchanges])
        for uuid in call.instance_uuids or ():
            seen.claims[uuid] = self._cloud.placement.allocations(uuid)
        seen.read(self._log())
        return seen

    def _log(self) -> str:
        text = self.daemon.text()
        new = text[self._read :]
        self._read = len(text)
        return new


def _read_exchanges(seen: Seen, exchanges: list[Exchange]) -> None:
    """Add the queries and claims of requests to Placement."""
    deleted = set()
    for exchange in exchanges:
        if exchange.path == QUERY:
            seen.queries.append(exchange.target.partition('?')[2])
        if exchange.method == 'POST' and exchange.status == 409:
            seen.began_again = True
        if exchange.status == 204 and _deletes(exchange):
            deleted.add(exchange.path)

    seen.tried = list(_written(exchanges))
    remaining = [claim for claim in seen.tried if claim[0] not in deleted]
    seen.written = list(_once(remaining))


def _written(exchanges: list[Exchange]) -> Iterator[tuple[str, Any]]:
    """The claims. nova makes a request for every claim, novasched a request for several
    claims."""
    for exchange in exchanges:
        if exchange.status != 204:
            continue
        if exchange.method == 'PUT' and not _deletes(exchange):
            yield exchange.path, json.loads(exchange.body)
        elif exchange.method == 'POST':
            for uuid, claim in json.loads(exchange.body).items():
                yield f'{exchange.path}/{uuid}', claim


def _once(claims: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Claims without their repetitions. novasched writes the claim for an instance
    without allocations, such as a shelved instance, once more for the next generation of
    the consumer: an earlier deletion may be carried out late."""
    written = {}
    for path, body in claims:
        what = {name: body[name] for name in body if name != 'consumer_generation'}
        if written.get(path) != what:
            yield path, body
        written[path] = what


def _deletes(exchange: Exchange) -> bool:
    """True if a request deletes allocations. nova uses DELETE, novasched a PUT without
    allocations."""
    if exchange.method == 'PUT':
        return not json.loads(exchange.body)['allocations']
    return exchange.method == 'DELETE'


def _ranked(match: re.Match[str]) -> Ranked:
    ranked: Ranked = {}
    for name, text in match.groupdict().items():
        ranked[name] = text if name in NAMES else float(text)
    return ranked


LIKE_NOVA = {
    'candidates_max_age': 0,
    'decisions_questions': 0,
    'traits_weight_multiplier': 0,
}
"""Options for comparable behaviour: every request has its own query, refusals have no
diagnosis, and preferred traits do not count."""


@contextmanager
def running(
    cloud: NovaCloud, client: NovaClient, config: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Scheduler, Scheduler]]:
    """nova-scheduler and novasched on the same cloud with the same configuration, ready
    for calls. Both ask Placement for every call, and for nothing else."""
    reference = cloud.nova.script('nova-scheduler')
    with ExitStack() as stack:
        # A process gets a signal when the thread ends that has started the process.
        pool = stack.enter_context(ThreadPoolExecutor(2))
        schedulers = []
        for command in ([reference], []):
            between = stack.enter_context(Proxy(cloud.placement_url))
            overrides = {
                **config,
                'DEFAULT': {**config['DEFAULT'], **LOGGING},
                'placement': {'endpoint': between.url},
                'novasched': {**config.get('novasched', {}), **LIKE_NOVA},
            }
            daemon = Daemon(cloud, overrides, command)
            stack.callback(daemon.close)
            schedulers.append(Scheduler(daemon, between, cloud, client))
        list(pool.map(lambda scheduler: scheduler.daemon.start(), schedulers))
        yield schedulers[0], schedulers[1]


def difference(case: Case, nova: Seen, ours: Seen) -> Difference:
    """The different parts of the two sides for a call, in the order of a decision:
    later parts may follow from earlier parts."""
    theirs = _matters(nova)
    mine = _matters(ours)
    mine['queries'] = as_nova_asks(nova.queries, ours.queries)
    if ours.began_again or len(ours.queries) > len(nova.queries):
        # novasched claimed for all servers in vain, and then, like nova, for one server
        # after the other. Or novasched asked more than a base query: it found no host
        # by a base query, and decided once more.
        for matter in ('left by filters', 'rankings'):
            mine[matter] = mine[matter][len(mine[matter]) - len(theirs[matter]) :]
    parts = list(itertools.islice(_parts(theirs, mine), PARTS))
    outcome = ours.outcome
    if parts and not list(_parts(_but_for_providers(theirs), _but_for_providers(mine))):
        outcome = OTHERWISE
    theirs = {part: value for part, value, _ in parts}
    mine = {part: value for part, _, value in parts}
    return Difference(case, nova.outcome, outcome, theirs, mine, agree=not parts)


def _matters(seen: Seen) -> dict[str, Any]:
    return {
        'queries': seen.queries,
        'left by filters': seen.left,
        'rankings': seen.rankings,
        'fault': seen.fault,
        'claims': seen.claims,
        'written claims': seen.written,
        'answer': readable(seen.answer),
    }


def base_query(query: str) -> str | None:
    """The base query that novasched sends in place of a query for devices; None for a
    query without devices.

    A base query asks for 1 of each resource class of compute nodes, in the aggregates of
    the unsuffixed group, or in the tree of the requested host.
    """
    classes = set()
    places = []
    is_for_devices = False
    for name, value in parse_qsl(query):
        if name.startswith('resources'):
            for pair in value.split(','):
                resource_class = pair.partition(':')[0]
                if resource_class in HOST_CLASSES:
                    classes.add(resource_class)
                else:
                    is_for_devices = True
        elif name in ('member_of', 'in_tree'):
            places.append((name, value))
    if not is_for_devices or not classes:
        return None

    resources = ','.join(f'{name}:1' for name in sorted(classes))
    return urlencode([*sorted(places), ('resources', resources)])


def as_nova_asks(theirs: Sequence[str], ours: Sequence[str]) -> list[str]:
    """The queries of novasched, with nova's query in place of the base queries of nova's
    query. Placement's answer to a base query is another answer, so that only the
    remaining hosts show whether both schedulers found the same hosts.

    If the answer to the base query does not suffice, novasched asks the base query with
    the amounts of the request and a single device, and then nova's query.
    """
    queries = []
    for query in ours:
        for candidate in theirs:
            is_part = {*parse_qsl(query)} < {*parse_qsl(candidate)}
            if is_part or query == base_query(candidate):
                query = candidate
        if query not in queries:
            queries.append(query)
    return queries


def _but_for_providers(matters: dict[str, Any]) -> dict[str, Any]:
    """The parts with resources summed up over the providers of a host."""
    sums = {}
    for uuid, by_provider in matters['claims'].items():
        sums[uuid] = sum(map(Counter, by_provider.values()), Counter())
    return {
        **matters,
        'claims': sums,
        'written claims': _without(CANDIDATE, matters['written claims']),
        'answer': _without(CANDIDATE, matters['answer']),
    }


def _without(names: Collection[str], value: Any) -> Any:
    """A value without the named keys, at all depths."""
    if isinstance(value, list | tuple):
        return [_without(names, item) for item in value]
    if isinstance(value, dict):
        remaining = [key for key in value if key not in names]
        return {key: _without(names, value[key]) for key in remaining}
    return value


def _parts(nova: Any, ours: Any, where: str = '') -> Iterator[tuple[str, Any, Any]]:
    """The innermost different parts of two values: place, nova's and novasched's
    part."""
    if isinstance(nova, list) and isinstance(ours, list) and len(nova) == len(ours):
        nova = dict(enumerate(nova))
        ours = dict(enumerate(ours))
    if isinstance(nova, dict) and isinstance(ours, dict) and nova.keys() == ours.keys():
        for key in nova:
            yield from _parts(nova[key], ours[key], f'{where}[{key}]')
    elif isinstance(nova, float) and isinstance(ours, float) and close(nova, ours):
        return
    elif nova != ours:
        yield where, nova, ours


def readable(answer: Any) -> Any:
    """An answer with its objects as dicts, JSON texts decoded, and sets in order. Sets
    travel as lists."""
    if isinstance(answer, list):
        return [readable(item) for item in answer]
    if not isinstance(answer, dict):
        return answer

    data = answer.get('nova_object.data', answer)
    fields = {name: readable(value) for name, value in data.items()}
    if 'nova_object.data' in answer:
        fields['object'] = answer['nova_object.name'], answer['nova_object.version']
    if 'physnets' in fields:
        fields['physnets'] = sorted(fields['physnets'])
    if 'allocation_request' in fields:
        fields['allocation_request'] = json.loads(fields['allocation_request'])
    return fields


def ties(rankings: Sequence[Sequence[Ranked]]) -> int:
    """The number of hosts with the same weight as the previous host."""
    count = 0
    for ranking in rankings:
        for better, worse in itertools.pairwise(ranking):
            count += close(better['weight'], worse['weight'])
    return count
