# SPDX-License-Identifier: Apache-2.0
"""Schedulers in memory with their decisions, and records of decisions."""

import time
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count

from novasched.conf.settings import Settings
from novasched.observe.records import from_decision, render
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.plugins import loading
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.memory import MemoryHosts
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.prefilter_sources import FunctionPrefilter


class DecisionList:
    """A recorder of decisions in a list.

    :ivar decisions: the decisions in order.
    """

    def __init__(self):
        self.decisions: list[Decision] = []
        self._seconds = count(1.0)

    def clock(self):
        """The time: one second later at each call."""
        return next(self._seconds)

    def __call__(self, decision):
        self.decisions.append(decision)

    @property
    def records(self):
        """The records of the decisions."""
        return [record_of(decision) for decision in self.decisions]


class RecordedScheduler:
    """A filter scheduler over hosts, whose decisions are kept.

    :param placement: a Placement, by default with nine slots on each host.
    :param filters: filters, by default as the settings name them.
    :param weighers: weighers beside the weighers that the settings name.
    :param prefilters: functions of a request and a basis.
    :ivar log: the decisions of the scheduler.
    """

    def __init__(
        self,
        hosts,
        placement=None,
        filters=None,
        weighers=(),
        prefilters=(),
        settings=None,
        clock=None,
    ):
        values = settings or Settings()
        if placement is None:
            placement = CountingPlacement(slots_on(hosts, 9))
        if filters is None:
            filters = loading.filters(values)
        explain = None
        if values.fault_detail == 'counts':
            explain = render.explained

        self.log = DecisionList()
        self.driver = FilterScheduler(
            SchedulerDeps(
                values,
                [FunctionPrefilter(function) for function in prefilters],
                placement,
                MemoryHosts(hosts),
                filters,
                [*loading.weighers(values), *weighers],
                recorder=self.log,
                explain=explain,
                clock=clock or self.log.clock,
            )
        )

    def ask(self, request):
        """The decision of a request, perhaps a refusal."""
        with suppress(NoValidHost):
            self.driver.select_destinations(request)
        return self.log.decisions[-1]


def write_records(path, scheduler, requests, clock=time.time):
    """Decide requests, and write the records of the decisions into a file.

    :param scheduler: a :class:`RecordedScheduler`.
    :returns: the path of the file.
    """
    driver = scheduler.driver
    with closing(RecordWriter(str(path), 1000, 10)) as writer:
        recorder = DecisionRecorder(Settings(), writer, clock=clock)
        driver.deps = replace(driver.deps, recorder=recorder)
        for request in requests:
            with suppress(NoValidHost):
                driver.select_destinations(request)
        recorder.close()
    return str(path)


def record_of(decision):
    return from_decision.record_of(decision, 'id', 0.0)
