# SPDX-License-Identifier: Apache-2.0
"""The processor time of plans: ``python -m tests.perf.plan``.

Each plan is made in this process, by the filters of nova's defaults, in a cloud in
memory. With ``--btrplace`` the lost servers of BtrPlace's published instances get other
hosts, and all rules are checked afterwards. With ``--watcher`` Watcher consolidates the
same clouds, by its strategy ``vm_workload_consolidation``: a plan empties as many hosts
by fewer moves. ``tox -e watcher`` installs Watcher. Exits with 1 where a bound is missed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from novasched.tools.plan import goals
from novasched.tools.plan.planner import Planner
from tests.lab import btrplace
from tests.lab.described_plan import board_of
from tests.lab.results import Bound, Row, conclude
from tests.lab.tables import add_outputs, teller

FLAVORS = {
    'tiny': {'vcpus': 1, 'memory_mb': 2048},
    'small': {'vcpus': 2, 'memory_mb': 4096},
    'medium': {'vcpus': 4, 'memory_mb': 8192},
    'large': {'vcpus': 8, 'memory_mb': 16384},
    'wide': {'vcpus': 2, 'memory_mb': 16384},
}
SHARES = (30, 35, 20, 8, 7)
"""The frequency of each flavor."""
CPU_RATIO = 4

STRATEGY = Path(__file__).with_name('watcher_strategy.py')
WATCHER = (113, 15_769)
"""Hosts and servers of a plan that took Watcher 12 minutes (LP 2141939)."""
SMALL = (40, 400)
LARGE = (5_000, 100_000)


def filled(hosts, servers, use, seed=1):
    """The description of a cloud of equal hosts.

    :param use: the share of the memory in use.
    """
    random = Random(seed)
    names = random.choices([*FLAVORS], SHARES, k=servers)
    memory_mb = int(sum(FLAVORS[name]['memory_mb'] for name in names) / hosts / use)
    vcpus = sum(FLAVORS[name]['vcpus'] for name in names) / hosts / use
    kind = {
        'name': 'host',
        'number': hosts,
        'vcpus': int(vcpus / CPU_RATIO) + 1,
        'memory_mb': memory_mb,
        'reserved_memory_mb': 0,
    }

    free = [[kind['vcpus'] * CPU_RATIO, memory_mb] for _ in range(hosts)]
    placed = []
    for number, name in enumerate(names):
        host = random.randrange(hosts)
        while not all(map(int.__ge__, free[host], FLAVORS[name].values())):
            host = random.randrange(hosts)
        free[host][0] -= FLAVORS[name]['vcpus']
        free[host][1] -= FLAVORS[name]['memory_mb']
        server = {'name': f's{number}', 'flavor': name, 'host': f'host-{host:05}'}
        placed.append(server)
    # As much memory as three quarters of a host, so that servers have to leave.
    huge = {'vcpus': kind['vcpus'], 'memory_mb': memory_mb * 3 // 4}
    return {'hosts': [kind], 'flavors': {**FLAVORS, 'huge': huge}, 'servers': placed}


class Bench:
    """Measures plans, and collects the rows."""

    def __init__(self, tell):
        self.rows = []
        self.tell = tell

    def plan(self, title, board, bound, make):
        """Add the row of a plan; what is reached."""
        self.tell(title)
        began = time.process_time()
        reached = make(Planner(board))
        seconds = time.process_time() - began
        hosts = len(board.hosts)
        row = Row(hosts, f'{title}: {len(board.moves):,} moves', 's', seconds)
        self.rows.append(row.bounded(Bound(seconds, '≤', bound, 's')))
        return reached

    def repair(self, path):
        """Let the servers of the lost hosts of an instance start elsewhere."""
        instance = btrplace.read(path)
        board, _ = board_of(instance.description)
        reached = self.plan(
            f'repair, {path.rpartition("/")[2]}',
            board,
            10,
            lambda planner: goals.empty(planner, instance.lost),
        )
        places = {server.name: server.host for server in board.servers.values()}
        wrong = [
            *btrplace.broken(instance.description, places),
            *(staying.server.name for staying in reached.staying),
        ]
        self.tell(f'{reached.summary}; broken: {wrong[:3] or "nothing"}')
        bound = Bound(len(wrong), '≤', 0)
        row = Row(
            len(board.hosts), 'without a place, or against a rule', '', len(wrong)
        )
        self.rows.append(row.bounded(bound))

    def pack_all(self, hosts, servers, watcher, seed=1):
        """Pack a cloud that is used by 60 %.

        :param watcher: a Python that has Watcher; None without a comparison.
        """
        description = filled(hosts, servers, 0.6, seed)
        board, _ = board_of(description)
        numbers = sorted(len(board.on(uuid)) for uuid in board.hosts)
        reached = self.plan(f'pack {servers:,} servers', board, 10, goals.pack)
        self.tell(reached.summary)
        empty = sum(not board.on(uuid) for uuid in board.hosts)
        for number in (empty, empty + 1):
            # Every server of an emptied host moves.
            fewest = sum(numbers[:number])
            self.tell(f'{number} hosts have {fewest:,} servers at least')
        if watcher is None:
            return

        cloud = {**description, 'cpu_allocation_ratio': CPU_RATIO}
        theirs = _consolidated_by_watcher(watcher, cloud)
        self.tell(f'Watcher: {theirs}')
        for name, ours, relation in (
            ('empty', empty, '≥'),
            ('moves', len(board.moves), '≤'),
        ):
            bound = Bound(ours, relation, theirs[name])
            row = Row(hosts, f'pack {servers:,} servers, {name}', '', ours)
            self.rows.append(row.bounded(bound))

    def large(self, hosts, servers):
        """Plans in a large cloud that is used by 90 %."""
        description = filled(hosts, servers, 0.9)

        def of(*arguments):
            return board_of(description, *arguments)

        board, _ = of()
        self.plan(
            'empty a host',
            board,
            3,
            lambda planner: goals.empty(planner, {'host-00000'}),
        )
        board, requests = of('huge', 3)
        reached = self.plan(
            'make room for 3',
            board,
            10,
            lambda planner: goals.make_room(planner, requests),
        )
        self.tell(reached.summary)
        board, _ = of()
        reached = self.plan(
            'pack, at most 200 moves',
            board,
            60,
            lambda planner: goals.pack(planner, 200),
        )
        self.tell(reached.summary)


def _consolidated_by_watcher(python, cloud):
    """The figures of Watcher's consolidation, see ``watcher_strategy.py``."""
    done = subprocess.run(
        [python, STRATEGY],
        input=json.dumps(cloud),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main(arguments=None):
    parser = argparse.ArgumentParser('python -m tests.perf.plan', description=__doc__)
    parser.add_argument(
        '--btrplace', nargs='*', default=[], help='instances, as .json.gz'
    )
    parser.add_argument(
        '--watcher', metavar='PYTHON', help='a Python that has python-watcher'
    )
    add_outputs(parser)
    chosen = parser.parse_args(arguments)

    bench = Bench(teller())
    for path in chosen.btrplace:
        bench.repair(path)
    bench.pack_all(*WATCHER, chosen.watcher)
    for seed in (1, 2, 3, 4):
        bench.pack_all(*SMALL, chosen.watcher, seed)
    bench.large(*LARGE)
    return conclude(chosen, bench.rows, bench.tell)


if __name__ == '__main__':
    sys.exit(main())
