# SPDX-License-Identifier: Apache-2.0
"""An OpenStack service behind HTTP as a child process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.lab.processes import Process, free_port

SCRIPT = Path(__file__).with_name('serve_wsgi.py')
START = 120.0  # seconds


class WebService:
    """A WSGI application of another virtualenv, on a port of its own.

    :param module: where the application is; its first part names the log file.
    """

    def __init__(
        self, python: Path, module: str, directory: Path, environment: Mapping[str, str]
    ) -> None:
        port = free_port()
        self.url = f'http://127.0.0.1:{port}'
        self._command = [str(python), str(SCRIPT), module, str(port)]
        self._ready = f'serving {module}'
        self.log = directory / f'{module.partition(".")[0]}-api.log'
        self._environment = {**os.environ, **environment}
        self._process: Process | None = None

    def start(self) -> None:
        self._process = process = Process(self._command, self.log, env=self._environment)
        process.ready(lambda: self._ready in process.text(), START, self._ready)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
