# SPDX-License-Identifier: Apache-2.0
"""Instances of a server group, one request after the other, against a plain look at all
hosts."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.failure_domain import FailureDomainFilter
from novasched.scheduler.weighers.failure_domain import FailureDomainWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver

RACKS = st.sets(st.sampled_from('123'), max_size=2)
HOSTS = st.lists(
    st.tuples(RACKS, st.integers(0, 3), st.lists(st.sampled_from('xyz'), max_size=2)),
    min_size=1,
    max_size=6,
)
"""Racks that a host is in, instances that it has room for, and members that are there
already."""
COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


class Cloud:
    """Hosts, and the members of a group that are on them."""

    def __init__(self, hosts, policy, limit, *plugins, **more):
        self.racks = {}
        self.room = {}
        self.on = {}
        made = []
        for number, (racks, room, members) in enumerate(hosts):
            name = f'h{number}'
            new = {*members} - self.on.keys()
            self.racks[name] = racks
            self.room[name] = room
            self.on |= dict.fromkeys(new, name)
            metadata = [{'failure_domain': rack} for rack in sorted(racks)]
            made.append(a_host(name, metadata=metadata, instances=new))
        self.policy = policy
        self.rules = {'max_server_per_host': str(limit)}
        slots = CountingPlacement({a_uuid(name): n for name, n in self.room.items()})
        self.driver = a_driver(
            made, *plugins, placement=slots, in_flight_timeout=60.0, **more
        )

    def near(self, name):
        """The number of members that share a rack with a host; racks of all members."""
        mine = self.racks[name]
        return sum(
            bool(self.racks[x] & mine) or self.racks[x] == mine
            for x in self.on.values()
        )

    def ask(self, number, count):
        """The hosts of some more members, None if they are refused."""
        uuids = tuple(f'{number}-{i}' for i in range(count))
        group = a_group(self.policy, {*self.on, *uuids}, rules=self.rules)
        request = a_request(
            count=count, instance_uuids=uuids, instance_uuid=uuids[0], group=group
        )
        try:
            rows = self.driver.select_destinations(request)
        except NoValidHost:
            return None
        return {
            uuid: row[0].service_host for uuid, row in zip(uuids, rows, strict=True)
        }

    def take(self, uuid, name):
        self.on[uuid] = name
        self.room[name] -= 1


@given(HOSTS, COUNTS, st.sampled_from(['anti-affinity', 'affinity']), st.integers(1, 2))
@example(
    [({'1'}, 2, []), ({'2'}, 1, []), ({'1', '2'}, 2, [])], [1, 3, 1], 'affinity', 1
)
def test_hard_groups(hosts, counts, policy, limit):
    """Each goes where a plain look allows it, beside those before it, also of the same
    request and on hosts that are full; refused is what a plain look finds no host for,
    either."""
    cloud = Cloud(hosts, policy, limit, FailureDomainFilter)

    def allowed(name):
        if not cloud.racks[name] or not cloud.room[name]:
            return False
        if policy == 'anti-affinity':
            return cloud.near(name) < limit
        return bool(cloud.near(name)) or not any(
            cloud.racks[x] for x in cloud.on.values()
        )

    for number, count in enumerate(counts):
        chosen = cloud.ask(number, count)
        if chosen is None:
            assert count > 1 or not any(map(allowed, cloud.racks))
            continue
        for uuid, name in chosen.items():
            assert allowed(name)
            cloud.take(uuid, name)


@given(HOSTS, COUNTS, st.sampled_from(['soft-anti-affinity', 'soft-affinity']))
def test_soft_groups(hosts, counts, policy):
    """Each goes to a host with room whose failure domains have the fewest members, or
    the most."""
    weigher = {
        'weighers': [FailureDomainWeigher],
        'failure_domain_weight_multiplier': 1.0,
    }
    cloud = Cloud(hosts, policy, 1, **weigher)
    best = min if policy == 'soft-anti-affinity' else max
    for number, count in enumerate(counts):
        chosen = cloud.ask(number, count)
        if chosen is None:
            assert count > sum(cloud.room.values())
            continue
        for uuid, name in chosen.items():
            near = {x: cloud.near(x) for x, room in cloud.room.items() if room}
            assert near[name] == best(near.values())
            cloud.take(uuid, name)
    assert Counter(cloud.driver.deps.placement.hosts.values()).total() == sum(
        '-' in uuid for uuid in cloud.on
    )
