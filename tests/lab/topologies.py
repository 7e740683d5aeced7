# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies of hosts and guests with ordinary values."""

from dataclasses import replace

from novasched.scheduler.model.numa import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
)


def a_cell(number=0, cores=4, threads=2, **fields):
    """A host cell of 4 GiB. The threads of a core have consecutive numbers, and all CPUs
    outside of ``cpuset`` can be pinned."""
    first = number * cores * threads
    end = first + cores * threads
    cpus = frozenset(range(first, end))
    siblings = []
    for cpu in range(first, end, threads):
        siblings.append(frozenset(range(cpu, cpu + threads)))
    pcpuset = cpus - fields.get('cpuset', frozenset())
    ordinary = HostCell(number, cpus, 4096, pcpuset, siblings=tuple(siblings))
    return replace(ordinary, **fields)


def a_host(*cells):
    """A host with cells."""
    return HostTopology(cells)


def a_pinned(vcpus, first=0, number=0, **fields):
    """A guest cell of 256 MiB with dedicated vCPUs."""
    ordinary = GuestCell(
        number,
        frozenset(),
        256,
        frozenset(range(first, first + vcpus)),
        cpu_policy='dedicated',
    )
    return replace(ordinary, **fields)


def a_shared(vcpus=1, memory=256, **fields):
    """A guest cell with shared vCPUs."""
    return replace(GuestCell(0, frozenset(range(vcpus)), memory), **fields)


def a_guest(*cells, emulator=None):
    """A guest with cells."""
    return GuestTopology(cells, emulator)
