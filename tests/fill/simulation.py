# SPDX-License-Identifier: Apache-2.0
"""The nodes of the trace are filled with random tasks by a rule, until the tasks ask
for 1.3 times the GPUs of the cloud. A task that fits on no node is refused."""

from dataclasses import dataclass

import numpy as np

from tests.fill.trace import WHOLE, nodes

OFFERED = 1.3
"""GPUs that all tasks together ask for, in units of the GPUs of the cloud."""


class Cloud:
    """The nodes with the capacity that is left.

    :ivar version: by node, the number of tasks on the node. A rule works out anew only
        nodes whose version has changed.
    """

    def __init__(self):
        self.cpu, self.memory, self.gpus = nodes()
        self.cpu_total = self.cpu.copy()
        self.memory_total = self.memory.copy()
        self.gpus_total = self.gpus.sum(axis=1)
        self.version = np.zeros(len(self.cpu), int)

    @property
    def in_use(self):
        """The share of the GPUs in use."""
        return 1 - self.gpus.sum() / self.gpus_total.sum()

    def fitting(self, task):
        """The nodes on which a task fits."""
        fits = (self.cpu >= task.cpu) & (self.memory >= task.memory)
        if task.gpus:
            fits &= (self.gpus >= task.share).sum(axis=1) >= task.gpus
        return np.flatnonzero(fits)

    def place(self, task, node, gpu=None):
        """Put a task on a node.

        :param gpu: the GPU of a task with a part; the fullest one that fits by default.
        """
        self.cpu[node] -= task.cpu
        self.memory[node] -= task.memory
        if task.is_part:
            if gpu is None:
                gpu = fullest(self.gpus[node], task.share)
            self.gpus[node, gpu] -= task.share
        elif task.gpus:
            whole = np.flatnonzero(self.gpus[node] == WHOLE)
            self.gpus[node, whole[: task.gpus]] = 0
        self.version[node] += 1


def fullest(gpus, share):
    """The GPU of a node with the least left that is enough for a share."""
    return int(np.argmin(np.where(gpus >= share, gpus, WHOLE + 1)))


@dataclass(frozen=True)
class Fill:
    """The end of a fill.

    :ivar in_use: the share of the GPUs in use.
    :ivar refused: the number of tasks refused.
    """

    in_use: float
    refused: int


def fill(rule, counted, seed):
    """Fill a cloud with a rule.

    :param rule: called with a cloud and a list of tasks, makes an object whose
        ``weights(task, nodes)`` gives the nodes' weights, more is better, and whose
        ``gpu(task, node)`` chooses a GPU. The node is drawn among the best.
    :param counted: pairs of a kind of task and its number.
    """
    random = np.random.default_rng(seed)
    kinds = [task for task, _ in counted]
    numbers = np.array([number for _, number in counted])
    shares = numbers / numbers.sum()
    cloud = Cloud()
    chooser = rule(cloud, counted, random)

    wanted = OFFERED * cloud.gpus_total.sum()
    asked = 0
    refused = 0
    while asked < wanted:
        for index in random.choice(len(kinds), 1000, p=shares):
            if asked >= wanted:
                break
            task = kinds[index]
            asked += task.gpu
            fitting = cloud.fitting(task)
            if not len(fitting):
                refused += 1
                continue
            weights = chooser.weights(task, fitting)
            best = np.flatnonzero(weights >= weights.max() - 1e-9)
            node = int(fitting[random.choice(best)])
            cloud.place(task, node, chooser.gpu(task, node))
            chooser.placed(task, node)
    return Fill(cloud.in_use, refused)
