# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.image_properties import from_system_metadata, typed


@pytest.mark.parametrize(
    ('texts', 'values'),
    [
        ({}, {}),
        (
            {'hw_disk_bus': 'virtio', 'min_ram': '4', 'base_image_ref': 'x'},
            {'hw_disk_bus': 'virtio'},
        ),
        ({'hw_pmu': 'yes', 'hw_boot_menu': 'nope'}, {'hw_pmu': True, 'hw_boot_menu': False}),
        ({'hw_cpu_cores': '4', 'hw_video_ram': 'big'}, {'hw_cpu_cores': 4, 'hw_video_ram': 'big'}),
        ({'hw_architecture': 'AMD64'}, {'hw_architecture': 'x86_64'}),
        ({'os_type': 'Linux', 'os_distro': 'Ubuntu'}, {'os_type': 'linux', 'os_distro': 'Ubuntu'}),
        ({'hw_vif_model': 'VirtualVmxnet3'}, {'hw_vif_model': 'vmxnet3'}),
        (
            {'architecture': 'i386', 'vm_mode': 'pv'},
            {'hw_architecture': 'i686', 'hw_vm_mode': 'xen'},
        ),
        ({'architecture': 'i686', 'hw_architecture': 'arm64'}, {'hw_architecture': 'arm64'}),
        ({'vmware_adaptertype': 'ide'}, {'hw_disk_bus': 'ide'}),
        (
            {'vmware_adaptertype': 'paraVirtual'},
            {'hw_disk_bus': 'scsi', 'hw_scsi_model': 'vmpvscsi'},
        ),
        ({'vmware_adaptertype': 'ide', 'hw_disk_bus': 'sata'}, {'hw_disk_bus': 'sata'}),
        ({'trait:HW_A': 'required', 'trait:HW_B': 'no'}, {'traits_required': ['HW_A']}),
        ({'hw_numa_mem.0': '512', 'hw_numa_mem.1': '1024'}, {'hw_numa_mem': [512, 1024]}),
        ({'hw_numa_mem.1': '512'}, {}),
        ({'hw_numa_cpus.0': '0-2,^1', 'hw_numa_cpus.1': '1'}, {'hw_numa_cpus': [[0, 2], [1]]}),
        ({'hw_numa_cpus.0': '0', 'hw_numa_cpus.1': 'x'}, {'hw_numa_cpus': [[0]]}),
    ],
)
def test_texts_become_values(texts, values):
    """What Glance keeps as text equals what travels with a request."""
    assert typed(texts) == values


def test_system_metadata():
    """Of a server's metadata, what nova marked as its image's; null is nothing."""
    metadata = {'image_hw_pmu': 'true', 'hw_pmu': 'false', 'image_os_type': None, 'boot_roles': 'x'}
    assert from_system_metadata(metadata) == {'hw_pmu': True}
