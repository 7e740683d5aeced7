# SPDX-License-Identifier: Apache-2.0
"""What happens in data centres, one after the other, under a steady load of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.functional.daemon import is_reference
from tests.functional.nova_release import Config

from . import (  # noqa: F401  (they register)
    broker_faults,
    database_faults,
    host_faults,
    placement_faults,
)
from .fault import FAULTS, Fault, run
from .results import Result
from .site import Crew, Site

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler promises less')


@dataclass(frozen=True)
class Variant:
    """How many schedulers there are."""

    name: str
    daemons: int = 1
    workers: int = 1

    @property
    def config(self) -> Config:
        """What nova.conf says."""
        return {'scheduler': {'workers': self.workers}}


ONE = Variant('one')
VARIANTS = (ONE, Variant('one, two workers', workers=2), Variant('two', daemons=2))


@pytest.fixture(scope='module')
def crew(site: Site) -> Iterator[Crew]:
    """The schedulers."""
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


@pytest.mark.parametrize(('fault', 'variant'), CASES)
def test_fault(
    fault: Fault, variant: Variant, site: Site, crew: Crew, results: list[Result]
) -> None:
    """No request is lost or answered twice, every allocation is one that was answered, and
    the same processes answer as before, by themselves, once the fault is over."""
    config = {**fault.config(site), **variant.config}
    with crew.of(variant.daemons, config, fault.environment(site)):
        workers = site.workers()
        outcome = run(site, fault)
        results.append(Result(fault.name, variant.name, outcome))
        print(outcome)
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.unexcused, outcome.missing] == [0, 0, 0]
        assert site.replies.counts.total() >= outcome.answered
        assert site.replies.several() == []
        assert site.workers() == workers
