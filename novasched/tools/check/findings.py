# SPDX-License-Identifier: Apache-2.0
"""Findings: the questions that they come from, which are put at once, and the report of
them."""

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


class Level(str, enum.Enum):
    """Severity of a finding."""

    OK = 'ok'
    NOTE = 'note'
    """Worth knowing: something differs from nova-scheduler, or is left alone."""
    WARNING = 'warning'
    """novasched runs, but perhaps not as the operator means it."""
    ERROR = 'error'
    """To be mended before the switch."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report about an option, server or plugin; holds no secret."""

    area: str = field(default='', kw_only=True)
    level: Level
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """Findings that take time to make, ``patience`` times as long as others."""

    subject: str
    ask: Callable[[], Iterable[Finding]]
    patience: int = 1
    area: str = ''


def answers(questions: Sequence[Question], seconds: float) -> list[Finding]:
    """The findings of all questions, in their order.

    One that fails as nobody foresaw, or is not answered in time, is an error among its
    findings; those that it had by then remain. A thread that hangs ends with the
    process.
    """
    started = time.monotonic()
    asked: list[tuple[Question, list[Finding], threading.Thread]] = []
    for question in questions:
        found: list[Finding] = []
        thread = threading.Thread(target=_ask, args=(question, found), daemon=True)
        asked.append((question, found, thread))
        thread.start()
    for question, _, thread in asked:
        thread.join(max(0.0, started + seconds * question.patience - time.monotonic()))
    result: list[Finding] = []
    for question, found, thread in asked:
        late = f'no answer within {seconds * question.patience:g} s'
        if thread.is_alive():
            silence = [Finding(Level.ERROR, question.subject, late)]
        else:
            silence = []
        result += [replace(each, area=question.area) for each in [*found, *silence]]
    return result


def _ask(question: Question, found: list[Finding]) -> None:
    try:
        for finding in question.ask():
            found.append(finding)
    except BaseException as error:  # a plugin may even call sys.exit()
        text = f'{type(error).__name__}: {hide(error)}'
        found.append(Finding(Level.ERROR, question.subject, text))


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
    """A table in the order of the findings, and the verdict below it."""
    table = PrettyTable(('area', 'level', 'subject', 'finding'))
    table.align = 'l'
    table.max_width['subject'] = 40
    table.max_width['finding'] = 60
    table.add_rows(
        [[each.area, each.level, each.subject, each.text] for each in findings]
    )
    count = Counter(finding.level for finding in findings)
    counts = f'{count[Level.ERROR]} errors, {count[Level.WARNING]} warnings'
    if is_fit(findings):
        verdict = 'ready for the switch'
    else:
        verdict = 'mend the errors before the switch'
    return f'{table}\n{counts}: {verdict}.'
