# SPDX-License-Identifier: Apache-2.0
"""The small cloud on this machine, except the scheduler."""

from contextlib import contextmanager

from novasched.conf.settings import DEFAULT_FILTERS
from tests.lab.nova_release import merged
from tests.lab.placement_api import TOKEN
from tests.lab.processes import Failed, wait_until

from . import devices
from .compute_api import ComputeApi, eventually
from .services import START, NovaServices

COMPUTES = ('compute-1', 'compute-2', 'compute-3', 'compute-4')
FICKLE = 'compute-fickle'
"""Another compute, disabled most of the time. FICKLE fails the first build of each
server."""
FICKLENESS = {
    'DEFAULT': {
        'compute_driver': 'fake.FakeRescheduleDriver',
        # The weighers prefer FICKLE to every other compute.
        'initial_ram_allocation_ratio': 8,
        'initial_cpu_allocation_ratio': 32,
        'initial_disk_allocation_ratio': 8,
    },
    # nova would disable a compute after several failed builds.
    'compute': {'consecutive_build_service_disable_threshold': 0},
}
FILTERS = (
    *DEFAULT_FILTERS,
    'SameHostFilter',
    'DifferentHostFilter',
    'JsonFilter',
    'AggregateInstanceExtraSpecsFilter',
)
FLAVORS = {
    'small': {'vcpus': 1, 'ram': 512, 'disk': 1},
    'larger': {'vcpus': 2, 'ram': 1024, 'disk': 2},
    'middle': {'vcpus': 1, 'ram': 300_000, 'disk': 1},
    'large': {'vcpus': 1, 'ram': 500_000, 'disk': 1},
    'impossible': {'vcpus': 100_000, 'ram': 512, 'disk': 1},
}
FAST = {'aggregate_instance_extra_specs:fast': 'true'}
"""Extra specs of the flavor ``fast``, which is as large as ``small``."""

NO_VALID_HOST = 'No valid host was found. '
"""The fault of a server if Placement has no candidate."""
NOT_ENOUGH = 'No valid host was found. There are not enough hosts available.'
"""The fault of a server if the filters reject all candidates."""


def hosts_of(servers):
    return {server.host for server in servers}


