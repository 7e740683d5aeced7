# SPDX-License-Identifier: Apache-2.0
"""nova-scheduler and novasched, both running, each asked by its own queue, and what
they do with the same call, side by side."""

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

from tests.lab.daemon import Daemon, NovaClient, Refused
from tests.lab.descriptions import Case
from tests.lab.nova_cloud import NovaCloud
from tests.lab.proxy import Proxy
from tests.parity.comparison import Difference, close
from tests.parity.rankings.requests import Call

QUERY = '/allocation_candidates'
PATIENCE = 60.0
PARTS = 20
"""So many parts of a difference are told; more follow from the same mistakes."""
LOGGING = {
    'debug': False,
    'default_log_levels': 'nova.filters=DEBUG,nova.weights=DEBUG,nova.scheduler.manager=DEBUG',
}
"""What is read from the log; the rest of it would cost more than the decisions."""

NAMES = ('host', 'node')
OTHERWISE = 'answers otherwise'
"""An outcome: the same hosts in the same order, and other providers of them."""
CANDIDATE = ('allocations', 'mappings', 'allocation_request')
"""Where claims and answers say what each provider gives."""

_RANKED = re.compile(
    r'host: \((?P<host>\S+), (?P<node>\S+)\) ram: (?P<ram>-?\d+)MB disk: (?P<disk>-?\d+)MB '
    r'io_ops: (?P<io_ops>-?\d+) instances: (?P<instances>-?\d+)[^]]*?, weight: (?P<weight>[^]]+)\]'
)
_FILTERED = re.compile(
    r'(?:Starting with|Filter (?P<name>\w+) returned) (?P<left>\d+) host'
)
_RAW = re.compile(r'nova\.weights .* (?P<name>\w+): raw weights (?P<weights>\{.*\})')


Ranked = dict[str, Any]
"""A host in a ranking: what it has left (MiB), what it does, what it weighs."""


@dataclass
class Seen:
    """What a scheduler did with a call: an answer or a fault, and what could be
    watched."""

    answer: Any = None
    fault: str | None = None
    """Module, class and first line of what the client raised."""
    failed: bool = False
    """The fault is none that the conductor expects."""
    claims: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """What each server then holds: {server: {provider: resources}}."""
    written: list[tuple[str, Any]] = field(default_factory=list)
    """Each claim that stands: its path, and all that is written."""
    began_again: bool = False
    """Claiming for all servers at once was refused, so that they were ranked once
    more."""
    tried: list[tuple[str, Any]] = field(default_factory=list)
    """With those that were given back, since not every server found a host."""
    queries: list[str] = field(default_factory=list)
    filtered: list[tuple[str | None, int]] = field(default_factory=list)
    """How many hosts each filter left, from None for the first on."""
    weighed: set[str] = field(default_factory=set)
    """The weighers that told hosts apart, as far as nova's log has it."""
    rankings: list[list[Ranked]] = field(default_factory=list)
    """The hosts that the filters left, best first, each time they were weighed."""

    def read(self, log: str) -> None:
        """Add what the log says of the decision."""
        for line in log.splitlines():
            if match := _FILTERED.search(line):
                self.filtered.append((match['name'], int(match['left'])))
            elif ' Weighed [' in line:
                self.rankings.append([_ranked(each) for each in _RANKED.finditer(line)])
            elif match := _RAW.search(line):
                weights = set(ast.literal_eval(match['weights']).values())
                self.weighed |= {match['name']} if len(weights) > 1 else set()

    @property
    def left(self) -> list[tuple[str | None, int]]:
        """What the filters left, but for those that had no host to judge: the log of
        none begins with the first filter, or says nothing of filters."""
        before = [0, *(count for _, count in self.filtered)]
        return [
            (name, count)
            for had, (name, count) in zip(before, self.filtered, strict=False)
            if count or (name and had)
        ]

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
    """One of the two, behind a proxy of its own."""

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
        exchanges = [*self._exchanges]
        seen.queries = [
            x.target.partition('?')[2] for x in exchanges if x.path == QUERY
        ]
        seen.tried = list(_written(exchanges))
        seen.began_again = any(
            x.method == 'POST' and x.status == 409 for x in exchanges
        )
        undone = {x.path for x in exchanges if x.status == 204 and _gives_back(x)}
        seen.written = [claim for claim in seen.tried if claim[0] not in undone]
        allocations = self._cloud.placement.allocations
        seen.claims = {uuid: allocations(uuid) for uuid in call.instance_uuids or ()}
        seen.read(self._log())
        return seen

    def _log(self) -> str:
        text = self.daemon.text()
        new = text[self._read :]
        self._read = len(text)
        return new


