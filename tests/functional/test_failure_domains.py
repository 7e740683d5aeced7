# SPDX-License-Identifier: Apache-2.0
"""Server groups by failure domains, as nova's own client finds them."""

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
    """Racks of hosts in two cells, and a host that stands in none."""
    cloud.reset()
    names = {rack: [f'{rack}{i}' for i in range(PER_RACK)] for rack in RACKS}
    cells = {'A': 'cell1', 'B': 'cell2', 'C': 'cell1', 'D': 'cell2'}
    cloud.add_hosts(
        [Compute(x, cells[rack]) for rack, hosts in names.items() for x in hosts]
    )
    cloud.add_host('nowhere', ram_mb=1_000_000)
    for rack, hosts in names.items():
        cloud.add_aggregate(f'rack-{rack}', hosts, metadata={'failure_domain': rack})
    return cloud


def boot(cloud, client, group, count=1):
    """Place members of a group as the conductor does, and let them run; their racks."""
    servers = new_uuids(count)
    group.members += servers
    hosts = client.chosen(*servers, flavor=SMALL, group=group)
    for server, host in zip(servers, hosts, strict=True):
        cloud.boot(server, host, SMALL)
        group.hosts.append(host)
    return ''.join(host[0] for host in hosts)


def test_hard_groups(racks, client):
    """Members of a group get a rack each, of one request and of several, also once a
    rack is full but for them; one more is refused, and one that moves may stay in its
    rack. With affinity all are in the first one's."""
    with Daemon(racks, {'filter_scheduler': FILTERS}):
        apart = Group('anti-affinity')
        together = Group('affinity')
        found = boot(racks, client, apart, 2)
        full = next(host for host in apart.hosts)
        racks.placement.allocate(
            *new_uuids(), racks.computes[full].uuid, {'MEMORY_MB': 65536 - 512}
        )
        found += boot(racks, client, apart) + boot(racks, client, apart)
        assert sorted(found) == [*RACKS]
        client.refusal(flavor=SMALL, group=apart)
        racks.placement.release(apart.members[0])
        again = client.chosen(
            apart.members[0], flavor=SMALL, group=apart, ignore_hosts=[full]
        )
        assert again[0][0] == full[0]
        assert again != [full]
        assert (
            len({*boot(racks, client, together, 2), *boot(racks, client, together)})
            == 1
        )
    explained = {'filter_scheduler': FILTERS, 'novasched': {'fault_detail': 'counts'}}
    with Daemon(racks, explained):
        told = client.refusal(flavor=SMALL, group=apart)
        assert '9 in no failure domain for the server group' in told


def test_soft_groups(racks, client):
    """Members are spread over racks as evenly as can be, those of hard groups, too."""
    config = {
        'filter_scheduler': {
            'enabled_filters': ','.join(BASE),
            'weight_classes': 'FailureDomainWeigher',
        },
        'novasched': {'failure_domain_weight_multiplier': 1},
    }
    with Daemon(racks, config):
        for policy in ('soft-anti-affinity', 'anti-affinity'):
            group = Group(policy)
            for _ in range(2):  # the host in no rack counts as one
                assert sorted(
                    boot(racks, client, group, 3) + boot(racks, client, group, 2)
                ) == [
                    *RACKS,
                    'n',
                ]
                if policy == 'anti-affinity':
                    break
        group = Group('soft-affinity')
        assert (
            len({*boot(racks, client, group, 2), *boot(racks, client, group, 2)}) == 1
        )


def test_several_schedulers(racks, client):
    """Members that are asked for at once of three schedulers get a rack each, and as
    many as there are racks are placed; nobody names to any of them the members of the
    others."""
    config = {'filter_scheduler': FILTERS, 'novasched': {'in_flight_timeout': 3600}}
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(racks, config)) for _ in range(3)]
        wait_until(
            lambda: all('with 2 other' in x.text() for x in daemons),
            START,
            'schedulers',
        )
        for policy in ('anti-affinity', 'affinity'):
            for _ in range(5):
                group = Group(policy)
                calls = [a_call(new_uuids(), SMALL, group=group) for _ in RACKS]
                answers = client.select_at_once(calls, len(calls))
                assert [each for each in answers if isinstance(each, Refused)] == []
                found = sorted(
                    host['service_host'][0] for answer in answers for [host] in answer
                )
                assert (
                    found == [*RACKS]
                    if policy == 'anti-affinity'
                    else len({*found}) == 1
                )
