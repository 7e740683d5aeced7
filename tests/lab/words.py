#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lint of words: names and docstrings that a reader from OpenStack would not know.

``python tests/lab/words.py`` reads ``novasched/`` and prints one line for each offence, with the
word to use instead; the exit status is 1 if there is one. CONTRIBUTING.rst has the rules.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / 'novasched'

BEGINNING = re.compile(
    r'(what|whether|whom|who|whoever|nobody|somebody|so many|how|these|those|where|when it|it)\b',
    re.IGNORECASE,
)
"""Docstrings that begin so cannot be understood without the code."""

SERVER = re.compile(r'\bservers?\b', re.IGNORECASE)
SERVER_GROUPS = re.compile(r'server groups?', re.IGNORECASE)
INSTANCES_ALONE = ('scheduler/', 'placement/', 'plugins/')
"""Packages that know no other servers; what operators read says server elsewhere, as
``openstack server show`` does."""

NAMES = {
    'Account': 'DecisionTrace', 'Archive': 'RecordReader', 'Asked': 'RequestSummary',
    'Audience': 'RecordingNotifier', 'Backlog': 'WorkerQueue', 'Callers': 'RpcHeartbeats',
    'Calm': 'QuietExporter', 'Cause': 'ReasonCount', 'Causes': 'Rejections',
    'Company': 'BatchWindow', 'Dropped': 'StageRejections', 'Ear': 'Listener',
    'Fleet': 'HostSnapshot', 'Flight': 'PendingClaim', 'Forgetful': 'NullRecorder',
    'Habits': 'a name that says of what', 'Heat': 'Heatmap', 'InFlight': 'PendingClaims',
    'Indifferent': 'nothing: delete it', 'Inquirer': 'diagnose', 'Inquiry': 'Diagnosis',
    'Intake': 'AckOnStartListener', 'Keeper': 'DecisionRecorder', 'Landscape': 'SimulatedHosts',
    'LastWords': 'LastMessage', 'LeftAlone': 'CircuitOpen', 'Look': 'AttemptRecord or Probe',
    'Lottery': 'RandomPipeline', 'Mirror': 'a change-tracked table', 'Notices': 'Notifier',
    'Rebuilt': 'a name that says of what', 'Rehearsal': 'SimulatedPlacement',
    'Sight': 'HostsView', 'Silence': 'NullNotifier', 'Stock': 'Inventory', 'Tally': 'a collector',
    'Turns': 'SingleFlight', 'Undoing': 'AllocationCleanup', 'Unrecorded': 'nothing: delete it',
    'Unseen': 'nothing: delete it', 'Unwanted': 'BadQuery', 'Watched': 'PlacementAttempt',
    'Words': 'a function', 'DETAILED': 'a constant with a subject and a unit',
    'MOST': 'a constant with a subject and a unit',
    'PATIENCE': 'a constant with a subject and a unit',
    'PAUSE': 'a constant with a subject and a unit',
    'SLACK': 'a constant with a subject and a unit',
    'TOLD': 'a constant with a subject and a unit', 'apart': 'detach',
    'causes_of': 'rejections_of', 'collect_seldom': 'tune_gc', 'entitle': 'set_process_title',
    'give_back': 'delete_allocations', 'has_room': 'has_free_thread',
    'left_alone': 'a name that says of what', 'let_go': 'clear_frames',
    'share_heaps': 'tune_malloc', 'thaw': 'a mutable proxy',
}  # fmt: skip
"""Names that are gone, and what to use in their place."""


def offences(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    instances_alone = str(path.relative_to(ROOT)).startswith(INSTANCES_ALONE)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node) or ''
            line = getattr(node, 'lineno', 1)
            if BEGINNING.match(docstring):
                yield line, f'begin with a verb or a noun phrase: {docstring.splitlines()[0]}'
            if instances_alone and SERVER.search(SERVER_GROUPS.sub('', docstring)):
                yield line, 'say instance, not server'
        for name in names_of(node):
            if name in NAMES:
                yield getattr(node, 'lineno', 1), f'{name}: say {NAMES[name]}'


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name


def main() -> int:
    found = False
    for path in sorted(ROOT.rglob('*.py')):
        for line, text in offences(path):
            found = True
            print(f'{path.relative_to(ROOT.parent)}:{line}: {text}')
    return int(found)


if __name__ == '__main__':
    sys.exit(main())
