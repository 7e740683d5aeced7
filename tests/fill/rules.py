# SPDX-License-Identifier: Apache-2.0
"""The rules that are compared. nova's weighers and the usable capacity are code of the
product. The further rules are from the literature."""

from dataclasses import replace

import numpy as np

from novasched.cells.usual_guests import MAX_USUAL_GUESTS
from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.host_table import HostTable
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers.usable_capacity import (
    Demand,
    FreeCapacity,
    PartDemand,
    UsualDemands,
)
from novasched.scheduler.weights import weigh
from tests.fill.trace import MAX_GPUS, WHOLE
from tests.lab.builders import a_host, a_request

REQUEST = a_request()
CPU = 'cpu'
MEMORY = 'memory'
GPU = 'gpu'


class Rule:
    """A rule that puts parts of GPUs on the fullest GPU of the node that fits."""

    def __init__(self, cloud, counted, random):
        self.cloud = cloud
        self.random = random

    def weights(self, task, fitting):
        """The weights of nodes on which the task fits; more is better."""
        raise NotImplementedError

    def gpu(self, task, node):
        """The GPU for a task with a part of a GPU; None for the fullest that fits."""

    def placed(self, task, node):
        """Note that a task was placed."""


class Random(Rule):
    def weights(self, task, fitting):
        return np.zeros(len(fitting))


class Nova(Rule):
    """The weighers of memory, vCPUs and disk. Nodes have no disk, and thousandths of a
    CPU are vCPUs."""

    settings = Settings(weight_classes=('RAMWeigher', 'CPUWeigher', 'DiskWeigher'))

    def __init__(self, cloud, counted, random):
        super().__init__(cloud, counted, random)
        self._weighers = [Enabled(x) for x in loading.weighers(self.settings)]
        self._table = HostTable()
        self._hosts = []
        for node in range(len(cloud.cpu)):
            host = a_host(
                f'node{node}',
                vcpus=int(cloud.cpu[node]),
                ram=int(cloud.memory[node]),
                disk_gb=0,
            )
            self._hosts.append(host)

    def weights(self, task, fitting):
        hosts = [self._hosts[node] for node in fitting.tolist()]
        return weigh(self._weighers, hosts, REQUEST, table=self._table).sums

    def placed(self, task, node):
        host = self._hosts[node]
        self._hosts[node] = replace(
            host,
            vcpus_used=host.vcpus_used + task.cpu,
            free_ram_mb=host.free_ram_mb - task.memory,
        )


class NovaStacking(Nova):
    """The same weighers, with multipliers of -1.0."""

    settings = Settings(
        weight_classes=('RAMWeigher', 'CPUWeigher', 'DiskWeigher'),
        ram_weight_multiplier=-1.0,
        cpu_weight_multiplier=-1.0,
        disk_weight_multiplier=-1.0,
    )


class BestFit(Rule):
    """The node with the least left, in units of the largest node, over CPU, memory and
    GPUs."""

    def __init__(self, cloud, counted, random):
        super().__init__(cloud, counted, random)
        self._largest = cloud.cpu.max(), cloud.memory.max(), MAX_GPUS * WHOLE

    def left(self, fitting):
        """The free capacity of nodes, in units of the largest node."""
        cpu, memory, gpu = self._largest
        columns = (
            self.cloud.cpu[fitting] / cpu,
            self.cloud.memory[fitting] / memory,
            self.cloud.gpus[fitting].sum(axis=1) / gpu,
        )
        return np.stack(columns, axis=1)

    def demand(self, task):
        """The demand of a task in the same units."""
        cpu, memory, gpu = self._largest
        return np.array([task.cpu / cpu, task.memory / memory, task.gpu / gpu])

    def weights(self, task, fitting):
        return -self.left(fitting).sum(axis=1)


class DotProduct(BestFit):
    """The node with the least product of its free capacity and the demand of the task."""

    def weights(self, task, fitting):
        return -self.left(fitting) @ self.demand(task)


class RememberingRule(Rule):
    """A rule whose losses are kept until the node changes, as the columns of weights
    are."""

    def __init__(self, cloud, counted, random):
        super().__init__(cloud, counted, random)
        self._losses = {}
        self._versions = {}

    def losses(self, task, nodes):
        """The losses of nodes by a task; less is better."""
        raise NotImplementedError

    def weights(self, task, fitting):
        versions = self.cloud.version
        losses = self._losses.setdefault(task, np.zeros(len(versions)))
        known = self._versions.setdefault(task, np.full(len(versions), -1))
        stale = fitting[known[fitting] != versions[fitting]]
        if len(stale):
            losses[stale] = self.losses(task, stale)
            known[stale] = versions[stale]
        return -losses[fitting]


