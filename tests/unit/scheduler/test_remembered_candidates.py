# SPDX-License-Identifier: Apache-2.0
"""Decisions by remembered candidates: they can place a request, and never refuse a
request."""

import math
from dataclasses import replace

import numpy as np
import pytest

from novasched.placement.local_candidates import LocalCandidates, MatchedHosts
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.request import Destination
from novasched.scheduler.scheduling_state import NOT_ENOUGH
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import DecisionList
from tests.lab.memory_schedulers import a_driver
from tests.lab.prefilter_sources import FunctionPrefilter

A = a_host('a', ram=3072, vcpus=4)
B = a_host('b', ram=2048, vcpus=4)
C = a_host('c', ram=1024, vcpus=4)
SENT = 100.0


class Forgetful(CountingPlacement):
    """Offers remembered hosts to the first attempt of a request: ``vcpus`` VCPU on
    each."""

    def __init__(self, slots, remembered, vcpus=1):
        super().__init__(slots)
        self.remembered = remembered
        self.vcpus = vcpus
        self.asked = 0

    def candidates(self, request, basis=FRESH):
        if basis.from_memory:
            uuids = [host.uuid for host in self.remembered]
            rows = {uuid: row for row, uuid in enumerate(uuids)}
            each = np.ones(len(uuids), bool), np.zeros(len(uuids), int)
            hosts = MatchedHosts({'VCPU': self.vcpus}, uuids, rows, *each, [()])
            return LocalCandidates([hosts], SENT, 2.5)
        self.asked += 1
        return super().candidates(request, basis)


class Hosts(MemoryHosts):
    """Hosts with prepared changes: hosts that became freer, and changed aggregates."""

    freed = {}
    aggregates_settled = -math.inf

    def read(self, *args):
        settled = self.aggregates_settled
        return replace(
            super().read(*args), freed=self.freed, aggregates_settled=settled
        )


class NotA(Filter):
    """Rejects host a."""

    def reject(self, host, request):
        if host.host == 'a':
            return 'is a'
        return None


def decide(
    remembered,
    slots,
    *,
    filters=(),
    vcpus=1,
    count=1,
    destination=None,
    alone=True,
    **changes,
):
    """The chosen hosts, the number of questions to Placement, and the decision."""
    placement = Forgetful(
        {a_uuid(name): slots[name] for name in slots}, remembered, vcpus
    )
    hosts = Hosts([A, B, C])
    for name, value in changes.items():
        setattr(hosts, name, value)
    driver = a_driver(hosts, *filters, placement=placement, weighers=[RAMWeigher])
    notebook = DecisionList()
    driver.deps = replace(driver.deps, recorder=notebook)
    if not alone:
        driver._deciding.add(0)
    request = a_request(count=count, requested_destination=destination)
    chosen = driver.select_destinations(request)
    [decision] = notebook.decisions
    claimed = sorted(placement.hosts.values())
    assert claimed == sorted(row[0].compute_node_uuid for row in chosen)
    return ''.join(decision.hosts), placement.asked, decision


ROOM = {'a': 9, 'b': 9, 'c': 9}
FREED = {A.uuid: SENT + 1}
ZONE = frozenset(('zone',))
REGROUPED = {'aggregates_settled': SENT + 1, 'alone': False}


