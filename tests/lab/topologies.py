# SPDX-License-Identifier: Apache-2.0
"""Hosts and guests in few words."""

from dataclasses import replace

from novasched.scheduler.model.numa import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
)


def a_cell(number=0, cores=4, threads=2, **fields):
    """A host cell of 4 GiB whose threads are numbered one after the other; any of its
    CPUs can be pinned unless ``cpuset`` says which float."""
    first = number * cores * threads
    cpus = frozenset(range(first, first + cores * threads))
    siblings = tuple(
        frozenset(range(cpu, cpu + threads))
        for cpu in range(first, first + cores * threads, threads)
    )
    pcpuset = cpus - fields['cpuset'] if 'cpuset' in fields else cpus
    ordinary = HostCell(number, cpus, 4096, pcpuset, siblings=siblings)
    return replace(ordinary, **fields)


def a_host(*cells):
    """A host of these cells."""
    return HostTopology(cells)


def a_pinned(vcpus, first=0, number=0, **fields):
    """A guest cell of 256 MiB whose vCPUs are all dedicated."""
    ordinary = GuestCell(
        number,
        frozenset(),
        256,
        frozenset(range(first, first + vcpus)),
        cpu_policy='dedicated',
    )
    return replace(ordinary, **fields)


def a_shared(vcpus=1, memory=256, **fields):
    """A guest cell whose vCPUs float."""
    return replace(GuestCell(0, frozenset(range(vcpus)), memory), **fields)


def a_guest(*cells, emulator=None):
    """A guest of these cells."""
    return GuestTopology(cells, emulator)
