# SPDX-License-Identifier: Apache-2.0
"""A clock that one process and its children see: libfaketime's, from Debian's package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.lab import binaries

PACKAGE = 'libfaketime'
LIBRARY = 'faketime/libfaketimeMT.so.1'

# libfaketime 0.9.10 makes clock_nanosleep() fail when it leaves the monotonic clock alone.
SLEEP = """
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""


class Clock:
    """The system's, and so many seconds more."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / 'sitecustomize.py').write_text(SLEEP)
        self._directory = directory
        self._path = directory / 'clock'
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Be so far ahead of the system's from now on."""
        # Renamed into place: nobody reads half of it.
        new = self._path.with_suffix('.new')
        new.write_text(f'{seconds:+d}\n')
        new.rename(self._path)

    def environment(self) -> Mapping[str, str]:
        """What makes a process see it; the test is skipped where the library is not to be
        had. As when NTP steps a clock, the one that only measures goes on as it is."""
        path = [str(self._directory), os.environ.get('PYTHONPATH', '')]
        return {
            'PYTHONPATH': os.pathsep.join(filter(None, path)),
            'LD_PRELOAD': str(_library()),
            'FAKETIME_TIMESTAMP_FILE': str(self._path),
            'FAKETIME_CACHE_DURATION': '1',
            'FAKETIME_DONT_FAKE_MONOTONIC': '1',
        }


def _library() -> Path:
    found = _installed()
    if found is None and os.geteuid() == 0:
        try:
            binaries.install(PACKAGE)
        except pytest.exit.Exception as error:
            pytest.skip(str(error))
        found = _installed()
    if found is None:
        pytest.skip(f"Debian's package {PACKAGE} is not installed")
    return found


def _installed() -> Path | None:
    return next(Path('/usr/lib').glob(f'*/{LIBRARY}'), None)
