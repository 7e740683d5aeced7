# SPDX-License-Identifier: Apache-2.0
"""Decisions by candidates from a new answer about all hosts: they can place a request,
and never refuse a request. The answer may lack hosts, and its hosts may refuse every
claim."""

import time

import pytest

from novasched.placement.local_candidates import LocalCandidates, match
from novasched.scheduler.drivers.filter_scheduler import MAX_TRIES
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.ports import MAX_CLAIMS_PER_HOST
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_candidate, a_host, a_request, a_uuid, numbered_hosts
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.memory_schedulers import a_driver, ask
from tests.lab.provider_trees import ASKED_AT, Provider, a_query, an_answer

SMALL = numbered_hosts(40)
"""Hosts whose claims are all refused."""
BEST = a_host('best', ram=1024)
SECOND = a_host('second', ram=512)
SERVING = (BEST, SECOND)
SLOTS = slots_on(SERVING, 10)


class IncompletePlacement(CountingPlacement):
    """Offers hosts of an answer about all hosts, and afterwards the hosts with slots.

    :ivar claims: the number of claims.
    :ivar own_queries: how often Placement was asked the query of the request.
    """

    def __init__(self, slots, worked_out):
        super().__init__(slots)
        self.worked_out = worked_out
        self.claims = 0
        self.own_queries = 0

    def candidates(self, request, basis=FRESH):
        if basis.own_query:
            self.own_queries += 1
            return super().candidates(request, basis)
        answer = an_answer(
            [Provider(host.uuid, {'VCPU': 16}) for host in self.worked_out]
        )
        matched = match(answer, a_query(), answer.capacity_left)
        return LocalCandidates([matched], ASKED_AT)

    def claim(self, request, candidate, basis=FRESH):
        self.claims += 1
        return super().claim(request, candidate, basis)


class NotBest(Filter):
    def reject(self, host, request):
        if host.host == 'best':
            return 'is the best'
        return None


def decide(worked_out, slots, *filters, **fields):
    """The hosts of each instance with the alternates, and the Placement."""
    placement = IncompletePlacement(slots, worked_out)
    driver = a_driver(
        [*SMALL, *SERVING], *filters, placement=placement, weighers=[RAMWeigher]
    )
    try:
        return ask(driver, **fields), placement
    except NoValidHost:
        return None, placement


@pytest.mark.parametrize(
    ('worked_out', 'slots', 'filters', 'hosts', 'own_queries'),
    [
        pytest.param(SERVING, SLOTS, [], [['best']], 0, id='complete'),
        pytest.param([], SLOTS, [], [['best']], 1, id='without a host'),
        pytest.param([BEST], SLOTS, [NotBest], [['second']], 1, id='all rejected'),
        pytest.param([BEST], {}, [NotBest], None, 1, id='no host anywhere'),
        pytest.param([], {}, [], None, 1, id='nothing offered anywhere'),
    ],
)
def test_placement_is_asked_before_a_refusal(
    worked_out, slots, filters, hosts, own_queries
):
    """Placement is asked the query of the request once, and only before a refusal."""
    found, placement = decide(worked_out, slots, *filters)
    assert found == hosts
    assert placement.own_queries == own_queries


def test_placement_is_asked_after_several_refused_claims():
    """Refused claims that the answer does not explain end the try, and host and
    alternates come from the answer to the query of the request."""
    found, placement = decide(SMALL, SLOTS, return_alternates=True)
    assert found == [['best', 'second']]
    assert placement.own_queries == 1
    assert placement.claims == MAX_CLAIMS_PER_HOST + 1


class WithoutCandidates(LocalCandidates):
    """Finds no candidate on a host, as after a search that was given up."""

    def __getitem__(self, provider):
        if provider == BEST.uuid:
            return ()
        return super().__getitem__(provider)


@pytest.mark.parametrize(
    ('hosts', 'expected'), [(SERVING, [['second']]), ([BEST], None)]
)
def test_a_host_without_candidates_is_passed_over(hosts, expected):
    """Neither the host nor an alternate is a host without candidates."""
    placement = CountingPlacement(SLOTS)
    answer = an_answer([Provider(host.uuid, {'VCPU': 16}) for host in hosts])
    matched = match(answer, a_query(), answer.capacity_left)
    placement.candidates = lambda *_: WithoutCandidates([matched], ASKED_AT)
    driver = a_driver(SERVING, placement=placement, weighers=[RAMWeigher])
    try:
        chosen = ask(driver, return_alternates=True)
    except NoValidHost:
        chosen = None
    assert chosen == expected


def test_several_instances_are_placed_by_the_second_answer():
    uuids = (a_uuid('one'), a_uuid('two'))
    found, placement = decide(SMALL, SLOTS, count=2, instance_uuids=uuids)
    assert found == [['best'], ['best']]
    assert placement.own_queries == 1


class ClaimingWhileAsked(MemoryPlacement):
    """A Placement that makes a claim of another request between a query and the answer.

    :ivar claims: the pending claims, which get the claims of the other requests.
    :ivar hosts: the host of the claim during each of the next queries.
    :ivar queries: the number of queries.
    """

    def __init__(self, hosts):
        super().__init__()
        self.claims = None
        self.hosts = [*hosts]
        self.queries = 0

    def candidates(self, request, basis=FRESH):
        asked_at = time.monotonic()
        self.queries += 1
        if self.hosts:
            self._claim_on(self.hosts.pop())
        providers = [Provider(BEST.uuid, {'VCPU': 1}), *CARD]
        answer = an_answer(providers)
        query = a_query(('GPU', 1))
        return LocalCandidates([match(answer, query, answer.capacity_left)], asked_at)

    def _claim_on(self, host):
        """Claim 16 VCPU on a host, which Placement counts as used from now on."""
        candidate = a_candidate(host.uuid, VCPU=16)
        request = a_request(instance_uuid=a_uuid(f'other-{self.queries}'))
        claim = self.claims.choose(host, request, candidate, {})
        self.claims.claimed([claim])


CARD = [Provider('card', {'GPU': 1}, parent=BEST.uuid)]


@pytest.mark.parametrize(
    ('hosts', 'expected', 'queries'),
    [
        pytest.param([], [['best']], 1, id='no claim'),
        pytest.param([BEST, BEST], [['best']], 3, id='claims on the host'),
        pytest.param([SECOND, BEST], [['best']], 2, id='a claim on another host'),
        pytest.param([BEST] * 9, None, 1 + MAX_TRIES, id='a claim each time'),
    ],
)
def test_a_claim_made_before_the_answer_does_not_refuse_a_request(
    hosts, expected, queries
):
    """Placement's answer counts the claim of another request, and the pending claims
    subtract the claim again. So Placement is asked once more before a refusal."""
    placement = ClaimingWhileAsked(hosts)
    driver = a_driver([BEST], placement=placement)
    placement.claims = driver.pending_claims
    try:
        found = ask(driver)
    except NoValidHost:
        found = None
    assert found == expected
    assert placement.queries == queries
