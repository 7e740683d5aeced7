# SPDX-License-Identifier: Apache-2.0
"""Servers with PCI devices that nova-compute reports in Placement. After each step the
devices that Placement has allocated are the devices that the computes have claimed."""

from contextlib import ExitStack, closing

import pytest

from .devices import FLAVORS, HOSTS, PREFERRED, Devices
from .small_cloud import NO_VALID_HOST, NOT_ENOUGH, hosts_of

ON_FIRST_HOST = {'availability_zone': f'nova:{HOSTS[0]}'}


@pytest.fixture(scope='module', autouse=True)
def hosts_with_devices(whole_cloud):
    """The computes with devices take servers during the scenarios of this module."""
    with ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(whole_cloud.enabled(host))
        yield


@pytest.fixture(scope='module')
def devices(whole_cloud):
    cell = whole_cloud.databases.cells['cell1']
    with closing(Devices(cell, whole_cloud.placement)) as devices:
        yield devices


@pytest.fixture(autouse=True)
def all_devices_are_free(devices):
    """All devices are free after each scenario, when its servers are deleted."""
    yield
    devices.check({})


def held_by(*servers, flavor):
    """The devices of servers of a flavor on their hosts."""
    return {server.uuid: {server.host: FLAVORS[flavor]} for server in servers}


@pytest.mark.parametrize('flavor', FLAVORS)
def test_a_new_instance_gets_the_devices_of_the_flavor(cloud, devices, flavor):
    """A server gets the devices of its flavor from one host, and other devices than the
    servers before."""
    first = cloud.boot(flavorRef=flavor)
    devices.check(held_by(first, flavor=flavor))

    second = cloud.boot(flavorRef=flavor)
    devices.check(held_by(first, second, flavor=flavor))


def test_instances_use_all_devices_before_an_instance_is_refused(cloud, devices):
    """Servers get all devices of the cloud, two servers in one request. The next server
    ends in ERROR. A deleted server leaves its device to the next server."""
    pairs = cloud.boot_many(2, flavorRef='gpus')
    # In one request, nova-scheduler would try the same device for both servers.
    singles = [cloud.boot(flavorRef='gpu') for _ in range(2)]
    assert hosts_of([*pairs, *singles]) == set(HOSTS)
    held = held_by(*pairs, flavor='gpus') | held_by(*singles, flavor='gpu')
    devices.check(held)

    assert cloud.fault(flavorRef='gpu') == NO_VALID_HOST
    assert cloud.fault(flavorRef='gpu', host=HOSTS[1]) == NO_VALID_HOST
    devices.check(held)

    gone = singles.pop()
    cloud.api.delete(gone.uuid)
    del held[gone.uuid]
    devices.check(held)

    last = cloud.boot(flavorRef='gpu')
    assert last.host == gone.host
    devices.check(held | held_by(last, flavor='gpu'))


def test_a_request_for_more_devices_than_exist_places_no_instance(cloud, devices):
    """A request for more servers than there are SSDs places no server at all."""
    count = len(HOSTS) + 1
    cloud.ask(flavorRef='ssd', min_count=count, max_count=count)

    servers = cloud.api.servers()
    assert len(servers) == count
    for server in servers:
        assert cloud.api.settled(server.uuid, 'ERROR').host is None
    devices.check({})


def test_a_build_on_an_alternate_uses_devices_of_the_alternate(cloud, devices):
    """A server that fails to build on its first host runs on another host with devices
    of that host, and holds no devices of the first host."""
    server = cloud.boot(flavorRef='gpu-functions', metadata={'fails_on': PREFERRED})
    builders = {event['host'] for event in cloud.api.events(server.uuid, 'create')}
    assert {PREFERRED, server.host} <= builders
    assert server.host != PREFERRED
    devices.check(held_by(server, flavor='gpu-functions'))


def test_a_resize_holds_devices_on_both_hosts_until_confirmed(cloud, devices):
    """A server that is resized from one device to two holds devices on both hosts until
    the resize is confirmed.

    For a server that moves, nova-compute claims any free devices of the flavor, also
    devices other than Placement has allocated. In the scenarios with moves, each
    destination has as many free devices as the server needs.
    """
    before = cloud.boot(flavorRef='gpu')
    devices.check(held_by(before, flavor='gpu'))

    cloud.api.act(before.uuid, 'resize', {'flavorRef': 'gpus'})
    moved = cloud.api.settled(before.uuid, 'VERIFY_RESIZE')
    assert moved.host != before.host
    on_hosts = {before.host: FLAVORS['gpu'], moved.host: FLAVORS['gpus']}
    devices.check({before.uuid: on_hosts})

    cloud.api.act(before.uuid, 'confirmResize')
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert after.host == moved.host
    devices.check(held_by(after, flavor='gpus'))


