# SPDX-License-Identifier: Apache-2.0
"""Placement as a child process, and a client of its API for tests."""

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
"""The token of the administrator of a Placement without keystone."""

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
    """The Placement of the sandbox as a process, with the same port after a restart.

    :param environment: additional environment variables. oslo.config reads an option
        from ``OS_GROUP__OPTION``.
    """

    def __init__(self, connection, directory, *arguments, environment=None):
        self.connection = connection
        self._environment = environment or {}
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
            **self._environment,
            'NOVASCHED_PLACEMENT_CONNECTION': self.connection,
            'PYTHONPATH': str(Path(__file__).parents[2]),
        }
        process = self._process = Process(self._command, self.log, env=env)
        process.ready(lambda: 'listening on' in process.text(), START, 'Placement')


@contextmanager
def placement(server_url, directory, *arguments, environment=None):
    """Run Placement with a new database in a block.

    :param environment: see :class:`PlacementProcess`.
    """
    name = f'novasched_{secrets.token_hex(4)}_placement'
    try:
        connection = create_database(server_url, name)
        process = PlacementProcess(
            connection, directory, *arguments, environment=environment
        )
        with process:
            yield process
    finally:
        drop_database(server_url, name)


class Backup:
    """A copy of the rows about providers and consumers in Placement's MariaDB."""

    def __init__(self, connection):
        self._engine = sa.create_engine(connection)
        metadata = sa.MetaData()
        metadata.reflect(self._engine, only=BACKED_UP)
        self._tables = [metadata.tables[name] for name in BACKED_UP]
        self._rows = []
        with self._engine.connect() as connection:
            for table in self._tables:
                rows = connection.execute(sa.select(table)).mappings()
                self._rows.append([dict(row) for row in rows])

    def restore(self):
        """Restore the tables. No reader sees a part of the rows."""
        with self._engine.connect() as connection:
            locked = ', '.join(f'{name} WRITE' for name in BACKED_UP)
            for statement in ('SET FOREIGN_KEY_CHECKS = 0', f'LOCK TABLES {locked}'):
                connection.exec_driver_sql(statement)
            for table, rows in zip(self._tables, self._rows, strict=True):
                connection.execute(sa.delete(table))
                if rows:
                    connection.execute(sa.insert(table), rows)
            connection.commit()
            connection.invalidate()  # unlocks the tables
        self._engine.dispose()


class Conflict(AssertionError):
    """A resource is in use, or another client has changed the resource."""


