# SPDX-License-Identifier: Apache-2.0
"""What it costs to refuse a guest that fits no host: ``python -m tests.perf.refusal``.

The daemon, with RabbitMQ, MariaDB and Placement, asked by nova's client: a request without
NUMA, and guests that Placement has room for but no host. Times are medians of interleaved
calls. Exits with 1 where a guest is refused later than 1.5 times after the other request.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tests.lab import large_cloud
from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.reports import a_numa_cell, a_numa_topology, an_object

BOUND = 1.5
CORES, THREADS, CELLS = 18, 2, 2
MEMORY = 196608  # MiB in a cell
FEW = 8
PINNED = {'hw:numa_nodes': '1', 'hw:cpu_policy': 'dedicated'}


@dataclass(frozen=True)
class Row:
    """A line of the table. ``cold``: every host has reported anew just before."""

    title: str
    flavor: Flavor
    cold: bool = False
    bound: float | None = None


PLAIN = Row('without NUMA, placed', Flavor())
ROWS = (
    PLAIN,
    Row('without NUMA, refused', Flavor(extra_specs={'capabilities:hypervisor_type': 'none'})),
    Row('huge pages', Flavor(ram_mb=65536, extra_specs={'hw:mem_page_size': '1GB'}), bound=BOUND),
    Row(
        'huge pages, all hosts reported anew',
        Flavor(ram_mb=65536, extra_specs={'hw:mem_page_size': '1GB'}),
        cold=True,
    ),
    Row('pinned', Flavor(vcpus=20, extra_specs=PINNED), bound=BOUND),
    Row('pinned, all hosts reported anew', Flavor(vcpus=20, extra_specs=PINNED), cold=True),
)


def a_topology(dice: random.Random) -> str:
    """Cells with threads numbered as firmware does, with few free large pages and fewer than
    20 free CPUs each."""
    cells = []
    for number in range(CELLS):
        first = range(number * CORES, (number + 1) * CORES)
        siblings = [[cpu + CELLS * CORES * n for n in range(THREADS)] for cpu in first]
        cpus = [cpu for core in siblings for cpu in core]
        pinned = dice.sample(cpus, dice.randint(17, len(cpus)))
        cells.append(
            a_numa_cell(
                number, memory=MEMORY, memory_usage=dice.randint(0, MEMORY), pcpuset=sorted(cpus),
                pinned_cpus=sorted(pinned), siblings=siblings, socket=number,
                network_metadata=an_object('NetworkMetadata', physnets=[], tunneled=False),
                mempages=[
                    an_object(
                        'NUMAPagesTopology', size_kb=size, total=total,
                        used=dice.randint(total * 3 // 4, total), reserved=0,
                    )
                    for size, total in ((4, MEMORY * 64), (2048, MEMORY // 4), (1048576, 64))
                ],
            )
        )  # fmt: skip
    return a_numa_topology(*cells)


def computes(count: int, distinct: int) -> list[Compute]:
    """Hosts that Placement takes for half empty, and that report so many different texts."""
    dice = random.Random(1)
    texts = [a_topology(dice) for _ in range(distinct)]
    return [
        Compute(
            f'host-{n:05}', 'cell1' if n % 2 else 'cell2',
            vcpus=64, pcpus=36, ram_mb=2 * MEMORY, columns={'numa_topology': texts[n % distinct]},
        )
        for n in range(count)
    ]  # fmt: skip


def report_anew(cloud: NovaCloud, number: int) -> None:
    """Let the text of every host become one that nobody has seen."""
    for cell in cloud.cells.values():
        table = cell.table('compute_nodes')
        text = sa.func.regexp_replace(
            table.c.numa_topology,
            r'("nova_object.changes": \[)("[^"]*")?(\]\})$',
            rf'\1"{number}"\3',
        )
        with cell.engine.begin() as connection:
            connection.execute(sa.update(table).values(numa_topology=text))


def measured(cloud: NovaCloud, client: NovaClient, rounds: int) -> Mapping[str, list[float]]:
    taken = defaultdict(list)
    for number in range(rounds + 1):
        cloud.refresh_services()
        for row in ROWS:
            if row.cold:
                report_anew(cloud, number)
            seconds, placed = timed(cloud, client, row.flavor)
            assert placed == (row is PLAIN), row.title
            if number:  # the first round fills connections and caches
                taken[row.title].append(seconds)
    return taken


def timed(cloud: NovaCloud, client: NovaClient, flavor: Flavor) -> tuple[float, bool]:
    """Seconds of one call, and whether the server was placed; it does not stay there."""
    [server] = new_uuids()
    start = time.perf_counter()
    try:
        client.select_destinations([server], flavor)
    except Refused as error:
        if not error.no_valid_host:
            raise
        return time.perf_counter() - start, False
    seconds = time.perf_counter() - start
    cloud.placement.release(server)
    return seconds, True


def main() -> int:
    parser = argparse.ArgumentParser(description='Cost of refusing a guest that fits no host.')
    parser.add_argument('--hosts', type=int, default=5000)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument(
        '--fallback',
        action='store_true',
        help='ask Placement for pinned guests twice, as is the default: for PCPU and for VCPU',
    )
    given = parser.parse_args()
    missed = 0
    for distinct in (FEW, given.hosts):
        options = {
            'DEFAULT': {'debug': False},
            'scheduler': {'max_placement_results': given.hosts},
            'workarounds': {'disable_fallback_pcpu_query': not given.fallback},
            'filter_scheduler': {
                'enabled_filters': 'ComputeFilter,ComputeCapabilitiesFilter,NUMATopologyFilter'
            },
        }
        with (
            tempfile.TemporaryDirectory(prefix='novasched-') as directory,
            large_cloud.cloud(Path(directory)) as cloud,
            closing(NovaClient(cloud.nova, cloud.config('client'))) as client,
        ):
            cloud.grow(computes(given.hosts, distinct))
            with Daemon(cloud, options):
                taken = measured(cloud, client, given.rounds)
        print(f'{given.hosts} hosts, {distinct} topologies')
        middle = {title: statistics.median(seconds) for title, seconds in taken.items()}
        for row in ROWS:
            ratio = middle[row.title] / middle[PLAIN.title]
            late = row.bound is not None and ratio > row.bound
            missed += late
            mark = ' BOUND MISSED' if late else ''
            print(f'  {row.title:40} {middle[row.title]:8.3f} s {ratio:7.2f}x{mark}', flush=True)
    return 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
