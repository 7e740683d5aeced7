# SPDX-License-Identifier: Apache-2.0
"""A simple Placement in which any request may fail: allocations of consumers with their
generations, behind the interface of a keystoneauth1 adapter."""

import contextlib
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
    """Status and body of an error."""
    error = {'status': status, 'detail': detail}
    if code:
        error['code'] = code
    return status, {'errors': [error]}


class FaultyPlacement:
    """Stands for a keystoneauth1 adapter of Placement.

    A fault is a time and a name, separated by a space. The time tells when Placement
    does the work: ``after``: before the answer; ``before``: never; ``late``: at the next
    request but one; ``twice``: before the answer, and once before, as when a proxy sends
    a request to a second Placement. The name is a key of ``ERRORS`` or ``ANSWERS``, or ``-`` for the
    ordinary answer.

    :ivar held: consumer to its generation and its allocations, which are provider to
        resource class to amount.
    :ivar room: VCPU of each provider. Other providers have no limit.
    :ivar trees: the providers of each tree; any other provider is a tree of its own.
    :ivar faults: the faults of the next requests in order; None for no fault.
    :ivar asked: method and path of all requests in order.
    :ivar late: work that is not done yet.
    """

    connect_retries = None
    connect_retry_delay = None
    status_code_retries = None
    status_code_retry_delay = None

    def __init__(self, held=None, room=None, faults=()):
        self.held = held or {}
        self.room = room or {}
        self.trees = []
        self.faults = deque(faults)
        self.asked = []
        self.late = deque()
        self._lock = threading.Lock()

    def resources(self):
        """The allocations of each consumer."""
        return {consumer: amounts for consumer, (_, amounts) in self.held.items()}

    def catch_up(self):
        """Do all late work, of requests that have begun."""
        with self._lock:
            while self.late:
                self.late.popleft()()

    def request(self, path, method, data=None, **_):
        """Answer a request, as keystoneauth1's adapter does."""
        with self._lock:
            self.asked.append(f'{method} {path}')
            fault = None
            # A test may clear the faults while other threads send requests.
            with contextlib.suppress(IndexError):
                fault = self.faults.popleft()
            time, _, name = (fault or 'after -').partition(' ')

            body = None
            if data:
                body = json.loads(data)
            status = 200
            content = {}
            if time == 'twice':
                self._work(method, path, body)
            if time in ('after', 'twice'):
                status, content = self._work(method, path, body)
            elif len(self.late) > 1:
                self.late.popleft()()
            if time == 'late':
                self.late.append(lambda: self._work(method, path, body))

            if name in ERRORS:
                cause, error = ERRORS[name]
                # An error of keystoneauth1 has the error of requests as its context.
                try:
                    raise cause
                except Exception:
                    raise error from None
            if name in ANSWERS:
                status, content = ANSWERS[name]

        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        return SimpleNamespace(status_code=status, content=content, reason='because')

    def _work(self, method, path, body):
        """Do a request; its status and body."""
        consumer = path.rpartition('/')[2]
        if not path.startswith('/allocations'):
            return 200, {'resource_providers': self._in_tree(path)}

        if method == 'GET':
            generation, by_provider = self.held.get(consumer, (None, {}))
            if not by_provider:
                return 200, {'allocations': {}}
            allocations = {}
            for provider, amounts in by_provider.items():
                allocations[provider] = {'resources': amounts, 'generation': 7}
            return 200, {
                'allocations': allocations,
                'consumer_generation': generation,
            }

        if method == 'PUT':
            return self._write({consumer: body})
        return self._write(body)

    def _in_tree(self, path):
        """The providers in the tree of the provider that a path names."""
        provider = path.rpartition('in_tree=')[2]
        for tree in self.trees:
            if provider in tree:
                return [{'uuid': uuid, 'root_provider_uuid': tree[0]} for uuid in tree]
        return [{'uuid': provider, 'root_provider_uuid': provider}] if provider else []

    def _write(self, bodies):
        """Write the allocations of consumers, or of no consumer."""
        written = {}
        for consumer, body in bodies.items():
            now = self.held.get(consumer, [None])[0]
            sent = body['consumer_generation']
            if sent != now:
                text = f'consumer generation conflict - {sent}, {now}'
                return problem(409, text, CONFLICT)
            allocations = body['allocations'].items()
            written[consumer] = {rp: part['resources'] for rp, part in allocations}

        resources = {**self.resources(), **written}
        for provider, room in self.room.items():
            used = 0
            for by_provider in resources.values():
                used += by_provider.get(provider, {}).get('VCPU', 0)
            if used > room:
                return ANSWERS['full']

        for consumer, by_provider in written.items():
            if by_provider:
                generation = bodies[consumer]['consumer_generation'] or 0
                self.held[consumer] = [generation + 1, by_provider]
            else:
                self.held.pop(consumer, None)
        return 204, b''


class Nova:
    """Instances in nova's databases.

    :ivar instances: the state of each instance by UUID, or an error to raise. The name
        of a host is the UUID of its provider.
    """

    def __init__(self, instances=None):
        self.instances = instances or {}

    def find(self, uuid, providers):
        """Implements novasched.scheduler.ports.Instances."""
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
"""Faults of requests whose work is not done."""
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
"""Faults of requests whose work may be done."""
LATE = ('reset', 'timeout', 'half', '500', '502', '504')
FAULTS = (
    *[f'before {name}' for name in (*REFUSALS, *EITHER)],
    *[f'after {name}' for name in (*EITHER, '-')],
    *[f'late {name}' for name in LATE],
    'twice -',
)
