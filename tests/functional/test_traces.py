# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate trace`` beside the daemon: the same boots, one by one, get the
same hosts through RPC, MariaDB and Placement.

``NOVASCHED_TRACE_BOOTS=2000`` plays 2,000 boots.
"""

import os
from random import Random

import pytest

from novasched.conf import loading
from novasched.scheduler.model.host import capacity_of
from novasched.tools.simulate.simulation import open_simulation
from novasched.tools.simulate.trace import TraceEntry, TracePlayer, usual_guests_of
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon
from tests.lab.wire import primitive

BOOTS = int(os.environ.get('NOVASCHED_TRACE_BOOTS', '150'))
HOSTS = 200
FLAVORS = {
    'small': Flavor(1, 2048, 10),
    'large': Flavor(4, 8192, 40),
    'memory': Flavor(4, 32768, 40),
    'huge': Flavor(24, 49152, 80),
}
SHARES = (50, 30, 15, 5)
FRAGMENTATION = {
    'fragmentation_weight_multiplier': 1000,
    'usual_flavors': ','.join(FLAVORS),
}


def a_trace():
    """Boots of random flavors."""
    names = Random(5).choices([*FLAVORS], SHARES, k=BOOTS)
    return [TraceEntry(at=number, flavor=name) for number, name in enumerate(names)]


@pytest.fixture
def filled(cloud):
    """Hosts of different sizes, so that no two hosts have equal weights."""
    cloud.reset()
    computes = []
    for number in range(HOSTS):
        size = {'vcpus': 32 + number % 3 * 16, 'ram_mb': 131072 + 64 * number}
        computes.append(Compute(f'host-{number:03}', f'cell{number % 2 + 1}', **size))
    cloud.add_hosts(computes)

    rows = []
    for number, (name, flavor) in enumerate(FLAVORS.items(), 1):
        rows.append(
            {
                'id': number,
                'name': name,
                'flavorid': name,
                'vcpus': flavor.vcpus,
                'memory_mb': flavor.ram_mb,
                'root_gb': flavor.disk_gb,
                'ephemeral_gb': 0,
                'swap': 0,
                'rxtx_factor': 1.0,
                'disabled': False,
                'is_public': True,
            }
        )
    cloud.api.insert('flavors', rows)
    return cloud


def simulated(config, entries):
    """The host of each boot in a simulation."""
    conf = loading.load([f'--config-file={config}'], 'novasched')
    with open_simulation(conf, seed=1) as live:
        hosts = {host.uuid: host for host in live.simulator.hosts}
        usual = usual_guests_of(entries, live.find_flavor, capacity_of(hosts.values()))
        TracePlayer(live, usual).play('', entries, moments=1)
        allocations = live.simulator.placement.allocations
        return [hosts[provider].host for [provider] in allocations.values()]


def placed(cloud, caller, daemon, entries):
    """The host of each boot through the daemon."""
    found = []
    for entry in entries:
        flavor = FLAVORS[entry.flavor]
        wanted = primitive(
            'Flavor',
            '1.2',
            vcpus=flavor.vcpus,
            memory_mb=flavor.ram_mb,
            root_gb=flavor.disk_gb,
            ephemeral_gb=0,
            swap=0,
            extra_specs={},
        )
        answer = caller.place(fields={'flavor': wanted}, server=daemon.host)
        assert answer.error is None
        cloud.boot(answer.server, answer.host, flavor)
        found.append(answer.host)
    return found


@pytest.mark.parametrize('options', [{}, FRAGMENTATION], ids=['defaults', 'usable'])
def test_the_daemon_and_a_simulated_trace_choose_the_same_hosts(
    filled, caller, options
):
    """Each boot gets the simulated host."""
    entries = a_trace()
    config = {'DEFAULT': {'debug': False}, 'novasched': options}
    expected = simulated(filled.config('simulate', config), entries)
    with Daemon(filled, config) as daemon:
        assert placed(filled, caller, daemon, entries) == expected
