# SPDX-License-Identifier: Apache-2.0
"""A large cloud that is there soon: hosts go into the databases by the thousand, those of
Placement included, since its API takes a request for each of a provider's matters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.builders import a_uuid
from tests.functional import servers
from tests.functional.compute_rows import Row, now
from tests.functional.nova_cloud import COMPUTE_TRAITS, Database, NovaCloud
from tests.functional.nova_release import Config, NovaRelease, Schemas
from tests.functional.placement_api import PlacementProcess
from tests.perf.hosts import METADATA, LargeHost, aggregates_of
from tests.perf.requests import FILTERS, UNLIMITED

PROVIDER_TABLES = (
    'resource_providers', 'inventories', 'resource_classes', 'traits', 'resource_provider_traits',
    'placement_aggregates', 'resource_provider_aggregates',
)  # fmt: skip
LONG = 86_400  # seconds; computes stay up, though nobody reports for them
QUIET = 600  # seconds between the heartbeats of a scheduler, so that none is counted


def config(fallback: bool) -> Config:
    """What both schedulers are told, beside where things are.

    :param fallback: look for pinned CPUs among VCPU, too, by a second query, as nova does
        unless it is told that no host is so old that it reports them there.
    """
    return {
        'DEFAULT': {'debug': False, 'service_down_time': LONG, 'report_interval': QUIET},
        'scheduler': {'workers': 1, 'max_placement_results': UNLIMITED},
        'filter_scheduler': {'enabled_filters': ','.join(FILTERS)},
        'workarounds': {'disable_fallback_pcpu_query': not fallback},
    }


class Providers:
    """Placement's own tables."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, PROVIDER_TABLES)
        self._classes = self._numbers('resource_classes', 'name')
        self._traits = self._numbers('traits', 'name')
        rows = [{'created_at': now(), 'uuid': a_uuid(name)} for name in METADATA]
        self._database.insert('placement_aggregates', rows)
        self._aggregates = self._numbers('placement_aggregates', 'uuid')
        self._count = 0

    def add(self, computes: Sequence[LargeHost], aggregates: Sequence[Sequence[str]]) -> None:
        """Providers with inventories and traits, members of the aggregates of those names."""
        numbered = list(enumerate(computes, self._count + 1))
        self._count += len(computes)
        self._insert('resource_providers', (self._provider(i, each) for i, each in numbered))
        self._insert('inventories', (row for i, each in numbered for row in self._has(i, each)))
        self._insert(
            'resource_provider_traits',
            (
                {'resource_provider_id': i, 'trait_id': self._traits[trait]}
                for i, each in numbered
                for trait in (*COMPUTE_TRAITS, *each.traits)
            ),
        )
        self._insert(
            'resource_provider_aggregates',
            (
                {'resource_provider_id': i, 'aggregate_id': self._aggregates[a_uuid(name)]}
                for (i, _), names in zip(numbered, aggregates, strict=True)
                for name in names
            ),
        )

    def _has(self, number: int, compute: LargeHost) -> Iterator[Row]:
        ordinary = {'reserved': 0, 'min_unit': 1, 'step_size': 1}
        for name, inventory in compute.inventories().items():
            kind = {'resource_provider_id': number, 'resource_class_id': self._classes[name]}
            yield {**ordinary, **kind, **inventory}

    @staticmethod
    def _provider(number: int, compute: LargeHost) -> Row:
        return {
            'id': number, 'root_provider_id': number, 'uuid': compute.uuid, 'name': compute.name,
            'generation': 1,
        }  # fmt: skip

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        self._database.insert(table, [{'created_at': now(), **row} for row in rows])

    def _numbers(self, table: str, name: str) -> dict[str, int]:
        return {row[name]: row['id'] for row in self._database.rows(table)}


class LargeCloud(NovaCloud):
    """A cloud that only grows."""

    def __init__(self, *arguments: Any, providers: str, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._providers = Providers(providers)
        mappings = self.api.rows('cell_mappings')
        self._numbers = {row['name']: row['id'] for row in mappings}
        self.api.insert(
            'aggregates',
            [{'created_at': now(), 'uuid': a_uuid(name), 'name': name} for name in METADATA],
        )
        self._aggregates = {row['name']: row['id'] for row in self.api.rows('aggregates')}
        self.api.insert(
            'aggregate_metadata',
            [
                {'created_at': now(), 'key': k, 'value': v, 'aggregate_id': self._aggregates[name]}
                for name, metadata in METADATA.items()
                for k, v in metadata.items()
            ],
        )

    def grow(self, computes: Sequence[LargeHost]) -> None:
        """Bring the cloud to these hosts, the first of which it has already."""
        first = len(self.computes)
        added = computes[first:]
        version = self.nova.service_version
        for cell, database in self.cells.items():
            ours = [each for each in added if each.cell == cell]
            database.insert('services', [each.service_row(version) for each in ours])
            database.insert('compute_nodes', [each.node_row() for each in ours])
        self.api.insert(
            'host_mappings',
            [
                {'created_at': now(), 'cell_id': self._numbers[each.cell], 'host': each.name}
                for each in added
            ],
        )
        names = [aggregates_of(number) for number in range(first, len(computes))]
        self.api.insert(
            'aggregate_hosts',
            [
                {'created_at': now(), 'host': each.name, 'aggregate_id': self._aggregates[name]}
                for each, its in zip(added, names, strict=True)
                for name in its
            ],
        )
        self._providers.add(added, names)
        self.computes.update((each.name, each) for each in added)


@contextmanager
def cloud(directory: Path) -> Iterator[tuple[LargeCloud, PlacementProcess, sa.Engine, str]]:
    """A cloud without a host yet on servers of its own, its Placement, which logs every
    request, the database server, and the name of Placement's database there."""
    nova = NovaRelease.find()
    with ExitStack() as stack:
        mariadb = servers.mariadb()
        stack.callback(mariadb.close)
        rabbitmq = servers.rabbitmq()
        stack.callback(rabbitmq.close)
        name = f'novasched_{uuid.uuid4().hex[:8]}_placement'
        connection = servers.create_database(mariadb.url, name)
        stack.callback(servers.drop_database, mariadb.url, name)
        placement = PlacementProcess(connection, directory, '--log-level', 'INFO')
        stack.callback(placement.close)
        placement.start()
        made = LargeCloud(
            nova,
            Schemas(nova, directory),
            directory,
            amqp_url=rabbitmq.url,
            database_url=mariadb.url,
            placement_url=placement.url,
            providers=connection,
        )
        stack.callback(made.close)
        engine = sa.create_engine(mariadb.url, isolation_level='AUTOCOMMIT')
        stack.callback(engine.dispose)
        yield made, placement, engine, name
