# SPDX-License-Identifier: Apache-2.0
"""A machine that lacks a program of the tests."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
APT_GET = """\
#!/bin/sh
echo 'Reading package lists...'
echo 'E: Release file is expired' >&2
exit 100
"""
TESTS = """\
    import os
    from pathlib import Path

    from tests.lab import processes

    os.geteuid = lambda: 0
    os.environ['PATH'] = {folder!r}
    processes.POLICY_FILE = Path({folder!r}, 'policy-rc.d')
    processes.LOCK = Path({folder!r}, 'lock')


    def test_a_server_starts():
        processes.program('no-such-package', 'no-such-program')


    def test_another_server_starts():
        processes.program('no-such-package', 'no-such-program')
"""


def test_the_reason_of_apt_get_is_shown_by_every_process(tmp_path):
    """A failure of apt-get in a process of pytest-xdist fails the tests with the error
    of apt-get, without an internal error of pytest."""
    apt_get = tmp_path / 'apt-get'
    apt_get.write_text(APT_GET)
    apt_get.chmod(0o755)
    for name in ('test_one.py', 'test_two.py'):
        (tmp_path / name).write_text(dedent(TESTS.format(folder=str(tmp_path))))

    options = ['--numprocesses', '2', '--dist', 'loadfile', '-p', 'no:cacheprovider']
    command = [sys.executable, '-m', 'pytest', '-ra', *options, f'--rootdir={tmp_path}']
    result = subprocess.run(
        [*command, '-o', f'pythonpath={ROOT}', str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )

    reason = 'no-such-package cannot be installed: E: Release file is expired'
    assert 'INTERNALERROR' not in result.stdout
    assert result.stdout.count(reason) >= 4
    assert '4 failed' in result.stdout
