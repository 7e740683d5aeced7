# SPDX-License-Identifier: Apache-2.0
from acme_scheduling import WindowsLicenseFilter

from novasched.conf.settings import Settings
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.host import Aggregate, Host, Service
from novasched.scheduler.model.request import Request

LICENSED = Aggregate(1, None, 'licensed', {'windows_licensed': 'true'})
WINDOWS = Request(flavor=Flavor(), image=Image(properties={'os_type': 'windows'}))


def host(*aggregates):
    return Host('host', 'node', 'uuid', 'cell', Service('host'), aggregates=aggregates)


def test_windows_goes_to_licensed_hosts():
    license_filter = WindowsLicenseFilter(Settings())
    assert license_filter.applies(WINDOWS)
    assert license_filter.reject(host(LICENSED), WINDOWS) is None
    assert license_filter.reject(host(), WINDOWS) == 'no Windows licence'
