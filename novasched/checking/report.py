# SPDX-License-Identifier: Apache-2.0
"""The findings, as a table for people and as JSON for machines."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

from prettytable import PrettyTable

from novasched.checking.finding import Finding, Level

COLUMNS = ('area', 'level', 'subject', 'finding')
NARROW, BROAD = 40, 60
"""How wide the last two columns are at the most, in characters."""


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether nothing must be mended before the switch."""
    return all(finding.level is not Level.ERROR for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """``{"fit": bool, "counts": {level: int}, "findings": [{area, level, subject, text}]}``."""
    count = Counter(finding.level for finding in findings)
    report = {
        'fit': is_fit(findings),
        'counts': {level.value: count[level] for level in Level},
        'findings': [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2)


def as_table(findings: Sequence[Finding]) -> str:
    """A table in the order of the findings, and the verdict below it."""
    table = PrettyTable(COLUMNS)
    table.align = 'l'
    table.max_width['subject'], table.max_width['finding'] = NARROW, BROAD
    for each in findings:
        table.add_row([each.area, each.level, each.subject, each.text])
    count = Counter(finding.level for finding in findings)
    counts = f'{count[Level.ERROR]} errors, {count[Level.WARNING]} warnings'
    verdict = 'ready for the switch' if is_fit(findings) else 'mend the errors before the switch'
    return f'{table}\n{counts}: {verdict}.'
