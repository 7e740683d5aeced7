# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl sandbox`` at work: start a cloud, boot instances, check, and show the
report, as JSON or as a table for a terminal."""

import argparse
import json
import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median
from typing import Any

import os_resource_classes as classes
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from novasched.scheduler.memory import flavor_resources
from novasched.tools.sandbox import ZONES
from novasched.tools.sandbox.cloud import Boot, Sandbox
from novasched.tools.sandbox.computes import CELLS, SandboxHost

CORES = (8, 12, 16, 24)
MEMORY_MB_PER_CORE = 4096


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(
        level=logging.WARNING,
        format='%(asctime)s %(levelname)s %(name)s %(message)s',
        handlers=[_StandardError()],
    )
    for name in ('nova', 'novasched'):
        logging.getLogger(name).setLevel(
            logging.DEBUG if arguments.verbose else logging.NOTSET
        )
    console = Console()
    random = Random(arguments.seed)
    machines = varied(arguments.hosts, random)
    quiet = arguments.verbose or arguments.format == 'json' or not console.is_terminal
    # As an exception does, so that nothing is left behind.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with Sandbox(machines, random=random) as cloud:
        uuids = _boots(cloud, arguments, random)
        total = arguments.servers
        for _ in track(
            uuids, 'Booting', total, console=console, transient=True, disable=quiet
        ):
            pass
        result = report_of(cloud.machines, cloud.boots, cloud.problems())
    if arguments.format == 'json':
        print(json.dumps(result, indent=2))
    else:
        show(result, console)
    return int(bool(result['problems']))


def varied(count: int, random: Random) -> list[SandboxHost]:
    """Machines of differing sizes. One in three is in each of two zones, the third in
    none, and every other one in the second cell, so that zones and cells cross."""
    zones = (*ZONES, None)
    width = len(str(count))
    machines = []
    for number in range(count):
        cores = random.choice(CORES)
        machines.append(
            SandboxHost(
                name=f'host{number + 1:0{width}d}',
                vcpus=cores,
                memory_mb=cores * MEMORY_MB_PER_CORE,
                disk_gb=cores * 40,
                zone=zones[number % len(zones)],
                cell=CELLS[number % len(CELLS)],
            )
        )
    return machines


def _boots(
    cloud: Sandbox, arguments: argparse.Namespace, random: Random
) -> Iterator[str]:
    """Request all instances; yields the UUID of each."""
    group = cloud.group(arguments.policy) if arguments.policy else None
    left = arguments.servers
    while left:
        count = min(arguments.multi, left)
        flavor = random.choice(arguments.flavors)
        left -= count
        yield from cloud.boot(flavor, count, zone=arguments.az, group=group).uuids


class _StandardError(logging.Handler):
    """Writes to what is standard error at the time: the progress bar replaces it, to
    make room for such lines."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


SHOWN = {classes.VCPU: 'vCPU', classes.MEMORY_MB: 'RAM', classes.DISK_GB: 'disk'}
BAR_WIDTH = 6


def report_of(
    machines: Sequence[SandboxHost], boots: Sequence[Boot], problems: Sequence[str]
) -> dict[str, Any]:
    """The report; its parts are those of the JSON form."""
    servers = [server for boot in boots for server in boot.servers]
    count = Counter(server.host for server in servers)
    used: dict[str, Counter[str]] = {machine.name: Counter() for machine in machines}
    for server in servers:
        used.setdefault(server.host, Counter()).update(flavor_resources(server.flavor))
    seconds = [boot.seconds for boot in boots]
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
        'refusals': [
            {'fault': fault, 'servers': number}
            for fault, number in faults.most_common()
        ],
        'problems': list(problems),
        'summary': {
            'confirmed': not problems,
            'placed': len(servers),
            'refused': sum(faults.values()),
            # As conductor sees them.
            'requests': len(boots),
            'seconds': round(sum(seconds), 3),
            'requests_per_second': round(len(boots) / sum(seconds), 1),
            'median_seconds': round(median(seconds), 4),
        },
    }


def show(report: dict[str, Any], console: Console) -> None:
    """Print the report for people, as wide as the terminal or 80 columns."""
    plain = console.options.ascii_only
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ('host', 'zone', 'cell'):
        table.add_column(title)
    table.add_column('servers', justify='right')
    for title in SHOWN.values():
        table.add_column(title, justify='right', no_wrap=True)
    for host in report['hosts']:
        fills = [
            _fill(host['used'][x], host['capacity'].get(x, 0), plain) for x in SHOWN
        ]
        zone = Text(host['zone'] or '-')
        table.add_row(
            Text(host['name']), zone, Text(host['cell']), str(host['servers']), *fills
        )
    console.print(table)
    for refusal in report['refusals']:
        console.print(
            Text(f'{refusal["servers"]} refused: {refusal["fault"]}', 'yellow')
        )
    for problem in report['problems']:
        console.print(Text(f'Not as it should be: {problem}', 'bold red'))
    numbers = report['summary']
    counts = f'{numbers["placed"]} placed, {numbers["refused"]} refused'
    if numbers['confirmed']:
        verdict = (f'Confirmed by Placement: {counts}.\n', 'bold green')
    else:
        verdict = (f'NOT confirmed: {counts}.\n', 'bold red')
    pace = numbers['requests_per_second']
    middle = numbers['median_seconds'] * 1000
    times = f'{numbers["requests"]} requests in {numbers["seconds"]:.1f} s'
    console.print(
        Text.assemble(verdict, f'{times}: {pace:.1f} a second, median {middle:.0f} ms')
    )


def _fill(used: int, capacity: int, plain: bool) -> Text:
    share = used / capacity if capacity else 0.0
    full, empty = ('#', '.') if plain else ('█', '░')
    length = min(BAR_WIDTH, round(share * BAR_WIDTH))
    colour = 'red' if share >= 0.9 else 'yellow' if share >= 0.7 else 'green'
    bar = full * length + empty * (BAR_WIDTH - length)
    return Text.assemble((bar, colour), f' {share:4.0%}')
