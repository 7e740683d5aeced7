# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from tests.lab.builders import a_host, a_request

CPU = '{"arch": "x86_64", "features": ["aes", "avx2"], "maxphysaddr": {"bits": 46}}'
HOST = a_host(
    hypervisor_type='QEMU', hypervisor_version=8002002, cpu_info=CPU, stats={'gpus': '2', 'color': 'red'}
)  # fmt: skip


@pytest.mark.parametrize(
    ('extra_specs', 'verdict'),
    [
        ({'capabilities:hypervisor_type': 's== QEMU'}, None),
        ({'capabilities:hypervisor_type': 's== Xen'}, "'hypervisor_type' is 'QEMU', 's== Xen' wanted"),
        ({'capabilities:hypervisor_version': '>= 8000000'}, None),
        ({'capabilities:gpus': '>= 2'}, None),
        ({'capabilities:gpus': '>= 3'}, "'gpus' is '2', '>= 3' wanted"),
        ({'capabilities:stats:color': 'red'}, None),
        ({'capabilities:cpu_info:features': '<in> avx2'}, None),
        ({'capabilities:cpu_info:features': '<in> sgx'}, "'cpu_info:features' is '['aes', 'avx2']', '<in> sgx' wanted"),
        ({'capabilities:cpu_info:topology:cores': '4'}, "no capability 'cpu_info:topology:cores'"),
        ({'capabilities:cpu_info:arch:bits': '64'}, "no capability 'cpu_info:arch:bits'"),
        ({'capabilities:supported_instances': "<in> ['i686', 'kvm', 'hvm']"}, "'supported_instances' is '[]', '<in> ['i686', 'kvm', 'hvm']' wanted"),
        ({'capabilities:unknown': 'x'}, "no capability 'unknown'"),
        ({'capabilities:after': 'x'}, "no capability 'after'"),
        ({'hw:maxphysaddr_bits': '46'}, None),
        ({'hw:maxphysaddr_bits': '48'}, "'cpu_info:maxphysaddr:bits' is '46', '>= 48' wanted"),
        ({'gpus': '2'}, None),
        ({'gpus': '1'}, "'gpus' is '2', '1' wanted"),
        ({'vcpus_total': '>= 9'}, "'vcpus_total' is '8', '>= 9' wanted"),
        ({'host_ip': 'x'}, "no capability 'host_ip'"),
        ({'somebody_elses': 'x'}, None),
        ({'pci': 'x', 'numa': 'x'}, None),
        ({'capabilities:gpus': '>= few'}, "'gpus' is '2', '>= few' wanted"),
    ],
)  # fmt: skip
def test_verdict(extra_specs, verdict):
    """A host meets each capability that the flavor names, or says which it lacks."""
    request = a_request(extra_specs=extra_specs)
    assert ComputeCapabilitiesFilter(Settings()).reject(HOST, request) == verdict


@pytest.mark.parametrize(
    ('extra_specs', 'applies'),
    [
        ({}, False),
        ({'hw:cpu_policy': 'dedicated', 'resources:VGPU': '1'}, False),
        ({'capabilities:gpus': '1'}, True),
        ({'gpus': '1'}, True),
        ({'hw:maxphysaddr_bits': '46'}, True),
    ],
)
def test_applies_only_to_capabilities(extra_specs, applies):
    """Flavors without a capability in their extra specs cost nothing."""
    request = a_request(extra_specs=extra_specs)
    assert ComputeCapabilitiesFilter(Settings()).applies(request) is applies
