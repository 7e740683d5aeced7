# SPDX-License-Identifier: Apache-2.0
"""What requests did, from their accounts."""

from __future__ import annotations

from collections.abc import Iterable

from novasched.metrics.catalogue import (
    CLAIMS_REFUSED,
    FILTER_SECONDS,
    HOSTS_IN,
    HOSTS_OUT,
    REQUEST_SECONDS,
    REQUESTS,
    SERVERS,
    STEP_SECONDS,
    WEIGHER_SECONDS,
)
from novasched.metrics.instruments import Instruments
from novasched.records.account import STEPS, Account
from novasched.records.figures import RESULTS


class Tally:
    """Adds up decisions; any thread may."""

    def __init__(self, instruments: Instruments) -> None:
        self.instruments = instruments
        for result in RESULTS:
            instruments.touch(REQUESTS, result)
        for step in STEPS:
            instruments.touch(STEP_SECONDS, step)

    def expect(self, filters: Iterable[str], weighers: Iterable[str]) -> None:
        """These plugins are enabled."""
        for name in filters:
            for metric in (HOSTS_IN, HOSTS_OUT, FILTER_SECONDS):
                self.instruments.touch(metric, name)
        for name in weighers:
            self.instruments.touch(WEIGHER_SECONDS, name)

    def __call__(self, account: Account) -> None:
        """Add a decision."""
        add, observe, figures = self.instruments.add, self.instruments.observe, account.figures()
        add(REQUESTS, 1, figures.result)
        add(SERVERS, figures.servers)
        observe(REQUEST_SECONDS, figures.seconds)
        for step, seconds in figures.steps.items():
            observe(STEP_SECONDS, seconds, step)
        for stage in figures.stages:
            add(HOSTS_IN, stage.start, stage.name)
            add(HOSTS_OUT, stage.end, stage.name)
            add(FILTER_SECONDS, stage.seconds, stage.name)
        for weigher, seconds in figures.weighers:
            add(WEIGHER_SECONDS, seconds, weigher)
        add(CLAIMS_REFUSED, figures.claims_refused)
