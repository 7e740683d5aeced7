# SPDX-License-Identifier: Apache-2.0
from novasched.conf.settings import Settings
from novasched.scheduler.filters.all_hosts import AllHostsFilter
from tests.lab.builders import a_host, a_request


def test_every_host_passes():
    """There is never anything to check."""
    each = AllHostsFilter(Settings())
    assert not each.applies(a_request())
    assert each.reject(a_host(up=False), a_request()) is None
