# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl sandbox``: starts a cloud, boots instances, compares the results with
Placement, and prints a report."""

import argparse
import json
import logging
import signal
import sys
from collections import Counter, defaultdict
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
from novasched.tools.sandbox.cloud import Boot, Sandbox, Server
from novasched.tools.sandbox.computes import CELLS, SandboxHost

CORES = (8, 12, 16, 24)
MEMORY_MB_PER_CORE = 4096


def run(arguments: argparse.Namespace) -> int:
    """Run a sandbox. Return 0 if Placement confirms all results, otherwise 1."""
    _set_up_logging(arguments.verbose)
    console = Console()
    random = Random(arguments.seed)
    machines = varied(arguments.hosts, random)
    # SystemExit ends the blocks below, so that no file is left behind.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))

    with Sandbox(machines, random=random) as cloud:
        uuids = _boot(cloud, arguments, random)
        is_quiet = arguments.verbose or arguments.format == 'json'
        progress = track(
            uuids,
            'Booting',
            arguments.servers,
            console=console,
            transient=True,
            disable=is_quiet or not console.is_terminal,
        )
        for _ in progress:
            pass
        result = report_of(cloud.machines, cloud.boots, cloud.problems())

    if arguments.format == 'json':
        print(json.dumps(result, indent=2))
    else:
        show(result, console)
    return 1 if result['problems'] else 0


def _set_up_logging(is_verbose: bool) -> None:
    logging.basicConfig(
        level=logging.WARNING,
        format='%(asctime)s %(levelname)s %(name)s %(message)s',
        handlers=[_StandardError()],
    )
    level = logging.DEBUG if is_verbose else logging.NOTSET
    for name in ('nova', 'novasched'):
        logging.getLogger(name).setLevel(level)


def varied(count: int, random: Random) -> list[SandboxHost]:
    """Machines of several sizes. Two thirds are in two zones, and every second machine
    is in the second cell, so each zone has machines in both cells."""
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


def _boot(
    cloud: Sandbox, arguments: argparse.Namespace, random: Random
) -> Iterator[str]:
    """Request all instances, and yield their UUIDs."""
    group = None
    if arguments.policy:
        group = cloud.group(arguments.policy)

    remaining = arguments.servers
    while remaining:
        count = min(arguments.multi, remaining)
        remaining -= count
        flavor = random.choice(arguments.flavors)
        yield from cloud.boot(flavor, count, zone=arguments.az, group=group).uuids


class _StandardError(logging.Handler):
    """Writes to the current ``sys.stderr``, which the progress bar replaces to keep
    lines of the log apart."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


RESOURCE_TITLES = {
    classes.VCPU: 'vCPU',
    classes.MEMORY_MB: 'RAM',
    classes.DISK_GB: 'disk',
}
BAR_WIDTH = 6
"""Width of the bar of a usage, in characters."""


def report_of(
    machines: Sequence[SandboxHost], boots: Sequence[Boot], problems: Sequence[str]
) -> dict[str, Any]:
    """The report as JSON values."""
    servers = []
    count: Counter[str] = Counter()
    used: dict[str, Counter[str]] = defaultdict(Counter)
    faults: Counter[str] = Counter()
    for boot in boots:
        for server in boot.servers:
            count[server.host] += 1
            used[server.host].update(flavor_resources(server.flavor))
            servers.append(_server_values(server))
        if boot.fault is not None:
            faults[boot.fault.strip()] += len(boot.uuids)

    hosts = []
    for machine in machines:
        host = {
            'name': machine.name,
            'zone': machine.zone,
            'cell': machine.cell,
            'servers': count[machine.name],
            'used': {name: used[machine.name][name] for name in RESOURCE_TITLES},
            'capacity': dict(machine.capacity),
        }
        hosts.append(host)

    refusals = []
    for fault, number in faults.most_common():
        refusals.append({'fault': fault, 'servers': number})

    # Times as measured by the conductor.
    seconds = [boot.seconds for boot in boots]
    summary = {
        'confirmed': not problems,
        'placed': len(servers),
        'refused': faults.total(),
        'requests': len(boots),
        'seconds': round(sum(seconds), 3),
        'requests_per_second': round(len(boots) / sum(seconds), 1),
        'median_seconds': round(median(seconds), 4),
    }
    return {
        'hosts': hosts,
        'servers': servers,
        'refusals': refusals,
        'problems': list(problems),
        'summary': summary,
    }


def _server_values(server: Server) -> dict[str, Any]:
    alternates = [each.value('service_host') for each in server.alternates]
    return {
        'uuid': server.uuid,
        'flavor': server.flavor.name,
        'host': server.host,
        'alternates': alternates,
    }


def show(report: dict[str, Any], console: Console) -> None:
    """Print the report as a table, as wide as the terminal or 80 columns."""
    is_ascii = console.options.ascii_only
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ('host', 'zone', 'cell'):
        table.add_column(title)
    table.add_column('servers', justify='right')
    for title in RESOURCE_TITLES.values():
        table.add_column(title, justify='right', no_wrap=True)
    for host in report['hosts']:
        row = [Text(host['name']), Text(host['zone'] or '-'), Text(host['cell'])]
        row.append(Text(str(host['servers'])))
        for name in RESOURCE_TITLES:
            capacity = host['capacity'].get(name, 0)
            row.append(_usage(host['used'][name], capacity, is_ascii))
        table.add_row(*row)
    console.print(table)

    for refusal in report['refusals']:
        text = f'{refusal["servers"]} refused: {refusal["fault"]}'
        console.print(Text(text, 'yellow'))
    for problem in report['problems']:
        console.print(Text(f'Not as it should be: {problem}', 'bold red'))

    summary = report['summary']
    counts = f'{summary["placed"]} placed, {summary["refused"]} refused'
    verdict = (f'NOT confirmed: {counts}.\n', 'bold red')
    if summary['confirmed']:
        verdict = (f'Confirmed by Placement: {counts}.\n', 'bold green')
    rate = summary['requests_per_second']
    median_ms = summary['median_seconds'] * 1000
    times = (
        f'{summary["requests"]} requests in {summary["seconds"]:.1f} s:'
        f' {rate:.1f} a second, median {median_ms:.0f} ms'
    )
    console.print(Text.assemble(verdict, times))


def _usage(used: int, capacity: int, is_ascii: bool) -> Text:
    """A coloured bar and a percentage."""
    share = 0.0
    if capacity:
        share = used / capacity
    colour = 'green'
    if share >= 0.9:
        colour = 'red'
    elif share >= 0.7:
        colour = 'yellow'

    full, empty = ('#', '.') if is_ascii else ('█', '░')
    length = min(BAR_WIDTH, round(share * BAR_WIDTH))
    bar = full * length + empty * (BAR_WIDTH - length)
    return Text.assemble((bar, colour), f' {share:4.0%}')
