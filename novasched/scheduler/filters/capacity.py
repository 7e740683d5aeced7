# SPDX-License-Identifier: Apache-2.0
"""Filters that compare the free vCPUs, memory or disk of a host with the flavor.

Today nova leaves these checks to Placement. nova had CoreFilter, RamFilter and
DiskFilter until Stein (19), the Aggregate filters until Ussuri (21), and the Exact
filters until Queens (17).
"""

import math
from collections.abc import Hashable, Mapping

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import smallest
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class _Overcommitted(Filter):
    """A filter for a resource that hosts overcommit by an allocation ratio."""

    scope = Scope.HOST
    ratio_name: str
    """The attribute of a host, and the aggregate metadata key, with the ratio."""

    def ratio(self, host: Host) -> float:
        """The allocation ratio: the amount that may be allocated for each unit of the
        host."""
        ratio: float = getattr(host, self.ratio_name)
        return ratio


class _AggregateRatio(_Overcommitted):
    def ratio(self, host: Host) -> float:
        return smallest(host, self.ratio_name, super().ratio(host), float)


class CoreFilter(_Overcommitted):
    """Reject hosts without enough free vCPUs, overcommit included.

    An instance may not have more vCPUs than the host has before overcommit. A host that
    reports no vCPUs is accepted, since such a nova-compute does not count vCPUs.
    """

    phrase = 'lack free vCPUs'
    ratio_name = 'cpu_allocation_ratio'

    def request_key(self, request: Request) -> Hashable | None:
        return request.flavor.vcpus

    def reject(self, host: Host, request: Request) -> str | None:
        vcpus = request.flavor.vcpus
        if not host.vcpus_total:
            return None

        # With a ratio of 0 the host has no free vCPUs, which is the better reason.
        limit = host.vcpus_total * self.ratio(host)
        if limit > 0 and vcpus > host.vcpus_total:
            return f'{host.vcpus_total} vCPUs before overcommit, {vcpus} wanted'
        free = limit - host.vcpus_used
        if free < vcpus:
            return f'{free:g} vCPUs free, {vcpus} wanted'
        return None

    def limits(self, host: Host, request: Request) -> Mapping[str, float]:
        # The fields of nova's SchedulerLimits are integers and cannot be infinite.
        limit = host.vcpus_total * self.ratio(host)
        if 0 < limit < math.inf:
            return {'vcpu': limit}
        return {}


class AggregateCoreFilter(_AggregateRatio, CoreFilter):
    """CoreFilter with aggregate metadata that overrides ``cpu_allocation_ratio``."""


class ExactCoreFilter(Filter):
    """Reject hosts whose free vCPUs are not exactly the vCPUs of the flavor."""

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
    """Reject hosts without enough free memory, overcommit included."""

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
    """RamFilter with aggregate metadata that overrides ``ram_allocation_ratio``."""


class ExactRamFilter(Filter):
    """Reject hosts whose free memory is not exactly the memory of the flavor."""

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
    """Reject hosts without enough free disk, overcommit included."""

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
    """DiskFilter with aggregate metadata that overrides ``disk_allocation_ratio``."""


class ExactDiskFilter(Filter):
    """Reject hosts whose free disk is not exactly the disk of the flavor."""

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
    """The disk of a flavor in MiB: root, ephemeral and swap."""
    # As in nova's DiskFilter, the root disk of a volume-backed instance counts too.
    return (flavor.root_gb + flavor.ephemeral_gb) * 1024 + flavor.swap


def _shortage(
    amount: int, total: int, free: int, ratio: float, resource: str
) -> str | None:
    """The reason why a host lacks an amount in MiB; ``None`` if the host has it.

    All instances together may use ``ratio`` times the total, a single instance no more
    than the total. ``free`` is the total less the use, below 0 on an overcommitted
    host.
    """
    if amount > total:
        return f'{total} MiB of {resource} before overcommit, {amount} wanted'

    remaining = total * ratio - (total - free)
    if remaining >= amount:
        return None
    return f'{remaining:g} MiB of {resource} free, {amount} wanted'
