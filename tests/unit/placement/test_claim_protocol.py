# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.placement.allocations import Claim
from novasched.placement.api import Response
from novasched.placement.claim_protocol import (
    NEXT,
    PROXY_PATIENCE_S,
    Answer,
    ReadFirst,
    Step,
    Way,
    Written,
    is_final,
)
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from tests.lab.builders import a_candidate, a_uuid

CONFLICT = 'consumer generation conflict - expected 1 but got 2'


def error(status, detail='', repeated=False):
    body = json.dumps({'errors': [{'detail': detail}]}).encode()
    return Response(status, body, repeated=repeated)


@pytest.mark.parametrize(
    ('response', 'answer'),
    [
        (Response(204, b''), Answer.MADE),
        # A server that is no Placement.
        (Response(200, b'<html>'), Answer.LOST),
        (error(400), Answer.REFUSED),
        (error(409, 'Unable to allocate inventory'), Answer.REFUSED),
        (error(409, 'another thread'), Answer.REFUSED),
        (error(409, CONFLICT), Answer.CONFLICT),
        (error(404), Answer.FAILED),
        (error(405), Answer.FAILED),
    ],
)
def test_a_response_of_placement_is_classified_as_a_claim_answer(response, answer):
    assert Answer.of(response) is answer


@pytest.mark.parametrize('status', [204, 400, 404, 409])
@pytest.mark.parametrize(
    ('seconds', 'repeated', 'final'),
    [
        (0.0, False, True),
        (PROXY_PATIENCE_S, False, True),
        # A proxy may have sent the claims to a second Placement.
        (PROXY_PATIENCE_S + 0.1, False, False),
        # An earlier attempt was without an answer.
        (0.0, True, False),
    ],
)
def test_placement_may_carry_out_an_earlier_attempt_after_its_answer(
    status, seconds, repeated, final
):
    assert is_final(error(status, repeated=repeated), seconds) is final


@pytest.mark.parametrize('way', Way)
@pytest.mark.parametrize('answer', Answer)
def test_a_step_follows_each_answer(way, answer):
    """No step follows that the way of writing cannot take."""
    step = NEXT[way][answer]
    if isinstance(step, ReadFirst):
        assert way is not Way.BATCH
        assert step.otherwise is not Step.WATCH
        step = step.otherwise
    of_a_batch = {Step.HALVE, Step.SEPARATE}
    assert way is Way.BATCH or step not in of_a_batch
    assert way is Way.PUT or step is not Step.WRITE_BESIDE


@pytest.mark.parametrize(
    ('step', 'before', 'made', 'lost', 'raised'),
    [
        (Step.KEEP, 'certain', 'certain', None, None),
        (Step.KEEP, 'uncertain', 'uncertain', None, None),
        (Step.WATCH, 'certain', 'uncertain', None, None),
        (Step.REFUSE, 'certain', None, None, None),
        (Step.REFUSE, 'uncertain', None, 'uncertain', None),
        (Step.LOSE, 'certain', None, 'uncertain', PlacementUnavailable),
        (Step.FAIL, 'certain', None, None, PlacementUnavailable),
        (Step.FAIL, 'uncertain', None, 'uncertain', PlacementUnavailable),
        # The requests go on with the claims.
        (Step.SEPARATE, 'uncertain', None, None, PlacementUnavailable),
        (Step.GIVE_UP, 'certain', None, None, ClaimFailed),
        (Step.GIVE_UP, 'uncertain', None, 'uncertain', ClaimFailed),
    ],
)
def test_the_last_step_decides_the_made_and_lost_claims(
    step, before, made, lost, raised
):
    """The claims that the caller has, the claims to delete, and the error."""
    claim = Claim(a_uuid('server'), a_candidate(a_uuid('one')), {})
    claims = {'certain': [claim], 'uncertain': [claim.uncertain()], None: []}
    error = PlacementUnavailable('no answer')
    written = Written.of(step, claims[before], error)
    assert [*written.made] == claims[made]
    assert [*written.lost] == claims[lost]
    assert isinstance(written.error, raised or type(None))
    assert written.is_separated is (step is Step.SEPARATE)
