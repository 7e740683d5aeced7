# SPDX-License-Identifier: Apache-2.0
"""Names of extra specs, image properties and scheduler hints."""

from hypothesis import strategies as st

extra_spec = st.sampled_from(
    [
        'capabilities:cpu_info:features',
        'capabilities:stats:a:b',
        'free_ram_mb',
        'ssd',
        'vcpus',
        'aggregate_instance_extra_specs:ssd',
        'resources:VGPU',
        'resources:VCPU',
        'resources1:CUSTOM_A',
        'trait:CUSTOM_A',
        'trait:CUSTOM_B',
        'trait1:HW_CPU_X86_AVX',
        'group_policy',
        'hw:cpu_policy',
        'hw:cpu_thread_policy',
        'hw:cpu_dedicated_mask',
        'hw:emulator_threads_policy',
        'hw:mem_encryption',
        'hw:tpm_version',
        'hw:tpm_model',
        'hw:pmem',
        'hw:maxphysaddr_bits',
        'hw:maxphysaddr_mode',
        'os:secure_boot',
        'accel:device_profile',
        'hw:virtio_packed_ring',
        'hw:cpu_realtime',
        'hw:cpu_realtime_mask',
        'hw:tpm_secret_security',
        'hw:sound_model',
        'hw:ephemeral_encryption',
        'capabilities:hypervisor_version',
    ]
)
image_property = st.sampled_from(
    [
        'hw_architecture',
        'img_hv_type',
        'hw_vm_mode',
        'img_hv_requested_version',
        'hw_cpu_policy',
        'hw_maxphysaddr_bits',
        'traits_required',
        'hw_firmware_type',
        'hw_tpm_version',
        'hw_mem_encryption',
        'hw_cpu_realtime_mask',
        'hw_cpu_thread_policy',
        'hw_disk_bus',
        'hw_vif_model',
        'hw_machine_type',
    ]
)
hint = st.sampled_from(
    ['query', 'same_host', 'different_host', 'build_near_host_ip', 'cidr', 'group',
     'reservation', '_nova_check_type']
)  # fmt: skip
