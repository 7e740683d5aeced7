# SPDX-License-Identifier: Apache-2.0
"""Servers that exist move to hosts that are fit, and hold nothing where they came
from."""

import json

import pytest

from novasched.cmd import novaschedctl

from .small_cloud import COMPUTES, FLAVORS

MOVES = {'resize': {'flavorRef': 'larger'}, 'migrate': None}


@pytest.mark.parametrize('end', ['confirmResize', 'revertResize'])
@pytest.mark.parametrize('action', MOVES)
def test_move(cloud, action, end):
    """A server that is resized or migrated runs on another host, for good when that is
    confirmed; reverted it is what and where it was."""
    before = cloud.boot()
    cloud.api.act(before.uuid, action, MOVES[action])
    moved = cloud.api.settled(before.uuid, 'VERIFY_RESIZE')
    assert moved.host != before.host
    cloud.api.act(before.uuid, end)
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    stays = before if end == 'revertResize' else moved
    assert (after.host, after.takes) == (stays.host, stays.takes)
    larger = action == 'resize' and end == 'confirmResize'
    assert after.takes['VCPU'] == FLAVORS['larger' if larger else 'small']['vcpus']


def test_migrate_to_a_named_host(cloud):
    """A server is migrated to the host that the operator names."""
    server = cloud.boot(host='compute-1')
    cloud.api.act(server.uuid, 'migrate', {'host': 'compute-3'})
    assert cloud.api.settled(server.uuid, 'VERIFY_RESIZE').host == 'compute-3'
    cloud.api.act(server.uuid, 'confirmResize')
    cloud.api.settled(server.uuid, 'ACTIVE')


def test_migrate_in_a_group(cloud):
    """A server of an anti-affinity group is migrated to the one host that has none of
    it."""
    with cloud.group('anti-affinity') as hint:
        servers = cloud.boot_many(3, hint)
        free = set(COMPUTES) - {server.host for server in servers}
        cloud.api.act(servers[0].uuid, 'migrate')
        assert {cloud.api.settled(servers[0].uuid, 'VERIFY_RESIZE').host} == free
        cloud.api.act(servers[0].uuid, 'confirmResize')
        cloud.api.settled(servers[0].uuid, 'ACTIVE')


def test_resize_that_fits_nowhere(cloud):
    """A server whose new flavor fits nowhere stays as it is."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'resize', {'flavorRef': 'impossible'})
    assert cloud.api.failure(before.uuid, 'resize').startswith(
        'No valid host was found.'
    )
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert (after.host, after.takes) == (before.host, before.takes)


@pytest.mark.parametrize('host', [None, 'compute-3'], ids=['any', 'named'])
def test_live_migration(cloud, host):
    """A server moves while it runs, to another host or to the one that is named."""
    server = cloud.boot(availability_zone='nova:compute-1')
    arguments = {'host': host, 'block_migration': 'auto'}
    cloud.api.act(server.uuid, 'os-migrateLive', arguments)
    after = cloud.api.migrated(server.uuid)
    assert after.status == 'ACTIVE'
    assert after.host in ([host] if host else set(COMPUTES) - {'compute-1'})


@pytest.mark.parametrize('host', [None, 'compute-3'], ids=['any', 'named'])
def test_evacuate(cloud, host):
    """The server of a dead compute is built anew on another, or on the one that is
    named; the dead one forgets it when it comes back."""
    server = cloud.boot(availability_zone='nova:compute-1')
    with cloud.dead('compute-1'):
        cloud.api.act(server.uuid, 'evacuate', {'host': host} if host else {})
        after = cloud.api.migrated(server.uuid)
        assert after.host in ([host] if host else set(COMPUTES) - {'compute-1'})


def test_a_host_is_lost(cloud, capsys):
    """What simulate said comes true: servers that have no choice go where it said, the
    others somewhere, and those that it said have no place find none. To say so it
    claims nothing."""
    with cloud.group('anti-affinity') as apart, cloud.group('affinity') as together:
        first, *others = cloud.boot_many(3, apart)
        lost = first.host
        (free,) = set(COMPUTES) - {first.host, *(each.host for each in others)}
        here = {'availability_zone': f'nova:{lost}'}
        with cloud.aggregate(lost, others[0].host, fast='true'):
            bound = cloud.boot(flavorRef='fast', **here)
            pair = cloud.boot_many(2, together, **here)
            plain = cloud.boot(**here)
            before = cloud.allocations()
            said = simulated(cloud, capsys, 'lose', f'host={lost}')
            assert cloud.allocations() == before
            places = {move['server']: move['to'] for move in said['moves']}
            assert places[first.uuid] == free
            assert places[bound.uuid] == others[0].host
            assert places[plain.uuid] in set(COMPUTES) - {lost}
            assert [places[each.uuid] for each in pair] == [None, None]
            with cloud.dead(lost):
                for uuid in places:
                    cloud.api.act(uuid, 'evacuate', {})
                    if places[uuid] is None:
                        why = cloud.api.failure(uuid, 'evacuate')
                        assert why.startswith('No valid host was found.')
                    else:
                        now = cloud.api.migrated(uuid).host
                        assert now in (
                            [places[uuid]] if uuid != plain.uuid else COMPUTES
                        )


def simulated(cloud, capsys, *arguments):
    """What ``novaschedctl simulate`` says of the cloud."""
    config = cloud.databases.config('simulate', cloud.config)
    capsys.readouterr()
    options = ['--config-file', str(config), '--format', 'json']
    assert novaschedctl.main(['simulate', *arguments, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_rebuild(cloud):
    """A server that is rebuilt of another image stays on its host."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'rebuild', {'imageRef': cloud.other_image})
    after = cloud.api.settled(before.uuid, 'ACTIVE')
    assert (after.host, after.image) == (before.host, cloud.other_image)


def test_rebuild_that_its_host_cannot_run(cloud):
    """A rebuild of an image that the host cannot run is refused, on other hosts too."""
    before = cloud.boot()
    cloud.api.act(before.uuid, 'rebuild', {'imageRef': cloud.foreign_image})
    after = cloud.api.settled(before.uuid, 'ERROR')
    assert after.host == before.host
    assert after.fault.startswith('No valid host was found.')


@pytest.mark.parametrize('host', [None, 'compute-2'], ids=['any', 'named'])
def test_shelve_and_unshelve(cloud, host):
    """A shelved server holds nothing; unshelved it runs on a host again, or on the one
    that the operator names."""
    server = cloud.boot(availability_zone='nova:compute-1')
    cloud.api.act(server.uuid, 'shelve')
    cloud.api.offloaded(server.uuid)
    cloud.check_allocations()
    assert cloud.allocations() == {}
    cloud.api.act(server.uuid, 'unshelve', {'host': host} if host else None)
    assert cloud.api.settled(server.uuid, 'ACTIVE').host in (
        [host] if host else COMPUTES
    )
