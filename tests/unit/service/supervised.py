# SPDX-License-Identifier: Apache-2.0
"""A program under the supervisor, for its tests: says on its output what it does.

``python -m tests.unit.service.supervised FILE WORKERS [ASIDE]``; a reload takes a while and
says what the file holds when it begins. The words in the file make it fail or hang. With ASIDE there is one
more process, which is not vital.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from novasched.service.supervisor import Job, Supervisor

PATIENCE = 4  # seconds for the end


class Talkative:
    """A service."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def start(self) -> None:
        say('starting')
        if self.file.read_text() == 'hang at start':
            threading.Event().wait()
        if self.file.read_text() == 'fail at start':
            raise RuntimeError('as told')
        say('started')

    def reload(self) -> None:
        text = self.file.read_text()
        say(f'reload {text}')
        time.sleep(0.05)
        if text == 'fail':
            raise RuntimeError('as told')

    def stop(self) -> None:
        say('stopping')
        if self.file.read_text() == 'hang':
            threading.Event().wait()


class Frail:
    """Another service, which ends badly where it can."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def start(self) -> None:
        say('aside started')
        if self.file.read_text() == 'break aside':
            os._exit(3)

    def reload(self) -> None:
        say('aside reload')

    def stop(self) -> None:
        os._exit(3)


def say(text: str) -> None:
    os.write(1, f'{text}\n'.encode())  # at once, since several processes write


if __name__ == '__main__':
    file, workers = Path(sys.argv[1]), int(sys.argv[2])
    jobs = [Job(lambda: Talkative(file))] * workers
    if len(sys.argv) > 3:
        jobs.append(Job(lambda: Frail(file), 'aside', False, lambda: say('aside ended')))
    sys.exit(Supervisor(jobs, lambda: PATIENCE, lambda: say('master')).run())
