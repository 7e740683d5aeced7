# SPDX-License-Identifier: Apache-2.0
"""The daemon's answers to the conductor, the API and the computes of a release."""

from collections import Counter

import pytest

from tests.lab.daemon import Refused, new_uuids

from .cloud import CELL

EVERYWHERE = {'north-1', 'north-2', 'south-1', 'south-2'}
PINNED = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
WITH_DEVICE = {'pci_passthrough:alias': 'nic:1'}
NO_VALID_HOST = 'No valid host was found. '
CLAIMED_SINCE = '4.4'
"""Callers with older versions of the RPC API claim in Placement for themselves."""


def hosts(destinations):
    """The selected host of every server.

    :param destinations: the answer to ``select_destinations``: lists of Selections, or
        dicts before version 4.5.
    """
    selected = []
    for destination in destinations:
        if isinstance(destination, dict):
            selected.append(destination['host'])
        else:
            selected.append(destination[0]['service_host'])
    return selected


def needs_selections(conductor):
    if conductor.newest < '4.5':
        pytest.skip('Selections came with Queens')


def place(conductor, count=1, **options):
    """Build servers and check their allocations; server UUID to host."""
    servers = new_uuids(count)
    selected = hosts(conductor('build', servers=servers, **options))
    for server, host in zip(servers, selected, strict=True):
        if conductor.newest >= CLAIMED_SINCE:
            assert claimed_hosts(conductor, server) == [host]
        else:
            assert claimed_hosts(conductor, server) == []
    return dict(zip(servers, selected, strict=True))


def claimed_hosts(conductor, server):
    return list(conductor.cloud.allocations(server))


def assert_refused(conductor, command, **options):
    """Check that the call raises the release's own NoValidHost and claims nothing."""
    before = conductor.cloud.all_allocations()
    with pytest.raises(Refused) as caught:
        conductor(command, **options)

    assert caught.value.no_valid_host
    assert caught.value.message.startswith(NO_VALID_HOST)
    assert conductor.cloud.all_allocations() == before


def add_group_members(conductor, group, count):
    """Build servers of a group, and let the servers run; the hosts of the servers."""
    servers = new_uuids(count)
    conductor('join_group', group=group, servers=servers)
    selected = hosts(conductor('build', servers=servers, group=group))
    for server, host in zip(servers, selected, strict=True):
        conductor('boot', cell=CELL, host=host, server=server)
    return selected


