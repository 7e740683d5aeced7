# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan, step by step.

Before a move begins, it is compared with the present cloud once more. After the first
move that fails or is void, no further move begins, and the moves under way come to
their end. A second run of the same plan goes on: moves that are done are found to be
done.
"""

import sys
import time
from collections.abc import Callable, Sequence

from rich.progress import Progress, TaskID

from novasched.conf.redaction import printable, printable_lines
from novasched.tools.plan.checking import CheckedMove, State, as_text
from novasched.tools.plan.compute_api import ApiError, ComputeApi, Phase
from novasched.tools.plan.plan_file import Plan, PlannedMove
from novasched.tools.plan.reports import counted, size_of
from novasched.tools.simulate.sources import Unusable

POLL_S = 2.0
"""Seconds between two looks at the moves under way."""
CHECKS = 5
"""A move is void if so many comparisons say so: nova frees the old host of an earlier
move a few seconds after its end."""
PATIENCE_S = 300.0
"""Seconds for which nova's API may fail to tell how far a move has come."""

Check = Callable[[Sequence[PlannedMove]], Sequence[CheckedMove]]


class Display:
    """Shows lines above a progress bar."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def say(self, text: str) -> None:
        """Show a line."""
        line = printable(text)
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def advance(self) -> None:
        """Show that a further move is done."""
        self._bar.advance(self._task)


class Execution:
    """Carries out the moves of a plan.

    :param api: moves the servers.
    :param check: compares moves with the present cloud.
    :param at_once: the maximum number of moves under way.
    :param poll_s: see :data:`POLL_S`.
    :ivar done: the number of moves that are done, also by an earlier run.
    :ivar failed: the number of moves that failed, or are void.
    """

    def __init__(
        self,
        api: ComputeApi,
        check: Check,
        at_once: int,
        display: Display,
        poll_s: float = POLL_S,
    ) -> None:
        self.done = 0
        self.failed = 0
        self._api = api
        self._check = check
        self._at_once = at_once
        self._display = display
        self._poll_s = poll_s
        self._under_way: list[PlannedMove] = []
        self._confirmed: set[str] = set()
        self._unheard_since: float | None = None

    def run(self, plan: Plan) -> bool:
        """Carry out a plan. True if all moves are done."""
        for number, step in enumerate(plan.steps, 1):
            if self.failed:
                break
            self._display.say(f'Step {number} of {len(plan.steps)}')
            self._run_step(step)
        return not self.failed

    def summary(self, plan: Plan) -> str:
        """The numbers of moves, in a sentence."""
        number = len(plan.moves)
        unknown = len(self._under_way)
        begun = self.done + self.failed + unknown
        parts = [f'{self.done:,} done', f'{self.failed:,} failed']
        if unknown:
            parts.append(f'{unknown:,} under way')
        parts.append(f'{number - begun:,} open')
        return f'Of {counted(number, "move")}: {", ".join(parts)}.'

    def _run_step(self, step: Sequence[PlannedMove]) -> None:
        """Carry out the moves of a step, which do not wait for each other."""
        waiting = list(step)
        while self._under_way or (waiting and not self.failed):
            room = self._at_once - len(self._under_way)
            if waiting and room and not self.failed:
                self._begin(waiting[:room])
                del waiting[:room]
            if self._under_way:
                time.sleep(self._poll_s)
                self._look()

    def _begin(self, moves: Sequence[PlannedMove]) -> None:
        """Begin the moves that hold, up to the first that fails."""
        for each in self._checked(moves):
            move = each.move
            if self.failed:
                return
            if each.state is State.DONE:
                # An earlier run may have ended before the confirmation.
                self._under_way.append(move)
                continue
            if each.state is State.VOID:
                self._fail(move, f'is void: {each.why}')
                return

            try:
                self._api.begin(move)
            except ApiError as error:
                self._fail(move, f'is refused: {error}')
                return
            where = f'{move.source} to {move.host}'
            self._display.say(f'{_name(move)}: {move.kind} from {where} has begun')
            self._under_way.append(move)

    def _checked(self, moves: Sequence[PlannedMove]) -> Sequence[CheckedMove]:
        """Moves as of now. A move that is void is looked at several times."""
        found = self._check(moves)
        for _ in range(1, CHECKS):
            if all(each.state is not State.VOID for each in found):
                break
            time.sleep(self._poll_s)
            found = self._check(moves)
        return found

    def _look(self) -> None:
        """Look how far the moves under way have come."""
        for move in [*self._under_way]:
            try:
                phase = self._api.phase(move)
                if phase is Phase.TO_CONFIRM:
                    self._confirm(move)
            except ApiError as error:
                self._bear(error)
                continue
            self._unheard_since = None

            if phase is Phase.DONE:
                self._under_way.remove(move)
                self.done += 1
                self._display.say(f'{_name(move)}: is on {move.host}')
                self._display.advance()
            elif phase is Phase.FAILED:
                self._under_way.remove(move)
                self._fail(move, f'has failed: {self._api.why_failed(move)}')

    def _confirm(self, move: PlannedMove) -> None:
        # nova shows the old status until the old host is free.
        if move.server not in self._confirmed:
            self._api.confirm(move)
            self._confirmed.add(move.server)

    def _bear(self, error: ApiError) -> None:
        """Bear an error of nova's API for a while.

        :raises ApiError: the API has not answered for :data:`PATIENCE_S` seconds.
        """
        now = time.monotonic()
        if self._unheard_since is None:
            self._unheard_since = now
            self._display.say(f'{error}; asked again')
        if now - self._unheard_since > PATIENCE_S:
            raise error

    def _fail(self, move: PlannedMove, why: str) -> None:
        self.failed += 1
        self._display.say(f'{_name(move)}: the move to {move.host} {why}')


def carry_out(
    plan: Plan, check: Check, cloud: str | None, at_once: int, is_confirmed: bool
) -> bool:
    """Carry out a plan, and show what happens. True if all moves are done.

    :param check: compares moves with the present cloud.
    :param cloud: the cloud of clouds.yaml; None for ``OS_CLOUD``.
    :param at_once: the maximum number of moves under way.
    :param is_confirmed: do not ask the operator.
    :raises ApiError: nova's API cannot be used.
    :raises Unusable: nobody can be asked.
    """
    found = check(plan.moves)
    print(printable_lines(as_text(found)))
    if any(each.state is State.VOID for each in found):
        print('Nothing is moved. Plan again.')
        return False

    api = ComputeApi.of_cloud(cloud)
    open_moves = [each.move for each in found if each.state is State.HOLDS]
    if open_moves and not is_confirmed and not _asked(open_moves, api.url):
        print('Nothing is moved.')
        return False

    with Progress(disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task('moves', total=len(plan.moves))
        execution = Execution(api, check, at_once, Display(bar, task))
        try:
            is_whole = execution.run(plan)
        finally:
            print(execution.summary(plan))
    if not is_whole:
        print('Run the plan again to go on once the cause is mended, or plan again.')
    return is_whole


def _asked(moves: Sequence[PlannedMove], url: str) -> bool:
    """Ask the operator. True if the moves are to be made."""
    if not sys.stdin.isatty():
        raise Unusable('nobody can be asked at this input: add --yes to move servers')
    amount = size_of(sum(move.copied_mb for move in moves))
    question = f'{counted(len(moves), "move")}, at most {amount} to copy, by {url}.'
    return input(f'{question} Go on? [y/N] ').strip().lower() in ('y', 'yes')


def _name(move: PlannedMove) -> str:
    return move.name or move.server
