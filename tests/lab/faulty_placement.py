# SPDX-License-Identifier: Apache-2.0
"""A Placement that is as simple as can be, of which everything may fail: allocations of
consumers with their generations, behind the interface of a keystoneauth1 adapter."""

import json
import threading
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import requests
import urllib3
from keystoneauth1 import exceptions as ks_exc

from novasched.scheduler.errors import DatabaseUnavailable

CONFLICT = 'placement.concurrent_update'


def problem(status, detail, code=None):
    """An answer that says no."""
    error = {'status': status, 'detail': detail}
    if code:
        error['code'] = code
    return status, {'errors': [error]}


class FaultyPlacement:
    """``faults`` are what happens to the next requests, in turn; None is nothing bad.

    A fault is a name of OUTCOMES, behind ``after``, ``before`` or ``late`` if that
    matters: whether the work is done, is not, or is done at the next request but one.
    Each provider has some VCPU, or as many as are asked for where ``room`` does not
    name it.
    """

    connect_retries = status_code_retries = None
    connect_retry_delay = status_code_retry_delay = None

    def __init__(self, held=None, room=None, faults=()):
        self.held = held or {}  # consumer: [generation, {provider: {class: amount}}]
        self.room = room or {}
        self.faults = deque(faults)
        self.asked = []
        self.late = deque()
        self._lock = threading.Lock()

    def resources(self):
        """What each consumer holds."""
        return {consumer: what for consumer, (_, what) in self.held.items()}

    def catch_up(self):
        """Do what was left undone."""
        while self.late:
            self.late.popleft()()

    def request(self, path, method, data=None, **_):
        """As keystoneauth1's adapter does."""
        with self._lock:
            self.asked.append(f'{method} {path}')
            when, _, fault = (
                (self.faults and self.faults.popleft()) or 'after -'
            ).partition(' ')
            body = json.loads(data) if data else None
            status = 200
            content = {}
            if when == 'after':
                status, content = self._work(method, path, body)
            elif len(self.late) > 1:
                self.late.popleft()()
            if when == 'late':
                self.late.append(lambda: self._work(method, path, body))
            if fault in ERRORS:
                try:
                    raise ERRORS[fault][0]
                except (
                    Exception
                ):  # keystoneauth1's errors keep requests' as their context
                    raise ERRORS[fault][1] from None
            if fault in ANSWERS:
                status, content = ANSWERS[fault]
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        return SimpleNamespace(status_code=status, content=text, reason='because')

    def _work(self, method, path, body):
        consumer = path.rpartition('/')[2]
        if not path.startswith('/allocations'):
            return 200, {'resource_providers': []}
        if method == 'GET':
            generation, what = self.held.get(consumer, (None, {}))
            if not what:
                return 200, {'allocations': {}}
            held = {
                rp: {'resources': amounts, 'generation': 7}
                for rp, amounts in what.items()
            }
            return 200, {'allocations': held, 'consumer_generation': generation}
        return self._write({consumer: body} if method == 'PUT' else body)

    def _write(self, bodies):
        for consumer, body in bodies.items():
            now = self.held.get(consumer, [None])[0]
            if body['consumer_generation'] != now:
                text = f'consumer generation conflict - {body["consumer_generation"]}, {now}'
                return problem(409, text, CONFLICT)
        wanted = {
            consumer: {
                rp: each['resources'] for rp, each in body['allocations'].items()
            }
            for consumer, body in bodies.items()
        }
        held = [*{**self.resources(), **wanted}.values()]
        for provider, room in self.room.items():
            if sum(each.get(provider, {}).get('VCPU', 0) for each in held) > room:
                return ANSWERS['full']
        for consumer, what in wanted.items():
            if what:
                generation = bodies[consumer]['consumer_generation'] or 0
                self.held[consumer] = [generation + 1, what]
            else:
                self.held.pop(consumer, None)
        return 204, b''


class Nova:
    """Instances as nova's databases have them, by UUID; nova does not know others. An
    error in place of one is raised. Hosts are called what their providers are."""

    def __init__(self, instances=None):
        self.instances = instances or {}

    def find(self, uuid, providers):
        """See novasched.scheduler.ports.Instances."""
        state = self.instances.get(uuid)
        if isinstance(state, DatabaseUnavailable):
            raise state
        return state and replace(state, hosts=frozenset(providers))


REFUSED = urllib3.exceptions.NewConnectionError(None, 'refused')
ERRORS = {
    'reset': (requests.ConnectionError('reset'), ks_exc.ConnectFailure('reset')),
    'refused': (
        requests.ConnectionError(urllib3.exceptions.MaxRetryError(None, '/', REFUSED)),
        ks_exc.ConnectFailure('refused'),
    ),
    'timeout': (requests.ReadTimeout('slow'), ks_exc.ConnectTimeout('slow')),
    'unreachable': (requests.ConnectTimeout('away'), ks_exc.ConnectTimeout('away')),
    'half': (
        requests.exceptions.ChunkedEncodingError('half'),
        ks_exc.UnknownConnectionError('half', None),
    ),
}
ANSWERS = {
    'garbage': (200, b'<html>It works!'),
    'list': (200, []),
    'page': (200, b''),
    '500': problem(500, 'a bug'),
    '502': (502, b'<html>'),
    '503': (503, b'<html>'),
    '504': (504, b'<html>'),
    '400': problem(400, 'no such resource class'),
    '401': (401, b'<html>'),
    '403': problem(403, 'policy'),
    '404': (404, b'no such page'),
    '406': problem(406, 'Unacceptable version header: 1.36'),
    'contended': problem(409, 'another thread', CONFLICT),
    'full': problem(409, 'Unable to allocate inventory', 'placement.undefined_code'),
    'unknown code': problem(409, 'no', 'placement.no_such_code'),
    'no code': problem(409, 'no'),
    'no error': (409, {'errors': []}),
    'no JSON': (409, b'conflict'),
    'wrong type': (409, {'errors': [{'detail': 5, 'code': []}]}),
    'deep': (409, b'[' * 100_000),
}
REFUSALS = (
    '400',
    '401',
    '403',
    '404',
    '406',
    'contended',
    'full',
    'unknown code',
    'no code',
    'no error',
    'no JSON',
    'wrong type',
    'deep',
    'refused',
    'unreachable',
)
"""Those that are true only before the work."""
EITHER = (
    'reset',
    'timeout',
    'half',
    'garbage',
    'list',
    'page',
    '500',
    '502',
    '503',
    '504',
)
FAULTS = (
    *(f'before {each}' for each in (*REFUSALS, *EITHER)),
    *(f'after {each}' for each in (*EITHER, '-')),
    *(f'late {each}' for each in ('reset', 'timeout', 'half', '500', '502', '504')),
)
