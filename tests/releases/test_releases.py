# SPDX-License-Identifier: Apache-2.0
"""What a release's own conductor, API and computes get from the daemon."""

from collections import Counter

import pytest

from tests.lab.daemon import Refused, new_uuids

from .cloud import CELL

EVERYWHERE = {'north-1', 'north-2', 'south-1', 'south-2'}
PINNED = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
WITH_DEVICE = {'pci_passthrough:alias': 'nic:1'}
NO_VALID_HOST = 'No valid host was found. '
CLAIMED_SINCE = '4.4'
"""Callers of older versions claim by themselves."""


def hosts(found):
    """The chosen host of each server, by its Selection or, before 4.5, its dict."""
    return [
        each['host'] if isinstance(each, dict) else each[0]['service_host']
        for each in found
    ]


def needs_selections(conductor):
    if conductor.newest < '4.5':
        pytest.skip('Selections came with Queens')


def placed(conductor, count=1, **asked):
    """So many new servers and the hosts that they were sent to, and are claimed on."""
    servers = new_uuids(count)
    chosen = hosts(conductor('build', servers=servers, **asked))
    for server, host in zip(servers, chosen, strict=True):
        assert claimed(conductor, server) == (
            [host] if conductor.newest >= CLAIMED_SINCE else []
        )
    return dict(zip(servers, chosen, strict=True))


def claimed(conductor, server):
    return list(conductor.cloud.allocations(server))


def refused(conductor, command, **asked):
    """The call raises the release's own NoValidHost, and nothing stays claimed."""
    before = conductor.cloud.all_allocations()
    with pytest.raises(Refused) as caught:
        conductor(command, **asked)
    assert caught.value.no_valid_host
    assert caught.value.message.startswith(NO_VALID_HOST)
    assert conductor.cloud.all_allocations() == before


