# SPDX-License-Identifier: Apache-2.0
"""A random cloud: hosts with NUMA cells, PCI devices and other resource providers,
aggregates and servers, and a random configuration.

Sizes are such that two hosts practically never weigh the same: nova's order of equals
is that of a set, another one in each process.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.lab.builders import numbered_uuids
from tests.lab.compute_rows import Compute, Row, now
from tests.lab.descriptions import Case, wire
from tests.parity.dice import Dice
from tests.parity.numa_cases import as_text, host_topology
from tests.parity.plans import CURRENT_FILTERS
from tests.parity.themes.abilities import METRICS, a_metric
from tests.parity.themes.aggregates import MULTIPLIERS

DOWN_TIME = 900  # seconds
ATTEMPTS = (200, 200, 200, 3)
"""[scheduler] max_attempts: mostly more than the number of hosts, so that alternates
show all hosts."""

PROJECTS = ('project-a', 'project-b', 'project-c')
CELLS = ('cell1', 'cell2')
ZONES = ('az1', 'az2')
FLAVORS = ('small', 'large', 'gpu')
IMAGES = numbered_uuids('image', 4)
DEVICE = 'VGPU'
BANDWIDTH = 'NET_BW_EGR_KILOBIT_PER_SEC'
PCI_VENDOR = '8086'
TRAITS = (
    'COMPUTE_ACCELERATORS',
    'COMPUTE_ADDRESS_SPACE_EMULATED',
    'COMPUTE_EPHEMERAL_ENCRYPTION',
    'COMPUTE_EPHEMERAL_ENCRYPTION_LUKS',
    'COMPUTE_GRAPHICS_MODEL_VIRTIO',
    'COMPUTE_IMAGE_TYPE_QCOW2',
    'COMPUTE_IMAGE_TYPE_RAW',
    'COMPUTE_NET_VIF_MODEL_VIRTIO',
    'COMPUTE_NET_VIRTIO_PACKED',
    'COMPUTE_SECURITY_STATELESS_FIRMWARE',
    'COMPUTE_SECURITY_TPM_2_0',
    'COMPUTE_SECURITY_TPM_CRB',
    'COMPUTE_SECURITY_TPM_TIS',
    'COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST',
    'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER',
    'COMPUTE_SECURITY_UEFI_SECURE_BOOT',
    'COMPUTE_SOCKET_PCI_NUMA_AFFINITY',
    'COMPUTE_SOUND_MODEL_VIRTIO',
    'COMPUTE_STORAGE_BUS_VIRTIO',
    'CUSTOM_GOLD',
    'CUSTOM_SILVER',
    'HW_ARCH_X86_64',
    'HW_CPU_HYPERTHREADING',
    'HW_CPU_X86_AMD_SEV',
    'HW_CPU_X86_AVX2',
)
"""Traits; a host has most of the traits."""

PROPERTIES: dict[str, tuple[Any, ...]] = {
    'os_distro': ('ubuntu', 'rhel'),
    'os_type': ('linux', 'windows'),
    'hw_qemu_guest_agent': (True, False),
    'hw_cpu_cores': (1, 2),
}
"""Image properties of servers and requests, in the form of the wire."""


PCI_CLASSES = {
    product: f'CUSTOM_PCI_{PCI_VENDOR}_{product}' for product in ('1520', 'ABCD')
}
"""nova-compute's default resource classes of PCI devices, by product."""

OLD_VERSION = 72
"""The version of a nova-compute that does not mark its providers as nova's."""


@dataclass(frozen=True)
class Child:
    """A child of a machine's resource provider."""

    uuid: str
    inventory: dict[str, Any]
    traits: list[str]


@dataclass(frozen=True)
class Machine(Compute):
    """A compute host, whose service and inventory may be unusual."""

    service: Row = field(default_factory=dict)
    inventory: dict[str, Any] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)

    def inventories(self) -> dict[str, dict[str, Any]]:
        """The inventories in Placement; an inventory of None is missing."""
        inventories = {}
        for name, inventory in {**super().inventories(), **self.inventory}.items():
            if inventory:
                inventories[name] = inventory
        return inventories

    def service_row(self, version: int) -> Row:
        """The services row of the host's nova-compute."""
        return {**super().service_row(version), 'disabled_reason': None, **self.service}


@dataclass(frozen=True)
class Server:
    """A server on a host, and the allocations of the server."""

    uuid: str
    host: str
    project: str
    image: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


Aggregate = tuple[str, list[str], str | None, dict[str, str]]
"""Name, hosts, zone and metadata of an aggregate."""


@dataclass
class World:
    """Hosts, aggregates and servers for requests. Placed servers are added."""

    machines: list[Machine]
    nodes: list[Machine]
    """More nodes of the first machine's nova-compute."""
    aggregates: list[Aggregate]
    servers: list[Server]
    on_shared_disk: list[Machine]
    disabled_cell: str | None = None
    cells: dict[str, Case] = field(default_factory=dict)
    """Cell mappings by name."""
    aggregate_uuids: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        return [machine.name for machine in self.machines]


