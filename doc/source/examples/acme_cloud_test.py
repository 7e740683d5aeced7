# SPDX-License-Identifier: Apache-2.0
import pytest
from acme_scheduling import PowerWeigher, WindowsLicenseFilter

from novasched.conf.settings import Settings
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.memory import MemoryHosts, MemoryPlacement
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.host import Aggregate, Host, Service
from novasched.scheduler.model.request import Request

FLAVOR = Flavor(vcpus=2, memory_mb=4096, root_gb=20)
FREE = {'VCPU': 4, 'MEMORY_MB': 65536, 'DISK_GB': 500}


def host(name, **metadata):
    aggregate = Aggregate(1, None, name, metadata)
    return Host(
        name, name, f'{name}-uuid', 'cell1', Service(name), aggregates=(aggregate,)
    )


def windows(uuid):
    image = Image(properties={'os_type': 'windows'})
    return Request(
        flavor=FLAVOR,
        image=image,
        num_instances=1,
        instance_uuids=(uuid,),
        instance_uuid=uuid,
    )


@pytest.fixture
def placement():
    return MemoryPlacement({'old-uuid': FREE, 'new-uuid': FREE, 'bare-uuid': FREE})


@pytest.fixture
def scheduler(placement):
    settings = Settings()
    hosts = MemoryHosts(
        [
            host('old', windows_licensed='true', watts_per_vcpu='20'),
            host('new', windows_licensed='true', watts_per_vcpu='9'),
            host('bare', watts_per_vcpu='5'),
        ]
    )
    plugins = [WindowsLicenseFilter(settings)], [PowerWeigher(settings)]
    return FilterScheduler(SchedulerDeps(settings, [], placement, hosts, *plugins))


def test_windows_fills_the_licensed_hosts(scheduler, placement):
    chosen = []
    for uuid in ('one', 'two', 'three', 'four'):
        ((selection, *_),) = scheduler.select_destinations(windows(uuid))
        chosen.append(selection.service_host)
    assert chosen == ['new', 'new', 'old', 'old']
    assert placement.allocations['one'] == {
        'new-uuid': {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}
    }
    with pytest.raises(NoValidHost):
        scheduler.select_destinations(windows('five'))
