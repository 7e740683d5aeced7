# SPDX-License-Identifier: Apache-2.0
"""Placement's answers by the ways to write a claim: the requests that follow, and the
end of the claim."""

import pytest

from novasched.placement import claim_protocol
from novasched.placement import cleanup as cleanup_module
from novasched.placement.allocations import Claim
from novasched.placement.api import PROBE, PlacementApi
from novasched.placement.claims import Claims
from novasched.placement.cleanup import AllocationCleanup
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.scheduler.model.instance import InstanceState
from tests.lab.builders import a_candidate, a_request, a_uuid
from tests.lab.faulty_placement import FaultyPlacement, Nova
from tests.unit.placement.test_claims import together

ONE = a_uuid('one')
OLD = a_uuid('old')
HOLDS_ONE = {ONE: {'VCPU': 1}}
HOLDS_OLD = {OLD: {'VCPU': 1}}

# The words of the tables:
#
# after, before, late, twice
#     When Placement does the work of the request, and by which answer or error the
#     request ends; see FaultyPlacement. "other" stands before the answers if the
#     consumer has other allocations, and "slow" if the answer takes longer than the
#     patience of a proxy.
# made
#     The claim is made, and a later deletion needs no look at the instance.
# watched
#     The claim is made. Placement may make the claim once more, after its deletion.
# refused
#     Placement does not have the claim. The caller may claim another candidate.
# refused late
#     The caller may claim another candidate. Placement may make the claim later, so that
#     the claim is to be deleted.
# unavailable, unauthorized
#     Placement does not have the claim, and would answer every claim likewise.
# lost
#     The caller gets an error. Placement may have the claim now or later, so that the
#     claim is to be deleted.

PUT = """
after -                             PUT                       made
before refused                      PUT PUT                   made
before reset                        PUT PUT                   watched
before 503                          PUT PUT                   watched
before contended                    PUT PUT                   made
4 x before contended                PUT PUT PUT PUT           refused
before 400                          PUT                       refused
before full                         PUT                       refused
before 404                          PUT                       unavailable
before 406                          PUT                       unavailable
before unreachable                  PUT                       unavailable
before 401                          PUT                       unauthorized
before 403                          PUT                       unauthorized
before 500                          PUT GET                   lost
late 500                            PUT GET                   lost
after 500                           PUT GET                   watched
before timeout                      PUT GET                   lost
late timeout                        PUT GET                   lost
after timeout                       PUT GET                   watched
before timeout, before 500          PUT GET                   lost
after timeout, before 500           PUT GET                   lost
after garbage                       PUT GET                   watched
after 503                           PUT PUT GET               watched
twice -                             PUT GET                   watched
twice -, before 500                 PUT GET                   lost
before reset, before full           PUT PUT                   refused late
before reset, before 404            PUT PUT                   lost
before reset, before 500            PUT PUT GET               lost
before reset, 4 x before contended  PUT PUT PUT PUT PUT       refused late
late reset, before full             PUT PUT                   refused late
other, after -                      PUT GET PUT               made
other, after -, before 500          PUT GET                   lost
other, after -, after -, after 500  PUT GET PUT GET           watched
other, after -, after -, late 500   PUT GET PUT GET           lost
other, after -, after -, twice -    PUT GET PUT GET           watched
slow, after -                       PUT                       watched
slow, twice -                       PUT GET                   watched
slow, before full                   PUT                       refused late
slow, late full                     PUT                       refused late
slow, late 404                      PUT                       lost
slow, other, after -                PUT GET PUT               watched
slow, other, after -, after -, before full   PUT GET PUT      refused late
slow, other, after -, before 500    PUT GET                   lost
"""
"""The PUT of a new instance."""

