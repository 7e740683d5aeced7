# SPDX-License-Identifier: Apache-2.0
"""Findings of the check, concurrent questions, and the report."""

import dataclasses
import enum
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from prettytable import PrettyTable

from novasched.conf.redaction import hide


class Level(enum.StrEnum):
    """Severity of a finding."""

    OK = 'ok'
    NOTE = 'note'
    """A difference from nova-scheduler, or a subject that is not checked."""
    WARNING = 'warning'
    """novasched runs, but perhaps not as the operator expects."""
    ERROR = 'error'
    """To be mended before the switch."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report about an option, a server or a plugin; holds no secret."""

    area: str = field(default='', kw_only=True)
    level: Level
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A check with requests to a server, or with imports of plugins.

    :ivar ask: yields the findings.
    :ivar patience: how many times the timeout of a server the check may take.
    :ivar area: the area of the findings.
    """

    subject: str
    ask: Callable[[], Iterable[Finding]]
    patience: int = 1
    area: str = ''


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """A question, its findings so far, and the thread that collects them."""

    question: Question
    findings: list[Finding]
    thread: threading.Thread


def answers(questions: Sequence[Question], seconds: float) -> list[Finding]:
    """Ask all questions at once, and return the findings in the order of the questions.

    After an unexpected failure or a timeout, an error follows the findings of a
    question. A hanging thread ends with the process.

    :param seconds: timeout of a question with a patience of 1.
    """
    started = time.monotonic()
    inquiries = []
    for question in questions:
        findings: list[Finding] = []
        thread = threading.Thread(target=_ask, args=(question, findings), daemon=True)
        inquiries.append(_Inquiry(question, findings, thread))
        thread.start()

    for inquiry in inquiries:
        deadline = started + seconds * inquiry.question.patience
        inquiry.thread.join(max(0.0, deadline - time.monotonic()))

    result: list[Finding] = []
    for inquiry in inquiries:
        question = inquiry.question
        # A copy, since a thread that is late may add to the list.
        findings = list(inquiry.findings)
        if inquiry.thread.is_alive():
            late = f'no answer within {seconds * question.patience:g} s'
            findings.append(Finding(Level.ERROR, question.subject, late))
        for finding in findings:
            result.append(replace(finding, area=question.area))
    return result


def _ask(question: Question, findings: list[Finding]) -> None:
    """Collect the findings of a question. Runs in a thread for each question."""
    try:
        for finding in question.ask():
            findings.append(finding)
    except BaseException as error:  # a plugin may even call sys.exit()
        text = f'{type(error).__name__}: {hide(error)}'
        findings.append(Finding(Level.ERROR, question.subject, text))


def is_fit(findings: Sequence[Finding]) -> bool:
    """True if nothing must be mended before the switch."""
    return all(finding.level is not Level.ERROR for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """``{"fit": bool, "counts": {level: int}, "findings": [{area, level, subject,
    text}]}``."""
    count = Counter(finding.level for finding in findings)
    report = {
        'fit': is_fit(findings),
        'counts': {level.value: count[level] for level in Level},
        'findings': [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2)


def as_table(findings: Sequence[Finding]) -> str:
    """A table in the order of the findings, and the verdict below the table."""
    table = PrettyTable(('area', 'level', 'subject', 'finding'))
    table.align = 'l'
    table.max_width['subject'] = 40
    table.max_width['finding'] = 60
    for finding in findings:
        table.add_row([finding.area, finding.level, finding.subject, finding.text])

    verdict = 'mend the errors before the switch'
    if is_fit(findings):
        verdict = 'ready for the switch'
    count = Counter(finding.level for finding in findings)
    counts = f'{count[Level.ERROR]} errors, {count[Level.WARNING]} warnings'
    return f'{table}\n{counts}: {verdict}.'
