# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.aggregate_ram import AggregateRamFilter
from novasched.filters.exact_ram import ExactRamFilter
from novasched.filters.ram import RamFilter
from novasched.model.settings import Settings
from tests.builders import a_flavor, a_host, a_request

OVERRIDE = {'ram_allocation_ratio': '2'}


@pytest.mark.parametrize(
    ('kind', 'free', 'host', 'verdict', 'limit'),
    [
        (RamFilter, 1024, {}, None, 4096),
        (RamFilter, 512, {}, '512 MiB of memory free, 1024 wanted', 4096),
        (RamFilter, 512, {'metadata': OVERRIDE}, '512 MiB of memory free, 1024 wanted', 4096),
        (RamFilter, -1024, {'ram_allocation_ratio': 1.5}, None, 6144),
        (RamFilter, -1025, {'ram_allocation_ratio': 1.5}, '1023 MiB of memory free, 1024 wanted', 6144),
        (RamFilter, 512, {'total_usable_ram_mb': 512, 'ram_allocation_ratio': 4.0}, '512 MiB of memory before overcommit, 1024 wanted', 2048),
        (AggregateRamFilter, 512, {}, '512 MiB of memory free, 1024 wanted', 4096),
        (AggregateRamFilter, 512, {'metadata': OVERRIDE}, None, 8192),
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
