# SPDX-License-Identifier: Apache-2.0
"""Boards of described clouds, for tests of plans."""

from novasched.conf import loading
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS
from novasched.tools.plan.described_servers import described_board
from novasched.tools.simulate.described_cloud import cloud_of
from novasched.tools.simulate.simulation import RequestOptions, described_simulation


def a_cloud(number, host, sizes, servers, **more):
    """A description of equal hosts without overcommit.

    :param host: vCPUs and MiB of memory of a host.
    :param sizes: vCPUs and MiB of memory of each flavor.
    """
    vcpus, memory_mb = host
    flavors = {}
    for name, (flavor_vcpus, flavor_mb) in sizes.items():
        flavors[name] = {'vcpus': flavor_vcpus, 'memory_mb': flavor_mb}
    hosts = {
        'name': 'a',
        'number': number,
        'vcpus': vcpus,
        'memory_mb': memory_mb,
        'cpu_allocation_ratio': 1.0,
        'reserved_memory_mb': 0,
    }
    return {
        'hosts': [hosts],
        'flavors': flavors,
        'groups': {'web': {'policy': 'anti-affinity'}},
        'servers': servers,
        **more,
    }


def board_of(description, flavor=None, count=0, options=()):
    """A board of a description, and requests for further servers of a flavor."""
    conf = loading.load(['--config-file=/dev/null'], 'novasched')
    for group, name, value in options:
        conf.set_override(name, value, group)
    cloud = cloud_of(description)
    simulation = described_simulation(conf, cloud, NO_USUAL_GUESTS, seed=0)
    board = described_board(simulation, cloud)
    requests = []
    if flavor is not None:
        found = simulation.flavor(flavor)
        request = simulation.new_request(found, RequestOptions())
        requests = [simulation.simulator.anew(request) for _ in range(count)]
    return board, requests
