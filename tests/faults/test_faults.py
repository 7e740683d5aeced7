# SPDX-License-Identifier: Apache-2.0
"""The faults of data centres, in turn, under a load of requests."""

from dataclasses import replace

import pytest

from . import server_faults  # noqa: F401  (they register)
from .fault import FAULTS, Result, run
from .site import SchedulerPool

VARIANTS = {'one': (1, 1), 'one, two workers': (1, 2), 'two': (2, 1)}
"""The number of schedulers that share the queue, and the number of workers of each
scheduler."""


@pytest.fixture(scope='module')
def schedulers(site):
    pool = SchedulerPool(site)
    yield pool
    pool.stop()


def _cases():
    """The faults with one scheduler, and the varied faults in all variants."""
    cases = []
    for variant in VARIANTS:
        for fault in FAULTS.values():
            if variant != 'one' and not fault.varied:
                continue
            marks = []
            if variant != 'one' or not fault.quick:
                marks.append(pytest.mark.long)
            name = f'{fault.name}, {variant}'
            cases.append(pytest.param(fault, variant, id=name, marks=marks))
    return cases


CASES = _cases()
assert CASES  # an empty table would be skipped


@pytest.mark.parametrize(('fault', 'variant'), CASES)
def test_no_request_is_lost_in_a_fault(
    fault, variant, site, schedulers, results, pytestconfig
):
    """No request is lost, nor answered twice by one process, and no request is refused
    that could wait. Every allocation belongs to an answer. After the fault the same
    processes answer as before, without any help."""
    if pytestconfig.getoption('--quick') and fault.short is not None:
        fault = replace(fault, seconds=fault.short)
    daemons, workers = VARIANTS[variant]
    config = {**fault.config(site), 'scheduler': {'workers': workers}}

    with schedulers.running(daemons, config, fault.environment(site)):
        workers = site.workers()
        site.replies.clear()

        outcome = run(site, fault)

        results.append(Result(fault.name, variant, outcome))
        print(outcome)
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.unexcused, outcome.missing] == [0, 0, 0]
        assert fault.refuses or outcome.refused == 0
        assert outcome.unknown == ()

        replies = site.replies.by_call.values()
        assert len(replies) >= outcome.answered
        # If an acknowledgement is lost with its connection, the broker sends the
        # message to another process, which begins the request again (ADR 13).
        begun_again = [ids for ids in replies if len(ids) > 1]
        if len(workers) == 1:
            assert not begun_again
        assert len(begun_again) <= len(workers)
        assert site.workers() == workers
