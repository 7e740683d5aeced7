# SPDX-License-Identifier: Apache-2.0
"""The words that random clouds and random requests have in common, and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.lab.builders import a_uuid
from tests.parity.dice import Dice
from tests.parity.plans import CURRENT_FILTERS

DOWN_TIME = 900  # seconds
ATTEMPTS = (200, 200, 200, 3)
"""[scheduler] max_attempts: mostly more than there are hosts, so that alternates show them all."""

PROJECTS = ('project-a', 'project-b', 'project-c')
CELLS = ('cell1', 'cell2')
ZONES = ('az1', 'az2')
FLAVORS = ('small', 'large', 'gpu')
IMAGES = [a_uuid(f'image{i}') for i in range(4)]
DEVICE, BANDWIDTH = 'VGPU', 'NET_BW_EGR_KILOBIT_PER_SEC'
PCI_VENDOR = '8086'
TRAITS = (
    'COMPUTE_ACCELERATORS', 'COMPUTE_ADDRESS_SPACE_EMULATED', 'COMPUTE_EPHEMERAL_ENCRYPTION',
    'COMPUTE_EPHEMERAL_ENCRYPTION_LUKS', 'COMPUTE_GRAPHICS_MODEL_VIRTIO',
    'COMPUTE_IMAGE_TYPE_QCOW2', 'COMPUTE_IMAGE_TYPE_RAW', 'COMPUTE_NET_VIF_MODEL_VIRTIO',
    'COMPUTE_NET_VIRTIO_PACKED', 'COMPUTE_SECURITY_STATELESS_FIRMWARE',
    'COMPUTE_SECURITY_TPM_2_0', 'COMPUTE_SECURITY_TPM_CRB', 'COMPUTE_SECURITY_TPM_TIS',
    'COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST', 'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER',
    'COMPUTE_SECURITY_UEFI_SECURE_BOOT', 'COMPUTE_SOCKET_PCI_NUMA_AFFINITY',
    'COMPUTE_SOUND_MODEL_VIRTIO', 'COMPUTE_STORAGE_BUS_VIRTIO', 'CUSTOM_GOLD', 'CUSTOM_SILVER',
    'HW_ARCH_X86_64', 'HW_CPU_HYPERTHREADING', 'HW_CPU_X86_AMD_SEV', 'HW_CPU_X86_AVX2',
)  # fmt: skip
"""Each is on most hosts."""

PROPERTIES: dict[str, tuple[Any, ...]] = {
    'os_distro': ('ubuntu', 'rhel'),
    'os_type': ('linux', 'windows'),
    'hw_qemu_guest_agent': (True, False),
    'hw_cpu_cores': (1, 2),
}
"""Image properties that servers and requests have, as they travel."""


PCI_CLASSES = {product: f'CUSTOM_PCI_{PCI_VENDOR}_{product}' for product in ('1520', 'ABCD')}
"""The resource classes of PCI devices by product, as nova-compute calls them by default."""

CONFIG: dict[str, dict[str, Sequence[Any]]] = {
    'DEFAULT': {'default_availability_zone': ('nova', 'elsewhere')},
    'scheduler': {
        'max_placement_results': (1000, 1000, 1000, 12),
        'limit_tenants_to_placement_aggregate': (False, True),
        'placement_aggregate_required_for_tenants': (False, False, True),
        'enable_isolated_aggregate_filtering': (False, True),
        'image_metadata_prefilter': (False, True),
        'query_placement_for_image_type_support': (False, True),
    },
    'filter_scheduler': {
        'max_io_ops_per_host': (8, 5),
        'max_instances_per_host': (50, 10, 8),
        'restrict_isolated_hosts_to_isolated_images': (True, False),
        'aggregate_image_properties_isolation_namespace': ('', '', 'os'),
        'aggregate_image_properties_isolation_separator': ('_', '.'),
        'image_props_weight_setting': ('', 'os_distro=2,hw_cpu_cores=-0.5,os_type=x'),
        'ram_weight_multiplier': (1.0, 2.5, -1.0),
        'cpu_weight_multiplier': (1.0, 0.5, -0.3),
        'disk_weight_multiplier': (1.0, 0.7, -2.0),
        'io_ops_weight_multiplier': (-1.0, 0.4),
        'num_instances_weight_multiplier': (0.0, -0.6, 0.4),
        'build_failure_weight_multiplier': (1000000.0, 0.5, 0.0),
        'hypervisor_version_weight_multiplier': (1.0, 0.0, -0.5),
        'image_props_weight_multiplier': (0.0, 0.0, 1.3, -1.0),
        'soft_affinity_weight_multiplier': (1.0, 3.0),
        'soft_anti_affinity_weight_multiplier': (1.0, 2.0),
        'cross_cell_move_weight_multiplier': (1000000.0, 0.5),
        'pci_weight_multiplier': (1.0, 0.7),
        'pci_in_placement': (True, False),
    },
    'compute': {'packing_host_numa_cells_allocation_strategy': (False, True)},
    'metrics': {
        'weight_multiplier': (1.0, -0.5),
        'weight_setting': (
            'cpu.frequency=1.0', 'cpu.user.percent=0.2,cpu.frequency=-1.0,bad', 'cpu.percent=-1',
        ),
        'required': (True, False),
        'weight_of_unavailable': (-10000.0, 0.0),
    },
    'workarounds': {'disable_fallback_pcpu_query': (False, True)},
}  # fmt: skip


IN_TURN = (
    ('filter_scheduler', 'max_instances_per_host'),
    ('filter_scheduler', 'aggregate_image_properties_isolation_namespace'),
    ('filter_scheduler', 'image_props_weight_multiplier'),
    ('metrics', 'required'),
)
"""Options without which some filter or weigher says nothing; each world has the next value."""


def a_config(dice: Dice, hosts: Sequence[str], number: int) -> dict[str, dict[str, Any]]:
    """A nova.conf with every filter in any order, and now and then without MetricsFilter,
    so that MetricsWeigher meets hosts that lack a metric."""
    config = {group: dice.each(options) for group, options in CONFIG.items()}
    for group, option in IN_TURN:
        values = CONFIG[group][option]
        config[group][option] = values[number % len(values)]
    left_out = () if config['metrics']['required'] else ('MetricsFilter',)
    every = dice.sample(list(CURRENT_FILTERS), len(CURRENT_FILTERS))
    filters = [name for name in every if name not in left_out]
    config['scheduler'] |= {'max_attempts': dice.choice(ATTEMPTS)}
    # nova knows of no server that its host does not report.
    config['novasched'] = {'in_flight_timeout': 0}
    config['filter_scheduler'] |= {
        'enabled_filters': ','.join(filters),
        'isolated_hosts': ','.join(dice.some(hosts, 4, 1)),
        'isolated_images': dice.choice(IMAGES) if dice.maybe(0.3) else '',
    }
    if dice.maybe(0.3):
        config['filter_scheduler']['image_properties_default_architecture'] = 'x86_64'
    # What the tests write of a service is written once.
    config['DEFAULT'] |= {'service_down_time': DOWN_TIME}
    return config
