# SPDX-License-Identifier: Apache-2.0
"""A large cloud that is made quickly: hosts are inserted into the databases by the
thousand. Placement's API would take several requests for each provider."""

from collections import Counter, defaultdict
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab import placement_api, servers
from tests.lab.builders import a_uuid
from tests.lab.compute_rows import FLAVOR_ID, Flavor, Row, instance_row, now
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
    'allocations',
)
DEVICE_CLASS = 'VGPU'
"""The resource class of devices."""
HOSTS_AT_ONCE = 250  # whose instances are inserted together
LONG = 86_400  # seconds; computes stay up without reports
QUIET = 600  # seconds between heartbeats of a scheduler, so that none is measured


def config(fallback):
    """The common options of both schedulers.

    :param fallback: ask for VCPU in place of PCPU in a second query, as nova does by
        default for old hosts.
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
    """Resource providers in the tables of Placement."""

    def __init__(self, url):
        self._database = Database(url, PROVIDER_TABLES)
        self._classes = self._numbers('resource_classes', 'name')
        self._traits = self._numbers('traits', 'name')
        rows = [{'created_at': now(), 'uuid': a_uuid(name)} for name in METADATA]
        self._database.insert('placement_aggregates', rows)
        self._aggregates = self._numbers('placement_aggregates', 'uuid')
        self._count = 0

    def add(self, computes, aggregates, devices=0):
        """Add providers with inventories and traits.

        :param aggregates: the names of the aggregates of each provider.
        :param devices: number of devices of each provider.
        """
        rows = defaultdict[str, list[Row]](list)
        for compute, names in zip(computes, aggregates, strict=True):
            number = self._add_provider(
                rows, compute.uuid, compute.name, compute.inventories()
            )
            reference = {'created_at': now(), 'resource_provider_id': number}
            for trait in (*COMPUTE_TRAITS, *compute.traits):
                row = {**reference, 'trait_id': self._traits[trait]}
                rows['resource_provider_traits'].append(row)
            for name in names:
                row = {**reference, 'aggregate_id': self._aggregates[a_uuid(name)]}
                rows['resource_provider_aggregates'].append(row)

            for index in range(devices):
                uuid = device_uuid(compute.name, index)
                name = f'{compute.name}_device{index}'
                self._add_provider(rows, uuid, name, _one_device(), number)

        for table, table_rows in rows.items():
            self._database.insert(table, table_rows)

    def allocated(self, resource_class):
        """The allocated amount of a resource class by number of the provider."""
        amounts = Counter[int]()
        number = self._classes[resource_class]
        for row in self._database.rows('allocations', resource_class_id=number):
            amounts[row['resource_provider_id']] += row['used']
        return amounts

    def _add_provider(self, rows, uuid, name, inventories, parent=None):
        """Add the rows of a provider with inventories; the number of the provider.

        :param rows: the rows by table.
        :param parent: the number of the parent, which is a root.
        """
        self._count += 1
        number = self._count
        created = {'created_at': now()}
        provider = {
            **created,
            'id': number,
            'root_provider_id': parent or number,
            'parent_provider_id': parent,
            'uuid': uuid,
            'name': name,
            'generation': 1,
        }
        rows['resource_providers'].append(provider)

        for resource_class, sizes in inventories.items():
            inventory = {
                **created,
                'resource_provider_id': number,
                'reserved': 0,
                'min_unit': 1,
                'step_size': 1,
                'resource_class_id': self._classes[resource_class],
                **sizes,
            }
            rows['inventories'].append(inventory)
        return number

    def _numbers(self, table, name):
        return {row[name]: row['id'] for row in self._database.rows(table)}


def device_uuid(host, index):
    """The UUID of the provider of a device."""
    return a_uuid(f'{host}_device{index}')


def _one_device():
    """The inventories of a provider that is a single device."""
    return {DEVICE_CLASS: {'total': 1, 'max_unit': 1, 'allocation_ratio': 1.0}}


class LargeCloud(NovaCloud):
    """A cloud that only grows.

    :ivar providers: the resource providers of all hosts.
    :ivar servers: the servers of the cloud by name.
    """

    def __init__(self, directory, mariadb, rabbitmq, placement, cells):
        super().__init__(
            NovaRelease.find(),
            directory,
            amqp_url=rabbitmq.url,
            database_url=mariadb.url,
            placement_url=placement.url,
            cells=cells,
        )
        self.placement_process = placement
        self.servers = {
            'Placement': placement,
            'MariaDB': mariadb,
            'RabbitMQ': rabbitmq,
        }
        self.providers = Providers(placement.connection)
        self._aggregates = {}
        for name, metadata in METADATA.items():
            number = self.add_aggregate_rows(name, a_uuid(name), metadata)
            self._aggregates[name] = number

    def grow(self, computes, instances=0, devices=0):
        """Add the missing hosts to the cloud.

        :param computes: all hosts of the cloud. The cloud has the first hosts already.
        :param instances: number of instances on each added host.
        :param devices: number of devices of each added host, each a child provider.
        """
        first = len(self.computes)
        added = computes[first:]
        self.add_rows(added)

        names = [aggregates_of(number) for number in range(first, len(computes))]
        members = defaultdict[str, list[str]](list)
        for compute, aggregates in zip(added, names, strict=True):
            for name in aggregates:
                members[name].append(compute.name)
        for name, number in self._aggregates.items():
            self.join_aggregate(number, members[name])

        self.providers.add(added, names, devices)
        if instances:
            self._fill(added, instances)

    def _fill(self, computes, count):
        """Let instances run on hosts. The first instances of every tenth host are a
        server group."""
        for start in range(0, len(computes), HOSTS_AT_ONCE):
            rows = defaultdict[str, list[Row]](list)
            for compute in computes[start : start + HOSTS_AT_ONCE]:
                row = instance_row('', compute, Flavor(), PROJECT, USER, index=0)
                row['instance_type_id'] = FLAVOR_ID
                for uuid in instances_of(compute.name, count):
                    rows[compute.cell].append({**row, 'uuid': uuid})
            for cell, database in self.cells.items():
                database.insert('instances', rows[cell])

        members = [instances_of(compute.name, 1)[0] for compute in computes[::10]]
        self._add_anti_affinity_group(members)

    def _add_anti_affinity_group(self, members):
        numbers = [row['id'] for row in self.api.rows('instance_groups')]
        number = max(numbers, default=0) + 1
        created = {'created_at': now()}

        group = {
            **created,
            'id': number,
            'uuid': a_uuid(f'group{number}'),
            'user_id': USER,
            'project_id': PROJECT,
        }
        policy = {'group_id': number, 'policy': 'anti-affinity', 'rules': '{}'}
        rows = []
        for uuid in members:
            rows.append({**created, 'instance_uuid': uuid, 'group_id': number})
        self.api.insert('instance_groups', [group])
        self.api.insert('instance_group_policy', [policy])
        self.api.insert('instance_group_member', rows)


@contextmanager
def cloud(directory=None, cells=CELLS):
    """A cloud without hosts on new servers. Placement logs every request.

    :param directory: the directory for logs and configuration files, by default a
        temporary directory.
    """
    if directory is None:
        with (
            TemporaryDirectory(prefix='novasched-') as temporary,
            cloud(Path(temporary), cells) as temporary_cloud,
        ):
            yield temporary_cloud
        return

    directory.mkdir(parents=True, exist_ok=True)
    with (
        servers.MariaDB() as mariadb,
        servers.RabbitMQ() as rabbitmq,
        placement_api.placement(
            mariadb.url, directory, '--log-level', 'INFO'
        ) as placement,
        closing(LargeCloud(directory, mariadb, rabbitmq, placement, cells)) as made,
    ):
        yield made
