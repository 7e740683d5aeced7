# SPDX-License-Identifier: Apache-2.0
"""The basis of the next try, by what came of the last one."""

from dataclasses import replace

import pytest

from novasched.scheduler.attempt import End, Outcome, next_basis
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.basis import Basis
from tests.lab.builders import a_request

BASIS = Basis(
    began=10.0,
    read_since=9.9,
    from_memory=True,
    is_only_request=True,
    deadline=40.0,
    minimum_version=73,
)
NOW = 11.0
FRESH = replace(
    BASIS, began=NOW, read_since=NOW, from_memory=False, minimum_version=None
)
FRESH_FROM_MEMORY = replace(FRESH, from_memory=True)


@pytest.mark.parametrize(
    ('end', 'may_fit_now', 'may_wait', 'expected'),
    [
        (End.PLACED, False, False, None),
        (End.FAILED, False, False, None),
        (End.REFUSED, False, False, None),
        (End.REFUSED, True, False, FRESH),
        (End.STALE, False, False, FRESH),
        (End.INCOMPLETE, False, False, replace(FRESH, own_query=True)),
        (End.UNAVAILABLE, False, False, None),
        (End.UNAVAILABLE, False, True, FRESH_FROM_MEMORY),
    ],
)
def test_the_end_of_a_try_decides_the_basis_of_the_next_try(
    end, may_fit_now, may_wait, expected
):
    """Each row of the table in the module's docstring."""
    decision = Decision(a_request(), seed=0, began=0.0, ended=1.0)
    outcome = Outcome(end, decision)
    after = next_basis(BASIS, outcome, NOW, may_fit_now=may_fit_now, may_wait=may_wait)
    assert after == expected


@pytest.mark.parametrize('end', End)
def test_only_placed_and_failed_requests_end_the_tries(end):
    """A request that may fit now, and that may wait, is answered only where a further
    try cannot change the answer."""
    decision = Decision(a_request(), seed=0, began=0.0, ended=1.0)
    after = next_basis(
        BASIS, Outcome(end, decision), NOW, may_fit_now=True, may_wait=True
    )
    assert (after is None) == (end in (End.PLACED, End.FAILED))
