# SPDX-License-Identifier: Apache-2.0
"""An upper bound for the share of the GPUs in use: a linear program.

Every rule here accepts each task that fits. Of two kinds of tasks, the kind that asks
for no more of anything fits wherever the other kind fits. Tasks come in random order,
so that the smaller kind is accepted at least as often, on average. Parts on a GPU are
one of the patterns that a GPU has room for. CPU and memory may be taken from any node.
"""

from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from tests.fill.simulation import OFFERED
from tests.fill.trace import WHOLE, nodes


def patterns(shares, left=WHOLE):
    """The sets of parts that fill a GPU, as counts of the shares; no further part
    fits.

    :param shares: the different shares of a GPU, the largest first.
    """
    if not shares:
        yield ()
        return
    first, *others = shares
    for count in range(left // first, -1, -1):
        rest = left - count * first
        if not others and rest >= first:
            # The smallest part fits once more.
            continue
        for counts in patterns(others, rest):
            yield (count, *counts)


class Program:
    """A linear program: rows of coefficients with an upper limit."""

    def __init__(self, columns):
        self.columns = columns
        self.limits = []
        self._entries = ([], ([], []))

    def add(self, coefficients, limit):
        """Add a row: pairs of a column and a coefficient."""
        values, (rows, columns) = self._entries
        for column, value in coefficients:
            rows.append(len(self.limits))
            columns.append(column)
            values.append(value)
        self.limits.append(limit)

    def maximum(self, gains, upper):
        """The greatest sum of the gains of columns between 0 and upper limits."""
        shape = (len(self.limits), self.columns)
        result = linprog(
            [-gain for gain in gains],
            A_ub=coo_matrix(self._entries, shape).tocsr(),
            b_ub=self.limits,
            bounds=[(0, limit) for limit in upper],
            method='highs',
        )
        return -result.fun


def asks_for_no_more(task, other):
    """True if a task fits wherever another task fits."""
    return (
        task.cpu <= other.cpu
        and task.memory <= other.memory
        and task.gpus <= other.gpus
        and task.share <= other.share
    )


def upper_bound(counted):
    """The greatest share of the GPUs in use that a rule can reach on average.

    The columns are the share of each kind that is accepted, and the number of GPUs with
    each pattern of parts.
    """
    cpu, memory, gpus = nodes()
    number_of_gpus = gpus.sum() / WHOLE
    tasks = [task for task, _ in counted]
    numbers = np.array([number for _, number in counted])
    mean = numbers @ [task.gpu / WHOLE for task in tasks] / numbers.sum()
    offered = numbers / numbers.sum() * OFFERED * number_of_gpus / mean

    shares = sorted({task.share for task in tasks if task.is_part}, reverse=True)
    of_gpu = list(patterns(shares))
    kinds = range(len(tasks))
    first_pattern = len(tasks)
    program = Program(len(tasks) + len(of_gpu))

    for index, share in enumerate(shares):
        parts = [(kind, offered[kind]) for kind in kinds if tasks[kind].share == share]
        for number, pattern in enumerate(of_gpu, first_pattern):
            if pattern[index]:
                parts.append((number, -pattern[index]))
        program.add(parts, 0.0)

    used = [(number, 1.0) for number in range(first_pattern, program.columns)]
    for kind in kinds:
        if tasks[kind].share == WHOLE:
            used.append((kind, offered[kind] * tasks[kind].gpus))
    program.add(used, number_of_gpus)
    program.add([(kind, offered[kind] * tasks[kind].cpu) for kind in kinds], cpu.sum())
    program.add(
        [(kind, offered[kind] * tasks[kind].memory) for kind in kinds], memory.sum()
    )
    for small, large in product(kinds, kinds):
        if small != large and asks_for_no_more(tasks[small], tasks[large]):
            program.add([(large, 1.0), (small, -1.0)], 0.0)

    gains = [offered[kind] * tasks[kind].gpu / WHOLE for kind in kinds]
    upper = [1.0] * len(tasks) + [None] * len(of_gpu)
    most = program.maximum(gains + [0.0] * len(of_gpu), upper)
    return most / number_of_gpus
