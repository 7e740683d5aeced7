# SPDX-License-Identifier: Apache-2.0
"""Requests decided by the filter scheduler over hosts in memory, with the decisions kept."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from novasched.conf.settings import Settings
from novasched.observe.records import from_decision, render
from novasched.observe.records.record import Record
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.plugins import loading
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters import Filter
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.prefilters import Prefilter
from tests.lab.ports import CountingPlacement


class Notebook:
    """Keeps decisions as they are; a second passes between any two looks at its clock."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self._seconds = count(1.0)

    def clock(self) -> float:
        return next(self._seconds)

    def __call__(self, decision: Decision) -> None:
        self.decisions.append(decision)

    @property
    def records(self) -> list[Record]:
        """The records of the decisions."""
        return [record_of(decision) for decision in self.decisions]


class Calling(Prefilter):
    """A function in the place of a prefilter."""

    def __init__(self, function: Callable[[Request], Request]) -> None:
        self._function = function

    def __call__(self, request: Request) -> Request:
        return self._function(request)


class Decided:
    """A driver over hosts with so much room, and what it decided."""

    def __init__(
        self,
        hosts: Sequence[Host],
        placement: CountingPlacement | None = None,
        filters: Sequence[Filter] | None = None,
        prefilters: Iterable[Callable[[Request], Request]] = (),
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        values = settings or Settings()
        self.notebook = Notebook()
        self.driver = FilterScheduler(
            Parts(
                values,
                [*map(Calling, prefilters)],
                placement or CountingPlacement({host.uuid: 9 for host in hosts}),
                MemoryHosts(hosts),
                loading.filters(values) if filters is None else filters,
                loading.weighers(values),
                recorder=self.notebook,
                explain=render.explained if values.fault_detail == 'counts' else None,
                clock=clock or self.notebook.clock,
            )
        )

    def ask(self, request: Request) -> Decision:
        """Decide a request, be it with a refusal."""
        with suppress(NoValidHost):
            self.driver.select_destinations(request)
        return self.notebook.decisions[-1]


def keep(
    path: Path,
    decided: Decided,
    requests: Iterable[Request],
    clock: Callable[[], float] = time.time,
) -> str:
    """Decide requests, with refusals too, and keep the records in a file."""
    with closing(RecordWriter(str(path), 1000)) as writer:
        recorder = DecisionRecorder(Settings(), writer, clock=clock)
        decided.driver.recorder = recorder
        for request in requests:
            with suppress(NoValidHost):
                decided.driver.select_destinations(request)
        recorder.close()
    return str(path)


def record_of(decision: Decision) -> Record:
    return from_decision.record_of(decision, 'id', 0.0)
