# SPDX-License-Identifier: Apache-2.0
"""Questions to the outside, put at once; nobody who keeps silent is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from novasched.checking.finding import Finding, Level


@dataclass(frozen=True, slots=True)
class Question:
    """Findings that take time to make."""

    area: str
    subject: str
    ask: Callable[[], Iterable[Finding]]
    patience: int = 1
    """How many times as long as others it may take."""


def answers(questions: Sequence[Question], seconds: float) -> list[Finding]:
    """The findings of all questions, in their order.

    One that fails as nobody foresaw, or is not answered in time, is an error among its
    findings; those that it had by then remain.
    """
    started = time.monotonic()
    asked = [_Asked(question) for question in questions]
    for each in asked:
        each.thread.join(max(0.0, started + seconds * each.question.patience - time.monotonic()))
    return [finding for each in asked for finding in each.result(seconds)]


class _Asked:
    """A question on its way. The thread is left behind if it hangs: it ends with the process."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._findings: list[Finding] = []
        self._done = threading.Event()
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        try:
            for finding in self.question.ask():
                self._findings.append(finding)
        except BaseException as error:  # a plugin may even call sys.exit()
            self._fail(f'{type(error).__name__}: {error}')
        self._done.set()

    def _fail(self, text: str) -> None:
        question = self.question
        self._findings.append(Finding(question.area, Level.ERROR, question.subject, text))

    def result(self, seconds: float) -> list[Finding]:
        if not self._done.is_set():
            self._fail(f'no answer within {seconds * self.question.patience:g} s')
        return list(self._findings)
