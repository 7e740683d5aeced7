# SPDX-License-Identifier: Apache-2.0
"""Say why a server went where it went, or nowhere.

WHAT is the UUID of a server or the id of a request (req-...). What is told is what the
schedulers on this machine have written into [novasched] decisions_file, by default
below [DEFAULT] state_path. The exit status is 0 if there is something to tell, 1 if not
or if the file cannot be read, 2 for a wrong argument.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument('what', nargs='?', metavar='WHAT', help='a server or a request')
    which.add_argument('--last', action='store_true', help='the newest decision')
    add('--host', metavar='HOST', help='why not this host')
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add(
        '--file',
        metavar='FILE',
        help='the records, in place of those that nova.conf names',
    )
    add_config_files(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit status."""
    path = arguments.file or _configured(arguments)
    if path is None:
        return _fail(USAGE_ERROR, '[novasched] decisions_file is empty in nova.conf')
    reader = RecordReader(path)
    what = _printable(arguments.what)
    host = _printable(arguments.host)
    records = reader.newest(1) if arguments.last else reader.of(what)
    if not records:
        what = 'decision' if arguments.last else f'decision on {shlex.quote(what)}'
        return _fail(UNKNOWN, f'{path} has no {what}; the newest are kept')
    rejections = reader.rejections(records[0]) if host else None
    shape = as_json if arguments.format == 'json' else as_text
    # Records have the texts of users as they came.
    print(printable_lines(shape(records[0], len(records) - 1, host, rejections)))
    return 0


def _printable(name: str | None) -> str:
    """A name on one line: no instance, request or host has one that is more."""
    text = (name or '').encode(errors='replace').decode()
    return one_line(''.join(each if each.isprintable() else ' ' for each in text))


def _configured(arguments: argparse.Namespace) -> str | None:
    from novasched.conf import loading  # only here: oslo.config takes long to import

    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    return loading.service_settings(conf).decisions_file


def _fail(status: int, text: str) -> int:
    print(f'novaschedctl explain: {text}', file=sys.stderr)
    return status


def as_json(
    record: Record, others: int, host: str | None, rejections: Rejections | None
) -> str:
    """``{"headline", "counts", "others", "record", "host"}``: the last is why not that
    host."""
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
    """The headline, the facts of the request, and its filters and weighers below."""
    lines = [render.headline(record)]
    if host:
        lines += [
            f'{host}: {each}' for each in render.why_not(record, host, rejections)
        ]
        return '\n'.join(lines)
    lines += ['', *(f'{name:<10} {text}' for name, text in render.facts(record))]
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
    yield from (f'{name:<10} {text}' for name, text in render.troubles(attempt))
    rejecting = [stage for stage in attempt.stages if stage.rejections]
    idle = [stage.name for stage in attempt.stages if not stage.rejections]
    if rejecting:
        yield _stages('filter', rejecting)
    if idle:
        yield f'None dropped by {", ".join(idle)}.'
    if best := attempt.best[:MAX_HOSTS]:
        weighers = render.telling_weighers(best)[:MAX_WEIGHERS]
        weights = ((each.host, *render.weight_cells(each, weighers)) for each in best)
        yield table_of(('host', 'weight', *weighers), weights)


def _stages(name: str, stages: Sequence[RejectionStage]) -> str:
    """A table of what left out hosts."""
    rows = (
        (each.name, f'{each.start:,}', f'{each.end:,}', '\n'.join(render.reasons(each)))
        for each in stages
    )
    return table_of((name, 'in', 'out', 'why not'), rows, reasons='why not')


def table_of(
    names: Sequence[str], rows: Iterable[Sequence[str]], reasons: str = ''
) -> str:
    """A table of numbers, but for its first column and one that may hold
    ``reasons``."""
    table = PrettyTable(names)
    table.align = 'r'
    table.align[names[0]] = 'l'
    if reasons:
        table.align[reasons] = 'l'
        table.max_width[reasons] = REASONS_WIDTH
    table.add_rows([*map(list, rows)])
    return str(table)
