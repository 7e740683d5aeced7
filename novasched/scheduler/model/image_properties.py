# SPDX-License-Identifier: Apache-2.0
"""Image properties as Glance and nova's databases keep them, texts all of them, made
into the values that travel with a request: current names, numbers, flags, lists.

A text that does not fit its property is left as it is; it equals nothing valid.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from novasched.scheduler.model.values import cpu_set, is_true

IMAGE = 'image_'
"""The prefix of a property in an instance's system metadata."""

OLD_NAMES = {
    'architecture': 'hw_architecture',
    'auto_disk_config': 'hw_auto_disk_config',
    'bdm_v2': 'img_bdm_v2',
    'bittorrent': 'img_bittorrent',
    'block_device_mapping': 'img_block_device_mapping',
    'cache_in_nova': 'img_cache_in_nova',
    'hypervisor_type': 'img_hv_type',
    'hypervisor_version_requires': 'img_hv_requested_version',
    'ipxe_boot': 'hw_ipxe_boot',
    'mappings': 'img_mappings',
    'owner_id': 'img_owner_id',
    'root_device_name': 'img_root_device_name',
    'vm_mode': 'hw_vm_mode',
    'vmware_disktype': 'hw_disk_type',
    'vmware_image_version': 'img_version',
    'vmware_linked_clone': 'img_linked_clone',
    'vmware_ostype': 'os_distro',
    'xenapi_device_id': 'hw_device_id',
    'xenapi_image_compression_level': 'img_compression_level',
    'xenapi_skip_agent_inject_files_at_boot': 'os_skip_agent_inject_files_at_boot',
    'xenapi_skip_agent_inject_ssh': 'os_skip_agent_inject_ssh',
    'xenapi_use_agent': 'img_use_agent',
}
FLAGS = frozenset(
    (
        'hw_boot_menu',
        'hw_ephemeral_encryption',
        'hw_firmware_stateless',
        'hw_ipxe_boot',
        'hw_locked_memory',
        'hw_mem_encryption',
        'hw_pmu',
        'hw_qemu_guest_agent',
        'hw_time_hpet',
        'hw_vif_multiqueue_enabled',
        'hw_virtio_packed_ring',
        'img_bdm_v2',
        'img_bittorrent',
        'img_cache_in_nova',
        'img_hide_hypervisor_id',
        'img_linked_clone',
        'img_use_agent',
        'os_require_quiesce',
        'os_skip_agent_inject_files_at_boot',
        'os_skip_agent_inject_ssh',
    )
)
NUMBERS = frozenset(
    (
        'hw_cpu_cores',
        'hw_cpu_max_cores',
        'hw_cpu_max_sockets',
        'hw_cpu_max_threads',
        'hw_cpu_sockets',
        'hw_cpu_threads',
        'hw_device_id',
        'hw_maxphysaddr_bits',
        'hw_numa_nodes',
        'hw_redirected_usb_ports',
        'hw_serial_port_count',
        'hw_video_ram',
        'img_compression_level',
        'img_version',
    )
)
_ARCHITECTURES = {
    **dict.fromkeys(('i386', 'i486', 'i586', 'x86_32', 'x86_32p'), 'i686'),
    'amd64': 'x86_64',
}
OTHER_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    'hw_architecture': _ARCHITECTURES,
    'hw_emulation_architecture': _ARCHITECTURES,
    'hw_scsi_model': {'lsilogicsas': 'lsisas1068', 'paravirtual': 'vmpvscsi'},
    'hw_vif_model': {
        'virtuale1000': 'e1000',
        'virtuale1000e': 'e1000e',
        'virtualpcnet32': 'pcnet',
        'virtualsriovethernetcard': 'sriov',
        'virtualvmxnet': 'vmxnet',
        'virtualvmxnet3': 'vmxnet3',
    },
    'hw_vm_mode': {'pv': 'xen', 'hv': 'hvm', 'baremetal': 'hvm'},
    'img_hv_type': {'xapi': 'xen'},
    'os_type': {},
}
"""Properties whose case does not matter, with the names that stand for others."""

SECRET_PROPERTIES = frozenset(('hw_ephemeral_encryption_secret_uuid',))
"""Properties that are kept secret, as by nova: no notification and no record has
them."""

SUPPORTED_TRIPLE = ('hw_architecture', 'img_hv_type', 'hw_vm_mode')
"""The properties that ``supported_instances`` of a host lists triples of."""

_OF_CELLS: Mapping[str, Callable[[str], Any]] = {
    'hw_numa_mem': int,
    'hw_numa_cpus': lambda text: sorted(cpu_set(text)),
}


def canonical(name: str, text: str) -> str:
    """The one spelling of a property of :data:`OTHER_SPELLINGS`."""
    lowered = text.lower()
    return OTHER_SPELLINGS[name].get(lowered, lowered)


def from_system_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The properties of an instance's image, from the instance's system metadata."""
    return typed(
        {
            key.removeprefix(IMAGE): value
            for key, value in metadata.items()
            if key.startswith(IMAGE) and value is not None
        }
    )


def typed(texts: Mapping[str, str]) -> dict[str, Any]:
    """The properties that nova knows, among those of an image in Glance.

    Where an old name and the current one are both set, the current one counts.
    """
    named = {OLD_NAMES[name]: text for name, text in texts.items() if name in OLD_NAMES}
    adapter = texts.get('vmware_adaptertype')
    if adapter == 'ide':
        named['hw_disk_bus'] = 'ide'
    elif adapter:
        named.update(hw_disk_bus='scsi', hw_scsi_model=adapter)
    named.update(
        (n, t) for n, t in texts.items() if n.startswith(('hw_', 'img_', 'os_'))
    )
    values = {
        name: _value(name, text) for name, text in named.items() if '.' not in name
    }
    values |= _numa(texts)
    traits = [
        name.removeprefix('trait:')
        for name, text in texts.items()
        if name.startswith('trait:') and text == 'required'
    ]
    if traits:
        return {**values, 'traits_required': traits}
    return values


def _value(name: str, text: str) -> Any:
    if name in FLAGS:
        return is_true(text)
    if name in OTHER_SPELLINGS:
        return canonical(name, text)
    if name in NUMBERS:
        try:
            return int(text)
        except ValueError:
            return text
    return text


def _numa(texts: Mapping[str, str]) -> dict[str, Any]:
    """The memory (MiB) and CPUs of each guest cell, which have a property of their
    own."""
    found: dict[str, Any] = {}
    for name, read in _OF_CELLS.items():
        cells = []
        for cell in count():
            text = texts.get(f'{name}.{cell}')
            if text is None:
                break
            try:
                cells.append(read(text))
            except ValueError:
                break
        if cells:
            found[name] = cells
    return found
