# SPDX-License-Identifier: Apache-2.0
"""Say why a server went where it went, or nowhere.

WHAT is the UUID of a server or the id of a request (req-...). What is told is what the
schedulers on this machine have written into [novasched] decisions_file. The exit status is 0
if there is something to tell, 1 if not or if the file cannot be read, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from importlib import import_module

UNKNOWN, USAGE = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument('what', nargs='?', metavar='WHAT', help='a server or a request')
    which.add_argument('--last', action='store_true', help='the newest decision')
    add('--host', metavar='HOST', help='why not this host')
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add('--file', metavar='FILE', help='the records, in place of those that nova.conf names')
    for name, metavar in (('--config-file', 'FILE'), ('--config-dir', 'DIR')):
        add(name, metavar=metavar, action='append', default=[], help='nova.conf, as the daemon')


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if there is something to tell, 1 if not, 2 if no file is named.

    :raises NovaschedError: the file, or nova.conf, cannot be read.
    """
    # Only here: the daemon's parts take a second to import.
    store = import_module('novasched.recorder.store')
    report = import_module('novasched.explaining.report')
    path = arguments.file or _configured(arguments)
    if path is None:
        return _said(USAGE, 'nova.conf does not set [novasched] decisions_file')
    archive = store.Archive(path)
    what, host = _shown(arguments.what), _shown(arguments.host)
    records = archive.last() if arguments.last else archive.of(what)
    if not records:
        what = 'decision' if arguments.last else f'decision on {shlex.quote(what)}'
        return _said(UNKNOWN, f'{path} has no {what}; the newest are kept')
    record = records[0]
    causes = archive.causes(record) if host else None
    shape = report.as_json if arguments.format == 'json' else report.as_text
    print(shape(record, len(records) - 1, host, causes))
    return 0


def _shown(name: str | None) -> str:
    """A name as it was typed, if it can be printed on a line: whatever else it is, no server,
    request or host is called so."""
    told: Callable[[str], str] = import_module('novasched.records.reasons').told
    text = (name or '').encode(errors='replace').decode()
    return told(''.join(each if each.isprintable() else ' ' for each in text))


def _configured(arguments: argparse.Namespace) -> str | None:
    """The file that nova.conf names."""
    configuration = import_module('novasched.conf')
    files = [f'--config-file={each}' for each in arguments.config_file]
    folders = [f'--config-dir={each}' for each in arguments.config_dir]
    conf = configuration.load([*files, *folders], 'novasched')
    path: str | None = configuration.decisions_file(conf)
    return path


def _said(status: int, text: str) -> int:
    print(f'novaschedctl explain: {text}', file=sys.stderr)
    return status