PUT_OF_A_MOVE = """
after -                             GET PUT GET PUT           made
before 500                          GET                       unavailable
before timeout                      GET                       unavailable
before 401                          GET                       unauthorized
after -, before contended           GET PUT PUT GET PUT       made
after -, 4 x before contended       GET PUT PUT PUT PUT       refused
after -, before 400                 GET PUT                   refused
after -, before full                GET PUT                   refused
after -, before 404                 GET PUT                   unavailable
after -, before 500                 GET PUT GET               lost
after -, late 500                   GET PUT GET               lost
after -, after 500                  GET PUT GET GET PUT       watched
after -, after 503                  GET PUT PUT GET GET PUT   watched
after -, before 503                 GET PUT PUT GET PUT       watched
after -, twice -                    GET PUT GET GET PUT       watched
after -, twice -, before 500        GET PUT GET               lost
after -, before reset, before full  GET PUT PUT               refused late
other, after -                      GET PUT                   made
other, after -, before full         GET PUT                   refused
other, after -, late 500            GET PUT GET               lost
other, after -, after 500           GET PUT GET               watched
other, after -, twice -             GET PUT GET               watched
slow, after -, late full            GET PUT                   refused late
slow, other, after -, late full     GET PUT                   refused late
"""
"""The PUT of an instance that is in a cell: its allocations are read before. An
instance without allocations is written once more."""

POST_OF_A_REQUEST = """
after -                             POST                      made
before refused                      POST POST                 made
before 503                          POST POST                 watched
before contended                    POST POST                 made
4 x before contended                POST POST POST POST       refused
before 400                          POST                      refused
before full                         POST                      refused
before 404                          POST                      unavailable
before 406                          POST                      unavailable
before unreachable                  POST                      unavailable
before 401                          POST                      unauthorized
before 500                          POST GET                  lost
late 500                            POST GET                  lost
after 500                           POST GET GET              watched
late timeout                        POST GET                  lost
after timeout                       POST GET GET              watched
after 500, after -, before 500      POST GET GET              lost
after 503                           POST POST GET GET         watched
twice -                             POST GET GET              watched
twice -, before 500                 POST GET                  lost
before reset, before full           POST POST                 refused late
other, after -                      POST GET                  refused
slow, after -                       POST                      watched
slow, twice -                       POST GET GET              watched
slow, late full                     POST                      refused late
slow, other, after -                POST GET                  refused late
"""
"""The POST of a request for several instances."""

POST_OF_REQUESTS = """
after -                             POST                      made
before refused                      POST POST                 made
before 503                          POST POST                 watched
before contended                    POST POST                 made
4 x before contended                POST POST POST POST PUT PUT  made
before 400                          POST PUT PUT              made
before full                         POST PUT PUT              made
before full, before full            POST PUT PUT              made, refused
before 404                          POST                      unavailable
before 406                          POST                      unavailable
before unreachable                  POST                      unavailable
before 401                          POST                      unauthorized
before 500                          POST GET PUT GET PUT      watched
late 500                            POST GET PUT GET PUT      watched
after 500                           POST GET GET              watched
late timeout                        POST GET PUT GET PUT      watched
after timeout                       POST GET GET              watched
after 503                           POST POST GET GET         watched
twice -                             POST PUT GET PUT GET      watched
slow, after -                       POST                      watched
slow, twice -                       POST GET GET              watched
slow, late full                     POST GET PUT GET PUT      watched
slow, late 404                      POST GET PUT GET PUT      watched
before reset, before full           POST POST GET PUT GET PUT  watched
other, after -                      POST PUT GET PUT PUT      made
"""
"""The common POST of two requests."""


def rows(table):
    """The answers, the requests and the end of each row."""
    for line in table.strip().splitlines():
        answers, requests, end = [part for part in line.split('  ') if part]
        yield pytest.param(answers, requests.split(), end.strip(), id=answers)


def claim_of(server, moves=False):
    wanted = a_request(instance_uuid=server)
    if moves:
        wanted = wanted.with_requested_destination(cell_uuid=a_uuid('cell'))
    return Claim.of(wanted, a_candidate(ONE))


