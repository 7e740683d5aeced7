# SPDX-License-Identifier: Apache-2.0
"""Existing servers move to suitable hosts, and hold no allocations on their old
host."""

import json

import pytest

from novasched.cmd import novaschedctl

from .small_cloud import COMPUTES, FLAVORS

MOVES = {'resize': {'flavorRef': 'larger'}, 'migrate': None}
ON_ANY_OR_NAMED_HOST = pytest.mark.parametrize(
    'host', [None, 'compute-3'], ids=['any', 'named']
)


@pytest.mark.parametrize('end', ['confirmResize', 'revertResize'])
@pytest.mark.parametrize('action', MOVES)
def test_a_resize_or_migration_is_confirmed_or_reverted(cloud, action, end):
    """A server that is resized or migrated runs on another host. The confirmed server
    stays there; the reverted server has its old host and flavor again."""
    before = cloud.boot()
    cloud.api.act(before.uuid, action, MOVES[action])
    moved = cloud.api.settled(before.uuid, 'VERIFY_RESIZE')
    assert moved.host != before.host

    cloud.api.act(before.uuid, end)
    after = cloud.api.settled(before.uuid, 'ACTIVE')

    expected = before if end == 'revertResize' else moved
    assert (after.host, after.takes) == (expected.host, expected.takes)

    is_larger = action == 'resize' and end == 'confirmResize'
    flavor = FLAVORS['larger' if is_larger else 'small']
    assert after.takes['VCPU'] == flavor['vcpus']


def test_an_instance_migrates_to_the_named_host(cloud):
    """A server is migrated to the host that the operator names."""
    server = cloud.boot(host='compute-1')

    cloud.api.act(server.uuid, 'migrate', {'host': 'compute-3'})
    assert cloud.api.settled(server.uuid, 'VERIFY_RESIZE').host == 'compute-3'

    cloud.api.act(server.uuid, 'confirmResize')
    cloud.api.settled(server.uuid, 'ACTIVE')


def test_a_migration_keeps_the_anti_affinity_of_a_group(cloud):
    """A server of an anti-affinity group is migrated to the only host without servers
    of the group."""
    with cloud.group('anti-affinity') as hint:
        servers = cloud.boot_many(3, hint)
        free = set(COMPUTES) - {server.host for server in servers}

        cloud.api.act(servers[0].uuid, 'migrate')
        assert {cloud.api.settled(servers[0].uuid, 'VERIFY_RESIZE').host} == free

        cloud.api.act(servers[0].uuid, 'confirmResize')
        cloud.api.settled(servers[0].uuid, 'ACTIVE')


