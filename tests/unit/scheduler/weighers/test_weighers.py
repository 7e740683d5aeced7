# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.pci import Pool
from novasched.scheduler.weighers.build_failure import BuildFailureWeigher
from novasched.scheduler.weighers.cpu import CPUWeigher
from novasched.scheduler.weighers.disk import DiskWeigher
from novasched.scheduler.weighers.hypervisor_version import HypervisorVersionWeigher
from novasched.scheduler.weighers.io_ops import IoOpsWeigher
from novasched.scheduler.weighers.num_instances import NumInstancesWeigher
from novasched.scheduler.weighers.pci import PCIWeigher
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_host, a_request

TABLE = [
    (RAMWeigher, {'ram': 2048}, 2048),
    (RAMWeigher, {'ram': -512}, -512),
    (CPUWeigher, {'vcpus': 8, 'vcpus_used': 3, 'cpu_allocation_ratio': 4.0}, 29),
    (DiskWeigher, {'disk_gb': 3}, 3072),
    (IoOpsWeigher, {'num_io_ops': 4}, 4),
    (NumInstancesWeigher, {'num_instances': 7}, 7),
    (BuildFailureWeigher, {'failed_builds': 2}, 2),
    (HypervisorVersionWeigher, {'hypervisor_version': 8002000}, 8002000),
    (HypervisorVersionWeigher, {}, 0),
    (PCIWeigher, {}, 100),
    (PCIWeigher, {'pci': lambda: (Pool('p', 'v', 2), Pool('q', 'v', 3))}, 95),
    (PCIWeigher, {'pci': lambda: (Pool('p', 'v', 98),)}, 2),
    (PCIWeigher, {'pci': lambda: (Pool('p', 'v', 500),)}, 1),
]


@pytest.mark.parametrize(('weigher', 'host', 'weight'), TABLE)
def test_raw_weight(weigher, host, weight):
    """A weigher reads one number off a host."""
    assert weigher(Settings()).weigh(a_host(**host), a_request()) == weight


@pytest.mark.parametrize('weigher', sorted({row[0] for row in TABLE}, key=lambda w: w.__name__))
def test_multiplier_is_an_option(weigher):
    """Each weigher is scaled by the option that it names."""
    assert weigher.multiplier in {field.name for field in dataclasses.fields(Settings)}
