# SPDX-License-Identifier: Apache-2.0
"""Instances that are scheduled again before a host shows the instance.

Examples are a repeated live migration, a resize after a revert, and a build whose
message is delivered twice.
"""

import time
from dataclasses import replace

import pytest

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from tests.lab.builders import a_group, a_host, a_uuid
from tests.lab.memory_schedulers import a_driver, ask
from tests.lab.topologies import a_cell, a_guest, a_pinned

FILTERS = (
    NUMATopologyFilter,
    PciPassthroughFilter,
    NumInstancesFilter,
    ServerGroupAntiAffinityFilter,
)
CELLS = HostTopology((a_cell(0, 2, threads=1),))
TWO_CPUS = a_guest(a_pinned(2))
KINDS = {
    'pinned CPUs': ({'numa_topology': TWO_CPUS}, {}),
    'a PCI device': ({'pci_requests': (PciRequest(1, ({'product_id': 'p'},)),)}, {}),
    'the number of instances': ({}, {'max_instances_per_host': 1}),
    'a group': ({'group': a_group('anti-affinity', [a_uuid('x'), a_uuid('y')])}, {}),
}
"""Fields of a request and settings, so that a host has resources for a single
instance."""


class ReadHosts(MemoryHosts):
    """Hosts that are read at the moment of a request."""

    def read(self, *arguments, **options):
        return replace(super().read(*arguments, **options), read_at=time.monotonic())


class Cloud:
    """A scheduler, and silent hosts with room for a single instance."""

    def __init__(self, names, **options):
        pools = (Pool('p', 'v', 1),)
        hosts = [a_host(name, numa=lambda: CELLS, pci=lambda: pools) for name in names]
        self.driver = a_driver(ReadHosts(hosts), *FILTERS, **options)
        self.pending_claims = self.driver.pending_claims

    def ask(self, *names, **fields):
        """The chosen hosts for instances, or None after a refusal. The allocations are
        deleted, as after a failed move."""
        uuids = tuple(map(a_uuid, names))
        fields |= {'instance_uuids': uuids, 'instance_uuid': uuids[0]}
        try:
            answer = ask(self.driver, count=len(uuids), **fields)
        except NoValidHost:
            return None
        for uuid in uuids:
            self.driver.deps.placement.delete_allocations(uuid)
        return [row[0] for row in answer]


STORIES = {
    'an instance does not stand in its own way, but in that of another one': (
        'a',
        [('x', '', 'a'), ('x', '', 'a'), ('x', '', 'a'), ('y', '', None)],
    ),
    'an instance that is sent elsewhere counts there alone': (
        'ab',
        [('x', '', 'a'), ('x', 'a', 'b'), ('y', '', 'a')],
    ),
    'an instance that is refused counts where it was sent before': (
        'a',
        [('x', '', 'a'), ('x', 'a', None), ('y', '', None), ('x', '', 'a')],
    ),
}
"""The hosts, and requests in turn: the instance, the ignored hosts, and the chosen
host."""


@pytest.mark.parametrize(('hosts', 'requests'), STORIES.values(), ids=STORIES)
@pytest.mark.parametrize(('fields', 'options'), KINDS.values(), ids=KINDS)
def test_an_instance_keeps_the_claim_until_placed_elsewhere(
    fields, options, hosts, requests
):
    """An instance keeps its pending claim until the instance is placed elsewhere."""
    cloud = Cloud(hosts, **options)
    for name, ignored, host in requests:
        answer = cloud.ask(name, ignore_hosts=tuple(ignored), **fields)
        assert answer == (None if host is None else [host])
    assert cloud.pending_claims.count() == len(hosts)


@pytest.mark.parametrize('count', [1, 2, 3])
@pytest.mark.parametrize(('fields', 'options'), KINDS.values(), ids=KINDS)
def test_a_repeated_request_gets_the_same_hosts(fields, options, count):
    """The repeated request gets the same hosts, and its instances do not collide."""
    cloud = Cloud('abc'[:count], **options)
    names = 'xyz'[:count]
    if 'group' in fields:
        fields = {'group': a_group('anti-affinity', map(a_uuid, names))}
    for _ in range(2):
        assert sorted(cloud.ask(*names, **fields)) == sorted('abc'[:count])
    assert cloud.pending_claims.count() == count
