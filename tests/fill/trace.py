# SPDX-License-Identifier: Apache-2.0
"""The cloud and the tasks of the trace, from the tables that ``tabulate.py`` made.

A task asks for CPU, memory and no GPU, whole GPUs, or a part of one GPU. CPU is in
thousandths of a CPU, memory in MiB, and GPUs in thousandths of a GPU. Every GPU is as
good as any other: the lists of tasks name no GPU models.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
WHOLE = 1000
"""A whole GPU in thousandths."""
MAX_GPUS = 8
"""GPUs of the largest node."""


@dataclass(frozen=True)
class Task:
    """A kind of task.

    :ivar gpus: the number of GPUs.
    :ivar share: the amount of each GPU.
    """

    cpu: int
    memory: int
    gpus: int
    share: int

    @property
    def gpu(self):
        """The amount of all GPUs."""
        return self.gpus * self.share

    @property
    def is_part(self):
        """True for a task with a part of one GPU."""
        return 0 < self.share < WHOLE

    @property
    def kind(self):
        """The kind by which the authors of the trace made further lists."""
        if not self.gpus:
            return 'cpu'
        if self.is_part:
            return 'part'
        return 'multi' if self.gpus > 1 else 'one'


def _rows(name):
    """The rows of a table, below the comment with its source."""
    with open(HERE / name, encoding='utf-8') as file:
        lines = [line for line in file if not line.startswith('#')]
    return list(csv.DictReader(lines))


def nodes():
    """The nodes: arrays of CPU and memory, and of the GPUs of each node. A node with
    fewer than :data:`MAX_GPUS` GPUs has zeros."""
    cpu = []
    memory = []
    gpus = []
    for row in _rows('nodes.csv'):
        count = int(row['nodes'])
        number = int(row['gpu'])
        cpu += [int(row['cpu_milli'])] * count
        memory += [int(row['memory_mib'])] * count
        gpus += [[WHOLE] * number + [0] * (MAX_GPUS - number)] * count
    return np.array(cpu), np.array(memory), np.array(gpus)


def tasks(name):
    """A list of tasks of the trace: pairs of a kind of task and its number."""
    counted = []
    for row in _rows('tasks.csv'):
        fields = ('cpu_milli', 'memory_mib', 'num_gpu', 'gpu_milli')
        task = Task(*(int(row[field]) for field in fields))
        if row[name] != '0':
            counted.append((task, float(row[name])))
    return counted


def scaled(counted, **factors):
    """A list of tasks with the numbers of some kinds multiplied."""
    result = []
    for task, number in counted:
        new_number = number * factors.get(task.kind, 1.0)
        if new_number:
            result.append((task, new_number))
    return result


def with_gpu_share(counted, kind, share):
    """A list of tasks in which a kind asks for a share of all requested GPUs."""
    of_kind = sum(number * task.gpu for task, number in counted if task.kind == kind)
    of_all = sum(number * task.gpu for task, number in counted)
    factor = share / (1 - share) * (of_all - of_kind) / of_kind
    return scaled(counted, **{kind: factor})


LISTS = {
    'default': lambda: tasks('default'),
    'multigpu30': lambda: tasks('multigpu30'),
    'cpu100': lambda: tasks('cpu100'),
    'gpushare60': lambda: tasks('gpushare60'),
    'more-multi': lambda: with_gpu_share(tasks('default'), 'multi', 0.5),
    'fewer-parts': lambda: with_gpu_share(tasks('default'), 'part', 0.2),
    'more-parts': lambda: with_gpu_share(tasks('default'), 'part', 0.8),
    'more-cpu': lambda: scaled(tasks('default'), cpu=3.0),
    'no-cpu': lambda: scaled(tasks('default'), cpu=0.0),
}
"""The lists of the trace, and further lists made from the first in the way of the
authors: other shares of tasks with several GPUs, with parts of a GPU, or without
GPUs."""


def list_of_tasks(name):
    """A list of :data:`LISTS`."""
    return LISTS[name]()
