# SPDX-License-Identifier: Apache-2.0
"""Requests come all the time and use remembered answers of Placement, while the cloud
changes.

Every change has a flavor with a trait. Two hosts have the trait: the host of the
change, which the weigher prefers, and the spare host. A table names the host of the
requests before a change and after the change.
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
"""Maximum age of a remembered answer, in seconds. Later requests see the change."""
CLIENTS = 3
PAUSE = 0.05
ENOUGH = 6
WAIT = 150.0
VCPUS = 10_000
RAM = 3_000_000
ROOM = {'spare': 1_000_000, 'older': 2_000_000}
"""Memory of hosts in MB; the weigher prefers the host with the most memory."""
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
"""Changes that reach nova's database before Placement."""
SPECS = {'flavor': {'aggregate_instance_extra_specs:kind': 'flavor'}}
"""By the name of the change: AGGREGATES has the metadata of its aggregate, FIELDS the
fields of the request spec, and SPECS the extra specs of the flavor beside the trait."""
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
    """The cloud and its clients.

    :ivar full: an instance that takes all VCPUs of its host.
    :ivar fields: fields of the request spec for the current change.
    """

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
        """Place an instance for the current change; called by :func:`load`."""
        return self.caller.place(fields=self.fields)

    def add_host(self, name, *traits):
        self.cloud.add_host(
            name,
            vcpus=VCPUS,
            ram_mb=ROOM.get(name, RAM),
            disk_gb=1_000_000,
            cpu_ratio=1.0,
            traits=traits,
        )

    def put(self, name, **part):
        self.placement.insist(
            self.placement.put, self.cloud.computes[name].uuid, **part
        )


def trait_of(name):
    return f'CUSTOM_{name.upper()}'


def leaves(site, name):
    """Remove the host from all aggregates."""
    site.cloud.api.delete('aggregate_hosts', host=name)
    site.put(name, aggregates=[])


def loses(site, name):
    site.put(name, traits=[*COMPUTE_TRAITS])


def gains(site, name):
    site.put(name, traits=[*COMPUTE_TRAITS, trait_of(name)])


def is_off(site, name):
    """Disable the host's service, without telling Placement."""
    site.cell.update('services', {'disabled': True}, host=name)


def is_marked(site, name):
    """Disable the host in Placement only."""
    site.put(name, traits=[*COMPUTE_TRAITS, trait_of(name), 'COMPUTE_STATUS_DISABLED'])


def shrinks(site, name):
    """Shrink the host's VCPUs below the VCPUs in use."""
    sizes = site.cloud.computes[name].inventories()
    site.put(name, inventories={**sizes, 'VCPU': {'total': 1}})


def goes(site, name):
    """Delete the host, its provider and the provider's allocations."""
    provider = f'/resource_providers/{site.cloud.computes[name].uuid}'
    for table in ('compute_nodes', 'services'):
        site.cell.update(table, {'deleted': 1}, host=name)

    def remove():
        answer = site.placement.call('GET', f'{provider}/allocations')
        for consumer in answer['allocations']:
            site.placement.release(consumer)
        site.placement.call('DELETE', provider)

    site.placement.insist(remove)


def is_freed(site, name):
    """Delete the instance that takes all VCPUs of the host."""
    compute = site.cloud.computes[name]
    site.cell.update('instances', {'deleted': 1}, uuid=site.full)
    site.cell.update('compute_nodes', compute.node_row(), uuid=compute.uuid)
    site.placement.release(site.full)


def is_lost(site, name):
    """Restore a backup of Placement from before the arrival of the host, when the older
    host did not have the trait yet."""
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
"""Name of the change, function that changes the host of this name, and the host of the
requests before and after the change."""


@pytest.fixture(scope='module')
def site(cloud, caller, placement):
    """The cloud before the changes, and the clients at work."""
    cloud.reset()
    names = [*LATE, *(name for name, *_ in CHANGES)]
    with Proxy(cloud.placement_url) as proxy:
        site = Site(cloud, caller, proxy)
        site.add_host('spare', *map(trait_of, names))
        site.add_host('older')
        for name in names[:-1]:
            if name == 'fit':
                site.add_host(name)
            else:
                site.add_host(name, trait_of(name))
        for name, metadata in AGGREGATES.items():
            cloud.add_aggregate(name, [name, 'spare'], metadata=metadata)

        provider = cloud.computes['freed'].uuid
        site.placement.allocate(site.full, provider, {'VCPU': VCPUS})
        cloud.boot(site.full, 'freed', Flavor(vcpus=VCPUS))

        site.backup = Backup(placement.connection)
        site.add_host('lost', trait_of('lost'))
        site.put('older', traits=[*COMPUTE_TRAITS, trait_of('lost')])

        config = {**CONFIG, 'placement': {'endpoint': proxy.url}}
        with Daemon(cloud, config), load(site, CLIENTS, pause=PAUSE) as site.load:
            yield site

    # The backup has no claims; deleting them one after the other takes longer.
    site.backup.restore()
    cloud.reset()


def ask_for(site, name, before):
    """Let the clients request instances for a change, until a remembered answer about
    all hosts serves the requests and brings them to the host before the change."""

    def is_remembered():
        count = len(site.load.answers)
        site.proxy.asked.clear()
        wait_until(lambda: len(site.load.answers) >= count + ENOUGH, WAIT, 'answers')
        hosts = {answer.host for answer in site.load.answers[count:]}
        return hosts == {before} and not site.proxy.count('limit=')

    specs = {f'trait:{trait_of(name)}': 'required', **SPECS.get(name, {})}
    flavor = {**FLAVOR['nova_object.data'], 'extra_specs': specs}
    site.fields = {
        'flavor': {**FLAVOR, 'nova_object.data': flavor},
        **FIELDS.get(name, {}),
    }

    wait_until(is_remembered, WAIT, f'{before} by an answer about all hosts')


@pytest.mark.parametrize('name', LATE)
def test_a_host_removed_from_an_aggregate_in_nova_gets_no_instance(site, name):
    """A request after the change of nova's database does not get the host, neither
    while Placement still has the host in the aggregate, nor by an answer of that
    time."""
    ask_for(site, name, name)

    site.cloud.api.delete('aggregate_hosts', host=name)
    changed = time.monotonic()
    site.proxy.asked.clear()

    def has_new_answers():
        """True if Placement was asked about all hosts, and requests were answered."""
        for line in [*site.proxy.asked]:
            if 'member_of' in line and 'limit=' not in line:
                return len(site.load.since(changed)) >= ENOUGH
        return False

    wait_until(
        has_new_answers, WAIT, 'an answer about all hosts, and answers to requests'
    )

    site.put(name, aggregates=[])
    later = time.monotonic()
    wait_until(lambda: len(site.load.since(later)) >= ENOUGH, WAIT, 'later answers')

    assert hosts_since(site, changed) == {'spare'}
    assert site.load.failures() == []


def hosts_since(site, moment):
    """The hosts of the requests after a moment."""
    return {answer.host for answer in site.load.since(moment)}


@pytest.mark.parametrize(('name', 'change', 'before', 'after'), CHANGES)
def test_a_change_is_seen_after_the_maximum_age_of_answers(
    site, name, change, before, after
):
    """Requests after the maximum age of the answers get the right host, and no request
    is refused."""
    ask_for(site, name, before)

    change(site, name)
    expired = time.monotonic() + MAX_AGE
    wait_until(lambda: len(site.load.since(expired)) >= ENOUGH, WAIT, 'later answers')

    assert hosts_since(site, expired) == {after}
    assert site.load.failures() == []
