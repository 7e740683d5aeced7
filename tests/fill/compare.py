# SPDX-License-Identifier: Apache-2.0
"""Compare how full a cloud gets by several rules: ``python -m tests.fill.compare``.

The cloud of a public trace is filled with random tasks of each list, until the tasks
ask for 1.3 times the GPUs of the cloud. The table has the mean share of the GPUs in use
and the spread between seeds, the idle GPUs in units of nova's defaults, and the upper
bound for every rule that accepts each task that fits. Exits with 1 where another rule
is better than the usable capacity by more than its spread.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import fmean, pstdev

from tests.fill.bound import upper_bound
from tests.fill.rules import ROWS
from tests.fill.simulation import fill
from tests.fill.trace import LISTS, list_of_tasks
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, among, publish, teller

OURS = 'usable capacity'
NOVA = "nova's defaults"
TRACE = ('default', 'multigpu30', 'cpu100', 'gpushare60')
SEEDS = 10


def main(arguments=None):
    parser = argparse.ArgumentParser(
        'python -m tests.fill.compare', description=__doc__
    )
    parser.add_argument(
        '--lists', type=among(LISTS), default=TRACE, help='lists, with commas'
    )
    parser.add_argument(
        '--rules', type=among(ROWS), default=[*ROWS], help='rules, with commas'
    )
    parser.add_argument('--seeds', type=int, default=SEEDS, help='number of fills')
    parser.add_argument('--jobs', type=int, default=1, help='processes')
    add_outputs(parser)
    chosen = parser.parse_args(arguments)

    shares = in_use(chosen.lists, chosen.rules, chosen.seeds, chosen.jobs)
    rows = []
    bounds = []
    for name in chosen.lists:
        of_list = {rule: shares[name, rule] for rule in chosen.rules}
        limit = 100 * upper_bound(list_of_tasks(name))
        rows += table_rows(name, of_list, limit)
        if OURS in of_list and len(of_list) > 1:
            bounds.append(lead(name, of_list))

    columns = ('tasks', 'rule', '% in use', 'spread', 'idle by nova', 'bound')
    sheets = [Sheet('GPUs in use', columns, rows, words=2)]
    figures = {f'{name}, {rule}': values for (name, rule), values in shares.items()}
    publish(chosen, sheets, {'in_use': figures})
    for bound in bounds:
        print(bound)
    return int(missed_of(bounds) > 0)


def in_use(lists, rules, seeds, jobs):
    """The percentage of the GPUs in use after each fill, by list and rule."""
    tell = teller()
    shares = {}
    with ProcessPoolExecutor(jobs) as pool:
        fills = {}
        for name, rule in product(lists, rules):
            runs = [pool.submit(run, name, rule, seed) for seed in range(seeds)]
            fills[name, rule] = runs
        for (name, rule), runs in fills.items():
            shares[name, rule] = [100 * end.result().in_use for end in runs]
            tell(f'{name}, {rule}: {fmean(shares[name, rule]):.2f} %')
    return shares


def run(name, rule, seed):
    """The end of one fill."""
    return fill(ROWS[rule], list_of_tasks(name), seed)


def table_rows(name, shares, limit):
    """The rows of a list of tasks, with the upper bound in the last row."""
    idle_by_nova = None
    if NOVA in shares:
        idle_by_nova = 100 - fmean(shares[NOVA])

    def row(rule, mean, spread):
        ratio = ''
        if idle_by_nova:
            ratio = f'{(100 - mean) / idle_by_nova:.2f}'
        return [name, rule, f'{mean:.2f}', spread, ratio, f'{limit:.2f}']

    rows = []
    for rule, values in shares.items():
        rows.append(row(rule, fmean(values), f'{pstdev(values):.2f}'))
    rows.append(row('upper bound', limit, ''))
    return rows


def lead(name, shares):
    """The bound for the usable capacity: the best other rule, less its spread."""
    others = {rule: values for rule, values in shares.items() if rule != OURS}
    best = max(others, key=lambda rule: fmean(others[rule]))
    limit = fmean(others[best]) - pstdev(others[best])
    return Bound(fmean(shares[OURS]), '≥', limit, f'% of {name}, {best} less spread')


if __name__ == '__main__':
    sys.exit(main())
