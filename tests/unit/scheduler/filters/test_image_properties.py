# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.image_properties import ImagePropertiesFilter
from tests.lab.builders import a_host, a_request

KVM = (('x86_64', 'kvm', 'hvm'), ('i686', 'kvm', 'hvm'))
WANTS_ARM = 'image wants aarch64, host supports x86_64/kvm/hvm, i686/kvm/hvm'


@pytest.mark.parametrize(
    ('image', 'host', 'verdict'),
    [
        ({'hw_architecture': 'x86_64'}, {}, None),
        ({'hw_architecture': 'AMD64'}, {}, None),
        ({'hw_architecture': 'i386'}, {}, None),
        ({'hw_architecture': 'aarch64'}, {}, WANTS_ARM),
        ({'hw_architecture': 'x86_64', 'img_hv_type': 'kvm', 'hw_vm_mode': 'hvm'}, {}, None),
        ({'hw_vm_mode': 'hv'}, {}, None),
        ({'img_hv_type': 'xapi'}, {'supported_instances': (('x86_64', 'xen', 'xen'),)}, None),
        ({'img_hv_type': 'baremetal'}, {}, 'image wants baremetal, host supports x86_64/kvm/hvm, i686/kvm/hvm'),
        ({'hw_vm_mode': 'baremetal'}, {}, None),
        ({'hw_architecture': 'x86_64'}, {'supported_instances': ()}, 'image wants x86_64, host supports nothing'),
        ({'hw_vm_mode': 'hvm', 'img_hv_requested_version': '>=8.0'}, {}, None),
        ({'hw_vm_mode': 'hvm', 'img_hv_requested_version': '>=6.0,<8.0'}, {}, 'hypervisor version 8.2.2, image wants >=6.0,<8.0'),
        ({'hw_vm_mode': 'hvm', 'img_hv_requested_version': '!=8.2.2'}, {}, 'hypervisor version 8.2.2, image wants !=8.2.2'),
        ({'hw_vm_mode': 'hvm', 'img_hv_requested_version': 'newest'}, {}, 'hypervisor version 8.2.2, image wants newest'),
        ({'hw_vm_mode': 'hvm', 'img_hv_requested_version': '>=1'}, {'hypervisor_version': None}, None),
        ({'hw_vm_mode': 'hvm', 'hw_maxphysaddr_bits': 42}, {}, None),
        ({'hw_vm_mode': 'hvm', 'hw_maxphysaddr_bits': 48}, {}, '46 physical address bits, image wants 48'),
        ({'hw_vm_mode': 'hvm', 'hw_maxphysaddr_bits': 48}, {'cpu_info': 'not JSON'}, None),
        ({'hw_vm_mode': 'hvm', 'hw_maxphysaddr_bits': 'x'}, {}, '46 physical address bits, image wants x'),
        ({'hw_vm_mode': ['hvm']}, {}, "image wants ['hvm'], host supports x86_64/kvm/hvm, i686/kvm/hvm"),
    ],
)  # fmt: skip
def test_verdict(image, host, verdict):
    """One of the host's triples has all that the image names, and versions suit."""
    fields = {
        'supported_instances': KVM,
        'hypervisor_version': 8002002,
        'cpu_info': '{"maxphysaddr": {"bits": 46}}',
        **host,
    }
    each = ImagePropertiesFilter(Settings())
    assert each.reject(a_host(**fields), a_request(image=image)) == verdict


@pytest.mark.parametrize(
    ('image', 'default', 'applies'),
    [
        (None, None, False),
        ({}, None, False),
        ({'img_hv_requested_version': '>=1'}, None, False),
        ({}, 'x86_64', True),
        ({'hw_vm_mode': 'hvm'}, None, True),
    ],
)
def test_applies_when_something_is_named(image, default, applies):
    """Without an architecture, hypervisor type or VM mode there is nothing to check."""
    settings = Settings(image_properties_default_architecture=default)
    assert ImagePropertiesFilter(settings).applies(a_request(image=image)) is applies
