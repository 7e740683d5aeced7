# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.aggregate_disk import AggregateDiskFilter
from novasched.filters.disk import DiskFilter, disk_mb
from novasched.filters.exact_disk import ExactDiskFilter
from novasched.model.settings import Settings
from tests.builders import a_flavor, a_host, a_request

OVERRIDE = {'disk_allocation_ratio': '2'}


@pytest.mark.parametrize(
    ('kind', 'free', 'host', 'verdict', 'limit'),
    [
        (DiskFilter, 3, {}, None, 10),
        (DiskFilter, 2, {}, '2048 MiB of disk free, 3072 wanted', 10),
        (DiskFilter, 2, {'metadata': OVERRIDE}, '2048 MiB of disk free, 3072 wanted', 10),
        (DiskFilter, -2, {'disk_allocation_ratio': 1.5}, None, 15),
        (DiskFilter, -3, {'disk_allocation_ratio': 1.5}, '2048 MiB of disk free, 3072 wanted', 15),
        (DiskFilter, 2, {'total_usable_disk_gb': 2, 'disk_allocation_ratio': 4.0}, '2048 MiB of disk before overcommit, 3072 wanted', 8),
        (AggregateDiskFilter, 2, {}, '2048 MiB of disk free, 3072 wanted', 10),
        (AggregateDiskFilter, 2, {'metadata': OVERRIDE}, None, 20),
        (AggregateDiskFilter, 3, {'metadata': {'disk_allocation_ratio': 'all'}}, None, 10),
        (AggregateDiskFilter, 2, {'metadata': {'disk_allocation_ratio': 'inf'}}, None, None),
        (ExactDiskFilter, 3, {}, None, 10),
        (ExactDiskFilter, 2, {}, '2048 MiB of disk free, exactly 3072 wanted', 10),
        (ExactDiskFilter, 4, {}, '4096 MiB of disk free, exactly 3072 wanted', 10),
    ],
)  # fmt: skip
def test_disk(kind, free, host, verdict, limit):
    """A host of 10 GiB has room for three more, and compute is told how much there is in all."""
    host = a_host(disk_gb=free, **{'total_usable_disk_gb': 10, **host})
    request, each = (
        a_request(flavor=a_flavor(root_gb=1, ephemeral_gb=1, swap=1024)),
        kind(Settings()),
    )
    assert each.reject(host, request) == verdict
    assert each.limits(host, request) == ({'disk_gb': limit} if limit else {})


def test_disk_of_a_flavor():
    """Root and ephemeral disks in GiB, swap in MiB."""
    assert disk_mb(a_flavor(root_gb=1, ephemeral_gb=2, swap=3)) == 3 * 1024 + 3
