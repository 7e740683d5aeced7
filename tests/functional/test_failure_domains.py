# SPDX-License-Identifier: Apache-2.0
"""Server groups by failure domains, requested through nova's own client."""

from contextlib import ExitStack

import pytest

from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, Refused, a_call, new_uuids
from tests.lab.processes import START, wait_until

SMALL = Flavor(ram_mb=512)
BASE = ('ComputeFilter', 'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter')
FILTERS = {'enabled_filters': ','.join((*BASE, 'FailureDomainFilter'))}
RACKS = 'ABCD'
PER_RACK = 3


@pytest.fixture
def racks(cloud):
    """Racks of hosts in two cells, and a host without a rack."""
    cloud.reset()
    cells = {'A': 'cell1', 'B': 'cell2', 'C': 'cell1', 'D': 'cell2'}
    hosts = {}
    computes = []
    for rack in RACKS:
        hosts[rack] = [f'{rack}{i}' for i in range(PER_RACK)]
        for name in hosts[rack]:
            computes.append(Compute(name, cells[rack]))
    cloud.add_hosts(computes)
    cloud.add_host('nowhere', ram_mb=1_000_000)

    for rack, names in hosts.items():
        cloud.add_aggregate(f'rack-{rack}', names, metadata={'failure_domain': rack})
    return cloud


def boot(cloud, client, group, count=1):
    """Place members of a group as the conductor does, and let the members run; the
    letters of their racks."""
    servers = new_uuids(count)
    group.members += servers
    hosts = client.chosen(*servers, flavor=SMALL, group=group)
    for server, host in zip(servers, hosts, strict=True):
        cloud.boot(server, host, SMALL)
        group.hosts.append(host)
    return ''.join(host[0] for host in hosts)


def test_members_of_a_hard_group_get_failure_domains_by_the_policy(racks, client):
    """Members of an anti-affinity group get different racks, in the same request and in
    several requests, even when the host of the first member is full. A member is
    refused when all racks are in use, and a moved member may stay in the same rack. All
    members of an affinity group share a rack. The fault counts the hosts without a rack
    for the group."""
    with Daemon(racks, {'filter_scheduler': FILTERS}):
        apart = Group('anti-affinity')
        together = Group('affinity')

        used_racks = boot(racks, client, apart, 2)
        full = apart.hosts[0]
        provider = racks.computes[full].uuid
        racks.placement.allocate(*new_uuids(), provider, {'MEMORY_MB': 65536 - 512})
        used_racks += boot(racks, client, apart)
        used_racks += boot(racks, client, apart)
        assert sorted(used_racks) == [*RACKS]
        client.refusal(flavor=SMALL, group=apart)

        first_member = apart.members[0]
        racks.placement.release(first_member)
        moved = client.chosen(
            first_member, flavor=SMALL, group=apart, ignore_hosts=[full]
        )
        assert moved[0][0] == full[0]
        assert moved != [full]

        used_racks = boot(racks, client, together, 2)
        used_racks += boot(racks, client, together)
        assert len(set(used_racks)) == 1

    config = {'filter_scheduler': FILTERS, 'novasched': {'fault_detail': 'counts'}}
    with Daemon(racks, config):
        fault = client.refusal(flavor=SMALL, group=apart)
        assert '9 in no failure domain for the server group' in fault


def test_the_weigher_spreads_or_joins_group_members_by_failure_domain(racks, client):
    """The weigher spreads members over racks evenly, members of hard groups too, and
    counts the host without a rack as a rack. Members of a soft-affinity group share a
    rack."""
    config = {
        'filter_scheduler': {
            'enabled_filters': ','.join(BASE),
            'weight_classes': 'FailureDomainWeigher',
        },
        'novasched': {'failure_domain_weight_multiplier': 1},
    }
    all_racks = [*RACKS, 'n']
    with Daemon(racks, config):
        soft = Group('soft-anti-affinity')
        for _ in range(2):
            used_racks = boot(racks, client, soft, 3) + boot(racks, client, soft, 2)
            assert sorted(used_racks) == all_racks

        hard = Group('anti-affinity')
        used_racks = boot(racks, client, hard, 3) + boot(racks, client, hard, 2)
        assert sorted(used_racks) == all_racks

        together = Group('soft-affinity')
        used_racks = boot(racks, client, together, 2)
        used_racks += boot(racks, client, together, 2)
        assert len(set(used_racks)) == 1


@pytest.fixture
def three_daemons(racks):
    """Three schedulers, all aware of the remaining two."""
    config = {'filter_scheduler': FILTERS, 'novasched': {'in_flight_timeout': 3600}}
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(racks, config)) for _ in range(3)]

        def see_each_other():
            return all('with 2 other' in daemon.text() for daemon in daemons)

        wait_until(see_each_other, START, 'schedulers')
        yield daemons


def select_at_once(client, policy):
    """Request as many members of a new group as there are racks, with a request for
    every member, all at once; the racks of the members."""
    group = Group(policy)
    calls = [a_call(new_uuids(), SMALL, group=group) for _ in RACKS]
    answers = client.select_at_once(calls, len(calls))

    used_racks = []
    for answer in answers:
        assert not isinstance(answer, Refused)
        used_racks += [selection['service_host'][0] for [selection] in answer]
    return used_racks


@pytest.mark.usefixtures('three_daemons')
def test_several_schedulers_keep_the_failure_domains_of_a_group(client):
    """Three schedulers place all members of a group, although the members are requested
    at once and no request names members of another request. The members use different
    racks with anti-affinity, and one rack with affinity."""
    for _ in range(5):
        assert sorted(select_at_once(client, 'anti-affinity')) == [*RACKS]

    for _ in range(5):
        assert len(set(select_at_once(client, 'affinity'))) == 1
