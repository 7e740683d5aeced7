# SPDX-License-Identifier: Apache-2.0
"""Show the state of the scheduler on this machine.

The report has the processes, failed health checks, cells, hosts, and the newest
decisions of [novasched] decisions_file. The exit status is 0 if the scheduler answers,
1 if not, 2 for a wrong argument or if [novasched] health_bind is empty.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from novasched.conf import loading
from novasched.conf.errors import NovaschedError
from novasched.observe.records import render
from novasched.observe.records.store import RecordReader
from novasched.tools import USAGE_ERROR, add_config_files, config_files
from novasched.tools.explain import table_of
from novasched.tools.health import ask

DECISIONS_SHOWN = 5
WORKER_COLUMNS = {
    'process': 'name',
    'pid': 'pid',
    'since (UTC)': 'since',
    'restarts': 'restarts',
    'decided': 'done',
    'in progress': 'in_progress',
    'waiting': 'waiting',
    'pending claims': 'pending_claims',
    'peers': 'peers',
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choices = ('table', 'json')
    parser.add_argument(
        '--format', choices=choices, default='table', help='(%(default)s)'
    )
    add_config_files(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report, and return the exit status."""
    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    service = loading.service_settings(conf)
    if service.health_bind is None:
        print('novaschedctl status: [novasched] health_bind is empty', file=sys.stderr)
        return USAGE_ERROR

    status = ask(service.health_bind, '/status')
    status['decisions'] = _newest(service.decisions_file)
    text = '\n'.join(as_text(status))
    if arguments.format == 'json':
        text = json.dumps(status, indent=2)
    print(text)
    return 0


def _newest(path: str | None) -> list[str]:
    """A line for each of the newest decisions; no lines without a file. A last line
    tells of damaged records."""
    if path is None:
        return []
    try:
        reader = RecordReader(path)
        records = reader.newest(DECISIONS_SHOWN)
    except NovaschedError as error:
        return [str(error)]

    lines = list(map(render.entry, records))
    if reader.damage:
        lines.append(f'{path}: {reader.damage}')
    return lines


def as_text(status: Mapping[str, Any]) -> Iterator[str]:
    """The report for a terminal."""
    host = status['notes']['host']
    release = status['release']
    yield (
        f'novasched {release} on {host}: health {status["health"]}, ready'
        f' {status["ready"]}'
    )
    for name, check in status['checks'].items():
        if 'output' in check:
            yield f'{check["status"]:<4}  {name}: {check["output"]}'

    processes = status['processes']
    rows = []
    for process in processes:
        rows.append([_text(process.get(key), key) for key in WORKER_COLUMNS.values()])
    yield table_of([*WORKER_COLUMNS], rows)

    ages = []
    open_circuits = set()
    for process in processes:
        if process.get('remembered_s') is not None:
            ages.append(process['remembered_s'])
        open_circuits.update(process.get('breakers', ()))
    if ages:
        yield f"Placement's answer about all hosts is {min(ages):.0f} s old."
    yield f'Open circuits: {", ".join(sorted(open_circuits)) or "none"}.'

    if status['cells']:
        yield _cells(status['cells'])
    if status['hosts'] is not None:
        counts = [f'{number:,} {state}' for state, number in status['hosts'].items()]
        age = f'{status["hosts_read_s"]:.0f} s ago'
        yield f'Hosts: {", ".join(counts) or "none"}, as read {age}.'
    if status['decisions']:
        yield from ['', 'Newest decisions:', *status['decisions']]


def _cells(cells: Sequence[Mapping[str, Any]]) -> str:
    """A table of the cells."""
    rows = []
    for cell in cells:
        hosts = _text(cell['hosts'])
        rows.append((cell['name'], hosts, _cell_state(cell), cell['uuid']))
    return table_of(('cell', 'hosts', 'state', 'UUID'), rows, reasons='UUID')


def _cell_state(cell: Mapping[str, Any]) -> str:
    if cell['disabled']:
        return 'disabled'
    if cell['trouble'] or cell['hosts'] is None:
        return 'not read'
    return 'answers'


def _text(value: object, name: str = '') -> str:
    if value is None:
        return ''
    if name == 'since':
        return str(value).replace('T', ' ').removesuffix('+00:00')
    if isinstance(value, int) and name != 'pid':
        return f'{value:,}'
    return str(value)
