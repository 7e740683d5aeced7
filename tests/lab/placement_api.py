# SPDX-License-Identifier: Apache-2.0
"""Placement as a child process, and what the tests write to it and read from it."""

import os
import secrets
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from novasched.tools.sandbox.computes import Providers
from tests.lab.known_secrets import a_secret

from .processes import START, Process, Service, free_port, wait_until
from .servers import create_database, drop_database

TOKEN = f'admin:{a_secret()}'
"""Of the user whom Placement takes for an administrator where there is no keystone."""

BACKED_UP = (
    'resource_providers',
    'inventories',
    'allocations',
    'consumers',
    'resource_provider_traits',
    'resource_provider_aggregates',
)

# {consumer: {provider: {resource class: amount}}}
Allocations = dict[str, dict[str, dict[str, int]]]


class PlacementProcess(Service):
    """The sandbox's Placement in a process of its own, on a port that it keeps."""

    def __init__(self, connection, directory, *arguments):
        self.connection = connection
        port = free_port()
        command = (
            sys.executable,
            '-m',
            'tests.lab.placement_server',
            '--port',
            str(port),
        )
        self._command = [*command, '--token', TOKEN, *arguments]
        self.url = f'http://127.0.0.1:{port}'
        self.log = directory / 'placement.log'

    def start(self):
        self.log.write_text('')
        env = {
            **os.environ,
            'NOVASCHED_PLACEMENT_CONNECTION': self.connection,
            'PYTHONPATH': str(Path(__file__).parents[2]),
        }
        process = self._process = Process(self._command, self.log, env=env)
        process.ready(lambda: 'listening on' in process.text(), START, 'Placement')


@contextmanager
def placement(server_url, directory, *arguments):
    """Placement with a database of its own on a server, until the end of the block."""
    name = f'novasched_{secrets.token_hex(4)}_placement'
    try:
        connection = create_database(server_url, name)
        with PlacementProcess(connection, directory, *arguments) as process:
            yield process
    finally:
        drop_database(server_url, name)


class Backup:
    """The rows of a Placement's database about providers and consumers, on MariaDB."""

    def __init__(self, connection):
        self._engine = sa.create_engine(connection)
        metadata = sa.MetaData()
        metadata.reflect(self._engine, only=BACKED_UP)
        self._tables = [metadata.tables[name] for name in BACKED_UP]
        with self._engine.connect() as read:
            found = [
                read.execute(sa.select(table)).mappings() for table in self._tables
            ]
            self._rows = [[dict(row) for row in rows] for rows in found]

    def restore(self):
        """Let it have these again, and no others; nobody sees half of them."""
        with self._engine.connect() as connection:
            locked = ', '.join(f'{name} WRITE' for name in BACKED_UP)
            for statement in ('SET FOREIGN_KEY_CHECKS = 0', f'LOCK TABLES {locked}'):
                connection.exec_driver_sql(statement)
            for table, rows in zip(self._tables, self._rows, strict=True):
                connection.execute(sa.delete(table))
                if rows:
                    connection.execute(sa.insert(table), rows)
            connection.commit()
            connection.invalidate()  # which unlocks them
        self._engine.dispose()


class Conflict(AssertionError):
    """Something is in use, or somebody else has just changed it."""


