# SPDX-License-Identifier: Apache-2.0
"""Count the kinds of nodes and tasks of the trace: ``python -m tests.fill.tabulate
DIRECTORY``.

The directory has the CSV files of cluster-trace-gpu-v2023 of the Alibaba Cluster Trace
Program. The counts are written to ``nodes.csv`` and ``tasks.csv`` beside this module,
and are all that the tests need: tasks are drawn at random. Names, times and the GPU
models that tasks ask for are left out. Two nodes with equal capacity are of one kind,
also with GPUs of different models.
"""

import csv
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
NODES = 'openb_node_list_gpu_node.csv'
TASKS = 'openb_pod_list_{}.csv'
LISTS = ('default', 'multigpu30', 'cpu100', 'gpushare60')
"""Lists of tasks. The authors of the trace made the other lists from ``default``."""

NODE_FIELDS = ('cpu_milli', 'memory_mib', 'gpu')
TASK_FIELDS = ('cpu_milli', 'memory_mib', 'num_gpu', 'gpu_milli')
WHOLE_GPU = 1000
"""``gpu_milli`` of a task with whole GPUs."""

SOURCE = """\
# Counted from cluster-trace-gpu-v2023 of the Alibaba Cluster Trace Program,
# https://github.com/alibaba/clusterdata, published for research and study with
# Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
# Fragmentation Gradient Descent", USENIX ATC 2023.
# Made by: python -m tests.fill.tabulate DIRECTORY
"""


def kinds(path, fields):
    """The number of rows of a file with equal values in some columns."""
    counts = Counter()
    with open(path, encoding='utf-8') as file:
        for row in csv.DictReader(file):
            counts[tuple(int(row[name]) for name in fields)] += 1
    return counts


def write(path, header, rows):
    """Write a table below a comment with its source."""
    with open(path, 'w', encoding='utf-8', newline='') as file:
        file.write(SOURCE)
        table = csv.writer(file, lineterminator='\n')
        table.writerow(header)
        table.writerows(rows)


def main(directory):
    nodes = kinds(Path(directory, NODES), NODE_FIELDS)
    node_rows = [(*kind, nodes[kind]) for kind in sorted(nodes)]
    write(HERE / 'nodes.csv', (*NODE_FIELDS, 'nodes'), node_rows)

    counts = {}
    for name in LISTS:
        counts[name] = kinds(Path(directory, TASKS.format(name)), TASK_FIELDS)
    task_rows = []
    for kind in sorted(set().union(*counts.values())):
        task_rows.append((*kind, *(counts[name][kind] for name in LISTS)))
    write(HERE / 'tasks.csv', (*TASK_FIELDS, *LISTS), task_rows)


if __name__ == '__main__':
    main(sys.argv[1])
