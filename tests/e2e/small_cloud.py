# SPDX-License-Identifier: Apache-2.0
"""The whole cloud on this machine, all but its scheduler."""

from contextlib import contextmanager

from novasched.conf.settings import DEFAULT_FILTERS
from tests.lab.placement_api import TOKEN
from tests.lab.processes import Failed, wait_until

from .compute_api import ComputeApi, eventually
from .services import START, NovaServices

COMPUTES = ('compute-1', 'compute-2', 'compute-3', 'compute-4')
FICKLE = 'compute-fickle'
"""One more, disabled most of the time: it fails to build each server the first time."""
FICKLENESS = {
    'DEFAULT': {
        'compute_driver': 'fake.FakeRescheduleDriver',
        # So much that it is everybody's first choice.
        'initial_ram_allocation_ratio': 8,
        'initial_cpu_allocation_ratio': 32,
        'initial_disk_allocation_ratio': 8,
    },
    # Failures are not held against it.
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
    'impossible': {'vcpus': 100_000, 'ram': 512, 'disk': 1},
}
FAST = {'aggregate_instance_extra_specs:fast': 'true'}
"""Of the flavor ``fast``, which is as large as ``small``."""


class SmallCloud:
    """Four computes of the same size and a fickle one, flavors and images."""

    def __init__(self, databases, images, network):
        self.databases = databases
        self.placement = databases.placement
        self.config = _config(images.url, f'http://{network.address}')
        computes = {**{host: {} for host in COMPUTES}, FICKLE: FICKLENESS}
        self.services = NovaServices(databases, self.config, computes)
        self.api = ComputeApi(self.services.api.url)
        self.image = images.add_image('any')
        self.other_image = images.add_image('another')
        self.foreign_image = images.add_image(
            'of another architecture', hw_architecture='aarch64'
        )

    def start(self, stack):
        """Start it; returns when every compute is mapped and in Placement."""
        self.services.start(stack)
        count = len(self.services.computes)
        wait_until(lambda: len(self.placement.providers()) == count, START, 'providers')
        self.services.discover_hosts()
        self.api.update_compute(FICKLE, status='disabled')
        for name, size in {**FLAVORS, 'fast': FLAVORS['small']}.items():
            self.api.call(
                'POST', '/flavors', {'flavor': {'name': name, 'id': name, **size}}
            )
        self.api.call('POST', '/flavors/fast/os-extra_specs', {'extra_specs': FAST})

    def ask(self, hints=None, **options):
        """Ask for a small server of any image without networks, unless the options of
        the API say otherwise; the UUID of the first, if they are several."""
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
        already = {server.uuid for server in self.api.servers()}
        self.ask(hints, min_count=count, max_count=count, **options)
        made = [
            server.uuid for server in self.api.servers() if server.uuid not in already
        ]
        return [self.api.settled(uuid, 'ACTIVE') for uuid in made]

    def fault(self, hints=None, **options):
        """Ask for a server that cannot be; what nova says of it when it has failed."""
        server = self.api.settled(self.ask(hints, **options), 'ERROR')
        assert server.host is None
        return server.fault

    @contextmanager
    def aggregate(self, *hosts, **metadata):
        """An aggregate of these hosts, for as long as the context lasts; without
        servers at the end, since no zone may be taken away from under a server."""
        name = {'name': '-'.join(hosts)}
        made = self.api.call('POST', '/os-aggregates', {'aggregate': name})['aggregate']
        path = f'/os-aggregates/{made["id"]}'
        self.api.call(
            'POST', f'{path}/action', {'set_metadata': {'metadata': metadata}}
        )
        for host in hosts:
            self.api.call('POST', f'{path}/action', {'add_host': {'host': host}})
        try:
            yield
            self.check_allocations()
        finally:
            self.api.delete(*(server.uuid for server in self.api.servers()))
            for host in hosts:
                self.api.call('POST', f'{path}/action', {'remove_host': {'host': host}})
            self.api.call('DELETE', path)

    @contextmanager
    def group(self, policy):
        """A server group, for as long as the context lasts; the hint that names it."""
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
        """A compute that has crashed, and that the operator knows to be down, for as
        long as the context lasts."""
        self.services.computes[host].kill()
        self.api.update_compute(host, forced_down=True)
        try:
            yield
        finally:
            before = self._reported(host)
            self.services.computes[host].start()
            # It reports once it has forgotten the servers that were evacuated.
            eventually(lambda: self._reported(host) > before, f'report of {host}')
            self.api.update_compute(host, forced_down=False)

    def _reported(self, host):
        return str(self.api.services('nova-compute')[host]['updated_at'])

    def check_allocations(self):
        """Soon, what Placement holds is what the servers take that have a host."""
        expected = {
            server.uuid: {server.host: server.takes}
            for server in self.api.servers()
            if server.host is not None
        }
        try:
            eventually(lambda: self.allocations() == expected, 'equal allocations')
        except Failed as error:
            raise Failed(
                f'{error}: {self.allocations()}, for servers {expected}'
            ) from None

    def allocations(self):
        """What every consumer holds: {server: {host: {resource class: amount}}}."""
        nodes = self.databases.cells['cell1'].rows('compute_nodes', deleted=0)
        names = {row['uuid']: row['host'] for row in nodes}
        return {
            consumer: {names[provider]: amounts for provider, amounts in held.items()}
            for consumer, held in self.placement.all_allocations().items()
        }


def _config(glance, neutron):
    """What all of nova is told, beside where the databases are."""
    return {
        'DEFAULT': {
            'debug': False,
            'report_interval': 3,
            # One that is killed is forced down; none that lives is to seem down.
            'service_down_time': 300,
            # A compute whose fake driver has lost its servers stops none.
            'sync_power_state_interval': -1,
        },
        'filter_scheduler': {
            'enabled_filters': ','.join(FILTERS),
            # More than the other weighers together.
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
