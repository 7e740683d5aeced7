# SPDX-License-Identifier: Apache-2.0
"""Events of a running scheduler, and the rows of the report."""

from concurrent.futures import Executor, Future

import pytest

from novasched.conf.settings import Settings
from novasched.rpc.notifications import payloads
from novasched.scheduler.errors import PlacementUnavailable
from novasched.tools.shadow.comparison import Shadow
from novasched.tools.shadow.watch import (
    Event,
    LiveComparison,
    ObservedClaim,
    requested_amounts,
)
from tests.lab.builders import a_host, a_request
from tests.lab.wire import FLAVOR, primitive
from tests.unit.tools.shadow.test_comparison import a_shadow

A = a_host('a', ram=4096)
B = a_host('b', ram=3072)
FULL = a_host('full', ram=9000)
AMOUNTS = {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 1}
ON_VOLUME = {'VCPU': 2, 'MEMORY_MB': 512}
PATIENCE = 60.0


class AtOnce(Executor):
    """Runs each call within submit()."""

    def submit(self, work, /, *arguments):
        future = Future()
        try:
            future.set_result(work(*arguments))
        except PlacementUnavailable as error:
            future.set_exception(error)
        return future


class Bus:
    """Sends the events of nova, and holds the allocations of servers."""

    def __init__(self):
        self.now = 0.0
        self.held = {}
        driver = a_shadow(A, B, FULL, offered=(A, B)).driver
        shadow = Shadow(driver, seed=1, clock=lambda: self.now)
        self.watch = LiveComparison(
            shadow, self._allocations, lambda server: None, PATIENCE, AtOnce()
        )

    def _allocations(self, server):
        held = self.held.get(server, {})
        if isinstance(held, Exception):
            raise held
        return held

    def claims(self, server, *hosts, amounts=AMOUNTS):
        self.held[server] = {host.uuid: amounts for host in hosts}

    def says(self, name, payload, request='r', publisher='nova-scheduler:x'):
        self.watch.receive(Event(publisher, name, {'request_id': request}, payload))
        self.watch.settle()

    def selects(self, phase, server, count=1, request='r', **fields):
        payload = payloads.versioned_payload(
            {
                'flavor': FLAVOR,
                'instance_uuid': server,
                'num_instances': count,
                **fields,
            }
        )
        self.says(f'scheduler.select_destinations.{phase}', payload, request)

    def places(self, server, *hosts, amounts=AMOUNTS, **asked):
        """A request from start to end, with its claim."""
        self.selects('start', server, **asked)
        self.claims(server, *hosts, amounts=amounts)
        self.selects('end', server, **asked)

    def waits(self):
        self.now += PATIENCE
        for _ in range(2):
            self.watch.settle()

    def row(self):
        """The only row, once all requests are settled."""
        assert self.watch.is_idle
        [row] = self.watch.rows
        return row


@pytest.fixture
def bus():
    return Bus()


def test_the_claim_names_the_host(bus):
    """The claimed host may be the shadow's or another host; a difference has a reason.
    If a request starts again, each start has its own end."""
    for server, host in (('s', A), ('t', B)):
        bus.places(server, host, request=server)
    same, other = bus.watch.rows
    assert (same.compared, same.difference, same.server) == (True, None, 's')
    assert (other.compared, other.difference.recorded, other.difference.ours) == (
        True,
        'b',
        'a',
    )
    assert other.difference.why.startswith('ours weighs differently: RAMWeigher')

    bus.watch.rows.clear()
    for host in (A, B):
        bus.held.clear()
        bus.places('s', host)

    assert [row.difference is None for row in bus.watch.rows] == [True, False]


def test_a_refusal_is_told_by_the_conductor(bus):
    """The conductor's event is a refusal at once. Fields missing in notifications are
    unknown."""
    bus.selects('start', 's')
    bus.says('compute_task.build_instances.error', {}, publisher='nova-conductor:z')
    row = bus.row()
    assert (row.compared, row.difference.recorded) == (False, '(none)')
    assert 'not in notifications: is_bfv' in row.unknown


def test_a_request_without_an_end_is_settled_after_the_patience(bus):
    """Without an end, the request has no row until its patience ends. Then a claim is a
    placement, and no claim is a refusal."""
    bus.selects('start', 's', request='refused', ignore_hosts=['a', 'b'])
    bus.selects('start', 't', request='placed')
    bus.claims('t', A)
    bus.watch.settle()
    assert not bus.watch.rows
    bus.waits()
    refused, placed = sorted(bus.watch.rows, key=lambda row: row.server)
    assert (refused.compared, refused.difference, refused.hosts) == (True, None, ())
    assert (placed.compared, placed.hosts) == (True, ('a',))


