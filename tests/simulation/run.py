# SPDX-License-Identifier: Apache-2.0
"""Run days of a simulated cloud, each from a seed.

A seed always gives the same day, to the event. With ``--seed``, the story of a day is
told: each action and each answer with its time. Exits with 1 if a check finds a
problem.
"""

import argparse
import gc
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.simulation import threads
from tests.simulation.loop import BEGIN_S, WORLD, Loop
from tests.simulation.script import Action, script_of, shortened

SCHEDULERS = 3
"""The number of schedulers of a cloud."""
MAX_SHOWN = 5
"""Problems of a day that are shown."""

# Before the clocks are replaced.
_real_clock = time.monotonic


def main(arguments: list[str] | None = None) -> int:
    """Run days; the exit status."""
    parser = argparse.ArgumentParser('python -m tests.simulation', description=__doc__)
    add = parser.add_argument
    add('--seed', type=int, help='run the day of this seed alone, and tell its story')
    add(
        '--shrink',
        action='store_true',
        help='leave out the actions without which the problem still happens',
    )
    add('--log', action='store_true', help="tell the schedulers' log lines as well")
    add(
        '--schedulers',
        type=int,
        default=SCHEDULERS,
        choices=range(1, 6),
        help='the number of schedulers',
    )
    add('--first', type=int, help='the first of several seeds; a new one by default')
    add('--days', type=int, default=sys.maxsize, help='number of days')
    add('--seconds', type=float, default=60.0, help='real time in which days begin')
    add('--hours', type=float, help='the same in hours')
    add('--jobs', type=int, default=1, help='days at the same time')
    add('--all', action='store_true', help='go on after a day with a problem')
    chosen = parser.parse_args(arguments)
    if chosen.hours is not None:
        chosen.seconds = chosen.hours * 3600
    _fix_hashes()
    threads.install()
    if chosen.seed is not None:
        actions = script_of(chosen.seed)
        if chosen.shrink:
            return shrink(chosen.seed, actions, chosen.schedulers, chosen.seconds)
        return run_day(
            chosen.seed,
            actions,
            chosen.schedulers,
            is_told=True,
            is_logged=chosen.log,
        )
    first = chosen.first
    if first is None:
        first = secrets.SystemRandom().randrange(1, 1_000_000)
    return _run_days(first, chosen)


def _fix_hashes() -> None:
    """Start anew with the same order of sets in every run."""
    if os.environ.get('PYTHONHASHSEED') != '0':
        environment = {**os.environ, 'PYTHONHASHSEED': '0'}
        command = [sys.executable, '-m', 'tests.simulation', *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


def _run_days(first: int, chosen: argparse.Namespace) -> int:
    """Run a day for each seed, each in a process of its own."""
    import tests.simulation.day  # noqa: F401 - once, for all days

    ends = _real_clock() + chosen.seconds
    running: dict[int, int] = {}
    failed: list[int] = []
    days = 0
    while True:
        may_begin = _real_clock() < ends and (chosen.all or not failed)
        if days < chosen.days and may_begin and len(running) < chosen.jobs:
            seed = first + days
            days += 1
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                os._exit(_run_alone(seed, script_of(seed), chosen.schedulers))
            running[pid] = seed
            continue
        if not running:
            break
        pid, status = os.wait()
        seed = running.pop(pid)
        if status:
            failed.append(seed)
    print(f'{days} days, seeds {first} to {first + days - 1}; with problems: {failed}')
    return int(bool(failed))


def _run_alone(
    seed: int, actions: Sequence[Action], schedulers: int, is_patient: bool = True
) -> int:
    """Run a day in a process of its own; the exit status."""
    try:
        return run_day(seed, actions, schedulers, is_patient=is_patient)
    except BaseException as error:
        print(f'seed {seed}: {error!r}')
        return 2
    finally:
        sys.stdout.flush()


def run_day(
    seed: int,
    actions: Sequence[Action],
    schedulers: int = SCHEDULERS,
    is_told: bool = False,
    is_logged: bool = False,
    is_patient: bool = True,
) -> int:
    """Run a day; 0 if no check has found a problem.

    :param seed: decides the interleaving of tasks, and the fate of requests.
    :param is_patient: go on after a problem.
    """
    from tests.simulation.checks import Broken, Checks
    from tests.simulation.day import live
    from tests.simulation.world import World

    # The end of an object may take a lock, at which a task may lose its turn. The
    # interpreter collects garbage at other moments if it has compiled a module before,
    # so that the loop collects garbage.
    gc.collect()
    gc.freeze()
    gc.disable()
    loop = Loop(seed)
    threads.begin(loop, seed)

    def tell(text: str) -> None:
        if is_told:
            print(f'{loop.now - BEGIN_S:9.3f}  {text}')

    if is_logged:
        logging.getLogger().addHandler(_Teller(loop, tell))
        logging.getLogger().setLevel(logging.INFO)
    else:
        logging.disable()
    with tempfile.TemporaryDirectory(prefix='novasched-simulation-') as folder:
        world = World(loop, Path(folder), schedulers=schedulers, tell=tell)
        world.database_health.watch()
        checks = Checks(world, is_patient)
        loop.spawn(checks.watch, WORLD)
        with suppress(Broken):
            live(world, actions)
            checks.at_the_end()
    print(
        f'seed {seed}: {loop.events} events, {len(world.calls)} calls, '
        f'servers: {checks.placed} placed, {checks.refused} refused, '
        f'{checks.failed} failed; {len(checks.problems)} problems'
    )
    for problem in checks.problems[:MAX_SHOWN]:
        print(f'  {problem}')
    return int(bool(checks.problems))


def shrink(
    seed: int, actions: Sequence[Action], schedulers: int, seconds: float
) -> int:
    """Look for a few actions of a day with which the day still has a problem, and tell
    the story of these actions.

    :param seconds: real time after which the search ends.
    """
    ends = _real_clock() + seconds

    def fails(actions: Sequence[Action]) -> bool:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            with open(os.devnull, 'w', encoding='utf-8') as nowhere:
                os.dup2(nowhere.fileno(), 1)
            os._exit(_run_alone(seed, actions, schedulers, is_patient=False))
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) == 1

    if not fails(actions):
        print(f'seed {seed} has no problem')
        return 0
    actions = shortened(actions, fails, lambda: _real_clock() < ends)
    for action in actions:
        print(action)
    return run_day(seed, actions, schedulers, is_told=True, is_patient=False)


class _Teller(logging.Handler):
    """Tells log lines with the process that writes them."""

    def __init__(self, loop, tell) -> None:
        super().__init__()
        self._loop = loop
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        text = f'{record.levelname} {record.getMessage()}'
        self._tell(f'    {self._loop.owner}: {text}')
