# SPDX-License-Identifier: Apache-2.0
"""What Placement answered earlier, while requests come all the time and the cloud
changes under them.

Each change has a flavor of its own, whose trait two hosts have: its own host, which is
preferred, and the spare one. So a table says where requests go before a change, and
where they go after it.
"""

import time

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.nova_cloud import COMPUTE_TRAITS
from tests.lab.placement_api import Backup
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy
from tests.lab.rpc_load import Load, load
from tests.lab.wire import FLAVOR

MAX_AGE = 1.0
"""Seconds for which an answer is used: what is asked later goes by what holds now."""
CLIENTS = 3
PAUSE = 0.05
ENOUGH = 6
WAIT = 150.0
VCPUS = 10_000
RAM = 3_000_000
ROOM = {'spare': 1_000_000, 'older': 2_000_000}
"""Sizes of hosts; the one with the most MB is preferred."""
AGGREGATES = {
    'zone': {'availability_zone': 'zone'},
    'tenant': {'filter_tenant_id': 'tenant'},
    'flavor': {'kind': 'flavor'},
    'late_zone': {'availability_zone': 'late_zone'},
    'late_tenant': {'filter_tenant_id': 'late_tenant'},
}
FIELDS = {
    'zone': {'availability_zone': 'zone'},
    'tenant': {'project_id': 'tenant'},
    'late_zone': {'availability_zone': 'late_zone'},
    'late_tenant': {'project_id': 'late_tenant'},
}
LATE = ('late_zone', 'late_tenant')
"""Changes that nova's database has before Placement."""
SPECS = {'flavor': {'aggregate_instance_extra_specs:kind': 'flavor'}}
"""By the change: its aggregate; what the request says; and its flavor, beside the
trait."""
CONFIG = {
    'DEFAULT': {'debug': False},
    'scheduler': {'limit_tenants_to_placement_aggregate': True},
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,AggregateInstanceExtraSpecsFilter',
        'weight_classes': 'nova.scheduler.weights.ram.RAMWeigher',
    },
    'novasched': {'candidates_max_age': MAX_AGE},
}


class Site:
    """The cloud and its clients; ``full`` is an instance that has all of its host."""

    def __init__(self, cloud, caller, proxy):
        self.cloud = cloud
        self.cell = cloud.cells['cell1']
        self.placement = cloud.placement
        self.caller = caller
        self.proxy = proxy
        self.load = Load()
        [self.full] = new_uuids()
        self.fields = {}

    def place(self):
        """Ask for what the current change wants; clients call it (:func:`load`)."""
        return self.caller.place(fields=self.fields)

    def add_host(self, name, *traits):
        sizes = {'vcpus': VCPUS, 'ram_mb': ROOM.get(name, RAM), 'disk_gb': 1_000_000}
        self.cloud.add_host(name, cpu_ratio=1.0, traits=traits, **sizes)

    def put(self, name, **part):
        self.placement.insist(
            self.placement.put, self.cloud.computes[name].uuid, **part
        )


def trait_of(name):
    return f'CUSTOM_{name.upper()}'


def leaves(site, name):
    """It is in no aggregate any more."""
    site.cloud.api.delete('aggregate_hosts', host=name)
    site.put(name, aggregates=[])


def loses(site, name):
    site.put(name, traits=[*COMPUTE_TRAITS])


def gains(site, name):
    site.put(name, traits=[*COMPUTE_TRAITS, trait_of(name)])


def is_off(site, name):
    """Its service is disabled; Placement is not told."""
    site.cell.update('services', {'disabled': True}, host=name)


def is_marked(site, name):
    """It is disabled, as far as Placement knows."""
    site.put(name, traits=[*COMPUTE_TRAITS, trait_of(name), 'COMPUTE_STATUS_DISABLED'])


def shrinks(site, name):
    """It has less than is in use."""
    sizes = site.cloud.computes[name].inventories()
    site.put(name, inventories={**sizes, 'VCPU': {'total': 1}})


def goes(site, name):
    """It is deleted, and so are its provider and what is allocated there."""
    provider = f'/resource_providers/{site.cloud.computes[name].uuid}'
    for table in ('compute_nodes', 'services'):
        site.cell.update(table, {'deleted': 1}, host=name)

    def remove():
        for consumer in site.placement.call('GET', f'{provider}/allocations')[
            'allocations'
        ]:
            site.placement.release(consumer)
        site.placement.call('DELETE', provider)

    site.placement.insist(remove)


def is_freed(site, name):
    """The instance that has all of it is deleted."""
    compute = site.cloud.computes[name]
    site.cell.update('instances', {'deleted': 1}, uuid=site.full)
    site.cell.update('compute_nodes', compute.node_row(), uuid=compute.uuid)
    site.placement.release(site.full)


