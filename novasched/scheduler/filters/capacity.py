# SPDX-License-Identifier: Apache-2.0
"""vCPUs, memory and disk: what a host has free against what a flavor takes.

nova left these to Placement, and had CoreFilter, RamFilter and DiskFilter until Stein
(19), those with Aggregate in their names until Ussuri (21), and those with Exact until
Queens (17).
"""

import math
from collections.abc import Hashable, Mapping

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import smallest
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class _Overcommitted(Filter):
    """Let hosts give away a resource as often as their allocation ratio of that name
    says."""

    scope = Scope.HOST
    ratio_name: str

    def ratio(self, host: Host) -> float:
        """The amount that may be given away for each unit of the host."""
        ratio: float = getattr(host, self.ratio_name)
        return ratio


class _AggregateRatio(_Overcommitted):
    def ratio(self, host: Host) -> float:
        return smallest(host, self.ratio_name, super().ratio(host), float)


class CoreFilter(_Overcommitted):
    """Reject hosts without enough vCPUs, which may be overcommitted.

    An instance may not be bigger than the host is before overcommit. A host that
    reports no vCPUs is accepted: its nova-compute does not count them.
    """

    phrase = 'lack free vCPUs'
    ratio_name = 'cpu_allocation_ratio'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.vcpus

    def reject(self, host: Host, request: Request) -> str | None:
        vcpus = request.flavor.vcpus
        if not host.vcpus_total:
            return None
        limit = host.vcpus_total * self.ratio(host)
        if limit > 0 and vcpus > host.vcpus_total:
            return f'{host.vcpus_total} vCPUs before overcommit, {vcpus} wanted'
        free = limit - host.vcpus_used
        if free < vcpus:
            return f'{free:g} vCPUs free, {vcpus} wanted'
        return None

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.vcpus_total * self.ratio(host)
        if 0 < limit < math.inf:
            return {'vcpu': limit}
        return {}


class AggregateCoreFilter(_AggregateRatio, CoreFilter):
    """Let aggregate metadata override the host's ``cpu_allocation_ratio``."""


class ExactCoreFilter(Filter):
    """Reject hosts that have more or fewer free vCPUs than the flavor takes."""

    scope = Scope.HOST
    phrase = 'have other vCPUs free'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.vcpus

    def reject(self, host: Host, request: Request) -> str | None:
        free = host.vcpus_total - host.vcpus_used
        if not host.vcpus_total or free != request.flavor.vcpus:
            return f'{free} vCPUs free, exactly {request.flavor.vcpus} wanted'
        return None

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'vcpu': host.vcpus_total}


class RamFilter(_Overcommitted):
    """Reject hosts without enough memory, which may be overcommitted."""

    phrase = 'lack free memory'
    ratio_name = 'ram_allocation_ratio'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.memory_mb

    def reject(self, host: Host, request: Request) -> str | None:
        memory_mb = request.flavor.memory_mb
        total = host.total_usable_ram_mb
        return _shortage(memory_mb, total, host.free_ram_mb, self.ratio(host), 'memory')

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.total_usable_ram_mb * self.ratio(host)
        if math.isfinite(limit):
            return {'memory_mb': limit}
        return {}


class AggregateRamFilter(_AggregateRatio, RamFilter):
    """Let aggregate metadata override the host's ``ram_allocation_ratio``."""


class ExactRamFilter(Filter):
    """Reject hosts that have more or less free memory than the flavor takes."""

    scope = Scope.HOST
    phrase = 'have other memory free'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.memory_mb

    def reject(self, host: Host, request: Request) -> str | None:
        free = host.free_ram_mb
        amount = request.flavor.memory_mb
        if free == amount:
            return None
        return f'{free} MiB of memory free, exactly {amount} wanted'

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'memory_mb': host.total_usable_ram_mb}


class DiskFilter(_Overcommitted):
    """Reject hosts without enough disk, which may be overcommitted."""

    phrase = 'lack free disk'
    ratio_name = 'disk_allocation_ratio'

    def request_key(self, request: Request) -> Hashable | None:
        return _disk_mb(request.flavor)

    def reject(self, host: Host, request: Request) -> str | None:
        disk_mb = _disk_mb(request.flavor)
        total = host.total_usable_disk_gb * 1024
        return _shortage(disk_mb, total, host.free_disk_mb, self.ratio(host), 'disk')

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        limit = host.total_usable_disk_gb * self.ratio(host)
        if math.isfinite(limit):
            return {'disk_gb': limit}
        return {}


class AggregateDiskFilter(_AggregateRatio, DiskFilter):
    """Let aggregate metadata override the host's ``disk_allocation_ratio``."""


class ExactDiskFilter(Filter):
    """Reject hosts that have more or less free disk than the flavor takes."""

    scope = Scope.HOST
    phrase = 'have other disk free'

    def request_key(self, request: Request) -> Hashable | None:
        return _disk_mb(request.flavor)

    def reject(self, host: Host, request: Request) -> str | None:
        free = host.free_disk_mb
        amount = _disk_mb(request.flavor)
        if free == amount:
            return None
        return f'{free} MiB of disk free, exactly {amount} wanted'

    def limits(self, host: Host, request: Request) -> Mapping[str, int]:
        return {'disk_gb': host.total_usable_disk_gb}


def _disk_mb(flavor: Flavor) -> int:
    """The disk that a flavor takes in MiB, wherever its root disk is."""
    return (flavor.root_gb + flavor.ephemeral_gb) * 1024 + flavor.swap


def _shortage(
    amount: int, total: int, free: int, ratio: float, resource: str
) -> str | None:
    """The reason why a host lacks an amount in MiB; None if it does not.

    ``ratio`` times the total may be given away, but never more than the total to one
    instance. ``free`` is what the total leaves, below 0 on an overcommitted host.
    """
    if amount > total:
        return f'{total} MiB of {resource} before overcommit, {amount} wanted'
    remaining = total * ratio - (total - free)
    if remaining >= amount:
        return None
    return f'{remaining:g} MiB of {resource} free, {amount} wanted'
