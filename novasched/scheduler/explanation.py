# SPDX-License-Identifier: Apache-2.0
"""The steps and attempts of a try, which explain its decision."""

from collections.abc import Callable

from novasched.scheduler.decision import (
    HOSTS,
    NEXT_STEP,
    PREFILTERS,
    CandidateCounts,
    Decision,
    PlacementAttempt,
    Ranking,
    Step,
    failure_of,
)
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.scheduling_state import SchedulingState


class Explanation:
    """Notes the steps of a cycle, also where an error ends the try.

    :ivar request: the request, without a false hint.
    :ivar prefiltered: the request as the prefilters left it, once they have run.
    :ivar counts: the size of Placement's offer, once Placement has answered.
    :ivar attempts: the search of a host for each instance so far.
    :ivar steps: the steps that have ended.
    :ivar together_refused: Placement refused to claim for all instances at once.
    """

    def __init__(self, seed: int, clock: Callable[[], float]) -> None:
        """:param seed: the seed of every draw of the try.
        :param clock: a monotonic clock in seconds.
        """
        self.seed = seed
        self.clock = clock
        self.request: Request
        self.prefiltered: Request | None = None
        self.counts: CandidateCounts | None = None
        self.attempts: list[PlacementAttempt] = []
        self.steps: list[Step] = []
        self.together_refused = False
        self._began = 0.0

    def begin(self, request: Request) -> None:
        """Note the beginning of the try."""
        self._began = self.clock()
        self.request = request

    def end_step(
        self,
        name: str,
        attempt: PlacementAttempt | None = None,
        refused: str | None = None,
    ) -> None:
        """Note the end of a step; see :class:`novasched.scheduler.decision.Step`."""
        self.steps.append(Step(name, self.clock(), attempt, refused))

    def begin_attempt(
        self, request: Request, state: SchedulingState, ranking: Ranking
    ) -> PlacementAttempt:
        """Note an attempt to place the current instance, with the filters' verdicts. It
        takes the place of an earlier attempt for the same instance."""
        uuid = request.instance_uuid if request.instance_uuids else None
        earlier = None
        last_uuid = self.attempts[-1].instance_uuid if self.attempts else None
        if uuid is not None and uuid == last_uuid:
            earlier = self.attempts.pop()

        index = len(self.attempts)
        attempt = PlacementAttempt(
            instance_uuid=uuid,
            index=index,
            start=len(state.hosts),
            pending=state.hosts.number_among(state.pending),
            ranking=ranking.explained(with_hosts=index == 0),
            refused=earlier.refused if earlier else (),
            unfit=earlier.unfit if earlier else (),
            passed=len(ranking.hosts),
        )
        self.attempts.append(attempt)
        return attempt

    def decision(
        self,
        basis: Basis,
        error: Exception | None,
        is_whole: bool,
        outdated: str | None,
        selections: list[list[Selection]],
    ) -> Decision:
        """The decision of the try; see :class:`novasched.scheduler.decision.Decision`.

        :param error: the error that ended the try.
        :param is_whole: the try ended with hosts, or without a valid host. Otherwise
            the step in progress ends here.
        """
        failure = failure_of(error)
        if failure is not None or not is_whole or not self.steps:
            self.end_step(self._step_in_progress())
        return Decision(
            request=self.request,
            seed=self.seed,
            began=self._began,
            ended=self.clock(),
            basis=basis,
            steps=tuple(self.steps),
            prefiltered=self.prefiltered,
            counts=self.counts,
            attempts=tuple(self.attempts),
            together_refused=self.together_refused,
            outdated=outdated,
            selections=selections,
            refusal=error.reason if isinstance(error, NoValidHost) else None,
            failure=failure,
        )

    def _step_in_progress(self) -> str:
        """The step in which an error ends the try."""
        if self.steps:
            return NEXT_STEP[self.steps[-1].name]
        return HOSTS if self.request.is_rebuild else PREFILTERS