class SmallCloud:
    """Four computes of the same size and a fickle one, three computes with PCI devices,
    flavors and images."""

    def __init__(self, databases, images, network):
        self.databases = databases
        self.placement = databases.placement
        common = _config(images.url, f'http://{network.address}')
        self.config = merged(common, devices.config())
        computes = {
            **{host: {} for host in COMPUTES},
            FICKLE: FICKLENESS,
            **devices.computes(),
        }

        self.services = NovaServices(databases, self.config, computes)
        self.api = ComputeApi(self.services.api.url)

        self.image = images.add_image('any')
        self.other_image = images.add_image('another')
        self.foreign_image = images.add_image(
            'of another architecture', hw_architecture='aarch64'
        )

    def start(self, stack):
        """Start the cloud; returns when every compute is mapped and in Placement."""
        self.services.start(stack)
        count = len(self.services.computes) + devices.PROVIDERS
        wait_until(lambda: len(self.placement.providers()) == count, START, 'providers')
        self.services.discover_hosts()
        for host in (FICKLE, *devices.HOSTS):
            self.api.update_compute(host, status='disabled')

        for name, size in FLAVORS.items():
            self._add_flavor(name, size, {})
        self._add_flavor('fast', FLAVORS['small'], FAST)
        for name in devices.FLAVORS:
            self._add_flavor(name, FLAVORS['small'], devices.extra_spec(name))

    def _add_flavor(self, name, size, extra_specs):
        flavor = {'name': name, 'id': name, **size}
        self.api.call('POST', '/flavors', {'flavor': flavor})
        if extra_specs:
            path = f'/flavors/{name}/os-extra_specs'
            self.api.call('POST', path, {'extra_specs': extra_specs})

    def ask(self, hints=None, **options):
        """Request a small server without networks, unless the options of the API say
        otherwise.

        :returns: the UUID of the server; of the first server of several.
        """
        usual = {
            'name': 'e2e',
            'networks': 'none',
            'flavorRef': 'small',
            'imageRef': self.image,
        }

        body = {'server': {**usual, **options}, 'os:scheduler_hints': dict(hints or {})}
        return self.api.call('POST', '/servers', body)['server']['id']

    def boot(self, hints=None, **options):
        return self.api.settled(self.ask(hints, **options), 'ACTIVE')

    def boot_many(self, count, hints=None, **options):
        existing = {server.uuid for server in self.api.servers()}
        self.ask(hints, min_count=count, max_count=count, **options)

        new = [server for server in self.api.servers() if server.uuid not in existing]
        return [self.api.settled(server.uuid, 'ACTIVE') for server in new]

    def fault(self, hints=None, **options):
        """Request a server that cannot be placed; the text of nova's fault."""
        server = self.api.settled(self.ask(hints, **options), 'ERROR')
        assert server.host is None
        return server.fault

    @contextmanager
    def aggregate(self, *hosts, **metadata):
        """An aggregate of the hosts, for as long as the context lasts.

        The context deletes all servers at its end: nova refuses to remove a host from
        an availability zone while the host has servers.
        """
        body = {'aggregate': {'name': '-'.join(hosts)}}
        aggregate = self.api.call('POST', '/os-aggregates', body)['aggregate']
        path = f'/os-aggregates/{aggregate["id"]}'
        self.api.call(
            'POST', f'{path}/action', {'set_metadata': {'metadata': metadata}}
        )
        for host in hosts:
            self.api.call('POST', f'{path}/action', {'add_host': {'host': host}})

        try:
            yield
            self.check_allocations()
        finally:
            self.delete_servers()
            for host in hosts:
                self.api.call('POST', f'{path}/action', {'remove_host': {'host': host}})
            self.api.call('DELETE', path)

    def delete_servers(self):
        """Delete all servers of the cloud."""
        uuids = [server.uuid for server in self.api.servers()]
        self.api.delete(*uuids)

    @contextmanager
    def group(self, policy):
        """A server group, for as long as the context lasts; yields the hint that names
        the group."""
        body = {'server_group': {'name': policy, 'policy': policy}}
        uuid = self.api.call('POST', '/os-server-groups', body)['server_group']['id']
        try:
            yield {'group': uuid}
        finally:
            self.api.call('DELETE', f'/os-server-groups/{uuid}')

    @contextmanager
    def disabled(self, *hosts, status='disabled'):
        """Computes that take no new servers, for as long as the context lasts."""
        before = 'enabled' if status == 'disabled' else 'disabled'
        try:
            for host in hosts:
                self.api.update_compute(host, status=status)
            yield
        finally:
            for host in hosts:
                self.api.update_compute(host, status=before)

    def enabled(self, host):
        """A compute that takes new servers, for as long as the context lasts."""
        return self.disabled(host, status='enabled')

    @contextmanager
    def dead(self, host):
        """A compute that has crashed and that the operator has forced down, for as long
        as the context lasts."""
        self.services.computes[host].kill()
        self.api.update_compute(host, forced_down=True)

        try:
            yield
        finally:
            before = self._reported(host)
            self.services.computes[host].start()
            # The compute reports after it has forgotten the evacuated servers.
            eventually(lambda: self._reported(host) > before, f'report of {host}')
            self.api.update_compute(host, forced_down=False)

    def _reported(self, host):
        return str(self.api.services('nova-compute')[host]['updated_at'])

    def check_allocations(self):
        """Wait until Placement's allocations equal the resources of the placed
        servers."""
        expected = {}
        for server in self.api.servers():
            if server.host is not None:
                expected[server.uuid] = {server.host: server.takes}
        try:
            eventually(lambda: self.allocations() == expected, 'equal allocations')
        except Failed as error:
            raise Failed(
                f'{error}: {self.allocations()}, for servers {expected}'
            ) from None

    def allocations(self):
        """The allocations of all consumers, except devices: {server: {host: {resource
        class: amount}}}."""
        nodes = self.databases.cells['cell1'].rows('compute_nodes', deleted=0)
        names = {row['uuid']: row['host'] for row in nodes}

        allocations = {}
        for consumer, by_provider in self.placement.allocations_on(names).items():
            by_host = {}
            for provider, amounts in by_provider.items():
                by_host[names[provider]] = amounts
            allocations[consumer] = by_host
        return allocations


def _config(glance, neutron):
    """Options of all nova services, except the addresses of the databases."""
    return {
        'DEFAULT': {
            'debug': False,
            'report_interval': 3,
            # The scenarios force killed computes down. Live computes never seem down.
            'service_down_time': 300,
            # A restarted fake driver has lost its servers; nova must not stop them.
            'sync_power_state_interval': -1,
        },
        'filter_scheduler': {
            'enabled_filters': ','.join(FILTERS),
            # Outweighs all other weighers together.
            'soft_affinity_weight_multiplier': 10,
            'soft_anti_affinity_weight_multiplier': 10,
        },
        'glance': {'endpoint_override': glance},
        'neutron': {
            'auth_type': 'admin_token',
            'endpoint': neutron,
            'endpoint_override': neutron,
            'token': TOKEN,
        },
        'quota': dict.fromkeys(('instances', 'cores', 'ram'), -1),
    }