def test_hosts_of_several_instances_come_from_claims_and_computes(bus):
    """Start and end name two servers, which may have swapped hosts. A third server is
    known by its compute, or stays unknown."""
    bus.selects('start', 's', count=2)
    bus.claims('s', B)
    bus.claims('t', A)
    bus.selects('end', 't', count=2)
    row = bus.row()

    assert (row.compared, len(row.hosts)) == (True, 2)

    bus.watch.rows.clear()
    bus.held.clear()
    for request in ('told', 'untold'):
        bus.selects('start', 's', count=3, request=request)
        bus.claims('s', A)
        bus.claims('u', A)
        bus.selects('end', 'u', count=3, request=request)

    assert not bus.watch.rows

    bus.says('compute.instance.create.start', {'instance_id': 't', 'host': 'a'}, 'told')
    assert bus.watch.rows[0].compared

    bus.waits()
    assert bus.watch.rows[1].unknown == 'the hosts of 2 of 3 servers are known'


def test_the_compute_names_the_host_if_placement_cannot(bus):
    """A provider in no cell is no host. If Placement does not answer, the request has
    failed."""
    bus.selects('start', 's')
    bus.held['s'] = {'elsewhere': AMOUNTS}
    bus.selects('end', 's')

    assert not bus.watch.is_idle

    payload = {'nova_object.data': {'uuid': 's', 'host': 'a'}}
    bus.says('instance.create.start', payload, publisher='nova-compute:y')
    assert bus.row().compared

    bus.watch.rows.clear()
    bus.held['s'] = PlacementUnavailable('away')
    bus.selects('start', 's')

    assert bus.row().failure == 'away'


@pytest.mark.parametrize(
    ('claims', 'before', 'asked', 'unknown', 'missing'),
    [
        # Something else was asked for.
        (
            (A, ON_VOLUME),
            (),
            {},
            'it has claimed MEMORY_MB:512 VCPU:2, but the notification asks for',
            ('is_bfv',),
        ),
        # The first look came after the claim.
        (
            (A, ON_VOLUME),
            (A,),
            {},
            'it has claimed MEMORY_MB:512 VCPU:2, but the notification asks for',
            ('is_bfv',),
        ),
        # Not all of the request is told.
        (
            (B, AMOUNTS),
            (),
            {'numa_topology': primitive('InstanceNUMATopology', '1.3', cells=[])},
            'but not in notifications: network_metadata',
            ('network_metadata',),
        ),
        # A host that our query did not offer may have been filled by the claim itself;
        # it is a difference if there was no claim at that time.
        (
            (FULL, AMOUNTS),
            (FULL,),
            {},
            'claim of the other scheduler may have filled the host',
            (),
        ),
        ((FULL, AMOUNTS), (), {}, None, ()),
    ],
)
def test_a_difference_from_incomplete_data_does_not_count(
    bus, claims, before, asked, unknown, missing
):
    """A difference does not count if the request or the claim is incomplete; the row
    says why."""
    host, amounts = claims
    bus.claims('s', *before)
    bus.places('s', host, amounts=amounts, **asked)
    row = bus.row()
    assert row.compared is (unknown is None)
    assert unknown is None or unknown in row.unknown
    assert set(missing) <= set(row.missing_fields)
    assert host is not FULL or row.difference.why.startswith(
        'Placement offers no candidate there'
    )


@pytest.mark.parametrize(
    'payload', [{}, {'nova_object.data': None}, {'request_spec': 3}]
)
def test_unreadable_payloads_are_ignored(bus, payload):
    """Unreadable payloads are ignored."""
    for phase in ('start', 'end'):
        bus.says(f'scheduler.select_destinations.{phase}', payload)
    bus.says('instance.create.start', payload)
    assert bus.watch.is_idle


@pytest.mark.parametrize(
    ('now', 'before', 'host'),
    [
        ({'p': 'a'}, {}, 'a'),
        ({'p': 'a', 'q': 'b'}, {'p': 'a'}, 'b'),
        ({'p': 'a'}, {'p': 'a'}, 'a'),
        ({'p': 'a', 'q': 'b'}, {'p': 'a', 'q': 'b'}, None),
        ({'p': 'a', 'q': 'a'}, {}, 'a'),
        ({}, {}, None),
    ],
)
def test_the_host_of_a_claim_is_the_only_new_host(now, before, host):
    """The new host, if there is exactly one."""
    assert ObservedClaim(now).host(ObservedClaim(before)) == host


@pytest.mark.parametrize(('extra_specs', 'amounts'), [
    ({}, {}),
    ({'resources1:VGPU': '1', 'resources2:VGPU': '2'}, {'VGPU': 3}),
    ({'resources1:VGPU': '1', 'trait2:CUSTOM_A': 'required'}, {'VGPU': 1}),
    ({'hw:cpu_policy': 'dedicated'}, {}),
])  # fmt: skip
def test_the_requested_amounts_are_those_of_all_groups(extra_specs, amounts):
    """A group of traits alone has no amounts. Dedicated CPUs count as VCPU."""
    request = a_request(extra_specs=extra_specs)
    plain = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
    assert requested_amounts(request, Settings()) == {**plain, **amounts}
