# SPDX-License-Identifier: Apache-2.0
"""Requests at the same time, on hosts that do not report what has been placed on
them."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.affinity import ServerGroupAffinityFilter
from novasched.scheduler.filters.failure_domain import FailureDomainFilter
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.numa import HostTopology
from novasched.scheduler.numa.fit import consume_cells, fit
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver
from tests.lab.simulated_broker import SimulatedBroker
from tests.lab.topologies import a_cell, a_guest, a_pinned

CPUS = 4
CELLS = 2
PINNED = 2
THREADS = 8
ROOM = CPUS * CELLS // PINNED
"""So many servers fit on a host."""

TOPOLOGY = HostTopology(tuple(a_cell(i, CPUS, threads=1) for i in range(CELLS)))
GUEST = a_guest(a_pinned(PINNED))


class SharedPlacement(CountingPlacement):
    """May be used by several threads, as the real one."""

    def __init__(self, slots):
        super().__init__(slots)
        self.lock = Lock()

    def claim_together(self, wanted, basis=FRESH):
        with self.lock:
            return super().claim_together(wanted, basis)

    def delete_allocations(self, claim):
        with self.lock:
            super().delete_allocations(claim)


def places(driver, request):
    """True unless the request is refused."""
    try:
        driver.select_destinations(request)
    except NoValidHost:
        return False
    return True


class Cloud:
    """Hosts for ROOM servers each; Placement would let ``spare`` more onto every
    one."""

    def __init__(self, hosts, spare, schedulers=1):
        self.hosts = [
            a_host(f'h{i}', ram=8192, numa=lambda: TOPOLOGY) for i in range(hosts)
        ]
        self.placement = SharedPlacement(
            {host.uuid: ROOM + spare for host in self.hosts}
        )
        how = {'placement': self.placement, 'in_flight_timeout': 60.0}
        self.drivers = [
            a_driver(self.hosts, NUMATopologyFilter, **how) for _ in range(schedulers)
        ]

    def ask(self, number, count):
        """A request for some servers: whether they were placed."""
        uuids = tuple(a_uuid(f'{number}-{i}') for i in range(count))
        request = replace(
            a_request(count=count, instance_uuids=uuids), numa_topology=GUEST
        )
        return places(self.drivers[number % len(self.drivers)], request)

    def ask_at_once(self, counts):
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.ask, range(len(counts)), counts))

    def fit_one_after_another(self):
        """What nova-compute does with the servers that come to each host."""
        topologies = {host.uuid: TOPOLOGY for host in self.hosts}
        for uuid in self.placement.hosts.values():
            place = fit(topologies[uuid], GUEST, None)
            assert not isinstance(place, str), place
            topologies[uuid] = consume_cells(topologies[uuid], place, GUEST)


def see_what_comes(cloud, counts):
    """All are placed if there is room for all, none collides, and who is refused leaves
    nothing."""
    placed = cloud.ask_at_once(counts)
    assert all(placed) or sum(counts) > len(cloud.hosts) * ROOM
    cloud.fit_one_after_another()
    total = sum(count for count, ok in zip(counts, placed, strict=True) if ok)
    assert len(cloud.placement.allocations) == total
    assert sum(driver.pending_claims.count() for driver in cloud.drivers) == total


class Racks:
    """Racks of hosts, and a group of which several schedulers place members at the same
    time."""

    def __init__(self, racks, policy, schedulers=1, plugin=FailureDomainFilter):
        self.rack_of = {f'h{i}': str(i % racks) for i in range(2 * racks)}
        hosts = [
            a_host(x, metadata={'failure_domain': on}) for x, on in self.rack_of.items()
        ]
        self.placement = SharedPlacement({host.uuid: 40 for host in hosts})
        self.names = {host.uuid: host.host for host in hosts}
        how = {'placement': self.placement, 'in_flight_timeout': 60.0}
        self.drivers = [a_driver(hosts, plugin, **how) for _ in range(schedulers)]
        self.policy = policy

    def ask(self, number, count):
        """A request for some members: whether they were placed."""
        uuids = tuple(a_uuid(f'{number}-{i}') for i in range(count))
        group = a_group(self.policy, uuids)
        request = a_request(instance_uuids=uuids, instance_uuid=uuids[0], group=group)
        return places(self.drivers[number % len(self.drivers)], request)

    def ask_at_once(self, counts):
        """The number of members that each rack gets, of so many at once."""
        with ThreadPoolExecutor(THREADS) as pool:
            placed = list(pool.map(self.ask, range(len(counts)), counts))
        found = Counter(
            self.rack_of[self.names[x]] for x in self.placement.hosts.values()
        )
        assert found.total() == sum(
            n for n, ok in zip(counts, placed, strict=True) if ok
        )
        return found


COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@given(counts=COUNTS, spare=st.integers(0, 4), hosts=st.integers(1, 9))
@settings(max_examples=80)
def test_what_fits_is_placed_and_nothing_collides(counts, spare, hosts):
    """Servers asked for at once never get more of a host than can pin CPUs there,
    though Placement would allow it."""
    see_what_comes(Cloud(hosts, spare), counts)


@given(counts=COUNTS, hosts=st.integers(1, 6))
@settings(max_examples=40)
def test_several_schedulers_decide_as_one(counts, hosts):
    """The same holds for requests of which each of three schedulers gets a third.
    Placement lets as many onto each host as there are."""
    cloud = Cloud(hosts, 40, schedulers=3)
    with SimulatedBroker().connecting(cloud.drivers):
        see_what_comes(cloud, counts)


@given(counts=COUNTS, racks=st.integers(1, 9), schedulers=st.sampled_from([1, 3]))
@settings(max_examples=40)
def test_members_do_not_meet_in_a_rack(counts, racks, schedulers):
    """Members of a hard group that are placed at once get a rack each, and as many are
    placed as there are racks for; nobody has told the requests of the members of
    others."""
    cloud = Racks(racks, 'anti-affinity', schedulers)
    with SimulatedBroker().connecting(cloud.drivers):
        found = cloud.ask_at_once(counts)
    assert set(found.values()) <= {1}
    assert found.total() == sum(counts) or sum(counts) > racks


TOGETHER = st.sampled_from([FailureDomainFilter, ServerGroupAffinityFilter])


@given(
    counts=COUNTS,
    racks=st.integers(1, 9),
    schedulers=st.sampled_from([1, 3]),
    plugin=TOGETHER,
)
@settings(max_examples=40)
def test_members_meet_in_a_rack(counts, racks, schedulers, plugin):
    """All members of a group with affinity go to one rack, or to one host, though none
    was anywhere before."""
    cloud = Racks(racks, 'affinity', schedulers, plugin)
    with SimulatedBroker().connecting(cloud.drivers):
        found = cloud.ask_at_once(counts)
    assert [*found.values()] == [sum(counts)]
    if plugin is ServerGroupAffinityFilter:
        assert len({*cloud.placement.hosts.values()}) == 1
