# SPDX-License-Identifier: Apache-2.0
"""Several schedulers, which tell each other of what no host shows yet."""

import os
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, Refused, a_call, new_uuids
from tests.lab.processes import START, wait_until
from tests.lab.proxy import Tunnel
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.servers import RabbitMQ
from tests.lab.sharing import sharing

SHARED = os.environ.get('NOVASCHED_TEST_SHARED', 'true')
HOSTS = int(os.environ.get('NOVASCHED_TEST_HOSTS', '16'))
DAEMONS = 3
CLIENTS = 32
OPTIONS = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter,'
        'ServerGroupAntiAffinityFilter,NumInstancesFilter',
        'max_instances_per_host': '2',
    },
    'novasched': {'in_flight_timeout': 3600, 'share_pending_claims': SHARED},
}
PINNED = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
TOPOLOGY = a_numa_topology(a_numa_cell(0), a_numa_cell(1))
SPEC = [{'vendor_id': '8086', 'product_id': '10fb'}]
DEVICE = {'count': 1, 'spec': SPEC, 'alias_name': 'nic', 'request_id': new_uuids()[0]}
FIVE = Flavor(vcpus=5, ram_mb=64, disk_gb=1, extra_specs=PINNED)
HARD = Group('anti-affinity')
KINDS = {
    'guests of one NUMA cell': (2, FIVE, {}),
    'devices': (2, Flavor(), {'devices': [DEVICE]}),
    'a hard group': (1, Flavor(), {'group': HARD}),
    'instances of a host': (2, Flavor(), {}),
}
"""How many of them each host holds, of which Placement would let more onto it."""


HOST = a_host('host-1')


def add(claims, name):
    uuid = a_uuid(name)
    return claims.add(
        HOST, a_request(instance_uuids=(uuid,), instance_uuid=uuid), None, {}
    )


def test_the_broker_is_lost_for_a_while(cloud):
    """What was chosen and released while one of three did not hear the others, all know
    in the end: that one, and whoever has come meanwhile."""

    def know(uuids):
        for each in everybody:
            wait_until(
                lambda each=each: (
                    {x.request.instance_uuid for x in each.all()} == uuids
                ),
                START,
                'pending claims',
            )

    with ExitStack() as stack:
        tunnel = stack.enter_context(Tunnel(cloud.amqp_url))
        urls = [tunnel.url, cloud.amqp_url, cloud.amqp_url]
        everybody = one, two, three = [
            stack.enter_context(sharing(cloud, f'peer-{i}', url))
            for i, url in enumerate(urls)
        ]
        wait_until(
            lambda: all(x.peers.position[1] == 3 for x in everybody), START, 'three'
        )
        gone = add(two, 'gone')
        one.settle([add(one, 'kept')])
        know({a_uuid('gone'), a_uuid('kept')})
        tunnel.refuse()
        wait_until(lambda: one.peers.position[1] == 1, START, 'loss')
        add(one, 'lonely')
        add(three, 'far')
        two.drop(gone)
        late = stack.enter_context(sharing(cloud, 'late', cloud.amqp_url))
        wait_until(lambda: late.peers.position[1] >= 3, START, 'newcomer')
        tunnel.accept()
        everybody = one, two, three, late
        know({a_uuid('kept'), a_uuid('lonely'), a_uuid('far')})
        parts = [(place, 4) for place in range(4)]
        wait_until(
            lambda: sorted(x.peers.position for x in everybody) == parts,
            START,
            'all four',
        )


def test_login_method_in_the_url(cloud):
    """A broker that takes one way of login alone, and nova.conf names that in the query
    of ``transport_url``."""
    with ExitStack() as stack:
        broker = stack.enter_context(
            closing(RabbitMQ(options={'auth_mechanisms.1': 'PLAIN'}))
        )
        broker.start()
        url = f'{broker.url}?rabbit_login_method=PLAIN'
        one, two = [
            stack.enter_context(sharing(cloud, name, url)) for name in ('one', 'two')
        ]
        wait_until(
            lambda: one.peers.position[1] == two.peers.position[1] == 2, START, 'two'
        )


@pytest.fixture(scope='module')
def schedulers(cloud):
    cloud.reset()
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(cloud, OPTIONS)) for _ in range(DAEMONS)]
        known = f'with {DAEMONS - 1} other'
        if SHARED == 'true':
            wait_until(
                lambda: all(known in x.text() for x in daemons), START, 'schedulers'
            )
        yield daemons


@pytest.mark.parametrize('kind', KINDS)
def test_all_that_fit_are_placed_and_none_beside(cloud, client, schedulers, kind):
    """As many as there is room for, one by one, by many at once: each is placed, and no
    host gets more than it holds."""
    each, flavor, asked = KINDS[kind]
    columns = {'numa_topology': TOPOLOGY, 'pci_stats': some_devices(2, None)}
    names = [f'host-{i:02}' for i in range(HOSTS)]
    cloud.reset()
    cloud.add_hosts(
        [
            Compute(x, f'cell{i % 2 + 1}', pcpus=16, columns=columns)
            for i, x in enumerate(names)
        ]
    )
    calls = [a_call(new_uuids(), flavor, **asked) for _ in range(HOSTS * each)]
    answers = client.select_at_once(calls, CLIENTS)
    placed = Counter(
        x['service_host'] for a in answers if not isinstance(a, Refused) for [x] in a
    )
    failed = [answer for answer in answers if isinstance(answer, Refused)]
    print(f'refused {len(failed)}, hosts by their number: {Counter(placed.values())}')
    assert failed == []
    assert placed == dict.fromkeys(names, each)
