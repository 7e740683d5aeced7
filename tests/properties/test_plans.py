# SPDX-License-Identifier: Apache-2.0
"""Plans in random small clouds, beside a search of all moves."""

from collections import Counter, deque
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.tools.plan import goals
from novasched.tools.plan.planner import Planner
from novasched.tools.plan.steps import steps_of
from tests.lab.described_plan import a_cloud, board_of

SIZES = {'small': (1, 1024), 'medium': (2, 2048), 'large': (4, 3072), 'fat': (1, 4096)}
HOST = (6, 6144)
"""vCPUs and MiB of memory."""


@dataclass(frozen=True)
class Town:
    """A small cloud: the flavor, the host and the group of each server."""

    hosts: int
    servers: tuple[tuple[str, int, str | None], ...]

    def describe(self):
        """The description for novasched."""
        servers = []
        for number, (flavor, host, group) in enumerate(self.servers):
            server = {'name': f's{number}', 'flavor': flavor, 'host': f'a-{host:05}'}
            if group is not None:
                server['group'] = group
            servers.append(server)
        return a_cloud(self.hosts, HOST, SIZES, servers)

    @property
    def places(self):
        return tuple(host for _, host, _ in self.servers)

    def fits(self, places, number, host, size=None):
        """True if a server, or a further size, fits a host beside the other servers."""
        if size is None:
            size = SIZES[self.servers[number][0]]
        vcpus, memory_mb = size
        for other, place in enumerate(places):
            if other == number or place != host:
                continue
            flavor, _, group = self.servers[other]
            vcpus += SIZES[flavor][0]
            memory_mb += SIZES[flavor][1]
            if number is not None and group and group == self.servers[number][2]:
                return False
        return vcpus <= HOST[0] and memory_mb <= HOST[1]

    def least(self, is_reached, closed=()):
        """The least number of moves to a state; None if no moves lead there."""
        seen = {self.places}
        queue = deque([(self.places, 0)])
        while queue:
            places, moves = queue.popleft()
            if is_reached(places):
                return moves
            for number, present in enumerate(places):
                for host in range(self.hosts):
                    if host in (present, *closed):
                        continue
                    following = (*places[:number], host, *places[number + 1 :])
                    if following not in seen and self.fits(places, number, host):
                        seen.add(following)
                        queue.append((following, moves + 1))
        return None


@st.composite
def towns(draw):
    """Clouds whose servers fit their hosts, and obey their groups."""
    town = Town(draw(st.integers(2, 4)), ())
    for _ in range(draw(st.integers(1, 7))):
        flavor = draw(st.sampled_from(sorted(SIZES)))
        group = draw(st.sampled_from([None, None, 'web']))
        host = draw(st.integers(0, town.hosts - 1))
        more = Town(town.hosts, (*town.servers, (flavor, host, group)))
        if more.fits(more.places, len(more.servers) - 1, host):
            town = more
    return town


def replay(town, moves):
    """Check that each move is allowed in the state that the moves before it leave, also
    within its step while the servers are on both hosts."""
    uuids = {f's{number}': number for number in range(len(town.servers))}
    places = list(town.places)
    for step in steps_of(moves):
        begun = list(places)
        copies = Counter()
        for move in step:
            number = uuids[move.server.name]
            host = int(move.host.removeprefix('a-'))
            assert begun[number] == int(move.server.host.removeprefix('a-'))
            assert town.fits(begun, number, host)
            # The servers that come at the same time fit as well, beside those that go.
            for come in copies[host] or ():
                assert come != number
            copies[host] = (*(copies[host] or ()), number)
            places[number] = host
        for host, numbers in copies.items():
            vcpus = memory_mb = 0
            for number in {*numbers, *(n for n, at in enumerate(begun) if at == host)}:
                size = SIZES[town.servers[number][0]]
                vcpus += size[0]
                memory_mb += size[1]
            assert vcpus <= HOST[0]
            assert memory_mb <= HOST[1]
    return tuple(places)


@settings(max_examples=60)
@given(towns(), st.sampled_from(sorted(SIZES)), st.integers(1, 2))
def test_room_takes_at_most_one_move_more_than_needed(town, flavor, count):
    board, requests = board_of(town.describe(), flavor, count)
    planner = Planner(board)
    reached = goals.make_room(planner, requests)

    def has_room(places):
        room = 0
        for host in range(town.hosts):
            for number in range(1, count + 1):
                vcpus, memory_mb = SIZES[flavor]
                size = number * vcpus, number * memory_mb
                room += town.fits(places, None, host, size)
        return room >= count

    least = town.least(has_room)
    if count == 1 and not planner.could_accept(requests[0]):
        assert least is None
    if least is None:
        assert not reached.is_whole
        return
    places = replay(town, board.moves)
    assert reached.is_whole
    assert has_room(places)
    assert len(board.moves) <= least + 1


@settings(max_examples=60)
@given(towns())
def test_a_host_is_emptied_with_at_most_one_move_more_than_needed(town):
    board, _ = board_of(town.describe())
    planner = Planner(board)
    reached = goals.empty(planner, {'a-00000'})

    least = town.least(lambda places: 0 not in places, closed=(0,))
    places = replay(town, board.moves)
    if any(staying.is_proven for staying in reached.staying):
        assert least is None
    if least is None:
        assert not reached.is_whole
        return
    assert reached.is_whole
    assert 0 not in places
    assert len(board.moves) <= least + 1