@pytest.mark.usefixtures('scheduler')
class TestPlacing:
    """Requests by the conductor of the release, in the order of a server's life."""

    def test_a_selection_names_host_node_and_cell(self, conductor, cloud):
        """The Selection of a server names its host, node and cell, and the host holds
        the allocation."""
        needs_selections(conductor)
        [server] = new_uuids()

        [[selection]] = conductor('build', servers=[server])

        compute = cloud.computes[selection['service_host']]
        assert selection['nodename'] == compute.name
        assert selection['compute_node_uuid'] == compute.uuid
        assert selection['cell_uuid'] == cloud.cell_uuids[CELL]
        assert cloud.allocations(server) == {
            compute.name: {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 1}
        }

    def test_alternates_of_a_request_are_no_selected_hosts(self, conductor, cloud):
        """The three servers of a request get a host and alternates, and no server's
        host is an alternate of another server."""
        needs_selections(conductor)
        servers = new_uuids(3)

        destinations = conductor('build', servers=servers, alternates=True)

        selected = hosts(destinations)
        expected = {selection['service_host'] for selection in destinations[0][1:]}
        for server, selections in zip(servers, destinations, strict=True):
            assert list(cloud.allocations(server)) == [selections[0]['service_host']]

            alternates = {selection['service_host'] for selection in selections[1:]}
            assert alternates
            assert alternates == expected
            assert alternates.isdisjoint(selected)

            for selection in selections:
                assert selection['allocation_request']

    def test_an_alternate_is_claimed_by_the_code_of_the_release(self, conductor, cloud):
        """When a build fails, the release's own code claims the alternate with the
        allocation request of the Selection."""
        needs_selections(conductor)
        [server] = new_uuids()
        [[_, alternate, *_]] = conductor('build', servers=[server], alternates=True)
        cloud.placement.release(server)

        assert conductor(
            'fall_back',
            server=server,
            allocation_request=alternate['allocation_request'],
            allocation_request_version=alternate['allocation_request_version'],
        )

        assert list(cloud.allocations(server)) == [alternate['service_host']]

    def test_instances_of_a_zone_get_hosts_of_the_zone(self, conductor):
        """Servers of an availability zone go to the hosts of the aggregate that the API
        wrote."""
        selected = place(conductor, 2, zone='south')
        assert set(selected.values()) <= {'south-1', 'south-2'}

    def test_a_pinned_instance_gets_a_host_with_numa_limits(self, conductor):
        """A pinned server goes to a host whose compute reports NUMA cells, and the
        answer brings the NUMA limits of the host."""
        destinations = conductor('build', servers=new_uuids(), extra_specs=PINNED)

        assert {*hosts(destinations)} <= {'north-1', 'north-2'}
        [destination] = destinations
        limits = destination[0] if conductor.newest == '4.5' else destination
        assert limits['limits']['numa_topology'] == 'NUMATopologyLimits'

    def test_an_instance_with_too_many_numa_cells_is_refused(self, conductor):
        """A guest with more NUMA cells than the hosts have is refused."""
        cells = {'hw:numa_nodes': '4'}
        assert_refused(
            conductor, 'build', servers=new_uuids(), extra_specs=cells, vcpus=4
        )

    def test_two_instances_get_the_two_devices_of_a_host(self, conductor):
        """Two servers get the two devices. A third server is refused, unless the
        callers of the release claim for themselves: the scheduler learns of such
        servers only from the compute."""
        selected = place(conductor, 2, extra_specs=WITH_DEVICE)
        assert Counter(selected.values()) == {'north-2': 2}

        if conductor.newest >= CLAIMED_SINCE:
            assert_refused(
                conductor, 'build', servers=new_uuids(), extra_specs=WITH_DEVICE
            )

    def test_instances_of_a_group_get_different_hosts(self, conductor):
        """Servers of a group get different hosts, whether one request or several
        requests bring the servers."""
        group = conductor('add_group', policy='anti-affinity')

        selected = add_group_members(conductor, group, 3)
        selected += add_group_members(conductor, group, 1)

        assert sorted(selected) == sorted(EVERYWHERE)

        [last] = new_uuids()
        conductor('join_group', group=group, servers=[last])
        assert_refused(conductor, 'build', servers=[last], group=group)

    def test_a_live_migration_gets_another_host(self, conductor):
        """A server moves off its host within its cell, by the request spec that nova
        has kept."""
        [(server, host)] = place(conductor).items()
        conductor('boot', cell=CELL, host=host, server=server)

        [destination] = hosts(conductor('move', server=server, host=host, cell=CELL))

        assert destination in EVERYWHERE - {host}

    def test_a_move_to_a_named_host_gets_the_host_or_a_refusal(self, conductor):
        """A server moves to the named host, or is refused."""
        [(server, host)] = place(conductor, zone='south').items()
        conductor('boot', cell=CELL, host=host, server=server)
        [target] = {'south-1', 'south-2'} - {host}

        selected = hosts(conductor('move', server=server, host=host, to=target))

        assert selected == [target]
        assert_refused(conductor, 'move', server=server, host=host, to='nowhere')

    def test_a_rebuild_keeps_host_and_allocations(self, conductor):
        """A server that is rebuilt keeps its host and its allocations."""
        [(server, host)] = place(conductor).items()
        conductor('boot', cell=CELL, host=host, server=server)
        before = conductor.cloud.all_allocations()

        assert hosts(conductor('rebuild', server=server, host=host)) == [host]

        assert conductor.cloud.all_allocations() == before

    @pytest.mark.parametrize('version', ['4.4', '4.3', '4.0'])
    def test_a_call_of_an_older_version_gets_a_dict_per_instance(
        self, conductor, version
    ):
        """A deployment during an upgrade sends the form of an older release, and gets a
        dict for every server. Before 4.4 the caller claims for itself."""
        if version > conductor.newest:
            pytest.skip('this form is yet to come')
        servers = new_uuids(2)

        destinations = conductor(
            'build', servers=servers, extra_specs=PINNED, version=version
        )

        for server, destination in zip(servers, destinations, strict=True):
            host = destination['host']
            assert host == destination['nodename']
            assert host in {'north-1', 'north-2'}

            if version >= CLAIMED_SINCE:
                assert claimed_hosts(conductor, server) == [host]
            else:
                assert claimed_hosts(conductor, server) == []


def test_casts_of_the_api_and_the_computes_cause_no_error(conductor, scheduler):
    """The daemon takes the announcements of the API and of the computes without errors
    or warnings in its log, and serves requests afterwards."""
    [(server, host)] = place(conductor).items()
    conductor('boot', cell=CELL, host=host, server=server)
    aggregate = conductor(
        'add_aggregate', name='spare', hosts=['north-1'], metadata={'a': 'b'}
    )
    logged_before = len(scheduler.text())

    conductor('cast_aggregates', uuids=[conductor.zone, aggregate])
    conductor('cast_aggregate_gone', uuid=aggregate)
    servers = conductor('cast_servers', cell=CELL, host=host)
    assert server in servers
    conductor('cast', method='sync_instance_info', arguments=[host, servers])
    conductor('cast', method='delete_instance_info', arguments=[host, server])

    assert place(conductor)
    for line in scheduler.text()[logged_before:].splitlines():
        assert ' ERROR ' not in line
        assert ' WARNING ' not in line


def test_the_service_group_of_the_release_sees_the_scheduler_up(conductor, scheduler):
    """The release's service group considers the daemon a scheduler that is up."""
    assert scheduler.host in conductor('schedulers')
