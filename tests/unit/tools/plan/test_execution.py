# SPDX-License-Identifier: Apache-2.0
"""The order in which the moves of a plan are checked, begun and confirmed."""

import pytest

from novasched.tools.plan import execution
from novasched.tools.plan.checking import CheckedMove, State
from novasched.tools.plan.compute_api import ApiError, Phase
from novasched.tools.plan.execution import CHECKS, Execution
from novasched.tools.plan.plan_file import Plan, PlannedMove
from novasched.tools.plan.servers import Kind

FAILED = 'failed'
REFUSED = 'refused'
VOID = 'void'
VOID_AT_FIRST = 'void at first'
THERE = 'there'
UNANSWERED = 'unanswered'


def a_move(name, kind=Kind.LIVE):
    return PlannedMove(name, name, 'small', kind, 'old', 'new', 'new', 0, False, '')


def a_plan(text):
    """A plan of moves by name. Steps are separated by slashes; the names of cold
    migrations begin with ``cold``."""
    steps = []
    for names in text.split('/'):
        step = []
        for name in names.split():
            kind = Kind.COLD if name.startswith('cold') else Kind.LIVE
            step.append(a_move(name, kind))
        steps.append(step)
    return Plan('', '', '', steps, [])


class Nova:
    """A nova that ends a move between two looks. A cold migration waits for its
    confirmation.

    :param fates: the fate of moves by name, unless the move goes well.
    :ivar asked: the requests in order.
    """

    def __init__(self, fates):
        self.asked = []
        self._fates = fates
        self._looks = {}
        self._confirmed = set()

    def check(self, moves):
        self.asked.append(f'check {" ".join(move.name for move in moves)}')
        return [*map(self._checked, moves)]

    def _checked(self, move):
        fate = self._fates.get(move.name)
        if fate == VOID:
            return CheckedMove(move, State.VOID, 'the host is full')
        if fate == VOID_AT_FIRST:
            del self._fates[move.name]
            return CheckedMove(move, State.VOID, 'the host is full')
        if fate == THERE:
            return CheckedMove(move, State.DONE)
        return CheckedMove(move, State.HOLDS)

    def begin(self, move):
        self.asked.append(f'begin {move.name}')
        if self._fates.get(move.name) == REFUSED:
            raise ApiError('nova-api: no')

    def confirm(self, move):
        self.asked.append(f'confirm {move.name}')
        self._confirmed.add(move.name)

    def phase(self, move):
        looks = self._looks[move.name] = self._looks.get(move.name, 0) + 1
        fate = self._fates.get(move.name)
        if fate == UNANSWERED and looks == 1:
            raise ApiError('nova-api: gone')
        if fate == FAILED:
            return Phase.FAILED
        if move.kind is Kind.COLD and looks < 3:
            return Phase.TO_CONFIRM
        self.asked.append(f'end {move.name}')
        return Phase.DONE

    def why_failed(self, move):
        return 'no route'


class Lines:
    """A display that keeps what it shows."""

    def __init__(self):
        self.lines = []
        self.advanced = 0

    def say(self, text):
        self.lines.append(text)

    def advance(self):
        self.advanced += 1


def executed(text, fates, at_once=2):
    """Carry out a plan; nova, the display and the summary."""
    nova = Nova(dict(fates))
    display = Lines()
    plan = a_plan(text)
    run = Execution(nova, nova.check, at_once, display, poll_s=0)
    is_whole = run.run(plan)
    summary = run.summary(plan)
    assert is_whole == (display.advanced == len(plan.moves))
    return nova, display, summary


@pytest.mark.parametrize(
    ('plan', 'at_once', 'fates', 'asked', 'numbers'),
    [
        (
            'a b / c', 2, {},
            'check a b, begin a, begin b, end a, end b, check c, begin c, end c',
            '3 done, 0 failed, 0 open',
        ),
        (
            'a b', 1, {},
            'check a, begin a, end a, check b, begin b, end b',
            '2 done, 0 failed, 0 open',
        ),
        (
            'cold a', 2, {},
            'check cold a, begin cold, begin a, confirm cold, end a, end cold',
            '2 done, 0 failed, 0 open',
        ),
        (
            'a b c / d', 2, {'b': REFUSED},
            'check a b, begin a, begin b, end a',
            '1 done, 1 failed, 2 open',
        ),
        (
            'a b / c', 2, {'a': FAILED},
            'check a b, begin a, begin b, end b',
            '1 done, 1 failed, 1 open',
        ),
        (
            'a b', 2, {'a': VOID},
            ', '.join(['check a b'] * CHECKS),
            '0 done, 1 failed, 1 open',
        ),
        (
            'a / b', 2, {'b': VOID_AT_FIRST},
            'check a, begin a, end a, check b, check b, begin b, end b',
            '2 done, 0 failed, 0 open',
        ),
        (
            'a cold', 2, {'a': THERE, 'cold': THERE},
            'check a cold, end a, confirm cold, end cold',
            '2 done, 0 failed, 0 open',
        ),
        ('a', 2, {'a': UNANSWERED}, 'check a, begin a, end a', '1 done, 0 failed, 0 open'),
    ],
    ids=[
        'the next step begins when all moves have ended',
        'so many at once and no more',
        'a cold migration is confirmed once',
        'a refused move ends the run',
        'a failed move ends the run after the other moves',
        'a void move ends the run',
        'a move is void only after several looks',
        'moves that are done do not begin again',
        'the API may fail for a while',
    ],
)  # fmt: skip
def test_moves_run_in_order(plan, at_once, fates, asked, numbers):
    nova, _, summary = executed(plan, fates, at_once)
    assert nova.asked == asked.split(', ')
    assert summary.partition(': ')[2] == f'{numbers}.'


@pytest.mark.parametrize(
    ('fate', 'line'),
    [
        (FAILED, 'a: the move to new has failed: no route'),
        (REFUSED, 'a: the move to new is refused: nova-api: no'),
        (VOID, 'a: the move to new is void: the host is full'),
        (UNANSWERED, 'nova-api: gone; asked again'),
    ],
)
def test_the_reason_of_a_failure_is_shown(fate, line):
    _, display, _ = executed('a', {'a': fate})
    assert line in display.lines


def test_an_api_that_is_silent_for_long_ends_the_run(monkeypatch):
    monkeypatch.setattr(execution, 'PATIENCE_S', -1)
    nova = Nova({'a': UNANSWERED})
    plan = a_plan('a b')
    run = Execution(nova, nova.check, 1, Lines(), poll_s=0)
    with pytest.raises(ApiError, match='gone'):
        run.run(plan)
    assert run.summary(plan) == 'Of 2 moves: 0 done, 0 failed, 1 under way, 1 open.'
