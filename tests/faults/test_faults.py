# SPDX-License-Identifier: Apache-2.0
"""What happens in data centres, one after the other, under a steady load of
requests."""

from dataclasses import replace

import pytest

from . import server_faults  # noqa: F401  (they register)
from .fault import FAULTS, Result, run
from .site import Crew

VARIANTS = {'one': (1, 1), 'one, two workers': (1, 2), 'two': (2, 1)}
"""How many schedulers share the queue, and how many workers each of them has."""


@pytest.fixture(scope='module')
def crew(site):
    made = Crew(site)
    yield made
    made.dismiss()


CASES = [
    pytest.param(
        fault,
        variant,
        id=f'{fault.name}, {variant}',
        marks=() if fault.quick and variant == 'one' else pytest.mark.long,
    )
    for variant in VARIANTS
    for fault in FAULTS.values()
    if fault.varied or variant == 'one'
]
assert CASES  # an empty table would be skipped


@pytest.mark.parametrize(('fault', 'variant'), CASES)
def test_fault(fault, variant, site, crew, results, pytestconfig):
    """No request is lost or answered twice, none is refused that could wait, every
    allocation is one that was answered, and the same processes answer as before, by
    themselves, once the fault is over."""
    if pytestconfig.getoption('--quick') and fault.short is not None:
        fault = replace(fault, seconds=fault.short)
    daemons, workers = VARIANTS[variant]
    config = {**fault.config(site), 'scheduler': {'workers': workers}}
    with crew.of(daemons, config, fault.environment(site)):
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
        assert {len(ids) for ids in replies} == {1}
        assert site.workers() == workers
