# SPDX-License-Identifier: Apache-2.0
"""Simultaneous requests on hosts that do not report the placed instances."""

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
from novasched.scheduler.numa.fit import FitProblem, consume_cells
from tests.lab.builders import a_group, a_host, a_request, numbered_uuids
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.memory_schedulers import a_driver
from tests.lab.simulated_broker import SimulatedBroker
from tests.lab.topologies import a_cell, a_guest, a_pinned

CPUS = 4
CELLS = 2
PINNED = 2
THREADS = 8
INSTANCES_PER_HOST = CPUS * CELLS // PINNED

TOPOLOGY = HostTopology(tuple(a_cell(i, CPUS, threads=1) for i in range(CELLS)))
GUEST = a_guest(a_pinned(PINNED))


class SharedPlacement(CountingPlacement):
    """A Placement for several threads."""

    def __init__(self, slots):
        super().__init__(slots)
        self.lock = Lock()

    def claim_together(self, wanted, basis=FRESH):
        with self.lock:
            return super().claim_together(wanted, basis)

    def delete_allocations(self, claim):
        with self.lock:
            super().delete_allocations(claim)


def is_placed(driver, request):
    """True unless the request is refused."""
    try:
        driver.select_destinations(request)
    except NoValidHost:
        return False
    return True


def uuids_of(number, count):
    """The UUIDs of the instances of a request."""
    return tuple(numbered_uuids(f'{number}-', count))


def instances_placed(counts, verdicts):
    """The number of instances of the requests that are not refused."""
    total = 0
    for count, is_request_placed in zip(counts, verdicts, strict=True):
        if is_request_placed:
            total += count
    return total


class Cloud:
    """Hosts for INSTANCES_PER_HOST instances each. Placement allows ``spare`` more
    instances on every host."""

    def __init__(self, hosts, spare, schedulers=1):
        self.hosts = []
        slots = {}
        for number in range(hosts):
            host = a_host(f'h{number}', ram=8192, numa=lambda: TOPOLOGY)
            self.hosts.append(host)
            slots[host.uuid] = INSTANCES_PER_HOST + spare
        self.placement = SharedPlacement(slots)

        self.drivers = []
        for _ in range(schedulers):
            driver = a_driver(
                self.hosts,
                NUMATopologyFilter,
                placement=self.placement,
                in_flight_timeout=60.0,
            )
            self.drivers.append(driver)

    def ask(self, number, count):
        """Request ``count`` instances; True if the instances are placed."""
        request = a_request(count=count, instance_uuids=uuids_of(number, count))
        request = replace(request, numa_topology=GUEST)
        return is_placed(self.drivers[number % len(self.drivers)], request)

    def ask_at_once(self, counts):
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.ask, range(len(counts)), counts))

    def fit_one_after_another(self):
        """Fit the instances onto their hosts in turn, as nova-compute does."""
        topologies = {host.uuid: TOPOLOGY for host in self.hosts}
        for uuid in self.placement.hosts.values():
            place = FitProblem(topologies[uuid], GUEST, None).fit()
            assert not isinstance(place, str), place
            topologies[uuid] = consume_cells(topologies[uuid], place, GUEST)


def check_simultaneous_requests(cloud, counts):
    """All instances are placed if there is room for all, no two instances collide, and
    a refused request leaves no claim."""
    verdicts = cloud.ask_at_once(counts)

    assert all(verdicts) or sum(counts) > len(cloud.hosts) * INSTANCES_PER_HOST
    cloud.fit_one_after_another()
    total = instances_placed(counts, verdicts)
    assert len(cloud.placement.allocations) == total
    assert sum(driver.pending_claims.count() for driver in cloud.drivers) == total


class Racks:
    """Racks of hosts, and a group of which several schedulers place members at the same
    time."""

    def __init__(self, racks, policy, schedulers=1, plugin=FailureDomainFilter):
        self.policy = policy
        self.rack_of = {}
        hosts = []
        for number in range(2 * racks):
            rack = str(number % racks)
            host = a_host(f'h{number}', metadata={'failure_domain': rack})
            hosts.append(host)
            self.rack_of[host.uuid] = rack
        self.placement = SharedPlacement(slots_on(hosts, 40))

        self.drivers = []
        for _ in range(schedulers):
            driver = a_driver(
                hosts, plugin, placement=self.placement, in_flight_timeout=60.0
            )
            self.drivers.append(driver)

    def ask(self, number, count):
        """Request ``count`` members; True if the members are placed."""
        uuids = uuids_of(number, count)
        group = a_group(self.policy, uuids)
        request = a_request(instance_uuids=uuids, instance_uuid=uuids[0], group=group)
        return is_placed(self.drivers[number % len(self.drivers)], request)

    def ask_at_once(self, counts):
        """Make all requests at once; the number of members in each rack."""
        with ThreadPoolExecutor(THREADS) as pool:
            verdicts = list(pool.map(self.ask, range(len(counts)), counts))

        members = Counter()
        for uuid in self.placement.hosts.values():
            members[self.rack_of[uuid]] += 1
        assert members.total() == instances_placed(counts, verdicts)
        return members


COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@given(counts=COUNTS, spare=st.integers(0, 4), hosts=st.integers(1, 9))
@settings(max_examples=80)
def test_simultaneous_requests_that_fit_are_placed_without_collision(
    counts, spare, hosts
):
    """A host never gets more instances than the host has CPUs to pin, although
    Placement allows more."""
    check_simultaneous_requests(Cloud(hosts, spare), counts)


@given(counts=COUNTS, hosts=st.integers(1, 6))
@settings(max_examples=40)
def test_several_schedulers_decide_like_a_single_scheduler(counts, hosts):
    """Three schedulers that share the requests decide like a single scheduler.
    Placement allows all instances on every host."""
    cloud = Cloud(hosts, 40, schedulers=3)
    with SimulatedBroker().connecting(cloud.drivers):
        check_simultaneous_requests(cloud, counts)


@given(counts=COUNTS, racks=st.integers(1, 9), schedulers=st.sampled_from([1, 3]))
@settings(max_examples=40)
def test_simultaneous_anti_affinity_members_share_no_rack(counts, racks, schedulers):
    """Members of a hard group that are placed at once get a rack each, until every rack
    has a member. A request does not name the members of the other requests."""
    cloud = Racks(racks, 'anti-affinity', schedulers)
    with SimulatedBroker().connecting(cloud.drivers):
        members = cloud.ask_at_once(counts)

    assert set(members.values()) <= {1}
    assert members.total() == sum(counts) or sum(counts) > racks


TOGETHER = st.sampled_from([FailureDomainFilter, ServerGroupAffinityFilter])


@given(
    counts=COUNTS,
    racks=st.integers(1, 9),
    schedulers=st.sampled_from([1, 3]),
    plugin=TOGETHER,
)
@settings(max_examples=40)
def test_simultaneous_affinity_members_share_a_rack(counts, racks, schedulers, plugin):
    """All members of a new group with affinity go to the same rack, or to the same
    host."""
    cloud = Racks(racks, 'affinity', schedulers, plugin)
    with SimulatedBroker().connecting(cloud.drivers):
        members = cloud.ask_at_once(counts)

    assert [*members.values()] == [sum(counts)]
    if plugin is ServerGroupAffinityFilter:
        assert len({*cloud.placement.hosts.values()}) == 1
