# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

IMPORTS = """
import sys
import novasched.cmd.novasched, novasched.service.daemon, novasched.service.build
assert not [name for name in sys.modules if name.partition('.')[0] == 'eventlet']
import eventlet
"""


def test_eventlet_is_for_plugins_alone():
    """The daemon does not load it, and a plugin that wants it finds it."""
    run = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', IMPORTS], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
