# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.capacity import (
    AggregateCoreFilter,
    AggregateDiskFilter,
    AggregateRamFilter,
    CoreFilter,
    DiskFilter,
    ExactCoreFilter,
    ExactDiskFilter,
    ExactRamFilter,
    RamFilter,
)
from tests.lab.builders import a_flavor, a_host, a_request

TWICE_THE_CPUS = {'cpu_allocation_ratio': '2'}
TWICE_THE_MEMORY = {'ram_allocation_ratio': '2'}
TWICE_THE_DISK = {'disk_allocation_ratio': '2'}


@pytest.mark.parametrize(
    ('kind', 'host', 'verdict', 'limits'),
    [
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 4}, None, {'vcpu': 8}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'cpu_allocation_ratio': 1.5}, None, {'vcpu': 12}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'metadata': TWICE_THE_CPUS}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (CoreFilter, {'vcpus': 3, 'cpu_allocation_ratio': 16.0}, '3 vCPUs before overcommit, 4 wanted', {'vcpu': 48}),
        (CoreFilter, {'vcpus': 0, 'vcpus_used': 5}, None, {}),
        (CoreFilter, {'vcpus': 8, 'cpu_allocation_ratio': 0.0}, '0 vCPUs free, 4 wanted', {}),
        (AggregateCoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (AggregateCoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'metadata': TWICE_THE_CPUS}, None, {'vcpu': 16}),
        (AggregateCoreFilter, {'vcpus': 8, 'metadata': {'cpu_allocation_ratio': 'all'}}, None, {'vcpu': 8}),
        (AggregateCoreFilter, {'vcpus': 8, 'metadata': {'cpu_allocation_ratio': 'inf'}}, None, {}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 4}, None, {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 3}, '5 vCPUs free, exactly 4 wanted', {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, exactly 4 wanted', {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 0, 'vcpus_used': -4}, '4 vCPUs free, exactly 4 wanted', {'vcpu': 0}),
    ],
)  # fmt: skip
def test_vcpus(kind, host, verdict, limits):
    """A host has room for four vCPUs, and compute is told how many there are in all."""
    request, each = a_request(flavor=a_flavor(vcpus=4)), kind(Settings())
    assert each.reject(a_host(**host), request) == verdict
    assert each.limits(a_host(**host), request) == limits


@pytest.mark.parametrize(
    ('kind', 'free', 'host', 'verdict', 'limit'),
    [
        (RamFilter, 1024, {}, None, 4096),
        (RamFilter, 512, {}, '512 MiB of memory free, 1024 wanted', 4096),
        (RamFilter, 512, {'metadata': TWICE_THE_MEMORY}, '512 MiB of memory free, 1024 wanted', 4096),
        (RamFilter, -1024, {'ram_allocation_ratio': 1.5}, None, 6144),
        (RamFilter, -1025, {'ram_allocation_ratio': 1.5}, '1023 MiB of memory free, 1024 wanted', 6144),
        (RamFilter, 512, {'total_usable_ram_mb': 512, 'ram_allocation_ratio': 4.0}, '512 MiB of memory before overcommit, 1024 wanted', 2048),
        (AggregateRamFilter, 512, {}, '512 MiB of memory free, 1024 wanted', 4096),
        (AggregateRamFilter, 512, {'metadata': TWICE_THE_MEMORY}, None, 8192),
        (AggregateRamFilter, 1024, {'metadata': {'ram_allocation_ratio': 'all'}}, None, 4096),
        (AggregateRamFilter, 512, {'metadata': {'ram_allocation_ratio': 'inf'}}, None, None),
        (ExactRamFilter, 1024, {}, None, 4096),
        (ExactRamFilter, 1023, {}, '1023 MiB of memory free, exactly 1024 wanted', 4096),
        (ExactRamFilter, 1025, {}, '1025 MiB of memory free, exactly 1024 wanted', 4096),
    ],
)  # fmt: skip
def test_memory(kind, free, host, verdict, limit):
    """A host of 4 GiB has room for one more, and compute is told how much there is in all."""
    host = a_host(ram=free, **{'total_usable_ram_mb': 4096, **host})
    request, each = a_request(flavor=a_flavor(memory_mb=1024)), kind(Settings())
    assert each.reject(host, request) == verdict
    assert each.limits(host, request) == ({'memory_mb': limit} if limit else {})


@pytest.mark.parametrize(
    ('kind', 'free', 'host', 'verdict', 'limit'),
    [
        (DiskFilter, 3, {}, None, 10),
        (DiskFilter, 2, {}, '2048 MiB of disk free, 3072 wanted', 10),
        (DiskFilter, 2, {'metadata': TWICE_THE_DISK}, '2048 MiB of disk free, 3072 wanted', 10),
        (DiskFilter, -2, {'disk_allocation_ratio': 1.5}, None, 15),
        (DiskFilter, -3, {'disk_allocation_ratio': 1.5}, '2048 MiB of disk free, 3072 wanted', 15),
        (DiskFilter, 2, {'total_usable_disk_gb': 2, 'disk_allocation_ratio': 4.0}, '2048 MiB of disk before overcommit, 3072 wanted', 8),
        (AggregateDiskFilter, 2, {}, '2048 MiB of disk free, 3072 wanted', 10),
        (AggregateDiskFilter, 2, {'metadata': TWICE_THE_DISK}, None, 20),
        (AggregateDiskFilter, 3, {'metadata': {'disk_allocation_ratio': 'all'}}, None, 10),
        (AggregateDiskFilter, 2, {'metadata': {'disk_allocation_ratio': 'inf'}}, None, None),
        (ExactDiskFilter, 3, {}, None, 10),
        (ExactDiskFilter, 2, {}, '2048 MiB of disk free, exactly 3072 wanted', 10),
        (ExactDiskFilter, 4, {}, '4096 MiB of disk free, exactly 3072 wanted', 10),
    ],
)  # fmt: skip
def test_disk(kind, free, host, verdict, limit):
    """Root and ephemeral disks count in GiB, swap in MiB. A host of 10 GiB has room for three more, and compute is told how much there is in all."""
    host = a_host(disk_gb=free, **{'total_usable_disk_gb': 10, **host})
    flavor = a_flavor(root_gb=1, ephemeral_gb=1, swap=1024)
    request, each = a_request(flavor=flavor), kind(Settings())
    assert each.reject(host, request) == verdict
    assert each.limits(host, request) == ({'disk_gb': limit} if limit else {})
