# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace

import pytest

from novasched.inflight import InFlight
from novasched.model.host import Fleet
from novasched.model.request import Flavor
from novasched.model.settings import Settings
from tests.builders import a_host, a_request, a_uuid

A, B = a_host('a', ram=4096, num_instances=2), a_host('b', ram=4096)
SMALL = Flavor(memory_mb=1024, vcpus=1)


class Clock:
    """Time that passes when it is told to."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def in_flight(clock):
    return InFlight(Settings(in_flight_timeout=60.0), clock)


def a_fleet(*hosts, read_at=1000.0):
    return Fleet({host.uuid: host for host in hosts or (A, B)}, read_at)


def send(in_flight, name='server', host=A):
    """A server of 1 GiB goes to a host."""
    request = replace(a_request(instance_uuid=a_uuid(name)), flavor=SMALL)
    return in_flight.add(host, request, None, {})


def ram(in_flight, fleet=None):
    """What each host of a fleet has left, in MiB."""
    fleet = fleet or a_fleet()
    return [host.free_ram_mb for host in in_flight.view(fleet, list(fleet.hosts))]


def test_what_is_in_flight_is_taken_off(in_flight):
    """A host has less left by every server on its way to it, and one more of them each."""
    first, _ = send(in_flight), send(in_flight, 'other')
    assert ram(in_flight) == [2048, 4096]
    (host,) = in_flight.view(a_fleet(), [A.uuid])
    assert host.num_instances == 4
    assert host.num_io_ops == 2
    assert host.instances.keys() == {a_uuid('server'), a_uuid('other')}
    in_flight.drop(first)
    assert ram(in_flight) == [3072, 4096]


def test_a_host_that_nothing_goes_to_is_the_same_object(in_flight):
    """Who shares verdicts between hosts that are alike can go by identity."""
    send(in_flight)
    assert in_flight.view(a_fleet(), [B.uuid]) == [B]
    one, two = (in_flight.view(a_fleet(), [A.uuid])[0] for _ in range(2))
    assert one is two


@pytest.mark.parametrize(('later', 'left'), [(59.0, 3072), (60.0, 4096), (61.0, 4096)])
def test_nothing_is_in_flight_for_ever(in_flight, clock, later, left):
    """A server that its host never shows is forgotten after [novasched] in_flight_timeout."""
    send(in_flight)
    clock.now += later
    assert ram(in_flight)[0] == left


@pytest.mark.parametrize(
    ('arrived', 'read_at', 'left'),
    [
        ({}, 1010.0, 3072),
        ({'other': 'a'}, 1010.0, 3072),
        ({'server': 'b'}, 1010.0, 3072),
        ({'server': 'a'}, 1010.0, 4096),
        ({'server': 'a'}, 1005.0, 4096),
        ({'server': 'a'}, 1004.9, 3072),
        ({'server': None}, 1010.0, 4096),
    ],
)
def test_hosts_that_show_a_server_are_believed(in_flight, arrived, read_at, left):
    """A server counts until its host shows it, or it is gone; and for whoever works on hosts
    that were read before, it counts still."""
    send(in_flight)
    assert in_flight.awaited(A.cell_uuid) == [a_uuid('server')]
    in_flight.seen({a_uuid(name): host for name, host in arrived.items()}, 1005.0)
    assert ram(in_flight, a_fleet(read_at=read_at))[0] == left


def test_only_those_are_awaited_that_are_not_shown(in_flight):
    """The cells are asked about what is open alone, each about its own hosts."""
    send(in_flight, 'one')
    send(in_flight, 'two')
    send(in_flight, 'far', a_host('far', cell='cell2'))
    in_flight.seen({a_uuid('one'): 'a'}, 1005.0)
    assert in_flight.awaited(A.cell_uuid) == [a_uuid('two')]
    assert in_flight.awaited(a_uuid('cell3')) == []


@pytest.mark.parametrize(
    ('timeout', 'fields', 'together'),
    [
        (60.0, {}, True),
        (0.0, {}, False),
        (60.0, {'instance_uuids': None, 'instance_uuid': None}, False),
        (60.0, {'hints': {'_nova_check_type': ['rebuild']}}, False),
    ],
)
def test_who_sees_whom(clock, timeout, fields, together):
    """Requests see each other's servers unless the option is 0 or nothing is claimed; its
    own servers a request always sees."""
    in_flight = InFlight(Settings(in_flight_timeout=timeout), clock)
    mine = in_flight.for_request(a_request(**fields))
    send(mine)
    assert ram(mine)[0] == 3072
    assert ram(in_flight.for_request(a_request(**fields)))[0] == (3072 if together else 4096)


def test_a_host_that_reports_anew_is_counted_from_there(in_flight):
    """When the row changes for another reason, what is in flight is taken off the new one."""
    send(in_flight)
    assert ram(in_flight)[0] == 3072
    assert ram(in_flight, a_fleet(replace(A, free_ram_mb=2048), B))[0] == 1024


def test_a_host_that_is_gone_does_not_matter(in_flight):
    """What goes to a host that nobody knows any more harms nobody."""
    send(in_flight)
    assert ram(in_flight, a_fleet(B)) == [4096]


def test_without_end(clock):
    """Within a request nothing is forgotten, however long it takes."""
    in_flight = InFlight(Settings(), clock, timeout=math.inf)
    send(in_flight)
    clock.now += 1e6
    assert ram(in_flight)[0] == 3072