@pytest.mark.parametrize(
    ('remembered', 'slots', 'more', 'chosen', 'outdated'),
    [
        pytest.param([B, C], ROOM, {}, 'b', None, id='it serves'),
        pytest.param([B, C], ROOM, {'count': 3}, 'bbb', None, id='it serves several'),
        pytest.param(
            [B, C], {'c': 9}, {}, 'c', 'a claim was refused', id='the best is full'
        ),
        pytest.param(
            [B, C],
            {'b': 1, 'c': 9},
            {'count': 2},
            'bc',
            'a claim was refused',
            id='full for the second',
        ),
        pytest.param(
            [B, C],
            ROOM,
            {'freed': FREED},
            'a',
            f'{A.uuid} may have become free',
            id='a host became free',
        ),
        pytest.param(
            [B, C], ROOM, {'freed': {A.uuid: SENT}}, 'b', None, id='it was free before'
        ),
        pytest.param(
            [B, C],
            ROOM,
            {'freed': {C.uuid: SENT + 1}},
            'b',
            None,
            id='one that is offered',
        ),
        pytest.param(
            [B, C], ROOM, {'freed': FREED, 'alone': False}, 'b', None, id='others wait'
        ),
        pytest.param(
            [B],
            ROOM,
            {**REGROUPED, 'destination': Destination(aggregates=(ZONE,))},
            'a',
            'aggregates have changed',
            id='needed aggregates have changed',
        ),
        pytest.param(
            [B],
            ROOM,
            {**REGROUPED, 'destination': Destination(forbidden_aggregates=ZONE)},
            'a',
            'aggregates have changed',
            id='avoided aggregates have changed',
        ),
        pytest.param(
            [B],
            ROOM,
            REGROUPED,
            'b',
            None,
            id='aggregates of other requests have changed',
        ),
        pytest.param(
            [A], ROOM, {'filters': [NotA]}, 'b', NOT_ENOUGH, id='filters leave none'
        ),
        pytest.param(
            [A], ROOM, {'vcpus': 5}, 'a', NOT_ENOUGH, id='hosts are smaller than that'
        ),
    ],
)
def test_placement_is_asked_if_remembered_candidates_do_not_serve(
    remembered, slots, more, chosen, outdated
):
    """Remembered candidates serve if a claim succeeds. Otherwise Placement is asked,
    and nothing stays claimed."""
    hosts, asked, decision = decide(remembered, slots, **more)
    assert (hosts, decision.outdated, asked) == (
        chosen,
        outdated,
        int(outdated is not None),
    )
    assert decision.counts.age == (2.5 if outdated is None else None)
    assert len(decision.attempts) == len(chosen)


def test_a_refusal_rests_on_a_new_answer_of_placement():
    """The refusal is the refusal of the real query."""
    placement = Forgetful({}, [A, B])
    driver = a_driver(Hosts([A, B]), placement=placement)
    notebook = DecisionList()
    driver.deps = replace(driver.deps, recorder=notebook)
    with pytest.raises(NoValidHost):
        driver.select_destinations(a_request())
    [decision] = notebook.decisions
    assert (placement.asked, decision.counts.age, decision.refusal) == (1, None, '')
    assert decision.outdated == 'a claim was refused'


def test_a_decision_without_a_claim_asks_placement():
    """A decision without a claim rests on a new answer of Placement."""
    placement = Forgetful({A.uuid: 9}, [B])
    driver = a_driver(Hosts([A, B]), placement=placement)
    assert driver.decide(a_request(), 1).hosts == ('a',)
    assert placement.asked == 1


def test_concurrent_requests_share_reads_of_earlier_requests():
    """Reads for earlier requests serve concurrent requests; the more hosts, the older
    the reads may be. Before a refusal hosts are read again."""
    hosts = Hosts([A, B])
    moments = []
    read = hosts.read

    def noting(uuids, request, needs, basis):
        moments.append(basis.began - basis.read_since)
        return read(uuids, request, needs, basis)

    hosts.read = noting
    driver = a_driver(hosts, NotA, placement=CountingPlacement({A.uuid: 9, B.uuid: 1}))
    driver.select_destinations(a_request())
    driver._deciding.add(0)
    driver._total_hosts = 1000
    with pytest.raises(NoValidHost):
        driver.select_destinations(a_request(instance_uuid=a_uuid('other')))
    driver._total_hosts = 1_000_000
    with pytest.raises(NoValidHost):
        driver.select_destinations(a_request(instance_uuid=a_uuid('third')))
    assert moments == pytest.approx([0, 0.1, 0, 0.5, 0])


def no_candidates_for_old_reads(request, basis):
    """Refuse a request by data read before the request arrived, as where a tenant has
    no aggregates."""
    if basis.read_since < basis.began:
        raise NoValidHost('No valid host by what was read before')
    return request


@pytest.mark.parametrize('slots', [9, 0])
def test_a_refusal_by_older_reads_is_decided_again_by_new_reads(slots):
    """The refusal of a prefilter, or an empty offer, from reads for earlier requests is
    decided again from new reads."""
    placement = CountingPlacement({A.uuid: slots})
    offered = []
    real_candidates = placement.candidates

    def candidates(request, basis):
        offered.append(basis.began - basis.read_since)
        return real_candidates(request, basis)

    placement.candidates = candidates
    driver = a_driver(Hosts([A]), placement=placement)
    driver._deciding.add(0)
    driver._total_hosts = 1000
    if slots:
        driver.deps = replace(
            driver.deps, prefilters=[FunctionPrefilter(no_candidates_for_old_reads)]
        )
        driver.select_destinations(a_request())
        assert offered == [0]
    else:
        with pytest.raises(NoValidHost):
            driver.select_destinations(a_request())
        assert offered == pytest.approx([0.1, 0])
