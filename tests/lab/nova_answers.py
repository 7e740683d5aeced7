# SPDX-License-Identifier: Apache-2.0
"""nova's own classes, asked what they make of many cases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.client import NovaClient
from tests.lab.descriptions import NOW, Case
from tests.lab.nova_release import NovaRelease, write_config

PATIENCE = 600.0  # seconds


class Nova(NovaClient):
    """A child process, which may be asked while we answer the same question.

    :param directory: where its log goes
    :param script: its commands take a case and return a JSON value, as in tests/parity
    """

    def __init__(self, release: NovaRelease, directory: Path, script: Path) -> None:
        config = write_config(directory / f'{script.stem}.conf', {})
        super().__init__(release, config, script)

    def ask(self, command: str, cases: Sequence[Case], patience: float = PATIENCE) -> list[Any]:
        self.put(command, cases)
        return self.answers(patience)

    def put(self, command: str, cases: Sequence[Case]) -> None:
        """Ask, and do not wait for the answers."""
        self.send('answers', now=NOW.isoformat(), do=command, cases=cases)

    def answers(self, patience: float = PATIENCE) -> list[Any]:
        """:raises Failed: they do not come in time."""
        return self.receive(patience)
