# SPDX-License-Identifier: Apache-2.0
"""The speed of ``novaschedctl simulate trace``: ``python -m tests.perf.trace``.

Guests come and leave in a cloud that a file describes, in one process: guests without
NUMA cells, guests of whom a third is pinned (:mod:`tests.lab.ordinary_cloud`), and both
with the weigher of usable capacity. Exits with 1 where a bound is missed.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass

from tests.lab import ordinary_cloud as ordinary
from tests.lab.results import Bound, Row, conclude
from tests.lab.tables import add_outputs, teller

HOSTS = 1_000
GUESTS = 10_000
LOAD = 0.8
PER_MINUTE = 60_000


@dataclass(frozen=True)
class Guests:
    """Guests of a trace.

    :ivar pinned: whether the flavors with pinned vCPUs are among the guests.
    """

    title: str
    pinned: bool


SETTINGS = {"nova's defaults": (), 'usable capacity': ordinary.USABLE_CAPACITY}
KINDS = (Guests('no NUMA cells', False), Guests('a third pinned', True))


def main(arguments=None):
    parser = argparse.ArgumentParser('python -m tests.perf.trace', description=__doc__)
    parser.add_argument('--hosts', type=int, default=HOSTS)
    parser.add_argument('--guests', type=int, default=GUESTS)
    add_outputs(parser)
    chosen = parser.parse_args(arguments)

    tell = teller()
    rows = []
    for guests in KINDS:
        for setting in SETTINGS:
            tell(f'{guests.title}, {setting}')
            rows.append(measured(chosen, guests, setting))
    return conclude(chosen, rows, tell)


def measured(chosen, guests, setting):
    """The row for a trace by a setting."""
    description = ordinary.cloud(chosen.hosts)
    found = lines(description, chosen, guests)
    player, entries = ordinary.player(description, found, SETTINGS[setting], seed=1)
    began = time.perf_counter()
    player.play('', entries, moments=1)
    pace = len(entries) / (time.perf_counter() - began) * 60
    row = Row(chosen.hosts, f'{guests.title}, {setting}', 'guests/min', pace)
    return row.bounded(Bound(pace, '≥', PER_MINUTE, 'guests/min'))


def lines(description, chosen, guests):
    """The first lines of a trace, of these guests alone."""
    pinned = {kind.name for kind in ordinary.KINDS if kind.is_pinned}
    found = []
    for line in ordinary.trace(description, LOAD, seed=1):
        if guests.pinned or json.loads(line)['flavor'] not in pinned:
            found.append(line)
        if len(found) == chosen.guests:
            break
    return found


if __name__ == '__main__':
    sys.exit(main())
