# SPDX-License-Identifier: Apache-2.0
"""Servers are built where their request wants them, together with those of their group
or apart from them, and where operators let them."""

import json

import pytest

from .small_cloud import COMPUTES, FICKLE

NO_VALID_HOST = 'No valid host was found. '
NOT_ENOUGH = 'No valid host was found. There are not enough hosts available.'


def test_boot(cloud):
    """A server runs on one of the computes, where it holds what its flavor takes."""
    server = cloud.boot()
    assert server.host in COMPUTES
    assert cloud.allocations() == {
        server.uuid: {server.host: {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}}
    }


def test_multi_create(cloud):
    """All servers of one request run, spread over the computes."""
    servers = cloud.boot_many(8)
    assert {server.host for server in servers} == set(COMPUTES)


def test_build_on_an_alternate(cloud):
    """A server that its first host fails to build runs on another, where alone it holds
    anything."""
    with cloud.enabled(FICKLE):
        server = cloud.boot()
        builders = {event['host'] for event in cloud.api.events(server.uuid, 'create')}
        assert server.host in COMPUTES
        assert {FICKLE, server.host} <= builders


def test_in_vain(cloud):
    """What no compute can hold or run, not even the one that is named, and what an
    expression holds for none of, ends in an error that says so."""
    assert cloud.fault(flavorRef='impossible') == NO_VALID_HOST
    assert cloud.fault(flavorRef='impossible', host='compute-2') == NO_VALID_HOST
    assert cloud.fault(imageRef=cloud.foreign_image) == NOT_ENOUGH
    assert cloud.fault({'query': '[">", "$free_ram_mb", 1000000000]'}) == NOT_ENOUGH


def test_availability_zone(cloud):
    """A server of a zone runs in that zone."""
    with cloud.aggregate('compute-3', availability_zone='east'):
        servers = cloud.boot_many(2, availability_zone='east')
        assert {(server.host, server.zone) for server in servers} == {
            ('compute-3', 'east')
        }


@pytest.mark.parametrize(
    'where',
    [{'availability_zone': 'nova:compute-2'}, {'host': 'compute-2'}],
    ids=['by zone', 'by name'],
)
def test_named_host(cloud, where):
    """Servers run on the host that their request names, by zone or by itself."""
    assert [cloud.boot(**where).host for _ in range(2)] == ['compute-2', 'compute-2']


def test_same_host(cloud):
    """A server with the hint same_host joins the server that it names."""
    first = cloud.boot()
    assert cloud.boot({'same_host': [first.uuid]}).host == first.host


def test_different_host(cloud):
    """Servers with the hint different_host avoid those that they name, until no host is
    left."""
    servers = [cloud.boot()]
    while len(servers) < len(COMPUTES):
        servers.append(
            cloud.boot({'different_host': [server.uuid for server in servers]})
        )
    assert {server.host for server in servers} == set(COMPUTES)
    assert (
        cloud.fault({'different_host': [server.uuid for server in servers]})
        == NOT_ENOUGH
    )


def test_query(cloud):
    """A server with the hint query runs on a host that the expression holds for."""
    query = ['and', ['>', '$free_ram_mb', 1024], ['=', '$host', 'compute-4']]
    assert cloud.boot({'query': json.dumps(query)}).host == 'compute-4'


def test_flavor_of_an_aggregate(cloud):
    """A flavor's aggregate_instance_extra_specs are met by the hosts of an aggregate
    alone."""
    assert cloud.fault(flavorRef='fast') == NOT_ENOUGH
    with cloud.aggregate('compute-2', 'compute-3', fast='true'):
        servers = cloud.boot_many(4, flavorRef='fast')
        assert {server.host for server in servers} == {'compute-2', 'compute-3'}


@pytest.mark.parametrize('policy', ['affinity', 'soft-affinity'])
def test_affinity(cloud, policy):
    """Servers of a group share a host, one by one and several at once. When that takes
    no more, those of a soft-affinity group alone run elsewhere."""
    with cloud.group(policy) as hint:
        servers = [cloud.boot(hint), cloud.boot(hint), *cloud.boot_many(2, hint)]
        [host] = {server.host for server in servers}
        with cloud.disabled(str(host)):
            if policy == 'affinity':
                assert cloud.fault(hint).startswith('No valid host was found.')
            else:
                assert cloud.boot(hint).host != host


@pytest.mark.parametrize('policy', ['anti-affinity', 'soft-anti-affinity'])
def test_anti_affinity(cloud, policy):
    """Servers of a group have a host each. One more than there are hosts ends in an
    error, in a soft-anti-affinity group on any of them."""
    with cloud.group(policy) as hint:
        servers = [cloud.boot(hint), *cloud.boot_many(2, hint), cloud.boot(hint)]
        assert {server.host for server in servers} == set(COMPUTES)
        if policy == 'anti-affinity':
            assert cloud.fault(hint) == NOT_ENOUGH
        else:
            assert cloud.boot(hint).host in COMPUTES


def test_anti_affinity_of_too_many_at_once(cloud):
    """More servers than hosts in one request get none at all."""
    with cloud.group('anti-affinity') as hint:
        cloud.ask(hint, min_count=5, max_count=5)
        servers = [
            cloud.api.settled(server.uuid, 'ERROR') for server in cloud.api.servers()
        ]
        assert [(server.host, server.fault) for server in servers] == [
            (None, NOT_ENOUGH)
        ] * 5


def test_both_schedulers_at_once(cloud, scheduler, other_scheduler):
    """The list of services shows both schedulers up and enabled. Servers run while they
    share the queue, and when one of them has stopped."""
    shown = cloud.api.services('nova-scheduler')
    for each in (scheduler, other_scheduler):
        assert (shown[each.host]['state'], shown[each.host]['status']) == (
            'up',
            'enabled',
        )
    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)
    assert other_scheduler.stop() == 0
    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)


def test_disabled_computes(cloud):
    """Computes that are disabled get no new servers, and get them again when enabled;
    without any that takes servers a server ends in an error."""
    with cloud.disabled('compute-1', 'compute-2', 'compute-3'):
        assert {server.host for server in cloud.boot_many(3)} == {'compute-4'}
    assert cloud.boot_many(1)[0].host in COMPUTES[:3]
    with cloud.disabled(*COMPUTES):
        assert cloud.fault().startswith('No valid host was found.')


def test_dead_compute(cloud):
    """A compute that is forced down gets no new servers."""
    with cloud.dead('compute-2'):
        hosts = {server.host for server in cloud.boot_many(6)}
    assert hosts == set(COMPUTES) - {'compute-2'}


def test_delete(cloud):
    """A server that is deleted holds nothing any more, and its neighbour what it
    held."""
    gone, stays = cloud.boot_many(2)
    cloud.api.delete(gone.uuid)
    cloud.check_allocations()
    assert set(cloud.allocations()) == {stays.uuid}