def a_world(dice: Dice, size: int) -> World:
    """Hosts in two cells, with aggregates and servers."""
    shared = dice.maybe(0.5)
    machines = [a_machine(dice, number, shared) for number in range(size)]
    nodes = [a_machine(dice, number) for number in (90, 91)] if dice.maybe(0.4) else []
    return World(
        machines=machines,
        nodes=nodes,
        aggregates=_aggregates(dice, [each.name for each in machines]),
        servers=[
            _server(dice, dice.choice(machines))
            for _ in range(dice.randint(size // 2, size))
        ],
        on_shared_disk=[each for each in machines if 'DISK_GB' in each.inventory],
        disabled_cell=dice.choice(CELLS) if dice.maybe(0.15) else None,
    )


def _server(dice: Dice, machine: Machine) -> Server:
    image = dice.few(PROPERTIES, 4)
    held = {machine.uuid: {'VCPU': 1, 'MEMORY_MB': 256}} if dice.maybe(0.4) else {}
    return Server(dice.uuid(), machine.name, dice.choice(PROJECTS), image, held)


def _aggregates(dice: Dice, hosts: list[str]) -> list[Aggregate]:
    in_zones = dice.sample(hosts, len(hosts) * 2 // 3)
    half = len(in_zones) // 2
    found: list[Aggregate] = [
        ('zone1', in_zones[:half], ZONES[0], {}),
        ('zone2', in_zones[half:], ZONES[1], {}),
        ('more of zone1', dice.some(in_zones[:half], 3, 1), ZONES[0], {'rack': '2'}),
    ]
    for each in PROJECTS[:2]:
        found.append(
            (f'of {each}', dice.some(hosts, 9, 5), None, {'filter_tenant_id': each})
        )
    racks = {'ssd': 'true', 'rack': dice.one('1', '4', '9')}
    found.append(('racks', dice.some(hosts, 16, 8), None, racks))
    for number in range(dice.randint(4, 8)):
        metadata = dice.choice(METADATA)(dice)
        found.append((f'aggregate{number}', dice.some(hosts, 8, 2), None, metadata))
    return found


LIMITS = ('4', '9', '30', '-1', '0', ' 5 ', '1.5', 'many')
METADATA = (
    lambda dice: {'filter_tenant_id2': dice.choice(PROJECTS)},
    lambda dice: {'os_distro': dice.joined(('ubuntu', 'rhel')), 'os_type': 'linux'},
    lambda dice: {
        'rack': dice.one('3', '7'),
        'ssd': dice.one('true', 'false,true'),
        'cpu': dice.joined(('avx', 'sse')),
    },
    lambda dice: {'instance_type': dice.joined(FLAVORS)},
    lambda dice: dice.each(
        {'max_io_ops_per_host': LIMITS, 'max_instances_per_host': LIMITS}
    ),
    lambda dice: {'trait:CUSTOM_GOLD': 'required'},
    lambda dice: {
        'trait:CUSTOM_SILVER': dice.one('required', 'forbidden'),
        'trait:X': 'no',
    },
    lambda dice: dice.few(
        dict.fromkeys(MULTIPLIERS, ('2.0', '0.25', '-1.5', '1', 'x', '1e1', '')), 3, 1
    ),
)


def a_machine(dice: Dice, number: int, may_lack_disk: bool = False) -> Machine:
    """A machine of a random size, with a few faults."""
    disk_gb = dice.randint(60, 900)
    used_gb = dice.randint(0, 40)
    traits = tuple(trait for trait in TRAITS if dice.maybe(0.93))
    service = _service(dice)
    if service.get('disabled') and dice.maybe():
        traits += ('COMPUTE_STATUS_DISABLED',)
    pools, providers = _cards(dice, dice.one(0, 1, 2, 3), reported=dice.maybe(0.85))
    return Machine(
        f'host{number:02}',
        dice.one(*CELLS),
        vcpus=dice.randint(6, 40),
        ram_mb=dice.randint(8192, 65536),
        disk_gb=disk_gb,
        cpu_ratio=dice.one(1.0, 2.0, 4.0, 16.0),
        ram_ratio=dice.one(1.0, 1.0, 1.5),
        disk_ratio=dice.one(1.0, 1.0, 2.0),
        traits=traits,
        uuid=dice.uuid(),
        columns={
            'hypervisor_type': dice.one(*['QEMU'] * 5, 'VMware'),
            'hypervisor_version': dice.one(6002000, 8002000, 8002000, 9000001),
            'host_ip': f'10.0.{dice.randint(1, 3)}.{number + 1}',
            'local_gb_used': used_gb,
            'free_disk_gb': disk_gb - used_gb,
            'disk_available_least': disk_gb - used_gb - dice.randint(-9, 9),
            'cpu_info': json.dumps(_cpu_info(dice)),
            'supported_instances': json.dumps(_supported(dice)),
            'metrics': dice.one(*[json.dumps(_metrics(dice))] * 30, '[]', None),
            'numa_topology': _cells(dice) if dice.maybe(0.8) else None,
            'pci_stats': pools,
        },
        service=service,
        inventory=_inventory(dice, may_lack_disk),
        children=[*providers, *_devices(dice)],
    )


def _inventory(dice: Dice, may_lack_disk: bool) -> dict[str, Any]:
    """Inventories beside the usual inventories, or in their place."""
    found: dict[str, Any] = {}
    if dice.maybe(0.7):
        found['PCPU'] = {'total': dice.randint(4, 16)}
    if dice.maybe(0.3):
        found['MEM_ENCRYPTION_CONTEXT'] = {'total': 3}
    if may_lack_disk and dice.maybe(0.2):
        found['DISK_GB'] = None
    return found


def _service(dice: Dice) -> Row:
    heard = now()
    silent = heard - timedelta(seconds=DOWN_TIME + 100)
    return dice.one(
        *[{}] * 40,
        {'disabled': True, 'disabled_reason': 'maintenance'},
        {'disabled': True, 'disabled_reason': 'AUTO: x'},
        {'forced_down': True},
        {'last_seen_up': silent},
        {'deleted': 1},
        {'version': OLD_VERSION},
        {'last_seen_up': None, 'updated_at': heard},
        {'last_seen_up': None, 'updated_at': None, 'created_at': silent},
    )


def _cpu_info(dice: Dice) -> Row:
    return {
        'arch': 'x86_64',
        'model': 'Broadwell',
        'vendor': dice.one('Intel', 'Intel', 'AMD'),
        'topology': {'sockets': 2, 'cores': dice.one(4, 8), 'threads': 1},
        'features': dice.some(('sse', 'avx', 'aes', 'vmx'), 4, 2),
        'maxphysaddr': dice.one({'mode': 'emulate', 'bits': dice.one(39, 42, 46)}, {}),
    }


def _supported(dice: Dice) -> list[list[str]]:
    kinds = (['x86_64', 'kvm', 'hvm'], ['i686', 'kvm', 'hvm'], ['x86_64', 'xen', 'xen'])
    if dice.maybe(0.95):
        return dice.some(kinds, 3, 1)
    return []


def _metrics(dice: Dice) -> list[Row]:
    names = [name for name in METRICS if dice.maybe(0.97)]
    metrics = []
    for name in names:
        if name.endswith('percent'):
            value = dice.random()
        else:
            value = dice.randint(1, 999)
        metrics.append(a_metric(name, value))
    return metrics


def _devices(dice: Dice) -> list[Child]:
    """Devices and network cards of a few machines."""
    found = []
    for _ in range(dice.one(0, 0, 0, 1, 2)):
        traits = [*_colours(dice), 'OWNER_NOVA']
        inventory = {DEVICE: {'total': dice.randint(1, 4)}}
        found.append(Child(dice.uuid(), inventory, traits))
    if dice.maybe(0.25):
        found.append(
            Child(dice.uuid(), {BANDWIDTH: {'total': 10000}}, ['CUSTOM_PHYSNET_A'])
        )
    return found


def _colours(dice: Dice) -> list[str]:
    return [trait for trait in ('CUSTOM_GOLD', 'CUSTOM_SILVER') if dice.maybe()]


def _cells(dice: Dice) -> str:
    """NUMA cells. Without a count of pages nova cannot account for a guest."""
    return as_text(
        host_topology(dice, dice.one(1, 2, 2, 4), networks=dice.maybe(), counted=1.0)
    )


def _cards(dice: Dice, number: int, reported: bool) -> tuple[str, list[Child]]:
    """PCI devices of ``number`` cards: the value of compute_nodes.pci_stats, and the
    providers of the devices where nova-compute reports providers."""
    pools = []
    providers = []
    for _ in range(number):
        product = dice.one(*PCI_CLASSES)
        count = dice.one(1, 1, 2, 3)
        tags = {'dev_type': dice.one('type-PCI', 'type-VF')}
        if reported:
            traits = _colours(dice)
            card = Child(dice.uuid(), {PCI_CLASSES[product]: {'total': count}}, traits)
            providers.append(card)
            tags['rp_uuid'] = card.uuid
        pool = {
            'vendor_id': PCI_VENDOR,
            'product_id': product,
            'numa_node': dice.one(None, 0, 1),
        }
        pools.append({**pool, 'count': count, 'tags': tags})
    return json.dumps(wire('PciDevicePoolList', {'objects': pools})), providers


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
            'cpu.frequency=1.0',
            'cpu.user.percent=0.2,cpu.frequency=-1.0,bad',
            'cpu.percent=-1',
        ),
        'required': (True, False),
        'weight_of_unavailable': (-10000.0, 0.0),
    },
    'workarounds': {'disable_fallback_pcpu_query': (False, True)},
}


IN_TURN = (
    ('filter_scheduler', 'max_instances_per_host'),
    ('filter_scheduler', 'aggregate_image_properties_isolation_namespace'),
    ('filter_scheduler', 'image_props_weight_multiplier'),
    ('metrics', 'required'),
)
"""Options without which some filter or weigher says nothing; each world has the next
value."""


def a_config(
    dice: Dice, hosts: Sequence[str], number: int
) -> dict[str, dict[str, Any]]:
    """A nova.conf with every filter in any order, and now and then without
    MetricsFilter, so that MetricsWeigher meets hosts that lack a metric."""
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
