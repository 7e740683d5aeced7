# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from tests.lab.builders import a_flavor, a_host, a_request

FLAVOR = a_flavor(vcpus=4, memory_mb=1024, root_gb=1, ephemeral_gb=1, swap=1024)


def ratio(text):
    """Fields of a host in an aggregate with this allocation ratio of all resources."""
    names = ('cpu_allocation_ratio', 'ram_allocation_ratio', 'disk_allocation_ratio')
    return {'metadata': dict.fromkeys(names, text)}


TWICE = ratio('2')
ALL = ratio('all')
INF = ratio('inf')


@pytest.mark.parametrize(
    ('name', 'host', 'verdict', 'limits'),
    [
        ('CoreFilter', {'vcpus_used': 4}, None, {'vcpu': 8}),
        ('CoreFilter', {'vcpus_used': 5}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (
            'CoreFilter',
            {'vcpus_used': 5, 'cpu_allocation_ratio': 1.5},
            None,
            {'vcpu': 12},
        ),
        (
            'CoreFilter',
            {'vcpus_used': 5, **TWICE},
            '3 vCPUs free, 4 wanted',
            {'vcpu': 8},
        ),
        (
            'CoreFilter',
            {'vcpus': 3, 'cpu_allocation_ratio': 16.0},
            '3 vCPUs before overcommit, 4 wanted',
            {'vcpu': 48},
        ),
        ('CoreFilter', {'vcpus': 0, 'vcpus_used': 5}, None, {}),
        ('CoreFilter', {'cpu_allocation_ratio': 0.0}, '0 vCPUs free, 4 wanted', {}),
        ('AggregateCoreFilter', {'vcpus_used': 5, **TWICE}, None, {'vcpu': 16}),
        (
            'AggregateCoreFilter',
            {'vcpus_used': 5, **ALL},
            '3 vCPUs free, 4 wanted',
            {'vcpu': 8},
        ),
        ('AggregateCoreFilter', INF, None, {}),
        ('ExactCoreFilter', {'vcpus_used': 4}, None, {'vcpu': 8}),
        (
            'ExactCoreFilter',
            {'vcpus_used': 3},
            '5 vCPUs free, exactly 4 wanted',
            {'vcpu': 8},
        ),
        (
            'ExactCoreFilter',
            {'vcpus': 0, 'vcpus_used': -4},
            '4 vCPUs free, exactly 4 wanted',
            {'vcpu': 0},
        ),
        ('RamFilter', {'ram': 1024}, None, {'memory_mb': 4096}),
        (
            'RamFilter',
            {'ram': 512},
            '512 MiB of memory free, 1024 wanted',
            {'memory_mb': 4096},
        ),
        (
            'RamFilter',
            {'ram': 512, **TWICE},
            '512 MiB of memory free, 1024 wanted',
            {'memory_mb': 4096},
        ),
        (
            'RamFilter',
            {'ram': -1024, 'ram_allocation_ratio': 1.5},
            None,
            {'memory_mb': 6144},
        ),
        (
            'RamFilter',
            {'ram': -1025, 'ram_allocation_ratio': 1.5},
            '1023 MiB of memory free, 1024 wanted',
            {'memory_mb': 6144},
        ),
        (
            'RamFilter',
            {'ram': 512, 'total_usable_ram_mb': 512, 'ram_allocation_ratio': 4.0},
            '512 MiB of memory before overcommit, 1024 wanted',
            {'memory_mb': 2048},
        ),
        ('AggregateRamFilter', {'ram': 512, **TWICE}, None, {'memory_mb': 8192}),
        (
            'AggregateRamFilter',
            {'ram': 512, **ALL},
            '512 MiB of memory free, 1024 wanted',
            {'memory_mb': 4096},
        ),
        ('AggregateRamFilter', {'ram': 512, **INF}, None, {}),
        ('ExactRamFilter', {'ram': 1024}, None, {'memory_mb': 4096}),
        (
            'ExactRamFilter',
            {'ram': 1023},
            '1023 MiB of memory free, exactly 1024 wanted',
            {'memory_mb': 4096},
        ),
        (
            'ExactRamFilter',
            {'ram': 1025},
            '1025 MiB of memory free, exactly 1024 wanted',
            {'memory_mb': 4096},
        ),
        ('DiskFilter', {'disk_gb': 3}, None, {'disk_gb': 10}),
        (
            'DiskFilter',
            {'disk_gb': 2},
            '2048 MiB of disk free, 3072 wanted',
            {'disk_gb': 10},
        ),
        (
            'DiskFilter',
            {'disk_gb': 2, **TWICE},
            '2048 MiB of disk free, 3072 wanted',
            {'disk_gb': 10},
        ),
        (
            'DiskFilter',
            {'disk_gb': -2, 'disk_allocation_ratio': 1.5},
            None,
            {'disk_gb': 15},
        ),
        (
            'DiskFilter',
            {'disk_gb': -3, 'disk_allocation_ratio': 1.5},
            '2048 MiB of disk free, 3072 wanted',
            {'disk_gb': 15},
        ),
        (
            'DiskFilter',
            {'disk_gb': 2, 'total_usable_disk_gb': 2, 'disk_allocation_ratio': 4.0},
            '2048 MiB of disk before overcommit, 3072 wanted',
            {'disk_gb': 8},
        ),
        ('AggregateDiskFilter', {'disk_gb': 2, **TWICE}, None, {'disk_gb': 20}),
        (
            'AggregateDiskFilter',
            {'disk_gb': 2, **ALL},
            '2048 MiB of disk free, 3072 wanted',
            {'disk_gb': 10},
        ),
        ('AggregateDiskFilter', {'disk_gb': 2, **INF}, None, {}),
        ('ExactDiskFilter', {'disk_gb': 3}, None, {'disk_gb': 10}),
        (
            'ExactDiskFilter',
            {'disk_gb': 2},
            '2048 MiB of disk free, exactly 3072 wanted',
            {'disk_gb': 10},
        ),
        (
            'ExactDiskFilter',
            {'disk_gb': 4},
            '4096 MiB of disk free, exactly 3072 wanted',
            {'disk_gb': 10},
        ),
    ],
)
def test_capacity_filters_give_verdict_and_limits_of_a_host(
    name, host, verdict, limits
):
    """A flavor of 4 vCPUs, 1 GiB of memory and 3 GiB of disk (root and ephemeral in
    GiB, swap in MiB) on a host of 8 vCPUs, 4 GiB and 10 GiB. The limits for
    nova-compute are totals."""
    host = a_host(**{'total_usable_ram_mb': 4096, 'total_usable_disk_gb': 10, **host})
    (plugin,) = loading.filters(Settings(enabled_filters=(name,)))
    request = a_request(flavor=FLAVOR)
    assert plugin.reject(host, request) == verdict
    assert plugin.limits(host, request) == limits