def _written(exchanges: list[Exchange]) -> Iterator[tuple[str, Any]]:
    """The claims, of which nova makes one after the other and we several at once."""
    for each in exchanges:
        if each.method == 'PUT' and each.status == 204 and not _gives_back(each):
            yield each.path, json.loads(each.body)
        elif each.method == 'POST' and each.status == 204:
            for uuid, claim in json.loads(each.body).items():
                yield f'{each.path}/{uuid}', claim


def _gives_back(exchange: Exchange) -> bool:
    """nova deletes what a server holds, we let it hold nothing."""
    if exchange.method == 'PUT':
        return not json.loads(exchange.body)['allocations']
    return exchange.method == 'DELETE'


def _ranked(match: re.Match[str]) -> Ranked:
    numbers = {
        name: float(text)
        for name, text in match.groupdict().items()
        if name not in NAMES
    }
    return {**numbers, **{name: match[name] for name in NAMES}}


LIKE_NOVA = {
    'candidates_max_age': 0,
    'decisions_questions': 0,
    'traits_weight_multiplier': 0,
}
"""Each request has its own query, a refusal is not asked about, and traits that a
flavor prefers count for nothing."""


@contextmanager
def running(
    cloud: NovaCloud, client: NovaClient, config: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Scheduler, Scheduler]]:
    """nova-scheduler and novasched on the same cloud with the same configuration, ready
    for calls; both ask Placement for each, and for nothing else."""
    reference = cloud.nova.script('nova-scheduler')
    with ExitStack() as stack:
        # A process is told to end when the thread that started it ends.
        pool = stack.enter_context(ThreadPoolExecutor(2))
        found = []
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
            found.append(Scheduler(daemon, between, cloud, client))
        list(pool.map(lambda each: each.daemon.start(), found))
        yield found[0], found[1]


def difference(case: Case, nova: Seen, ours: Seen) -> Difference:
    """What the two sides do differently with a call; the earliest matter in a decision
    comes first, since the others may follow from it."""
    theirs = _matters(nova)
    mine = _matters(ours)
    if ours.began_again:
        # We claimed for all servers at once in vain, and then, as nova, for one after
        # the other.
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


def _but_for_providers(matters: dict[str, Any]) -> dict[str, Any]:
    """The same with what each server holds in sum, whichever providers of a host it is
    of."""
    held = {
        uuid: sum((Counter(each) for each in of_server.values()), Counter())
        for uuid, of_server in matters['claims'].items()
    }
    own = {
        'claims': held,
        'written claims': _without(CANDIDATE, matters['written claims']),
    }
    return {**matters, **own, 'answer': _without(CANDIDATE, matters['answer'])}


def _without(names: Collection[str], value: Any) -> Any:
    """A value without the keys of these names in it."""
    if isinstance(value, list | tuple):
        return [_without(names, each) for each in value]
    if isinstance(value, dict):
        return {
            key: _without(names, each)
            for key, each in value.items()
            if key not in names
        }
    return value


def _parts(nova: Any, ours: Any, where: str = '') -> Iterator[tuple[str, Any, Any]]:
    """The innermost places where two values part, and what each side has there."""
    if isinstance(nova, list) and isinstance(ours, list) and len(nova) == len(ours):
        nova, ours = (dict(enumerate(each)) for each in (nova, ours))
    if isinstance(nova, dict) and isinstance(ours, dict) and nova.keys() == ours.keys():
        for key in nova:
            yield from _parts(nova[key], ours[key], f'{where}[{key}]')
    elif isinstance(nova, float) and isinstance(ours, float) and close(nova, ours):
        return
    elif nova != ours:
        yield where, nova, ours


def readable(answer: Any) -> Any:
    """An answer with its objects as dicts, the JSON texts in them decoded, and sets,
    which travel as lists, in order."""
    if isinstance(answer, list):
        return [readable(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    fields = {
        name: readable(value)
        for name, value in answer.get('nova_object.data', answer).items()
    }
    if 'nova_object.data' in answer:
        fields['object'] = answer['nova_object.name'], answer['nova_object.version']
    if 'physnets' in fields:
        fields['physnets'] = sorted(fields['physnets'])
    if 'allocation_request' in fields:
        fields['allocation_request'] = json.loads(fields['allocation_request'])
    return fields


def ties(rankings: Sequence[Sequence[Ranked]]) -> int:
    """How many hosts weigh the same as the one in front of them."""
    return sum(
        close(a['weight'], b['weight'])
        for ranking in rankings
        for a, b in itertools.pairwise(ranking)
    )
