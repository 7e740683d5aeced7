# SPDX-License-Identifier: Apache-2.0
"""Explain the decision on a server: the chosen host, or the reasons of a refusal.

WHAT is the UUID of a server or the id of a request (req-...). The schedulers on this
machine write their decisions to [novasched] decisions_file, by default below [DEFAULT]
state_path. The exit status is 0 if there is a decision, 1 if there is none or the file
cannot be read, 2 for a wrong argument.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from prettytable import PrettyTable

from novasched.conf.redaction import one_line, printable_lines
from novasched.observe.records import render
from novasched.observe.records.record import (
    AttemptRecord,
    Record,
    Rejections,
    RejectionStage,
    to_json,
)
from novasched.observe.records.store import RecordReader
from novasched.tools import USAGE_ERROR, add_config_files, config_files

UNKNOWN = 1
MAX_WEIGHERS = 4
MAX_HOSTS = 5
REASONS_WIDTH = 60
MAX_DAMAGED = 20
"""Number of newest records in which ``--last`` looks for a record without damage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument('what', nargs='?', metavar='WHAT', help='a server or a request')
    which.add_argument('--last', action='store_true', help='the newest decision')
    add('--host', metavar='HOST', help='why not this host')
    add(
        '--make-room',
        action='store_true',
        help='for a refused request: would moves of other servers make room?',
    )
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add(
        '--file',
        metavar='FILE',
        help='the records, in place of those that nova.conf names',
    )
    add_config_files(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation, and return the exit status."""
    if arguments.make_room and arguments.format == 'json':
        return _fail(USAGE_ERROR, '--make-room answers in a sentence, not in JSON')
    path = arguments.file or _configured(arguments)
    if path is None:
        return _fail(USAGE_ERROR, '[novasched] decisions_file is empty in nova.conf')

    reader = RecordReader(path)
    host = _printable(arguments.host)
    if arguments.last:
        name = 'decision'
        records = reader.newest(MAX_DAMAGED)[:1]
    else:
        what = _printable(arguments.what)
        name = f'decision on {shlex.quote(what)}'
        records = reader.of(what)
    if not records:
        why = reader.damage or 'the newest are kept'
        return _fail(UNKNOWN, f'{path} has no {name}; {why}')

    record = records[0]
    rejections = None
    if host:
        rejections = reader.rejections(record)
    shape = as_text
    if arguments.format == 'json':
        shape = as_json
    if reader.damage:
        print(f'novaschedctl explain: {path}: {reader.damage}', file=sys.stderr)
    # Records have texts of users without changes.
    print(printable_lines(shape(record, len(records) - 1, host, rejections)))
    if arguments.make_room:
        # Imported here, since the modules of the daemon take a second.
        wanted = import_module('novasched.tools.plan.wanted')
        print(printable_lines(wanted.offer(_conf(arguments), record.id, path)))
    elif record.result.refusal is not None and shape is as_text and not host:
        print('Add --make-room to see whether moves of other servers would make room.')
    return 0


def _printable(name: str | None) -> str:
    """A name of an instance, a request or a host on one line."""
    text = (name or '').encode(errors='replace').decode()
    characters = []
    for character in text:
        if not character.isprintable():
            character = ' '
        characters.append(character)
    return one_line(''.join(characters))


def _conf(arguments: argparse.Namespace) -> Any:
    """The configuration of the daemon."""
    # Imported here, since the import of oslo.config is slow.
    loading = import_module('novasched.conf.loading')
    files = config_files(arguments.config_file, arguments.config_dir)
    return loading.load(files, 'novasched')


def _configured(arguments: argparse.Namespace) -> str | None:
    loading = import_module('novasched.conf.loading')
    path: str | None = loading.service_settings(_conf(arguments)).decisions_file
    return path


def _fail(status: int, text: str) -> int:
    print(f'novaschedctl explain: {text}', file=sys.stderr)
    return status


def as_json(
    record: Record, others: int, host: str | None, rejections: Rejections | None
) -> str:
    """A JSON object with the members ``headline``, ``counts``, ``others``, ``record``
    and, with a host, ``host``: the reasons against the host.

    :param others: the number of older decisions.
    """
    report = {
        'headline': render.headline(record),
        'counts': dict(render.tally(record)),
        'others': others,
        'record': json.loads(to_json(record)),
    }
    if host:
        report['host'] = {'name': host, 'why': render.why_not(record, host, rejections)}
    return json.dumps(report, indent=2)


def as_text(
    record: Record, others: int, host: str | None, rejections: Rejections | None
) -> str:
    """The headline, the facts of the request, and tables of filters and weighers. With
    a host, the headline and the reasons against the host.

    :param others: the number of older decisions.
    """
    lines = [render.headline(record)]
    if host:
        for reason in render.why_not(record, host, rejections):
            lines.append(f'{host}: {reason}')
        return '\n'.join(lines)

    lines.append('')
    lines += [f'{name:<10} {text}' for name, text in render.facts(record)]
    if record.diagnosis and record.diagnosis.lacking:
        lines.append(_stages('not offered', record.diagnosis.lacking))
    for _, attempt in render.attempts(record)[:1]:
        lines += _tables(attempt)
    if others:
        lines.append(
            f'There are {others} older decisions; --format json shows this one in full.'
        )
    return '\n'.join(lines)


def _tables(attempt: AttemptRecord) -> Iterator[str]:
    """The troubles of an attempt, its filters and its best hosts."""
    for name, text in render.troubles(attempt):
        yield f'{name:<10} {text}'

    rejecting = [stage for stage in attempt.stages if stage.rejections]
    idle = [stage.name for stage in attempt.stages if not stage.rejections]
    if rejecting:
        yield _stages('filter', rejecting)
    if idle:
        yield f'None dropped by {", ".join(idle)}.'

    best = attempt.best[:MAX_HOSTS]
    if best:
        weighers = render.telling_weighers(best)[:MAX_WEIGHERS]
        rows = []
        for weight in best:
            rows.append((weight.host, *render.weight_cells(weight, weighers)))
        yield table_of(('host', 'weight', *weighers), rows)


def _stages(name: str, stages: Sequence[RejectionStage]) -> str:
    """A table of the filters that rejected hosts."""
    rows = []
    for stage in stages:
        reasons = '\n'.join(render.reasons(stage))
        rows.append((stage.name, f'{stage.start:,}', f'{stage.end:,}', reasons))
    return table_of((name, 'in', 'out', 'why not'), rows, reasons='why not')


def table_of(
    names: Sequence[str], rows: Iterable[Sequence[str]], reasons: str = ''
) -> str:
    """A table of numbers; the first column has names.

    :param reasons: the name of a column with reasons.
    """
    table = PrettyTable(names)
    table.align = 'r'
    table.align[names[0]] = 'l'
    if reasons:
        table.align[reasons] = 'l'
        table.max_width[reasons] = REASONS_WIDTH
    table.add_rows([*map(list, rows)])
    return str(table)