class GradientDescent(RememberingRule):
    """Fragmentation Gradient Descent: the node, and the GPU, with the least increase of
    the GPUs that a random task cannot use.

    A task without GPUs, or for which the node lacks CPU, memory or GPUs, can use none.
    Any further task can use all GPUs of the node that have enough left.
    """

    def __init__(self, cloud, counted, random):
        super().__init__(cloud, counted, random)
        with_gpu = [(task, number) for task, number in counted if task.gpus]
        total = sum(number for _, number in counted)
        tasks = [task for task, _ in with_gpu]
        self._share = np.array([number / total for _, number in with_gpu])
        self._cpu = np.array([task.cpu for task in tasks])
        self._memory = np.array([task.memory for task in tasks])
        self._gpus = np.array([task.gpus for task in tasks])
        # Few amounts of a GPU are asked for.
        self._amounts, self._amount_of = np.unique(
            [task.share for task in tasks], return_inverse=True
        )

    def unusable(self, cpu, memory, gpus):
        """The GPUs that a random task cannot use, by node.

        :param gpus: a row for each node.
        """
        enough = gpus[:, None, :] >= self._amounts[:, None]
        usable = (enough * gpus[:, None, :]).sum(axis=2)[:, self._amount_of]
        count = enough.sum(axis=2)[:, self._amount_of]
        fits = (cpu[:, None] >= self._cpu) & (memory[:, None] >= self._memory)
        fits &= count >= self._gpus
        return gpus.sum(axis=1) - (usable * fits) @ self._share

    def increases(self, task, nodes):
        """The increase for each node and choice of a GPU; infinite for a GPU with too
        little. A task without a part of a GPU has one choice."""
        cpu = self.cloud.cpu[nodes]
        memory = self.cloud.memory[nodes]
        gpus = self.cloud.gpus[nodes]
        before = self.unusable(cpu, memory, gpus)
        cpu = cpu - task.cpu
        memory = memory - task.memory
        if not task.is_part:
            is_whole = gpus == WHOLE
            is_taken = is_whole & (np.cumsum(is_whole, axis=1) <= task.gpus)
            after = self.unusable(cpu, memory, np.where(is_taken, 0, gpus))
            return (after - before)[:, None]

        columns = []
        for gpu in range(MAX_GPUS):
            left = gpus.copy()
            left[:, gpu] -= task.share
            after = self.unusable(cpu, memory, left.clip(0))
            fits = gpus[:, gpu] >= task.share
            columns.append(np.where(fits, after - before, np.inf))
        return np.stack(columns, axis=1)

    def losses(self, task, nodes):
        return self.increases(task, nodes).min(axis=1)

    def gpu(self, task, node):
        if not task.is_part:
            return None
        [increases] = self.increases(task, np.array([node]))
        return int(increases.argmin())


class UsableCapacity(RememberingRule):
    """The rule of FragmentationWeigher, with the most frequent tasks as usual guests."""

    def __init__(self, cloud, counted, random):
        super().__init__(cloud, counted, random)
        usual = sorted(counted, key=lambda pair: -pair[1])[:MAX_USUAL_GUESTS]
        capacity = {
            CPU: float(cloud.cpu_total.sum()),
            MEMORY: float(cloud.memory_total.sum()),
            GPU: float(cloud.gpus_total.sum()),
        }
        demands = [demand_of(task) for task, _ in usual]
        numbers = [number for _, number in usual]
        self._usual = UsualDemands.of(demands, numbers, capacity)

    def losses(self, task, nodes):
        amounts = {
            CPU: self.cloud.cpu[nodes].astype(float),
            MEMORY: self.cloud.memory[nodes].astype(float),
        }
        gpus = {GPU: {GPU: self.cloud.gpus[nodes].astype(float)}}
        free = FreeCapacity(len(nodes), amounts, gpus)
        return self._usual.loss(free, demand_of(task))


def demand_of(task):
    """A task as a guest. Each GPU is a part of the node, with a capacity of 1000."""
    amounts = ((CPU, float(task.cpu)), (MEMORY, float(task.memory)))
    parts = ()
    if task.gpus:
        parts = (PartDemand(GPU, task.gpus, ((GPU, float(task.share)),)),)
    return Demand(amounts, parts)


ROWS = {
    'random': Random,
    "nova's defaults": Nova,
    'nova, stacking': NovaStacking,
    'best fit': BestFit,
    'dot product': DotProduct,
    'gradient descent': GradientDescent,
    'usable capacity': UsableCapacity,
}
"""The rules in the order of the table."""
