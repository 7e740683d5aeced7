# SPDX-License-Identifier: Apache-2.0
"""The child process that answers for nova."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.lab.descriptions import NOW, Case

PYTHON_VARIABLE = 'NOVASCHED_NOVA_PYTHON'
OLDER_VARIABLE = 'NOVASCHED_OLDER_NOVAS'
"""A directory whose ``nova16`` and the like are virtualenvs of older releases."""

ENVIRONMENT = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true', 'PYTHONWARNINGS': 'ignore'}


class Nova:
    """Asks nova's classes; the question is under way while we answer it ourselves."""

    def __init__(self, script: str = 'nova_side.py') -> None:
        python = os.environ.get(PYTHON_VARIABLE)
        if not python or not Path(python).exists():
            pytest.exit(f"parity needs nova: set {PYTHON_VARIABLE} to its virtualenv's python", 3)
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name(script)), NOW.isoformat(), *_older()],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def knows_older_releases(self) -> bool:
        """Whether there are older releases, so that every filter is to be had."""
        return bool(_older())

    def ask(self, command: str, cases: Sequence[Case]) -> list[Any]:
        self.put(command, cases)
        return self.answers()

    def put(self, command: str, cases: Sequence[Case]) -> None:
        """Ask, and do not wait for the answers."""
        line = json.dumps({'do': command, 'cases': cases})
        _pipe(self._process.stdin).write(f'{line}\n')
        _pipe(self._process.stdin).flush()

    def answers(self) -> list[Any]:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"nova's side ended with {self._process.wait()}; see its stderr")
        answers: list[Any] = json.loads(line)['answers']
        return answers

    def close(self) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait(30)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _older() -> list[str]:
    """Site-packages of older releases, the oldest first: the newest that has a filter wins."""
    folder = os.environ.get(OLDER_VARIABLE)
    if not folder:
        return []
    found = Path(folder).glob('nova[12][0-9]/lib/python*/site-packages')
    return sorted(str(path) for path in found)