@pytest.mark.usefixtures('scheduler')
class TestPlacing:
    """Requests that the conductor of the release makes, of servers as they come and
    go."""

    def test_boot(self, conductor, cloud):
        """A server gets a host, and its Selection names the node and the cell."""
        needs_selections(conductor)
        [server] = new_uuids()
        [[chosen]] = conductor('build', servers=[server])
        compute = cloud.computes[chosen['service_host']]
        assert chosen['nodename'] == compute.name
        assert chosen['compute_node_uuid'] == compute.uuid
        assert chosen['cell_uuid'] == cloud.cell_uuids[CELL]
        assert cloud.allocations(server) == {
            compute.name: {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 1}
        }

    def test_many(self, conductor, cloud):
        """Three servers of a request have a host each with the others as alternates."""
        needs_selections(conductor)
        servers = new_uuids(3)
        found = conductor('build', servers=servers, alternates=True)
        chosen = hosts(found)
        for server, selections in zip(servers, found, strict=True):
            assert list(cloud.allocations(server)) == [selections[0]['service_host']]
            others = {each['service_host'] for each in selections[1:]}
            assert others
            assert others == {each['service_host'] for each in found[0][1:]}
            assert others.isdisjoint(chosen)
            assert all(each['allocation_request'] for each in selections)

    def test_alternate(self, conductor, cloud):
        """When a build fails, the release's own code claims the alternate by what it
        was sent."""
        needs_selections(conductor)
        [server] = new_uuids()
        [[_, second, *_]] = conductor('build', servers=[server], alternates=True)
        cloud.placement.release(server)
        claim = {
            k: second[k] for k in ('allocation_request', 'allocation_request_version')
        }
        assert conductor('fall_back', server=server, **claim)
        assert list(cloud.allocations(server)) == [second['service_host']]

    def test_zone(self, conductor):
        """Servers of a zone go to the hosts of the aggregate that the API wrote."""
        assert set(placed(conductor, 2, zone='south').values()) <= {
            'south-1',
            'south-2',
        }

    def test_pinned(self, conductor):
        """A pinned server goes to a host whose compute reports cells, with the limits
        that this compute is to honour."""
        found = conductor('build', servers=new_uuids(), extra_specs=PINNED)
        assert {*hosts(found)} <= {'north-1', 'north-2'}
        limits = found[0][0] if conductor.newest == '4.5' else found[0]
        assert limits['limits']['numa_topology'] == 'NUMATopologyLimits'

    def test_too_many_cells(self, conductor):
        """No host has so many cells as the guest wants."""
        cells = {'hw:numa_nodes': '4'}
        refused(conductor, 'build', servers=new_uuids(), extra_specs=cells, vcpus=4)

    def test_devices(self, conductor):
        """Two servers get the devices that there are; a third is refused, unless the
        compute has yet to tell of what its callers claimed by themselves."""
        assert Counter(placed(conductor, 2, extra_specs=WITH_DEVICE).values()) == {
            'north-2': 2
        }
        if conductor.newest >= CLAIMED_SINCE:
            refused(conductor, 'build', servers=new_uuids(), extra_specs=WITH_DEVICE)

    def test_group(self, conductor):
        """Servers of a group stay apart, those of one request and those that run
        already."""
        group = conductor('add_group', policy='anti-affinity')
        spread = []
        for count in (3, 1):
            servers = new_uuids(count)
            conductor('join_group', group=group, servers=servers)
            found = hosts(conductor('build', servers=servers, group=group))
            for server, host in zip(servers, found, strict=True):
                conductor('boot', cell=CELL, host=host, server=server)
            spread += found
        assert sorted(spread) == sorted(EVERYWHERE)
        [last] = new_uuids()
        conductor('join_group', group=group, servers=[last])
        refused(conductor, 'build', servers=[last], group=group)

    def test_live_migration(self, conductor):
        """A server moves off its host within its cell, by the request that nova has
        kept."""
        [(server, host)] = placed(conductor).items()
        conductor('boot', cell=CELL, host=host, server=server)
        [chosen] = hosts(conductor('move', server=server, host=host, cell=CELL))
        assert chosen in EVERYWHERE - {host}

    def test_move_to_a_host(self, conductor):
        """A server moves to the host that was named, or not at all."""
        [(server, host)] = placed(conductor, zone='south').items()
        conductor('boot', cell=CELL, host=host, server=server)
        [other] = {'south-1', 'south-2'} - {host}
        assert hosts(conductor('move', server=server, host=host, to=other)) == [other]
        refused(conductor, 'move', server=server, host=host, to='nowhere')

    def test_rebuild(self, conductor):
        """A server that is rebuilt stays where it is, and claims nothing more."""
        [(server, host)] = placed(conductor).items()
        conductor('boot', cell=CELL, host=host, server=server)
        before = conductor.cloud.all_allocations()
        assert hosts(conductor('rebuild', server=server, host=host)) == [host]
        assert conductor.cloud.all_allocations() == before

    @pytest.mark.parametrize('version', ['4.4', '4.3', '4.0'])
    def test_held_back(self, conductor, version):
        """A deployment that is being upgraded sends the form of an older release, and
        gets a dict for each server; before 4.4 the caller claims by itself."""
        if version > conductor.newest:
            pytest.skip('this form is yet to come')
        servers = new_uuids(2)
        found = conductor('build', servers=servers, extra_specs=PINNED, version=version)
        for server, chosen in zip(servers, found, strict=True):
            assert chosen['host'] == chosen['nodename']
            assert chosen['host'] in {'north-1', 'north-2'}
            claims = [chosen['host']] if version >= CLAIMED_SINCE else []
            assert claimed(conductor, server) == claims


def test_casts(conductor, scheduler):
    """The API's and the computes' announcements are taken without complaint, and
    requests are served after them."""
    [(server, host)] = placed(conductor).items()
    conductor('boot', cell=CELL, host=host, server=server)
    spare = conductor(
        'add_aggregate', name='spare', hosts=['north-1'], metadata={'a': 'b'}
    )
    before = len(scheduler.text())
    conductor('cast_aggregates', uuids=[conductor.zone, spare])
    conductor('cast_aggregate_gone', uuid=spare)
    servers = conductor('cast_servers', cell=CELL, host=host)
    assert server in servers
    conductor('cast', method='sync_instance_info', arguments=[host, servers])
    conductor('cast', method='delete_instance_info', arguments=[host, server])
    assert placed(conductor)
    lines = scheduler.text()[before:].splitlines()
    assert not [line for line in lines if ' ERROR ' in line or ' WARNING ' in line]


def test_service_record(conductor, scheduler):
    """The release's service group takes the daemon for a scheduler that is up."""
    assert scheduler.host in conductor('schedulers')
