# SPDX-License-Identifier: Apache-2.0
"""A filter that takes time, as filters of operators may, and as all filters do in a
large cloud. Without it, virtual time stands still while a scheduler decides."""

import time
from collections.abc import Sequence

from novasched.scheduler.filters.shared import BatchFilter, Verdicts
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

SECONDS_PER_HOST = 'seconds_per_host'
"""The scheduler hint with the seconds that the filter takes for a host."""


class SlowFilter(BatchFilter):
    """Takes the seconds of a scheduler hint for each host, and rejects no host."""

    thread_safe = True

    def applies(self, request: Request) -> bool:
        return request.has_hint(SECONDS_PER_HOST)

    def judge(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Verdicts:
        [seconds] = request.hint(SECONDS_PER_HOST)
        time.sleep(float(seconds) * len(hosts))
        return Verdicts([None] * len(hosts), candidates)
