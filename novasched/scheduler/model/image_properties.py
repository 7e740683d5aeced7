# SPDX-License-Identifier: Apache-2.0
"""Convert image properties to the values of a request.

Glance and the databases of nova store texts. A request has current names, numbers,
flags and lists. An invalid text stays a text, which equals no valid value.
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
"""Case-insensitive properties, with the current spelling by old spelling."""

SECRET_PROPERTIES = frozenset(('hw_ephemeral_encryption_secret_uuid',))
"""Properties that notifications and decision records leave out, as in nova."""

SUPPORTED_TRIPLE = ('hw_architecture', 'img_hv_type', 'hw_vm_mode')
"""The properties of a triple in ``supported_instances`` of a host."""

_CELL_PROPERTIES: Mapping[str, Callable[[str], Any]] = {
    'hw_numa_mem': int,
    'hw_numa_cpus': lambda text: sorted(cpu_set(text)),
}


def canonical(name: str, text: str) -> str:
    """Return the current spelling of a property in :data:`OTHER_SPELLINGS`."""
    lowered = text.lower()
    return OTHER_SPELLINGS[name].get(lowered, lowered)


def from_system_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the image properties in the system metadata of an instance."""
    texts = {}
    for key, value in metadata.items():
        if key.startswith(IMAGE) and value is not None:
            texts[key.removeprefix(IMAGE)] = value
    return typed(texts)


def typed(texts: Mapping[str, str]) -> dict[str, Any]:
    """Convert the properties of an image in Glance; unknown properties are dropped.

    If an old name and the current name are both set, the current name wins.
    """
    named = {}
    for name, text in texts.items():
        if name in OLD_NAMES:
            named[OLD_NAMES[name]] = text
    adapter = texts.get('vmware_adaptertype')
    if adapter == 'ide':
        named['hw_disk_bus'] = 'ide'
    elif adapter:
        named['hw_disk_bus'] = 'scsi'
        named['hw_scsi_model'] = adapter
    # Current names come last, so that they win over the old names.
    for name, text in texts.items():
        if name.startswith(('hw_', 'img_', 'os_')):
            named[name] = text

    values = {}
    for name, text in named.items():
        # hw_numa_cpus.0 and the like become lists, see _numa().
        if '.' not in name:
            values[name] = _value(name, text)
    values |= _numa(texts)

    traits = []
    for name, text in texts.items():
        if name.startswith('trait:') and text == 'required':
            traits.append(name.removeprefix('trait:'))
    if traits:
        values['traits_required'] = traits
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
    """Return lists with the memory (MiB) and the CPUs of each guest cell.

    Glance has a property for each cell. A list ends before the first missing or
    invalid property.
    """
    lists: dict[str, Any] = {}
    for name, convert in _CELL_PROPERTIES.items():
        values = []
        for cell in count():
            text = texts.get(f'{name}.{cell}')
            if text is None:
                break
            try:
                values.append(convert(text))
            except ValueError:
                break
        if values:
            lists[name] = values
    return lists