class Cloud:
    """A Placement that answers by a script, and claims whose deletions wait."""

    def __init__(self, answers):
        self.placement = FaultyPlacement()
        self.script = []
        for answer in answers.split(', '):
            if answer == 'other':
                self.placement.held['a'] = [5, HOLDS_OLD]
                continue
            if answer == 'slow':
                continue
            count, _, repeated = answer.rpartition(' x ')
            self.script += int(count or 1) * [repeated]
        api = PlacementApi(self.placement, pause=1e-4)
        # The probes of an open circuit come from a thread, at any moment.
        api.breaker.failed = lambda why, began: api.breaker.missed(why)
        nova = Nova({'a': InstanceState(), 'b': InstanceState()})
        self.claims = Claims(api, nova, cleanup_pause=1e-3)
        self.before = self.placement.resources()

    def ends_of(self, *orders):
        """Wait for the ends of requests, each of which claims or raises."""
        ends = []
        self.made = []
        for order in orders:
            try:
                made = order()
            except PlacementUnauthorized:
                end = 'unauthorized'
            except PlacementUnavailable:
                end = 'lost' if self.claims.cleanup.pending else 'unavailable'
            else:
                end = 'refused late' if self.claims.cleanup.pending else 'refused'
                if made:
                    self.made += made
                    is_unknown = any(claim.is_uncertain for claim in made)
                    end = 'watched' if is_unknown else 'made'
            ends.append(end)
        return ', '.join(dict.fromkeys(sorted(ends)))

    def requests(self):
        """The methods of the requests so far, without probes."""
        asked = [line for line in self.placement.asked if PROBE not in line]
        return [line.split()[0] for line in asked]

    def check_allocations(self):
        """Placement has the allocations of the claims that were made, until the claims
        are deleted."""
        held = self.placement.resources()
        for claim in self.made:
            assert held[claim.uuid].items() >= HOLDS_ONE.items()
        self.placement.faults.clear()
        self.placement.catch_up()
        for claim in self.made:
            self.claims.delete(claim)
        self.claims.cleanup.close(10)
        assert self.placement.resources() == self.before


@pytest.fixture(autouse=True)
def deletions_wait(monkeypatch):
    """Let nothing be deleted before the cleanup is closed, and databases not lag."""
    monkeypatch.setattr(AllocationCleanup, '_run', lambda self: None)
    monkeypatch.setattr(cleanup_module, 'MAX_READ_LAG_S', 0.0)


@pytest.fixture
def cloud(answers, monkeypatch):
    """The cloud of a row, whose script has not begun."""
    if answers.startswith('slow'):
        monkeypatch.setattr(claim_protocol, 'PROXY_PATIENCE_S', -1.0)
    return Cloud(answers)


def check_request(cloud, requests, end, wanted):
    """Claim for a request that is alone."""
    cloud.placement.faults += cloud.script
    assert cloud.ends_of(lambda: cloud.claims.allocate(wanted)) == end
    assert cloud.requests() == requests
    cloud.check_allocations()


@pytest.mark.parametrize(('answers', 'requests', 'end'), [*rows(PUT)])
def test_answers_to_the_put_of_a_new_instance_decide_the_claim(
    cloud, answers, requests, end
):
    check_request(cloud, requests, end, [claim_of('a')])


@pytest.mark.parametrize(('answers', 'requests', 'end'), [*rows(PUT_OF_A_MOVE)])
def test_answers_to_the_put_of_a_move_decide_the_claim(cloud, answers, requests, end):
    check_request(cloud, requests, end, [claim_of('a', moves=True)])


@pytest.mark.parametrize(('answers', 'requests', 'end'), [*rows(POST_OF_A_REQUEST)])
def test_answers_to_the_post_of_a_request_decide_the_claims(
    cloud, answers, requests, end
):
    check_request(cloud, requests, end, [claim_of('a'), claim_of('b')])


@pytest.mark.parametrize(('answers', 'requests', 'end'), [*rows(POST_OF_REQUESTS)])
def test_answers_to_a_common_post_decide_the_claims_of_requests(
    cloud, answers, requests, end
):
    wanted = [claim_of('a'), claim_of('b')]
    with together(cloud.placement, cloud.claims, wanted) as outcomes:
        # The first claim keeps the POST waiting, and is not in the table.
        cloud.placement.faults += [None, *cloud.script]
    cloud.before['first'] = HOLDS_ONE
    assert cloud.ends_of(*[outcome.result for outcome in outcomes]) == end
    assert cloud.requests()[1:] == requests
    cloud.check_allocations()
