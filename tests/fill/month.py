# SPDX-License-Identifier: Apache-2.0
"""A month of boots and deletions of ordinary guests, by several settings: ``python -m
tests.fill.month``.

The clouds and traces come from :mod:`tests.lab.ordinary_cloud`, and ``novaschedctl simulate
trace`` plays them. At a load of 90 %, the table counts refused guests; at
85 %, the guests of the largest flavor that still fit. Exits with 1 where a bound is
missed.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import fmean

from tests.lab import ordinary_cloud as ordinary
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, among, publish, teller

NOVA = "nova's defaults"
OURS = 'usable capacity'
SETTINGS = {
    NOVA: (),
    'stacking': tuple(
        f'filter_scheduler.{name}_weight_multiplier=-1'
        for name in ('ram', 'cpu', 'disk')
    ),
    OURS: ordinary.USABLE_CAPACITY,
}
REFUSING_LOAD = 0.9
FITTING_LOAD = 0.85
LARGEST = 'largest'
MOMENTS = 60


def main(arguments=None):
    parser = argparse.ArgumentParser('python -m tests.fill.month', description=__doc__)
    add = parser.add_argument
    add('--settings', type=among(SETTINGS), default=[*SETTINGS], help='with commas')
    add('--hosts', type=int, default=1000)
    add('--days', type=float, default=30.0)
    add('--seeds', type=int, default=1)
    add('--jobs', type=int, default=1, help='processes')
    add_outputs(parser)
    chosen = parser.parse_args(arguments)

    months = played(chosen)
    rows = []
    figures = {}
    for (load, setting), results in months.items():
        refused = fmean(share for share, _, _ in results)
        vcpus = fmean(share for _, share, _ in results)
        fitting = fmean(number for _, _, number in results)
        row = [
            f'{load:.0%}',
            setting,
            f'{refused:.2%}',
            f'{vcpus:.2%}',
            f'{fitting:,.0f}',
        ]
        rows.append(row)
        figures[f'{load:.0%}, {setting}'] = results
    columns = ('load', 'setting', 'refused', 'vCPUs refused', f'{LARGEST} still fit')
    publish(chosen, [Sheet('a month of guests', columns, rows, words=2)], figures)

    bounds = []
    if {NOVA, OURS} <= {*chosen.settings}:
        bounds = bounds_of(months)
    for bound in bounds:
        print(bound)
    return int(missed_of(bounds) > 0)


def bounds_of(months):
    """The bounds for the usable capacity beside nova's defaults."""

    def mean(load, setting, column):
        return fmean(result[column] for result in months[load, setting])

    refused = mean(REFUSING_LOAD, OURS, 0) / mean(REFUSING_LOAD, NOVA, 0)
    fitting = mean(FITTING_LOAD, OURS, 2) / max(1.0, mean(FITTING_LOAD, NOVA, 2))
    return [
        Bound(refused, '≤', 0.5, f'of the guests refused by {NOVA}'),
        Bound(fitting, '≥', 2.0, f'times the {LARGEST} guests that fit by {NOVA}'),
    ]


def played(chosen):
    """By load and setting, the results of each seed: the share of the guests refused,
    the share of their vCPUs refused, and the mean number of the largest guests that
    still fit."""
    tell = teller()
    loads = (REFUSING_LOAD, FITTING_LOAD)
    months = {}
    with ProcessPoolExecutor(chosen.jobs) as pool:
        runs = {}
        for load, setting in product(loads, chosen.settings):
            of_seeds = []
            for seed in range(chosen.seeds):
                work = (chosen.hosts, load, seed, chosen.days, SETTINGS[setting])
                of_seeds.append(pool.submit(month, *work))
            runs[load, setting] = of_seeds
        for key, of_seeds in runs.items():
            months[key] = [run.result() for run in of_seeds]
            tell(f'{key[0]:.0%}, {key[1]}: {months[key]}')
    return months


def month(hosts, load, seed, days, options):
    """The results of a month by a setting."""
    description = ordinary.cloud(hosts)
    lines = ordinary.trace(description, load, seed, days)
    player, entries = ordinary.player(description, lines, options, seed)
    result = player.play('', entries, MOMENTS)
    steady = [moment for moment in result.moments if moment.at > ordinary.DAY]
    fitting = fmean(moment.fitting[LARGEST] for moment in steady)
    vcpus_of = {kind.name: kind.vcpus for kind in ordinary.KINDS}
    vcpus = 0
    for (name, _), number in result.refusals.items():
        vcpus += vcpus_of[name] * number
    asked = sum(vcpus_of[entry.flavor] * entry.count for entry in entries)
    return result.refused / result.asked, vcpus / asked, fitting


if __name__ == '__main__':
    sys.exit(main())
