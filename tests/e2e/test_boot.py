# SPDX-License-Identifier: Apache-2.0
"""The scheduler places new servers according to their request, their server group and
the operators' aggregates and service records."""

import json

import pytest

from .small_cloud import COMPUTES, FICKLE, NO_VALID_HOST, NOT_ENOUGH, hosts_of


def test_a_new_instance_holds_the_resources_of_the_flavor(cloud):
    """A server runs on a compute and holds the resources of its flavor there."""
    server = cloud.boot()
    assert server.host in COMPUTES
    assert cloud.allocations() == {
        server.uuid: {server.host: {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}}
    }


def test_instances_of_a_request_spread_over_the_hosts(cloud):
    """All servers of one request run, spread over the computes."""
    servers = cloud.boot_many(8)
    assert hosts_of(servers) == set(COMPUTES)


def test_an_instance_that_fails_to_build_runs_on_an_alternate(cloud):
    """A server that fails to build on its first host runs on another host, and holds
    allocations on the second host only."""
    with cloud.enabled(FICKLE):
        server = cloud.boot()
        builders = {event['host'] for event in cloud.api.events(server.uuid, 'create')}
        assert server.host in COMPUTES
        assert {FICKLE, server.host} <= builders


def test_an_instance_without_a_valid_host_ends_in_error(cloud):
    """A server ends in ERROR with nova's message if no compute can hold it, if the
    named compute cannot hold it, if no compute can run its image, and if no compute
    meets its query."""
    assert cloud.fault(flavorRef='impossible') == NO_VALID_HOST
    assert cloud.fault(flavorRef='impossible', host='compute-2') == NO_VALID_HOST
    assert cloud.fault(imageRef=cloud.foreign_image) == NOT_ENOUGH
    assert cloud.fault({'query': '[">", "$free_ram_mb", 1000000000]'}) == NOT_ENOUGH


def test_instances_of_a_zone_run_in_the_zone(cloud):
    """A server of a zone runs in that zone."""
    with cloud.aggregate('compute-3', availability_zone='east'):
        servers = cloud.boot_many(2, availability_zone='east')
        assert {(server.host, server.zone) for server in servers} == {
            ('compute-3', 'east')
        }


@pytest.mark.parametrize(
    'destination',
    [{'availability_zone': 'nova:compute-2'}, {'host': 'compute-2'}],
    ids=['by zone', 'by name'],
)
def test_instances_run_on_the_named_host(cloud, destination):
    """Servers run on the host that their request names, by availability zone or by
    host name."""
    for _ in range(2):
        assert cloud.boot(**destination).host == 'compute-2'


def test_the_hint_same_host_joins_the_named_instance(cloud):
    """A server with the hint same_host joins the server that the hint names."""
    first = cloud.boot()
    assert cloud.boot({'same_host': [first.uuid]}).host == first.host


def test_the_hint_different_host_avoids_the_named_instances(cloud):
    """Servers with the hint different_host avoid the hosts of the servers in the hint,
    until no host remains."""
    first = cloud.boot()
    uuids = [first.uuid]
    hosts = {first.host}
    while len(uuids) < len(COMPUTES):
        server = cloud.boot({'different_host': uuids})
        uuids.append(server.uuid)
        hosts.add(server.host)

    assert hosts == set(COMPUTES)
    assert cloud.fault({'different_host': uuids}) == NOT_ENOUGH


def test_the_hint_query_selects_a_matching_host(cloud):
    """A server with the hint query runs on a host that meets the expression."""
    query = ['and', ['>', '$free_ram_mb', 1024], ['=', '$host', 'compute-4']]
    assert cloud.boot({'query': json.dumps(query)}).host == 'compute-4'


