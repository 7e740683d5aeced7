# SPDX-License-Identifier: Apache-2.0
from itertools import count

import pytest

from novasched.errors import NoValidHost, PlacementUnavailable
from novasched.model.selection import Selection
from novasched.records.account import CLAIM, PREFILTERS, Account
from novasched.records.figures import FAILED, PLACED, REFUSED, Figures, Passed
from tests.builders import a_host, a_request

A, B, C = a_host('a'), a_host('b'), a_host('c')


@pytest.fixture
def account():
    """One whose clock goes a second further each time that it is looked at."""
    return Account(a_request(), seed=1, timer=map(float, count()).__next__)


def outcome(error, cause=None):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ('error', 'result'),
    [
        (NoValidHost('There are not enough hosts available.'), REFUSED),
        (outcome(NoValidHost(), PlacementUnavailable('away')), FAILED),
        (PlacementUnavailable('away'), FAILED),
        (RuntimeError('a bug'), FAILED),
    ],
)
def test_failures(account, error, result):
    """No valid host is an answer; whatever an operator must mend is a failure, though the
    caller is told the same."""
    account.failed(error)
    under_way = {PREFILTERS: 2.0}
    assert account.figures() == Figures(result, 0, 1.0, under_way)


def test_what_was_done(account):
    """Each stage has its hosts and its time, each weigher its time, and claims are counted."""
    look = account.look(a_request(), 0)  # the clock shows 1
    look.begins()  # 2
    look.passed('One', [A, B, C], {id(A): 'no'}, 3)  # 3
    look.passed('Two', [B], {}, 2)  # 4
    look.did('filters')  # 5 and 6
    look.weighed('Heavy')  # 7
    account.refused(B, 0)  # 8
    account.did(CLAIM)  # 9
    account.chose([[Selection.of(A, None, 'nova', {})]])  # 10
    found = account.figures()
    assert found == Figures(
        PLACED,
        servers=1,
        seconds=10.0,
        steps={'filters': 5.0, 'claim': 4.0},
        stages=(Passed('One', 3, 2, 1.0), Passed('Two', 2, 2, 1.0)),
        weighers=(('Heavy', 1.0),),
        claims_refused=1,
    )


def test_a_claim_for_all_together_that_is_refused(account):
    """It counts as one, and what was looked at before is looked at anew."""
    account.look(a_request(), 0).passed('One', [A], {}, 1)
    account.again()
    account.chose([])
    assert account.figures().claims_refused == 1
    assert account.figures().stages == ()
