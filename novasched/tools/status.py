# SPDX-License-Identifier: Apache-2.0
"""Show how the scheduler on this machine is.

Its processes, what does not pass of its health, cells, hosts, and the newest decisions,
where [novasched] decisions_file has them. The exit status is 0 if it answers, 1 if not,
2 for a wrong argument or if [novasched] health_bind is empty.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
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
    """Do it; the exit status."""
    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    service = loading.service_settings(conf)
    if service.health_bind is None:
        print('novaschedctl status: [novasched] health_bind is empty', file=sys.stderr)
        return USAGE_ERROR
    found = ask(service.health_bind, '/status')
    found['decisions'] = _newest(service.decisions_file)
    print(
        json.dumps(found, indent=2)
        if arguments.format == 'json'
        else '\n'.join(as_text(found))
    )
    return 0


def _newest(path: str | None) -> list[str]:
    """The newest decisions, a line each; none where there is no file."""
    if path is None:
        return []
    try:
        return [
            render.entry(record)
            for record in RecordReader(path).newest(DECISIONS_SHOWN)
        ]
    except NovaschedError as error:
        return [str(error)]


def as_text(found: Mapping[str, Any]) -> Iterator[str]:
    """The report for a terminal."""
    host = found['notes']['host']
    release = found['release']
    yield (
        f'novasched {release} on {host}: health {found["health"]}, ready'
        f' {found["ready"]}'
    )
    for name, check in found['checks'].items():
        if 'output' in check:
            yield f'{check["status"]:<4}  {name}: {check["output"]}'
    processes = found['processes']
    rows = [
        [_text(each.get(key), key) for key in WORKER_COLUMNS.values()]
        for each in processes
    ]
    yield table_of([*WORKER_COLUMNS], rows)
    ages = [
        each['remembered_s']
        for each in processes
        if each.get('remembered_s') is not None
    ]
    if ages:
        yield f"Placement's answer about all hosts is {min(ages):.0f} s old."
    open_ones = sorted(
        {name for each in processes for name in each.get('breakers', ())}
    )
    yield f'Left alone until they answer: {", ".join(open_ones) or "none"}.'
    if found['cells']:
        names = 'cell', 'hosts', 'state', 'UUID'
        cells = found['cells']
        yield table_of(
            names,
            [(x['name'], _text(x['hosts']), _cell_state(x), x['uuid']) for x in cells],
            'UUID',
        )
    if found['hosts'] is not None:
        counts = ', '.join(
            f'{number:,} {state}' for state, number in found['hosts'].items()
        )
        yield f'Hosts: {counts or "none"}, as read {found["hosts_read_s"]:.0f} s ago.'
    if found['decisions']:
        yield from ['', 'Newest decisions:', *found['decisions']]


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
