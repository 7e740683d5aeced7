# SPDX-License-Identifier: Apache-2.0
"""Some days of the simulated cloud, with new seeds every time. A seed repeats its
day: ``python -m tests.simulation --seed N``."""

import os
import subprocess
import sys

from tests.simulation.script import Action, script_of, shortened

SECONDS = 20
MODULE = ('-m', 'tests.simulation')
WITH_OTHER_COLLECTIONS = (
    '-c',
    'import gc, runpy; gc.set_threshold(301, 7, 9); '
    'runpy.run_module("tests.simulation", run_name="__main__")',
)
"""Arguments of the interpreter that collect garbage at other moments than usual."""


def run(*arguments, start=MODULE):
    """Run the command; exit status and output.

    :param start: the first arguments of the interpreter.
    """
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        env={**os.environ, 'PYTHONHASHSEED': '0'},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


def test_new_days_with_faults_break_no_check():
    """New days with faults break no check. The output has their seeds."""
    status, output = run('--seconds', str(SECONDS))
    print(output)
    assert status == 0, output


def test_a_seed_repeats_the_same_day():
    """A seed gives the same day to the event, whenever the interpreter collects
    garbage."""
    first = run('--seed', '900035')
    assert first[0] == 0
    assert run('--seed', '900035', start=WITH_OTHER_COLLECTIONS) == first


def test_a_failing_script_is_shortened_to_the_needed_actions():
    """Two of many actions suffice for a problem."""
    actions = script_of(3)
    needed = {actions[5], actions[40]}

    def fails(part):
        return needed.issubset(part)

    assert shortened(actions, fails, lambda: True) == [actions[5], actions[40]]
    assert shortened(actions, fails, lambda: False) == actions


def test_each_seed_has_a_different_script():
    """Each seed has a script of its own, in the order of time."""
    assert script_of(1) == script_of(1) != script_of(2)
    moments = [action.at for action in script_of(1)]
    assert moments == sorted(moments)
    assert all(isinstance(action, Action) for action in script_of(1))
