# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from novasched.scheduler.drivers.caching_scheduler import CachingScheduler
from novasched.scheduler.filters import Data, Filter
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.request import Destination
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab import memory_schedulers
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.memory_schedulers import a_driver


class Cells(MemoryHosts):
    """Hosts in memory that record every read."""

    def __init__(self, hosts):
        super().__init__(hosts)
        self.reads = []

    def read(self, uuids, request, needs, basis):
        self.reads.append(
            (uuids, Data.INSTANCES in needs.data, Data.IMAGES in needs.data)
        )
        return super().read(uuids, request, needs, basis)


class WantsInstances(Filter):
    """A filter that needs the instances on hosts, for requests with a hint."""

    reads = frozenset({Data.INSTANCES})

    def applies(self, request):
        return bool(request.hint('look'))

    def reject(self, host, request):
        return


A = a_host('a', ram=4096)
B = a_host('b', ram=3200)
FAR = a_host('far', ram=1024, cell='cell2')


def cloud(*hosts, slots=10):
    cells = Cells(hosts)
    options = {'slots': slots, 'kind': CachingScheduler}
    return a_driver(cells, WantsInstances, weighers=[RAMWeigher], **options), cells


def ask(driver, name='server', **fields):
    """The chosen host of each instance."""
    rows = memory_schedulers.ask(driver, instance_uuids=(a_uuid(name),), **fields)
    return [destination for destination, *_ in rows]


def test_requests_use_the_hosts_of_the_last_refresh():
    """Requests use the hosts of the last refresh, and see no later changes."""
    driver, cells = cloud(A, B)
    driver.periodic()
    cells.hosts[A.uuid] = a_host('a', ram=512)
    assert ask(driver, 'one') == ['a']
    assert cells.reads == [(None, False, False)]
    driver.periodic()
    assert ask(driver, 'two') == ['b']
    assert len(cells.reads) == 2


def test_a_refresh_sets_the_moment_of_the_last_aggregate_change():
    """A refresh sets the moment of the last change of aggregates. Older answers of
    Placement do not serve later requests."""
    driver, cells = cloud(A, B)
    driver.periodic()
    cells.aggregates_settled = 7.0
    request = a_request()
    assert driver.deps.hosts.read(None, request).aggregates_settled == -math.inf
    driver.periodic()
    assert driver.deps.hosts.read(None, request).aggregates_settled == 7.0


def test_placed_instances_reduce_the_free_resources_of_hosts():
    """Earlier requests reduce the free resources of the hosts."""
    driver, _ = cloud(A, B)
    chosen = [ask(driver, f'server{i}')[0] for i in range(4)]
    assert chosen == ['a', 'a', 'b', 'a']


def test_refreshes_read_instances_once_a_request_needs_instances():
    """The first request that needs instances starts the reading of instances, and every
    later refresh reads instances."""
    driver, cells = cloud(A, B)
    ask(driver, 'one')
    ask(driver, 'two', hints={'look': ['yes']})
    ask(driver, 'three', hints={'look': ['yes']})
    driver.periodic()
    assert [instances for _, instances, _ in cells.reads] == [False, True, True]


@pytest.mark.parametrize(
    ('wanted', 'chosen'),
    [
        ({'cell_uuid': a_uuid('cell2')}, ['far']),
        ({'cell_uuid': a_uuid('cell2'), 'allow_cross_cell_move': True}, ['a']),
        ({}, ['a']),
    ],
)
def test_a_request_bound_to_a_cell_gets_hosts_of_the_cell(wanted, chosen):
    """A request for a cell gets hosts of the cell, unless the request may leave the
    cell."""
    driver, _ = cloud(A, B, FAR)
    assert ask(driver, requested_destination=Destination(**wanted)) == chosen


def test_a_rebuild_claims_no_resources():
    """A rebuild gets every host and claims nothing."""
    driver, _ = cloud(A, slots=0)
    fields = {'hints': {'_nova_check_type': ['rebuild']}, 'force_hosts': ('a',)}
    assert ask(driver, **fields) == ['a']
    assert driver.host_cache.read(None, a_request()).hosts[A.uuid] == A


def test_a_rebuild_hint_without_forced_hosts_takes_resources():
    """A request with the hint of a rebuild that forces no host is placed like any
    other."""
    driver, _ = cloud(A, slots=1)
    hints = {'_nova_check_type': ['rebuild']}
    assert ask(driver, hints=hints) == ['a']
    [host] = driver.host_cache.read(None, a_request()).hosts.values()
    assert host.free_ram_mb < A.free_ram_mb
