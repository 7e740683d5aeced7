#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lint of words: names and docstrings that a reader from OpenStack would not
understand.

``python tests/lab/words.py`` reads ``novasched/``, and the docstrings in ``tests/``,
and prints one line for each offence; the exit status is 1 if there is one.
CONTRIBUTING.rst has the rules.
"""

import ast
import re
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / 'novasched'
TESTS = PROJECT / 'tests'

BEGINNING = re.compile(
    r'(what|whether|whom|who|whoever|nobody|somebody|so many|how|these|those|where|when it|it)\b',
    re.IGNORECASE,
)
"""Docstrings that begin so cannot be understood without the code."""

RIDDLE = re.compile(
    r"""\b(
    whoever|whatever|whichever|whose\ it\ is|the\ ones?\ that|those\ (that|which|who|of)|
    so\ (many|much|long)|the\ others|nobody|somebody|somewhere|one\ of\ them|
    what\ (it|they|was|has|have|the|a|an|others|nova)
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Pronouns whose subject a reader has to guess."""

SERVER = re.compile(r'\bservers?\b', re.IGNORECASE)
SERVER_GROUPS = re.compile(r'server groups?', re.IGNORECASE)
INSTANCES_ALONE = ('scheduler/', 'placement/', 'plugins/')
"""Packages that know no other servers; what operators read says server elsewhere, as
``openstack server show`` does."""

NAMES = re.compile(
    r"""(
    Account|Archive|Asked|Audience|Backlog|Callers|Calm|Cause|Causes|Company|Dropped|Ear|
    Fleet|Flight|Forgetful|Habits|Heat|InFlight|Indifferent|Inquirer|Inquiry|Intake|Keeper|
    Landscape|LastWords|LeftAlone|Look|Lottery|Mirror|Notices|Rebuilt|Rehearsal|Sight|
    Silence|Stock|Tally|Turns|Undoing|Unrecorded|Unseen|Unwanted|Watched|Words|DETAILED|
    MOST|PATIENCE|PAUSE|SLACK|TOLD|apart|causes_of|collect_seldom|entitle|give_back|
    has_room|left_alone|let_go|share_heaps|thaw
    )""",
    re.VERBOSE,
)
"""Names that say nothing to a stranger: a constant tells its subject and its unit, a
class or a function the thing in OpenStack's words."""


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield getattr(node, 'lineno', 1), ast.get_docstring(node) or ''


def unclear_docstrings(tree):
    for line, docstring in docstrings(tree):
        if BEGINNING.match(docstring):
            first = docstring.splitlines()[0]
            yield line, f'begin with a verb or a noun phrase: {first}'
        if match := RIDDLE.search(docstring):
            yield line, f'name the subject in place of {match[0]!r}'


def mentioned_servers(tree):
    for line, docstring in docstrings(tree):
        if SERVER.search(SERVER_GROUPS.sub('', docstring)):
            yield line, 'say instance, not server'


def unclear_names(tree):
    for node in ast.walk(tree):
        if isinstance(getattr(node, 'ctx', None), ast.Load):
            continue

        name = node.id if isinstance(node, ast.Name) else getattr(node, 'name', None)
        if name and NAMES.fullmatch(name):
            line = getattr(node, 'lineno', 1)
            yield line, f'{name}: say it in words that OpenStack has'


def offences(path):
    tree = ast.parse(path.read_text())
    yield from unclear_docstrings(tree)

    if path.is_relative_to(PACKAGE):
        yield from unclear_names(tree)
        if str(path.relative_to(PACKAGE)).startswith(INSTANCES_ALONE):
            yield from mentioned_servers(tree)


def main():
    found = False
    for path in sorted([*PACKAGE.rglob('*.py'), *TESTS.rglob('*.py')]):
        for line, text in sorted(offences(path)):
            found = True
            print(f'{path.relative_to(PROJECT)}:{line}: {text}')
    return int(found)


if __name__ == '__main__':
    sys.exit(main())
