# SPDX-License-Identifier: Apache-2.0
"""Host CPUs for the dedicated vCPUs of guest cells, by thread policy.

``prefer`` takes cores whole as long as they suffice, ``require`` takes nothing but CPUs that
share cores, ``isolate`` takes a whole core for each vCPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from novasched.model.numa import ISOLATE, REQUIRE, GuestCell, HostCell
from novasched.numa.lack import Lack

Pins = tuple[tuple[int, int], ...]


def lack(host: HostCell, guest: GuestCell, reserve: int) -> Lack | None:
    """What of free CPUs and cores is missing for a pinned guest cell, and for so many
    CPUs (``reserve``) beside it for emulator threads."""
    wanted = len(guest.pcpuset) + reserve
    missing = wanted - len(host.free_pcpus)
    if missing > 0:
        return Lack('free dedicated CPUs', missing)
    missing = wanted - host.free_on_cores
    if missing > 0:
        return Lack('free dedicated CPUs on known cores', missing)
    if guest.cpu_thread_policy == ISOLATE:
        return _lack_of_cores(host, wanted)
    if guest.cpu_thread_policy == REQUIRE:
        return _lack_of_threads(host, len(guest.pcpuset))
    return None


def _lack_of_cores(host: HostCell, wanted: int) -> Lack | None:
    """A whole core for each CPU, those of emulator threads too, for compute takes their
    siblings away like any others. On a host that tells dedicated CPUs apart, the siblings of
    a pinned CPU are counted and given away by Placement, so it can have no threads."""
    if host.threads > 1 and host.pcpuset != host.cpuset:
        return Lack('cores without threads to isolate')
    missing = wanted - host.cores_with[host.threads]
    return Lack('free whole cores to isolate', missing) if missing > 0 else None


def _lack_of_threads(host: HostCell, wanted: int) -> Lack | None:
    if host.threads <= 1:
        return Lack('threads, which are required')
    most = max(n * cores for n, cores in enumerate(host.cores_with) if n > 1)
    missing = max(wanted, 1) - most
    return Lack('free threads that share cores', missing) if missing > 0 else None


def pin(host: HostCell, guest: GuestCell, reserve: int) -> tuple[Pins, frozenset[int]]:
    """(vCPU, host CPU) pairs, and the host CPUs for emulator threads, for a guest cell that
    lacks nothing."""
    isolated = guest.cpu_thread_policy == ISOLATE
    cpus = _of_whole_cores(host) if isolated else _together(host, guest)
    pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False))
    if not reserve:
        return pins, frozenset()
    taken = {cpu for _, cpu in pins}
    spare = _of_whole_cores(host) if isolated else chain.from_iterable(host.free_cores)
    left = [cpu for cpu in spare if cpu not in taken]
    return pins, frozenset(left[:reserve])


def _of_whole_cores(host: HostCell) -> Iterable[int]:
    """A CPU of each core that is all free."""
    threads = host.threads
    return (core[0] for core in host.free_cores if len(core) == threads)


def _together(host: HostCell, guest: GuestCell) -> Iterable[int]:
    """CPUs in an order that takes equally many of each core, as many as suffice; the last
    resort of ``prefer`` is one after the other."""
    wanted = len(guest.pcpuset)
    fewest = 2 if guest.cpu_thread_policy == REQUIRE else 1
    for n in range(host.threads, fewest - 1, -1):
        if host.cores_with[n] and n * host.cores_with[n] >= wanted:
            return (cpu for core in host.free_cores if len(core) >= n for cpu in core[:n])
    return chain.from_iterable(host.free_cores)
