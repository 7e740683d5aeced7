# SPDX-License-Identifier: Apache-2.0
"""What happens in data centres, one after the other, under a steady load of requests."""

from dataclasses import dataclass, replace

import pytest

from . import server_faults  # noqa: F401  (they register)
from .fault import FAULTS, Result, run
from .site import Crew


@dataclass(frozen=True)
class Variant:
    name: str
    daemons: int = 1
    workers: int = 1

    @property
    def config(self):
        return {'scheduler': {'workers': self.workers}}


ONE = Variant('one')
VARIANTS = (ONE, Variant('one, two workers', workers=2), Variant('two', daemons=2))


@pytest.fixture(scope='module')
def crew(site):
    made = Crew(site)
    yield made
    made.dismiss()


CASES = [
    pytest.param(
        fault,
        variant,
        id=f'{fault.name}, {variant.name}',
        marks=() if fault.quick and variant is ONE else pytest.mark.long,
    )
    for variant in VARIANTS
    for fault in FAULTS.values()
    if fault.varied or variant is ONE
]
assert CASES  # an empty table would be skipped


@pytest.mark.parametrize(('fault', 'variant'), CASES)
def test_fault(fault, variant, site, crew, results, pytestconfig):
    """No request is lost or answered twice, none is refused that could wait, every allocation is
    one that was answered, and the same processes answer as before, by themselves, once the fault
    is over."""
    if pytestconfig.getoption('--quick') and fault.short is not None:
        fault = replace(fault, seconds=fault.short)
    config = {**fault.config(site), **variant.config}
    with crew.of(variant.daemons, config, fault.environment(site)):
        workers = site.workers()
        outcome = run(site, fault)
        results.append(Result(fault.name, variant.name, outcome))
        print(outcome)
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.unexcused, outcome.missing] == [0, 0, 0]
        assert fault.refuses or outcome.refused == 0
        assert outcome.unknown == ()
        assert site.replies.total() >= outcome.answered
        assert set(site.replies.values()) == {1}
        assert site.workers() == workers