def test_a_reverted_resize_has_the_old_devices_again(cloud, devices):
    """A server that is resized from two devices to one has its two devices again after
    the resize is reverted."""
    neighbours = []
    for host in HOSTS[1:]:
        on_host = {'availability_zone': f'nova:{host}'}
        neighbours.append(cloud.boot(flavorRef='gpu', **on_host))
    held = held_by(*neighbours, flavor='gpu')
    before = cloud.boot(flavorRef='gpus')
    devices.check(held | held_by(before, flavor='gpus'))

    cloud.api.act(before.uuid, 'resize', {'flavorRef': 'gpu'})
    moved = cloud.api.settled(before.uuid, 'VERIFY_RESIZE')
    assert moved.host != before.host
    on_hosts = {before.host: FLAVORS['gpus'], moved.host: FLAVORS['gpu']}
    devices.check(held | {before.uuid: on_hosts})

    cloud.api.act(before.uuid, 'revertResize')
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert after.host == before.host
    devices.check(held | held_by(after, flavor='gpus'))


def test_an_instance_keeps_the_device_if_a_resize_fits_nowhere(cloud, devices):
    """A server keeps its device if no other host has the devices of the new flavor."""
    servers = []
    for host in HOSTS:
        on_host = {'availability_zone': f'nova:{host}'}
        servers.append(cloud.boot(flavorRef='gpu', **on_host))

    before = servers[0]
    cloud.api.act(before.uuid, 'resize', {'flavorRef': 'gpus'})
    failure = cloud.api.failure(before.uuid, 'resize')
    assert failure.startswith('No valid host was found.')

    assert cloud.api.settled(before.uuid, 'ACTIVE').host == before.host
    devices.check(held_by(*servers, flavor='gpu'))


def test_a_migration_holds_devices_on_both_hosts_until_confirmed(cloud, devices):
    """A server that is migrated holds devices on both hosts until the migration is
    confirmed."""
    before = cloud.boot(flavorRef='gpus')
    cloud.api.act(before.uuid, 'migrate')
    moved = cloud.api.settled(before.uuid, 'VERIFY_RESIZE')
    assert moved.host != before.host
    both = dict.fromkeys((before.host, moved.host), FLAVORS['gpus'])
    devices.check({before.uuid: both})

    cloud.api.act(before.uuid, 'confirmResize')
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert after.host == moved.host
    devices.check(held_by(after, flavor='gpus'))


def test_an_evacuated_instance_gets_devices_of_another_host(cloud, devices):
    """The server of a dead compute gets devices of another compute. The dead compute
    frees its devices when it comes back."""
    server = cloud.boot(flavorRef='gpus', **ON_FIRST_HOST)
    with cloud.dead(HOSTS[0]):
        cloud.api.act(server.uuid, 'evacuate', {})
        after = cloud.api.migrated(server.uuid)
        assert after.host in HOSTS[1:]
        devices.check(
            {server.uuid: dict.fromkeys((HOSTS[0], after.host), FLAVORS['gpus'])}
        )

    devices.check(held_by(after, flavor='gpus'))


def test_a_shelved_instance_holds_no_devices_until_unshelved(cloud, devices):
    """A shelved server holds no devices. When its devices are in use by then, the
    unshelved server gets other devices."""
    server = cloud.boot(flavorRef='gpus', **ON_FIRST_HOST)
    cloud.api.act(server.uuid, 'shelve')
    cloud.api.offloaded(server.uuid)
    devices.check({})

    successor = cloud.boot(flavorRef='gpus', **ON_FIRST_HOST)
    cloud.api.act(server.uuid, 'unshelve')
    after = cloud.api.settled(server.uuid, 'ACTIVE')
    assert after.host in HOSTS[1:]
    devices.check(held_by(successor, after, flavor='gpus'))


def test_a_rebuilt_instance_keeps_the_devices(cloud, devices):
    """A server that is rebuilt from another image keeps its devices, although its host
    has no free device left."""
    server = cloud.boot(flavorRef='ssd')
    cloud.api.act(server.uuid, 'rebuild', {'imageRef': cloud.other_image})
    after = cloud.api.settled(server.uuid, 'ACTIVE')
    assert (after.host, after.image) == (server.host, cloud.other_image)
    devices.check(held_by(after, flavor='ssd'))


def test_a_live_migration_moves_to_a_device_of_another_host(cloud, devices):
    """A running server with a live-migratable device moves to a device of another
    host."""
    server = cloud.boot(flavorRef='ssd')
    arguments = {'host': None, 'block_migration': 'auto'}
    cloud.api.act(server.uuid, 'os-migrateLive', arguments)
    after = cloud.api.migrated(server.uuid)

    assert after.status == 'ACTIVE'
    assert after.host != server.host
    devices.check(held_by(after, flavor='ssd'))


def test_live_migration_is_refused_for_a_device_that_cannot_migrate(cloud, devices):
    """nova moves no running server with a device that is not live-migratable. The
    server keeps its device, and no other host keeps an allocation for the server."""
    server = cloud.boot(flavorRef='gpu')
    arguments = {'host': None, 'block_migration': 'auto'}
    cloud.api.act(server.uuid, 'os-migrateLive', arguments)
    failure = cloud.api.failure(server.uuid, 'live-migration')
    assert failure == NOT_ENOUGH

    after = cloud.api.settled(server.uuid, 'ACTIVE')
    assert after.host == server.host
    devices.check(held_by(after, flavor='gpu'))
