# SPDX-License-Identifier: Apache-2.0
"""Rebuilds in place, and the hint of a rebuild from a user.

Before June 2026 (LP 2151252), nova-api passes on a user's hint with the name of nova's
own hint.
"""

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids

HINTS = {'_nova_check_type': ['rebuild']}
HUGE = Flavor(vcpus=4000)
SMALL = Flavor(vcpus=1)


@pytest.fixture(scope='module')
def daemon(cloud):
    """A scheduler over two hosts in two cells."""
    cloud.reset()
    cloud.add_host('one', 'cell1')
    cloud.add_host('two', 'cell2')
    with Daemon(cloud) as running:
        yield running


def forced(host):
    return {'force_hosts': [host], 'force_nodes': [host]}


@pytest.mark.parametrize('fields', [{}, forced('one')])
def test_a_user_s_rebuild_hint_gets_no_host_without_resources(
    cloud, client, daemon, fields
):
    """A new instance that is larger than every host is refused in spite of the hint."""
    client.refusal(flavor=HUGE, hints=HINTS, **fields)
    assert cloud.placement.all_allocations() == {}
    assert daemon.alive()


@pytest.mark.parametrize('fields', [{}, forced('two')])
def test_a_user_s_rebuild_hint_has_no_effect(cloud, client, daemon, fields):
    """A new instance with the hint gets a host and its allocations, and the log has one
    warning."""
    [server] = new_uuids()

    [host] = client.chosen(server, flavor=SMALL, hints=HINTS, **fields)

    assert host in fields.get('force_hosts', ('one', 'two'))
    assert cloud.allocations(server) == {host: SMALL.resources()}
    cloud.placement.release(server)
    lines = []
    for line in daemon.text().splitlines():
        if server in line and 'WARNING' in line:
            lines.append(line)
    [warning] = lines
    assert 'a user has set the scheduler hint _nova_check_type = rebuild' in warning


@pytest.mark.usefixtures('daemon')
@pytest.mark.parametrize(('host', 'other'), [('one', 'two'), ('two', 'one')])
def test_a_rebuild_keeps_the_host_without_a_claim(cloud, client, host, other):
    """A rebuild gets the host of its instance, although neither the host nor Placement
    has free resources, and Placement gets no claim. With the name of another host, the
    request is none for a rebuild."""
    [server] = new_uuids()
    cloud.boot(server, host, HUGE)

    [[selection]] = client.select_destinations(
        [server], HUGE, hints=HINTS, **forced(host)
    )
    assert selection['service_host'] == host
    assert selection['allocation_request'] in (None, 'null')
    assert cloud.allocations(server) == {}

    client.refusal(server, flavor=HUGE, hints=HINTS, **forced(other))