def is_lost(site, name):
    """Placement is as it was before it came, and before the older host had its
    trait."""
    site.backup.restore()


CHANGES = [
    ('zone', leaves, 'zone', 'spare'),
    ('tenant', leaves, 'tenant', 'spare'),
    ('flavor', leaves, 'flavor', 'spare'),
    ('trait', loses, 'trait', 'spare'),
    ('fit', gains, 'spare', 'fit'),
    ('off', is_off, 'off', 'spare'),
    ('marked', is_marked, 'marked', 'spare'),
    ('shrunk', shrinks, 'shrunk', 'spare'),
    ('gone', goes, 'gone', 'spare'),
    ('freed', is_freed, 'spare', 'freed'),
    ('lost', is_lost, 'lost', 'spare'),
]
"""Name, what becomes of the host of that name, and where requests go before and
after."""


@pytest.fixture(scope='module')
def site(cloud, caller, placement):
    """Everything as it is before the changes, and clients at work."""
    cloud.reset()
    names = [*LATE, *(name for name, *_ in CHANGES)]
    with Proxy(cloud.placement_url) as proxy:
        made = Site(cloud, caller, proxy)
        made.add_host('spare', *map(trait_of, names))
        made.add_host('older')
        for name in names[:-1]:
            made.add_host(name, *[trait_of(name)] * (name != 'fit'))
        for name, metadata in AGGREGATES.items():
            cloud.add_aggregate(name, [name, 'spare'], metadata=metadata)
        made.placement.allocate(
            made.full, cloud.computes['freed'].uuid, {'VCPU': VCPUS}
        )
        cloud.boot(made.full, 'freed', Flavor(vcpus=VCPUS))
        made.backup = Backup(placement.connection)
        made.add_host('lost', trait_of('lost'))
        made.put('older', traits=[*COMPUTE_TRAITS, trait_of('lost')])
        config = {**CONFIG, 'placement': {'endpoint': proxy.url}}
        with Daemon(cloud, config), load(made, CLIENTS, pause=PAUSE) as made.load:
            yield made
    made.backup.restore()  # without the claims, which are deleted one after the other
    cloud.reset()


def ask_for(site, name, before):
    """Let the clients ask for the flavor of a change, until an answer about all hosts
    serves them, by which they go to the host from before the change."""

    def is_remembered():
        number = len(site.load.answers)
        site.proxy.asked.clear()
        wait_until(lambda: len(site.load.answers) >= number + ENOUGH, WAIT, 'answers')
        hosts = {each.host for each in site.load.answers[number:]}
        return hosts == {before} and not any(
            'limit=' in each for each in site.proxy.asked
        )

    specs = {f'trait:{trait_of(name)}': 'required', **SPECS.get(name, {})}
    flavor = {**FLAVOR['nova_object.data'], 'extra_specs': specs}
    site.fields = {
        'flavor': {**FLAVOR, 'nova_object.data': flavor},
        **FIELDS.get(name, {}),
    }
    wait_until(is_remembered, WAIT, f'{before} by an answer about all hosts')


@pytest.mark.parametrize('name', LATE)
def test_a_host_that_leaves_placements_aggregate_later(site, name):
    """A request that comes after the change of nova's database does not get the host:
    neither while Placement still has it in the aggregate, nor by an answer from that
    time."""
    ask_for(site, name, name)
    site.cloud.api.delete('aggregate_hosts', host=name)
    changed = time.monotonic()
    site.proxy.asked.clear()
    wait_until(
        lambda: (
            any(
                'member_of' in each and 'limit=' not in each
                for each in [*site.proxy.asked]
            )
            and len(site.load.since(changed)) >= ENOUGH
        ),
        WAIT,
        'an answer about all hosts, and answers to requests',
    )
    site.put(name, aggregates=[])
    later = time.monotonic()
    wait_until(lambda: len(site.load.since(later)) >= ENOUGH, WAIT, 'later answers')
    assert {each.host for each in site.load.since(changed)} == {'spare'}
    assert site.load.failures() == []


@pytest.mark.parametrize(('name', 'change', 'before', 'after'), CHANGES)
def test_a_change(site, name, change, before, after):
    """Whoever asks later than an answer may be old gets the right host, and nobody is
    refused."""
    ask_for(site, name, before)
    change(site, name)
    over = time.monotonic() + MAX_AGE
    wait_until(lambda: len(site.load.since(over)) >= ENOUGH, WAIT, 'later answers')
    assert {each.host for each in site.load.since(over)} == {after}
    assert site.load.failures() == []