def test_an_instance_keeps_host_and_flavor_if_a_resize_fits_nowhere(cloud):
    """A server whose new flavor fits no host keeps its host and its flavor."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'resize', {'flavorRef': 'impossible'})
    failure = cloud.api.failure(before.uuid, 'resize')
    assert failure.startswith('No valid host was found.')

    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert (after.host, after.takes) == (before.host, before.takes)


def expected_hosts(host, source):
    """The hosts where a server may run after it left the source: the named host, or
    every host except the source if the host is None."""
    if host is not None:
        return {host}
    return set(COMPUTES) - {source}


@ON_ANY_OR_NAMED_HOST
def test_a_live_migration_reaches_another_or_the_named_host(cloud, host):
    """A running server moves to another host, or to the named host."""
    server = cloud.boot(availability_zone='nova:compute-1')
    arguments = {'host': host, 'block_migration': 'auto'}
    cloud.api.act(server.uuid, 'os-migrateLive', arguments)
    after = cloud.api.migrated(server.uuid)

    assert after.status == 'ACTIVE'
    assert after.host in expected_hosts(host, 'compute-1')


@ON_ANY_OR_NAMED_HOST
def test_an_evacuation_reaches_another_or_the_named_host(cloud, host):
    """The server of a dead compute is rebuilt on another compute, or on the named
    compute. The dead compute forgets the server when it comes back."""
    server = cloud.boot(availability_zone='nova:compute-1')
    with cloud.dead('compute-1'):
        arguments = {} if host is None else {'host': host}
        cloud.api.act(server.uuid, 'evacuate', arguments)

        after = cloud.api.migrated(server.uuid)
        assert after.host in expected_hosts(host, 'compute-1')


def test_the_forecast_for_a_lost_host_comes_true(cloud, capsys):
    """The forecast of ``novaschedctl simulate lose`` comes true. Servers that fit only
    one host go to the forecast host, the server with a choice goes to a live host, and
    servers without a forecast host find no host. The simulation claims nothing."""
    with cloud.group('anti-affinity') as apart, cloud.group('affinity') as together:
        first, *neighbours = cloud.boot_many(3, apart)
        lost = first.host
        used = {first.host, *(server.host for server in neighbours)}
        [free] = set(COMPUTES) - used
        on_lost_host = {'availability_zone': f'nova:{lost}'}

        with cloud.aggregate(lost, neighbours[0].host, fast='true'):
            bound = cloud.boot(flavorRef='fast', **on_lost_host)
            pair = cloud.boot_many(2, together, **on_lost_host)
            plain = cloud.boot(**on_lost_host)

            before = cloud.allocations()
            forecast = simulate(cloud, capsys, 'lose', f'host={lost}')
            assert cloud.allocations() == before

            destinations = {move['server']: move['to'] for move in forecast['moves']}
            assert destinations[first.uuid] == free
            assert destinations[bound.uuid] == neighbours[0].host
            assert destinations[plain.uuid] in set(COMPUTES) - {lost}
            for server in pair:
                assert destinations[server.uuid] is None

            with cloud.dead(lost):
                for uuid, destination in destinations.items():
                    cloud.api.act(uuid, 'evacuate', {})
                    if destination is None:
                        failure = cloud.api.failure(uuid, 'evacuate')
                        assert failure.startswith('No valid host was found.')
                        continue
                    host = cloud.api.migrated(uuid).host
                    if uuid == plain.uuid:
                        assert host in COMPUTES
                    else:
                        assert host == destination


def simulate(cloud, capsys, *arguments):
    """Run ``novaschedctl simulate`` on the cloud and return its JSON output."""
    config = cloud.databases.config('simulate', cloud.config)
    capsys.readouterr()
    options = ['--config-file', str(config), '--format', 'json']
    assert novaschedctl.main(['simulate', *arguments, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_rebuilt_instance_stays_on_the_host(cloud):
    """A server that is rebuilt from another image stays on its host."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'rebuild', {'imageRef': cloud.other_image})
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert (after.host, after.image) == (before.host, cloud.other_image)


def test_a_rebuild_is_refused_if_the_host_cannot_run_the_image(cloud):
    """A rebuild from an image that the host cannot run is refused, although other hosts
    could run the image."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'rebuild', {'imageRef': cloud.foreign_image})
    after = cloud.api.settled(before.uuid, 'ERROR')
    assert after.host == before.host
    assert after.fault.startswith('No valid host was found.')


@pytest.mark.parametrize('host', [None, 'compute-2'], ids=['any', 'named'])
def test_a_shelved_instance_holds_no_allocations_until_unshelved(cloud, host):
    """A shelved server holds no allocations. The unshelved server runs on any host, or
    on the host that the operator names."""
    server = cloud.boot(availability_zone='nova:compute-1')
    cloud.api.act(server.uuid, 'shelve')
    cloud.api.offloaded(server.uuid)
    cloud.check_allocations()
    assert cloud.allocations() == {}

    cloud.api.act(server.uuid, 'unshelve', None if host is None else {'host': host})
    after = cloud.api.settled(server.uuid, 'ACTIVE')
    if host is None:
        assert after.host in COMPUTES
    else:
        assert after.host == host
