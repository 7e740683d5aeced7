# SPDX-License-Identifier: Apache-2.0
"""Some days of the simulated cloud, with new seeds every time. A seed repeats its
day: ``python -m tests.simulation --seed N``."""

import subprocess
import sys

from tests.simulation.script import Action, script_of, shortened

SECONDS = 20


def run(*arguments):
    """Run the command; exit status and output."""
    command = [sys.executable, '-m', 'tests.simulation', *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_new_days_with_faults_break_no_check():
    """New days with faults break no check. The output has their seeds."""
    status, output = run('--seconds', str(SECONDS))
    print(output)
    assert status == 0, output


def test_a_seed_repeats_the_same_day():
    """A seed gives the same day to the event."""
    first = run('--seed', '810004')
    assert first[0] == 0
    assert run('--seed', '810004') == first


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