def test_a_flavor_for_an_aggregate_runs_on_hosts_of_the_aggregate(cloud):
    """Only hosts of a matching aggregate meet the flavor's
    aggregate_instance_extra_specs."""
    assert cloud.fault(flavorRef='fast') == NOT_ENOUGH
    with cloud.aggregate('compute-2', 'compute-3', fast='true'):
        servers = cloud.boot_many(4, flavorRef='fast')
        assert hosts_of(servers) == {'compute-2', 'compute-3'}


@pytest.mark.parametrize('policy', ['affinity', 'soft-affinity'])
def test_instances_of_an_affinity_group_share_a_host(cloud, policy):
    """Servers of a group share a host, requested one by one and several at once. When
    the host is disabled, a further server of a soft-affinity group runs elsewhere, and
    a further server of an affinity group is refused."""
    with cloud.group(policy) as hint:
        servers = [cloud.boot(hint), cloud.boot(hint), *cloud.boot_many(2, hint)]
        [host] = hosts_of(servers)

        with cloud.disabled(str(host)):
            if policy == 'affinity':
                assert cloud.fault(hint).startswith('No valid host was found.')
            else:
                assert cloud.boot(hint).host != host


@pytest.mark.parametrize('policy', ['anti-affinity', 'soft-anti-affinity'])
def test_instances_of_an_anti_affinity_group_run_on_different_hosts(cloud, policy):
    """Servers of a group run on different hosts. With more servers than hosts, a
    further server of an anti-affinity group is refused, and a further server of a
    soft-anti-affinity group runs on any host."""
    with cloud.group(policy) as hint:
        servers = [cloud.boot(hint), *cloud.boot_many(2, hint), cloud.boot(hint)]
        assert hosts_of(servers) == set(COMPUTES)

        if policy == 'anti-affinity':
            assert cloud.fault(hint) == NOT_ENOUGH
        else:
            assert cloud.boot(hint).host in COMPUTES


def test_too_many_instances_of_an_anti_affinity_group_get_no_host(cloud):
    """A request for more servers of an anti-affinity group than there are hosts places
    no server at all."""
    with cloud.group('anti-affinity') as hint:
        cloud.ask(hint, min_count=5, max_count=5)

        uuids = [server.uuid for server in cloud.api.servers()]
        assert len(uuids) == 5
        for uuid in uuids:
            server = cloud.api.settled(uuid, 'ERROR')
            assert (server.host, server.fault) == (None, NOT_ENOUGH)


def test_instances_run_while_two_schedulers_share_the_queue(
    cloud, scheduler, other_scheduler
):
    """The list of services shows both schedulers up and enabled. Servers run while both
    schedulers share the queue, and after one scheduler has stopped."""
    services = cloud.api.services('nova-scheduler')
    for daemon in (scheduler, other_scheduler):
        service = services[daemon.host]
        assert (service['state'], service['status']) == ('up', 'enabled')

    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)

    assert other_scheduler.stop() == 0
    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)


def test_disabled_hosts_get_no_new_instances(cloud):
    """Disabled computes get no new servers until they are enabled again. A server ends
    in ERROR while all computes are disabled."""
    with cloud.disabled('compute-1', 'compute-2', 'compute-3'):
        assert hosts_of(cloud.boot_many(3)) == {'compute-4'}

    assert cloud.boot_many(1)[0].host in COMPUTES[:3]

    with cloud.disabled(*COMPUTES):
        assert cloud.fault().startswith('No valid host was found.')


def test_a_host_that_is_forced_down_gets_no_new_instances(cloud):
    """A compute that is forced down gets no new servers."""
    with cloud.dead('compute-2'):
        hosts = hosts_of(cloud.boot_many(6))

    assert hosts == set(COMPUTES) - {'compute-2'}


def test_a_deleted_instance_holds_no_allocations(cloud):
    """A deleted server holds no allocations any more, and its neighbour keeps its
    allocations."""
    gone, stays = cloud.boot_many(2)

    cloud.api.delete(gone.uuid)

    cloud.check_allocations()
    assert set(cloud.allocations()) == {stays.uuid}
