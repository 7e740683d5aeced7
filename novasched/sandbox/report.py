# SPDX-License-Identifier: Apache-2.0
"""What a run of the sandbox came to: as JSON, and as a table for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import os_resource_classes as classes
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from novasched.sandbox.machines import Machine
from novasched.sandbox.records import Boot, resources

SHOWN = {classes.VCPU: 'vCPU', classes.MEMORY_MB: 'RAM', classes.DISK_GB: 'disk'}
BAR_WIDTH = 6
NEARLY_FULL, FULL = 0.7, 0.9

Report = dict[str, Any]


def of(machines: Sequence[Machine], boots: Sequence[Boot], problems: Sequence[str]) -> Report:
    """The report; its parts are those of the JSON form."""
    servers = [server for boot in boots for server in boot.servers]
    count = Counter(server.host for server in servers)
    used: dict[str, Counter[str]] = {machine.name: Counter() for machine in machines}
    for server in servers:
        used.setdefault(server.host, Counter()).update(resources(server.flavor))
    faults: Counter[str] = Counter()
    for boot in boots:
        if boot.fault is not None:
            faults[boot.fault.strip()] += len(boot.uuids)
    return {
        'hosts': [
            {
                'name': each.name,
                'zone': each.zone,
                'cell': each.cell,
                'servers': count[each.name],
                'used': {name: used[each.name][name] for name in SHOWN},
                'capacity': dict(each.capacity),
            }
            for each in machines
        ],
        'servers': [
            {
                'uuid': server.uuid,
                'flavor': server.flavor.name,
                'host': server.host,
                'alternates': [x.value('service_host') for x in server.alternates],
            }
            for server in servers
        ],
        'refusals': [{'fault': fault, 'servers': number} for fault, number in faults.most_common()],
        'problems': list(problems),
        'summary': {
            'confirmed': not problems,
            'placed': len(servers),
            'refused': sum(faults.values()),
            **_times([boot.seconds for boot in boots]),
        },
    }


def show(report: Report, console: Console) -> None:
    """Print the report for people, as wide as the terminal or 80 columns."""
    plain = console.options.ascii_only
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column('host')
    table.add_column('zone')
    table.add_column('cell')
    table.add_column('servers', justify='right')
    for title in SHOWN.values():
        table.add_column(title, justify='right', no_wrap=True)
    for host in report['hosts']:
        fills = [_fill(host['used'][x], host['capacity'].get(x, 0), plain) for x in SHOWN]
        zone = Text(host['zone'] or '-')
        table.add_row(Text(host['name']), zone, Text(host['cell']), str(host['servers']), *fills)
    console.print(table)
    for refusal in report['refusals']:
        console.print(Text(f'{refusal["servers"]} refused: {refusal["fault"]}', 'yellow'))
    for problem in report['problems']:
        console.print(Text(f'Not as it should be: {problem}', 'bold red'))
    console.print(_last_lines(report))


def _times(seconds: Sequence[float]) -> dict[str, Any]:
    """How long the requests took, as conductor sees it."""
    total = sum(seconds)
    return {
        'requests': len(seconds),
        'seconds': round(total, 3),
        'requests_per_second': round(len(seconds) / total, 1) if total else None,
        'median_seconds': round(median(seconds), 4) if seconds else None,
    }


def _last_lines(report: Report) -> Text:
    numbers = report['summary']
    counts = f'{numbers["placed"]} placed, {numbers["refused"]} refused'
    if numbers['confirmed']:
        verdict = (f'Confirmed by Placement: {counts}.\n', 'bold green')
    else:
        verdict = (f'NOT confirmed: {counts}.\n', 'bold red')
    times = f'{numbers["requests"]} requests in {numbers["seconds"]:.1f} s'
    if numbers['requests']:
        pace, middle = numbers['requests_per_second'], numbers['median_seconds'] * 1000
        times += f': {pace:.1f} a second, median {middle:.0f} ms'
    return Text.assemble(verdict, times)


def _fill(used: int, capacity: int, plain: bool) -> Text:
    """A bar and a percentage."""
    share = used / capacity if capacity else 0.0
    full, empty = ('#', '.') if plain else ('█', '░')
    length = min(BAR_WIDTH, round(share * BAR_WIDTH))
    colour = 'red' if share >= FULL else 'yellow' if share >= NEARLY_FULL else 'green'
    bar = full * length + empty * (BAR_WIDTH - length)
    return Text.assemble((bar, colour), f' {share:4.0%}')