class PlacementApi(Providers):
    """Placement's HTTP API as far as the tests use it; an unexpected status raises."""

    def __init__(self, url):
        super().__init__(url, TOKEN)

    def add_provider(self, uuid, name, inventories, traits, parent=None):
        """A resource provider with its inventories and traits; custom resource classes
        are made on the way."""
        body = {'uuid': uuid, 'name': name}
        if parent is not None:
            body['parent_provider_uuid'] = parent
        self.call('POST', '/resource_providers', **body)
        for name in inventories:
            if name.startswith('CUSTOM_'):
                self.call('PUT', f'/resource_classes/{name}')
        for trait in traits:
            if trait.startswith('CUSTOM_'):
                self.call('PUT', f'/traits/{trait}')
        self.put(uuid, inventories=inventories)
        self.put(uuid, traits=traits)

    def join_aggregate(self, uuid, aggregate):
        """Make a provider a member of one more aggregate."""
        now = self.call('GET', f'/resource_providers/{uuid}/aggregates')['aggregates']
        self.put(uuid, aggregates=[*now, aggregate])

    def remove_provider(self, uuid):
        """Remove a provider.

        :raises Conflict: something is allocated there.
        """
        self.call('DELETE', f'/resource_providers/{uuid}')

    def providers(self):
        found = self.call('GET', '/resource_providers')['resource_providers']
        return [provider['uuid'] for provider in found]

    def all_allocations(self):
        found: Allocations = {}
        for provider in self.providers():
            held = self.call('GET', f'/resource_providers/{provider}/allocations')[
                'allocations'
            ]
            for consumer, entry in held.items():
                found.setdefault(consumer, {})[provider] = entry['resources']
        return found

    def allocate(self, consumer, provider, resources):
        """Let a new consumer hold something, as another service would."""
        body = {
            'allocations': {provider: {'resources': resources}},
            'project_id': 'another-project',
            'user_id': 'another-user',
            'consumer_generation': None,
        }
        self.call('PUT', f'/allocations/{consumer}', **body)

    def keep(self, consumer, allocations):
        """Let a consumer that holds something hold this alone, as at the end of a
        move."""
        now = self.call('GET', f'/allocations/{consumer}')
        kept = {rp: {'resources': each} for rp, each in allocations.items()}
        body = {**_settable(now), 'allocations': kept}
        self.call('PUT', f'/allocations/{consumer}', **body)

    def drop(self, consumer, provider):
        """Let a consumer hold nothing of one provider any more, as when a destination
        turns out to be unfit; what it holds elsewhere stays.

        :raises Conflict: somebody else has just changed what it holds.
        """
        now = self.call('GET', f'/allocations/{consumer}')
        if now['allocations'].pop(provider, None):
            self.call('PUT', f'/allocations/{consumer}', **_settable(now))

    def hand_over(self, consumer, other, generation=None):
        """Let another consumer hold what one holds, instead of what it held, as a
        conductor does before a move and when it is undone. False where there is nothing
        to hand over.

        :param generation: of the other one, if it holds nothing.
        :raises Conflict: somebody else has just changed what one of them holds.
        """
        giving, taking = (
            self.call('GET', f'/allocations/{each}') for each in (consumer, other)
        )
        if not giving['allocations']:
            return False
        generation = taking.get('consumer_generation', generation)
        bodies = {
            consumer: {**_settable(giving), 'allocations': {}},
            other: {**_settable(giving), 'consumer_generation': generation},
        }
        self.call('POST', '/allocations', **bodies)
        return True

    def insist(self, write, *arguments, **values):
        """Do one of the writes, to whose provider others write; Placement answers 409
        or 500 if they collide."""

        def is_done():
            with suppress(AssertionError):
                write(*arguments, **values)
                return True

        wait_until(is_done, START, 'write', pause=0)

    def release(self, consumer):
        self.call('DELETE', f'/allocations/{consumer}')

    def clear(self):
        """Remove every allocation and every provider; children go before their
        parents."""
        for consumer in self.all_allocations():
            self.release(consumer)
        left = self.call('GET', '/resource_providers')['resource_providers']
        while left:
            parents = {provider['parent_provider_uuid'] for provider in left}
            for provider in left:
                if provider['uuid'] not in parents:
                    self.remove_provider(provider['uuid'])
            left = [provider for provider in left if provider['uuid'] in parents]

    def call(self, method, path, **body):
        """One request; the answer is its JSON, None for an empty one."""
        response = self.send(method, path, body or None)
        if response.content:
            return response.json()
        return None

    def send(self, method, path, body=None):
        """Placement's answer, read and not decoded."""
        response = self._http.request(method, self._url + path, json=body, timeout=300)
        if not response.ok:
            error = Conflict if response.status_code == 409 else AssertionError
            raise error(f'{method} {path}: {response.status_code} {response.text}')
        return response


def _settable(held):
    """What a consumer holds, as a PUT takes it."""
    names = ('project_id', 'user_id', 'consumer_generation')
    resources = {
        rp: {'resources': each['resources']} for rp, each in held['allocations'].items()
    }
    return {**{name: held[name] for name in names}, 'allocations': resources}
