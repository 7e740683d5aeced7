# SPDX-License-Identifier: Apache-2.0
"""Instances of a server group, request by request, against a model that looks at all
hosts."""

from hypothesis import example, given
from hypothesis import strategies as st

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.failure_domain import FailureDomainFilter
from novasched.scheduler.weighers.failure_domain import FailureDomainWeigher
from tests.lab.builders import a_group, a_host, a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver

RACKS = st.sets(st.sampled_from('123'), max_size=2)
HOSTS = st.lists(
    st.tuples(RACKS, st.integers(0, 3), st.lists(st.sampled_from('xyz'), max_size=2)),
    min_size=1,
    max_size=6,
)
"""For each host its racks, its free slots, and members of the group on the host."""
COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


class Cloud:
    """Hosts, and the members of a group on the hosts.

    :ivar on: member to host.
    """

    def __init__(self, hosts, policy, limit, *plugins, **more):
        self.racks = {}
        self.room = {}
        self.on = {}
        driver_hosts = []
        slots = {}
        for number, (racks, room, members) in enumerate(hosts):
            name = f'h{number}'
            members_here = {*members} - self.on.keys()
            self.racks[name] = racks
            self.room[name] = room
            self.on |= dict.fromkeys(members_here, name)
            metadata = [{'failure_domain': rack} for rack in sorted(racks)]
            host = a_host(name, metadata=metadata, instances=members_here)
            driver_hosts.append(host)
            slots[host.uuid] = room

        self.policy = policy
        self.rules = {'max_server_per_host': str(limit)}
        self.driver = a_driver(
            driver_hosts,
            *plugins,
            placement=CountingPlacement(slots),
            in_flight_timeout=60.0,
            **more,
        )

    def members_near(self, name):
        """The number of members that share a rack with a host. Hosts without a rack
        are near each other."""
        racks = self.racks[name]
        count = 0
        for host in self.on.values():
            if self.racks[host] & racks or self.racks[host] == racks:
                count += 1
        return count

    def ask(self, number, count):
        """Request more members; the host of each member, or None after a refusal."""
        uuids = tuple(f'{number}-{i}' for i in range(count))
        group = a_group(self.policy, {*self.on, *uuids}, rules=self.rules)
        request = a_request(
            count=count, instance_uuids=uuids, instance_uuid=uuids[0], group=group
        )
        try:
            rows = self.driver.select_destinations(request)
        except NoValidHost:
            return None
        hosts = [selections[0].service_host for selections in rows]
        return dict(zip(uuids, hosts, strict=True))

    def take(self, uuid, name):
        self.on[uuid] = name
        self.room[name] -= 1


@given(HOSTS, COUNTS, st.sampled_from(['anti-affinity', 'affinity']), st.integers(1, 2))
@example(
    [({'1'}, 2, []), ({'2'}, 1, []), ({'1', '2'}, 2, [])], [1, 3, 1], 'affinity', 1
)
def test_members_of_a_hard_group_go_to_allowed_hosts(hosts, counts, policy, limit):
    """A member goes to a host that the model allows, beside all earlier members, with
    members of the same request and members on full hosts included. A single member is
    refused only if the model allows no host."""
    cloud = Cloud(hosts, policy, limit, FailureDomainFilter)

    def allowed(name):
        if not cloud.racks[name] or not cloud.room[name]:
            return False
        if policy == 'anti-affinity':
            return cloud.members_near(name) < limit
        racks_of_members = [cloud.racks[host] for host in cloud.on.values()]
        return cloud.members_near(name) > 0 or not any(racks_of_members)

    for number, count in enumerate(counts):
        chosen = cloud.ask(number, count)
        if chosen is None:
            assert count > 1 or not any(map(allowed, cloud.racks))
            continue
        for uuid, name in chosen.items():
            assert allowed(name)
            cloud.take(uuid, name)


@given(HOSTS, COUNTS, st.sampled_from(['soft-anti-affinity', 'soft-affinity']))
def test_members_of_a_soft_group_go_to_the_best_failure_domains(hosts, counts, policy):
    """A member goes to a host with room whose failure domains have the fewest members,
    or the most members."""
    cloud = Cloud(
        hosts,
        policy,
        1,
        weighers=[FailureDomainWeigher],
        failure_domain_weight_multiplier=1.0,
    )
    best = min if policy == 'soft-anti-affinity' else max

    for number, count in enumerate(counts):
        chosen = cloud.ask(number, count)
        if chosen is None:
            assert count > sum(cloud.room.values())
            continue
        for uuid, name in chosen.items():
            near = {}
            for host, room in cloud.room.items():
                if room:
                    near[host] = cloud.members_near(host)
            assert near[name] == best(near.values())
            cloud.take(uuid, name)

    placed = [uuid for uuid in cloud.on if '-' in uuid]
    assert len(cloud.driver.deps.placement.hosts) == len(placed)