class PlacementApi(Providers):
    """A client of Placement. An unexpected status raises an error."""

    def __init__(self, url):
        super().__init__(url, TOKEN)

    def add_provider(self, uuid, name, inventories, traits, parent=None):
        """Create a resource provider with inventories and traits, and the custom
        resource classes and traits."""
        generation = self.create(uuid, name, parent)
        for name in inventories:
            if name.startswith('CUSTOM_'):
                self.call('PUT', f'/resource_classes/{name}')
        for trait in traits:
            if trait.startswith('CUSTOM_'):
                self.call('PUT', f'/traits/{trait}')
        generation = self.put(uuid, generation, inventories=inventories)
        self.put(uuid, generation, traits=traits)

    def join_aggregate(self, uuid, aggregate):
        """Add a provider to an aggregate."""
        now = self.call('GET', f'/resource_providers/{uuid}/aggregates')['aggregates']
        self.put(uuid, aggregates=[*now, aggregate])

    def remove_provider(self, uuid):
        """Remove a provider.

        :raises Conflict: the provider has allocations.
        """
        self.call('DELETE', f'/resource_providers/{uuid}')

    def providers(self):
        """The UUIDs of all providers."""
        providers = self.call('GET', '/resource_providers')['resource_providers']
        return [provider['uuid'] for provider in providers]

    def all_allocations(self):
        """The allocations of all consumers."""
        return self.allocations_on(self.providers())

    def allocations_on(self, providers):
        """The allocations of all consumers on the providers."""
        allocations: Allocations = {}
        for provider in providers:
            path = f'/resource_providers/{provider}/allocations'
            for consumer, part in self.call('GET', path)['allocations'].items():
                allocations.setdefault(consumer, {})[provider] = part['resources']
        return allocations

    def allocate(self, consumer, provider, resources):
        """Make the allocations of a new consumer, as another service would."""
        body = {
            'allocations': {provider: {'resources': resources}},
            'project_id': 'another-project',
            'user_id': 'another-user',
            'consumer_generation': None,
        }
        self.call('PUT', f'/allocations/{consumer}', **body)

    def keep(self, consumer, allocations):
        """Replace the allocations of a consumer, as at the end of a move."""
        now = self.call('GET', f'/allocations/{consumer}')
        kept = {rp: {'resources': amounts} for rp, amounts in allocations.items()}
        body = {**_settable(now), 'allocations': kept}
        self.call('PUT', f'/allocations/{consumer}', **body)

    def drop(self, consumer, provider):
        """Delete the allocations of a consumer from one provider, as when a destination
        turns out to be unfit.

        :raises Conflict: another client has changed the allocations.
        """
        now = self.call('GET', f'/allocations/{consumer}')
        if now['allocations'].pop(provider, None):
            self.call('PUT', f'/allocations/{consumer}', **_settable(now))

    def hand_over(self, consumer, other, generation=None):
        """Move the allocations of a consumer to another consumer, as a conductor does
        before a move and when a move is undone. The other consumer loses its
        allocations.

        :param generation: the generation of the other consumer, if that consumer has no
            allocations.
        :returns: False if the consumer has no allocations.
        :raises Conflict: another client has changed the allocations.
        """
        giving = self.call('GET', f'/allocations/{consumer}')
        taking = self.call('GET', f'/allocations/{other}')
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
        """Repeat a write until the write succeeds. Placement answers 409 or 500 if
        another client writes to the same provider."""

        def is_done():
            with suppress(AssertionError):
                write(*arguments, **values)
                return True

        wait_until(is_done, START, 'write', pause=0)

    def release(self, consumer):
        self.call('DELETE', f'/allocations/{consumer}')

    def clear(self):
        """Remove all allocations and all providers, children before their parents."""
        providers = self.call('GET', '/resource_providers')['resource_providers']
        while providers:
            parents = {provider['parent_provider_uuid'] for provider in providers}
            remaining = []
            for provider in providers:
                if provider['uuid'] in parents:
                    remaining.append(provider)
                else:
                    self._remove_with_allocations(provider['uuid'])
            providers = remaining

    def _remove_with_allocations(self, uuid):
        # Most providers have no allocations, and are removed by a single request.
        try:
            self.remove_provider(uuid)
        except Conflict:
            for consumer in self.allocations_on([uuid]):
                self.release(consumer)
            self.remove_provider(uuid)

    def call(self, method, path, **body):
        """The decoded JSON of an answer; None for an empty answer."""
        response = self.send(method, path, body or None)
        if response.content:
            return response.json()
        return None

    def send(self, method, path, body=None, timeout=300):
        """The answer of Placement without decoding.

        :param timeout: seconds to wait for the answer.
        :raises requests.Timeout: Placement does not answer in time.
        """
        response = self._http.request(
            method, self._url + path, json=body, timeout=timeout
        )
        if response.ok:
            return response
        text = f'{method} {path}: {response.status_code} {response.text}'
        if response.status_code == 409:
            raise Conflict(text)
        raise AssertionError(text)


def _settable(answer):
    """The body of a PUT with the allocations of an answer to GET."""
    names = ('project_id', 'user_id', 'consumer_generation')
    body = {name: answer[name] for name in names}
    body['allocations'] = {}
    for provider, part in answer['allocations'].items():
        body['allocations'][provider] = {'resources': part['resources']}
    return body
