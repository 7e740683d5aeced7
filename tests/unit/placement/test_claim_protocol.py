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
)
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from tests.lab.builders import a_candidate, a_uuid

CONFLICT = 'consumer generation conflict - expected 1 but got 2'
AT_ONCE = 0.0
LATE = PROXY_PATIENCE_S + 0.1


def error(status, detail='', repeated=False):
    body = json.dumps({'errors': [{'detail': detail}]}).encode()
    return Response(status, body, repeated=repeated)


@pytest.mark.parametrize(
    ('response', 'seconds', 'answer'),
    [
        (Response(204, b''), AT_ONCE, Answer.MADE),
        (Response(204, b''), LATE, Answer.MADE),
        (Response(204, b'', repeated=True), AT_ONCE, Answer.MADE_AT_LAST),
        # A server that is no Placement.
        (Response(200, b'<html>'), AT_ONCE, Answer.LOST),
        (error(400), AT_ONCE, Answer.REFUSED),
        (error(409, 'Unable to allocate inventory'), AT_ONCE, Answer.REFUSED),
        (error(409, 'another thread'), LATE, Answer.REFUSED),
        (error(409, CONFLICT), AT_ONCE, Answer.CONFLICT),
        (error(409, CONFLICT), LATE, Answer.LATE_CONFLICT),
        (error(404), AT_ONCE, Answer.FAILED),
        (error(405), LATE, Answer.FAILED),
        # The first attempt may have been carried out.
        (error(400, repeated=True), AT_ONCE, Answer.LOST),
        (error(409, repeated=True), AT_ONCE, Answer.LOST),
        (error(409, CONFLICT, repeated=True), LATE, Answer.LOST),
        (error(404, repeated=True), AT_ONCE, Answer.LOST),
    ],
)
def test_a_response_of_placement_is_classified_as_a_claim_answer(
    response, seconds, answer
):
    assert Answer.of(response, seconds) is answer


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
    ('step', 'made', 'lost', 'raised'),
    [
        (Step.KEEP, 'certain', None, None),
        (Step.WATCH, 'uncertain', None, None),
        (Step.REFUSE, None, None, None),
        (Step.LOSE, None, 'uncertain', PlacementUnavailable),
        (Step.FAIL, None, None, PlacementUnavailable),
        (Step.SEPARATE, None, None, PlacementUnavailable),
        (Step.GIVE_UP, None, None, ClaimFailed),
    ],
)
def test_the_last_step_decides_the_made_and_lost_claims(step, made, lost, raised):
    """The claims that the caller has, the claims to delete, and the error."""
    claim = Claim(a_uuid('server'), a_candidate(a_uuid('one')), {})
    claims = {'certain': [claim], 'uncertain': [claim.uncertain()], None: []}
    written = Written.of(step, [claim], PlacementUnavailable('no answer'))
    assert [*written.made] == claims[made]
    assert [*written.lost] == claims[lost]
    assert isinstance(written.error, raised or type(None))
    assert written.is_separated is (step is Step.SEPARATE)
