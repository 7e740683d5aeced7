# SPDX-License-Identifier: Apache-2.0
"""A large cloud that is there soon: hosts go into the databases by the thousand, those
of Placement included, since its API takes a request for each of a provider's
matters."""

from collections.abc import Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab import placement_api, servers
from tests.lab.builders import a_uuid
from tests.lab.compute_rows import Flavor, Row, instance_row, now
from tests.lab.large_cloud_hosts import CELLS, METADATA, aggregates_of, instances_of
from tests.lab.large_cloud_requests import FILTERS, UNLIMITED
from tests.lab.nova_cloud import COMPUTE_TRAITS, PROJECT, USER, Database, NovaCloud
from tests.lab.nova_release import NovaRelease

PROVIDER_TABLES = (
    'resource_providers',
    'inventories',
    'resource_classes',
    'traits',
    'resource_provider_traits',
    'placement_aggregates',
    'resource_provider_aggregates',
)
HOSTS_AT_ONCE = 250  # whose instances are inserted together
FLAVOR_ID = 1  # of the instances, and of requests
LONG = 86_400  # seconds; computes stay up, though nobody reports for them
QUIET = 600  # seconds between the heartbeats of a scheduler, so that none is counted


def config(fallback):
    """What both schedulers are told, beside where things are.

    :param fallback: look for pinned CPUs among VCPU, too, by a second query, as nova
        does unless it is told that no host is so old that it reports them there.
    """
    return {
        'DEFAULT': {
            'debug': False,
            'service_down_time': LONG,
            'report_interval': QUIET,
        },
        'scheduler': {'workers': 1, 'max_placement_results': UNLIMITED},
        'filter_scheduler': {'enabled_filters': ','.join(FILTERS)},
        'workarounds': {'disable_fallback_pcpu_query': not fallback},
    }


class Providers:
    """Placement's own tables."""

    def __init__(self, url):
        self._database = Database(url, PROVIDER_TABLES)
        self._classes = self._numbers('resource_classes', 'name')
        self._traits = self._numbers('traits', 'name')
        rows = [{'created_at': now(), 'uuid': a_uuid(name)} for name in METADATA]
        self._database.insert('placement_aggregates', rows)
        self._aggregates = self._numbers('placement_aggregates', 'uuid')
        self._count = 0

    def add(self, computes, aggregates):
        """Providers with inventories and traits, members of the aggregates of those
        names."""
        numbered = list(enumerate(computes, self._count + 1))
        self._count += len(computes)
        ordinary = {'reserved': 0, 'min_unit': 1, 'step_size': 1}
        rows: dict[str, Iterable[Row]] = {
            'resource_providers': (
                {
                    'id': i,
                    'root_provider_id': i,
                    'uuid': each.uuid,
                    'name': each.name,
                    'generation': 1,
                }
                for i, each in numbered
            ),
            'inventories': (
                {
                    **ordinary,
                    'resource_provider_id': i,
                    'resource_class_id': self._classes[name],
                    **row,
                }
                for i, each in numbered
                for name, row in each.inventories().items()
            ),
            'resource_provider_traits': (
                {'resource_provider_id': i, 'trait_id': self._traits[trait]}
                for i, each in numbered
                for trait in (*COMPUTE_TRAITS, *each.traits)
            ),
            'resource_provider_aggregates': (
                {
                    'resource_provider_id': i,
                    'aggregate_id': self._aggregates[a_uuid(name)],
                }
                for (i, _), names in zip(numbered, aggregates, strict=True)
                for name in names
            ),
        }
        for table, its in rows.items():
            self._database.insert(table, [{'created_at': now(), **row} for row in its])

    def _numbers(self, table, name):
        return {row[name]: row['id'] for row in self._database.rows(table)}


class LargeCloud(NovaCloud):
    """A cloud that only grows."""

    def __init__(self, directory, placement, **urls):
        super().__init__(
            NovaRelease.find(), directory, placement_url=placement.url, **urls
        )
        self.placement_process = placement
        self._providers = Providers(placement.connection)
        self._aggregates = {
            name: self.add_aggregate_rows(name, a_uuid(name), metadata)
            for name, metadata in METADATA.items()
        }

    def grow(self, computes, instances=0):
        """Bring the cloud to these hosts, the first of which it has already, with so
        many instances on each of the others."""
        first = len(self.computes)
        added = computes[first:]
        self.add_rows(added)
        names = [aggregates_of(number) for number in range(first, len(computes))]
        for name, number in self._aggregates.items():
            pairs = zip(added, names, strict=True)
            self.join_aggregate(
                number, [each.name for each, its in pairs if name in its]
            )
        self._providers.add(added, names)
        if instances:
            self._fill(added, instances)

    def _fill(self, computes, count):
        """Let instances run on hosts, the first one of every tenth host in a server
        group."""
        for start in range(0, len(computes), HOSTS_AT_ONCE):
            for cell, database in self.cells.items():
                some = [
                    each
                    for each in computes[start : start + HOSTS_AT_ONCE]
                    if each.cell == cell
                ]
                rows = [
                    {**row, 'uuid': uuid, 'instance_type_id': FLAVOR_ID}
                    for each in some
                    for row in [
                        instance_row('', each, Flavor(), PROJECT, USER, index=0)
                    ]
                    for uuid in instances_of(each.name, count)
                ]
                database.insert('instances', rows)
        members = [instances_of(each.name, 1)[0] for each in computes[::10]]
        number = (
            max((row['id'] for row in self.api.rows('instance_groups')), default=0) + 1
        )
        made = {'created_at': now()}
        group = {**made, 'id': number, 'user_id': USER, 'project_id': PROJECT}
        self.api.insert(
            'instance_groups', [{**group, 'uuid': a_uuid(f'group{number}')}]
        )
        policy = {'group_id': number, 'policy': 'anti-affinity', 'rules': '{}'}
        self.api.insert('instance_group_policy', [policy])
        self.api.insert(
            'instance_group_member',
            [{**made, 'instance_uuid': uuid, 'group_id': number} for uuid in members],
        )


@contextmanager
def cloud(directory=None, cells=CELLS):
    """A cloud without a host yet on servers of its own, whose Placement logs every
    request.

    :param directory: where logs and configuration go; they are removed unless it is
        named.
    """
    if directory is None:
        with (
            TemporaryDirectory(prefix='novasched-') as temporary,
            cloud(Path(temporary), cells) as made,
        ):
            yield made
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (
        servers.MariaDB() as mariadb,
        servers.RabbitMQ() as rabbitmq,
        placement_api.placement(
            mariadb.url, directory, '--log-level', 'INFO'
        ) as placement,
        closing(
            LargeCloud(
                directory,
                placement,
                amqp_url=rabbitmq.url,
                database_url=mariadb.url,
                cells=cells,
            )
        ) as made,
    ):
        yield made
