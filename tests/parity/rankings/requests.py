# SPDX-License-Identifier: Apache-2.0
"""Random requests to a random cloud, made of themes as cases are elsewhere.

A theme adds one matter to a call. Most leave some hosts over, so that several can meet.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.lab.descriptions import Case, wire
from tests.parity.dice import Dice, Draft, Theme
from tests.parity.numa_cases import near_networks
from tests.parity.ours import guest_of
from tests.parity.rankings.world import (
    BANDWIDTH,
    DEVICE,
    FLAVORS,
    IMAGES,
    PCI_CLASSES,
    PCI_VENDOR,
    PROJECTS,
    PROPERTIES,
    TRAITS,
    ZONES,
    Server,
    World,
)
from tests.parity.themes.neighbours import POLICIES
from tests.parity.themes.placement import a_group
from tests.parity.themes.topology import NUMA_POLICIES

NOBODY = 'no-such-host'


@dataclass
class Call(Draft):
    """A request for one or several servers in a world."""

    world: World = field(kw_only=True)
    instance_uuids: list[str] | None = None
    return_objects: bool = True
    return_alternates: bool = True
    moved: Server | None = None
    """The existing server of a move or a rebuild."""
    themes: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments in the form of the wire."""
        return {
            'spec_obj': wire('RequestSpec', self.request),
            'instance_uuids': self.instance_uuids,
            'return_objects': self.return_objects,
            'return_alternates': self.return_alternates,
        }

    @property
    def claims(self) -> bool:
        """True if the scheduler claims. Callers without claims by the scheduler have no
        server groups."""
        rebuilt = self.request['scheduler_hints'].get('_nova_check_type') == ['rebuild']
        return self.instance_uuids is not None and not rebuilt

    def case(self, config: Case) -> Case:
        """The description for failures and for the conditions of known.yaml."""
        names = (
            'request',
            'themes',
            'instance_uuids',
            'return_objects',
            'return_alternates',
        )
        moved = self.moved and self.moved.uuid
        return {
            'config': config,
            'moved': moved,
            **{name: getattr(self, name) for name in names},
        }


def a_call(dice: Dice, world: World) -> Call:
    """A request for one to five servers, with a few themes."""
    uuids = [dice.uuid() for _ in range(dice.one(1, 1, 1, 1, 2, 3, 4, 5))]
    call = Call(world=world, instance_uuids=uuids)
    call.flavor(extra_specs={}, **dice.each({
        'name': FLAVORS, 'vcpus': (1, 2, 4), 'memory_mb': (256, 1024, 4096),
        'root_gb': (0, 1, 10, 20), 'ephemeral_gb': (0, 0, 5), 'swap': (0, 0, 512, 1024),
    }))  # fmt: skip
    call.ask(
        project_id=dice.choice(PROJECTS),
        instance_uuid=uuids[0],
        num_instances=len(uuids),
        is_bfv=dice.maybe(0.15),
        scheduler_hints={},
        image={
            'id': dice.choice(IMAGES),
            'disk_format': dice.one('qcow2', 'qcow2', 'raw'),
        },
    )
    call.image(**dice.few(PROPERTIES, 2))
    for theme in dict.fromkeys(dice.sample(THEMES, dice.one(0, 1, 1, 1, 2, 2, 3))):
        theme(dice, call)
        call.themes.append(theme.__name__)
    flavor = call.request['flavor']
    guest = guest_of(flavor)
    specs = flavor['extra_specs']
    # One cell where nova-api refuses several, and where CPUs are mixed: nova takes
    # cells that are not alike for each other.
    if isinstance(guest, str) or specs.get('hw:cpu_policy') == 'mixed':
        guest = guest_of({**flavor, 'extra_specs': {**specs, 'hw:numa_nodes': '1'}})
    call.ask(numa_topology=guest)
    if not call.claims:
        call.request.pop('requested_resources', None)
    return call


def zone(dice: Dice, call: Call) -> None:
    call.ask(availability_zone=dice.one(*ZONES, *ZONES, 'nova', 'nowhere'))


def group(dice: Dice, call: Call) -> None:
    policy = dice.choice(POLICIES)
    # Where members attract or repel, hosts differ by how many they have.
    most, least = {'affinity': (2, 0), 'anti-affinity': (9, 0)}.get(policy, (40, 10))
    members = dice.some(call.world.servers, most, least)
    rules = {}
    if policy == 'anti-affinity':
        rules = dice.each({'max_server_per_host': ('1', '2', '3')}, 0.5)
    call.ask(instance_group={
        'policy': policy, 'policies': [policy], '_rules': rules,
        'members': [*(each.uuid for each in members), *(call.instance_uuids or [])],
        'hosts': sorted({each.host for each in members}),
    })  # fmt: skip
    call.hint(group=[dice.uuid()])


def neighbours(dice: Dice, call: Call) -> None:
    name = dice.one('same_host', 'different_host', 'different_host')
    call.hint(**{name: [each.uuid for each in dice.some(call.world.servers, 6, 1)]})


def address(dice: Dice, call: Call) -> None:
    """Addresses near a host's address."""
    near = dice.one('10.0.1.9', '10.0.2.1', '10.0.3.3', '10.0.0.1')
    call.hint(build_near_host_ip=[near], cidr=[dice.one('/24', '/23', '/16', '/28')])


def query(dice: Dice, call: Call) -> None:
    terms: list[Any] = [
        ['>=', '$free_ram_mb', dice.one(1024, 20000, 40000)],
        ['<', '$num_instances', 8],
        ['>', '$free_disk_mb', 100 * 1024],
        ['=', '$hypervisor_type', 'QEMU'],
        ['<=', '$vcpus_used', 5],
        ['in', '$host', *call.world.hosts[::2]],
        ['not', ['=', '$service.disabled', True]],
        ['=', '$stats.arch', 'x86_64'],
        ['>', '$vcpus_total', '$num_io_ops'],
    ]
    chosen = dice.some(terms, 3, 1)
    call.hint(query=[json.dumps([dice.one('and', 'or'), *chosen])])


def aggregate(dice: Dice, call: Call) -> None:
    """Extra specs for the hosts of an aggregate only."""
    specs = {
        'ssd': ('true',),
        'rack': ('>= 3', '<= 4', '<or> 1 <or> 7'),
        'cpu': ('<in> avx',),
    }
    for name, value in dice.few(specs, 1, 1).items():
        call.extra_specs({f'aggregate_instance_extra_specs:{name}': value})


def forced(dice: Dice, call: Call) -> None:
    """A forced host."""
    host = dice.one(call.world.hosts[0], *call.world.hosts, NOBODY)
    fields = (
        {'force_hosts': [host]},
        {'force_nodes': [host]},
        {'force_hosts': [host.upper()]},
    )
    call.ask(**dice.choice(fields))
    if dice.maybe(0.2):
        call.hint(_nova_check_type=['something else'])


def ignored(dice: Dice, call: Call) -> None:
    """Ignored hosts."""
    names = dice.some(call.world.hosts, 9, 1)
    call.ask(ignore_hosts=[dice.one(name, name.upper()) for name in names])


def destination(dice: Dice, call: Call) -> None:
    """A requested host, node, cell, or set of aggregates."""
    hosts = call.world.hosts
    aggregates = call.world.aggregate_uuids
    cell = call.world.cells[dice.one('cell1', 'cell2')]
    call.ask(
        requested_destination=dice.one(
            {'host': dice.choice(hosts), 'node': None},
            {'node': dice.choice([*hosts, NOBODY])},
            {'cell': cell},
            *[{'cell': cell, 'allow_cross_cell_move': True}] * 6,
            {'cell': cell, 'host': dice.choice(hosts), 'node': None},
            {'host': dice.choice(hosts), 'node': dice.choice(hosts[:2])},
            {'aggregates': [','.join(dice.some(aggregates, 3, 1))]},
            {'forbidden_aggregates': dice.some(aggregates, 2, 1)},
        )
    )


def capability(dice: Dice, call: Call) -> None:
    call.extra_specs(
        dice.few(
            {
                'capabilities:cpu_info:vendor': (
                    'Intel',
                    's== Intel',
                    '<or> Intel <or> AMD',
                ),
                'capabilities:cpu_info:features': ('<in> avx', '<all-in> aes sse'),
                'capabilities:hypervisor_version': (
                    '>= 8002000',
                    '<= 8002000',
                    '!= 6002000',
                ),
                'capabilities:free_ram_mb': ('>= 16384',),
                'hypervisor_type': ('QEMU', 's!= VMware'),
                'capabilities:num_instances': ('<= 8',),
                'capabilities:cpu_info:topology:cores': ('= 8',),
                'capabilities:arch': ('x86_64',),
                'capabilities:stats:arch': ('x86_64',),
                'capabilities:unknown': ('1',),
                'hw:maxphysaddr_bits': ('39', '42'),
            },
            2,
            1,
        )
    )


def image(dice: Dice, call: Call) -> None:
    """An image for a kind of hypervisor."""
    call.image(**dice.few({
        'img_hv_type': ('kvm', 'kvm', 'xen'), 'hw_vm_mode': ('hvm',),
        'hw_architecture': ('x86_64', 'x86_64', 'i686'),
        'img_hv_requested_version': ('>=8.2', '<9', '>=6.2,<8'),
    }, 3, 1))  # fmt: skip


def devices_of_image(dice: Dice, call: Call) -> None:
    """Image properties that need traits."""
    models = ('hw_disk_bus', 'hw_video_model', 'hw_vif_model', 'hw_viommu_model')
    call.image(**dice.few({
        **dict.fromkeys(models, ('virtio',)), 'hw_architecture': ('x86_64',),
        'traits_required': (dice.some(TRAITS, 2, 1),),
    }, 2, 1))  # fmt: skip


def traits(dice: Dice, call: Call) -> None:
    kinds = ('required', 'required', 'forbidden', 'preferred')
    call.extra_specs(dice.few({f'trait:{trait}': kinds for trait in TRAITS}, 3, 1))


def pinning(dice: Dice, call: Call) -> None:
    policy = dice.one('dedicated', 'dedicated', 'mixed', 'shared')
    specs = {'hw:cpu_policy': policy}
    if policy == 'mixed':
        call.flavor(vcpus=4)
        specs['hw:cpu_dedicated_mask'] = dice.one('0', '0-1', '0-2')
    if policy == 'dedicated' and dice.maybe(0.4):
        specs['hw:cpu_thread_policy'] = dice.one('prefer', 'isolate', 'require')
    elif policy != 'shared' and dice.maybe(0.3):
        # Not beside isolated cores, of which nova loses count then; see
        # tests/parity/test_numa.py.
        specs['hw:emulator_threads_policy'] = dice.one('isolate', 'share')
    if dice.maybe(0.3):
        call.image(hw_cpu_policy=policy)
    if dice.maybe(0.15):
        specs['resources:CUSTOM_UNKNOWN'] = '1'
    call.extra_specs(specs)


def cells(dice: Dice, call: Call) -> None:
    """NUMA cells, page sizes and near networks."""
    call.extra_specs({'hw:numa_nodes': dice.one('1', '2', '2')})
    call.extra_specs(
        dice.each({'hw:mem_page_size': ('small', '4', '2048', '1048576')}, 0.3)
    )
    if dice.maybe(0.2):
        call.ask(network_metadata=near_networks(dice))


def feature(dice: Dice, call: Call) -> None:
    """Capabilities of a few hypervisors."""
    features: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({'hw:tpm_version': '2.0', 'hw:tpm_model': dice.one('tpm-crb', 'tpm-tis')}, {}),
        (
            {
                'hw:tpm_version': '2.0',
                'hw:tpm_secret_security': dice.one('host', 'user', 'deployment'),
            },
            {},
        ),
        ({}, {'hw_tpm_version': '2.0'}),
        (
            {'hw:mem_encryption': 'true'},
            {'hw_firmware_type': 'uefi', 'hw_machine_type': 'q35'},
        ),
        (
            {'os:secure_boot': dice.one('required', 'optional')},
            {'hw_firmware_type': 'uefi'},
        ),
        ({'hw:virtio_packed_ring': dice.one('true', 'false')}, {}),
        ({'hw:sound_model': dice.one('virtio', 'usb')}, {}),
        ({'hw:maxphysaddr_mode': 'emulate', 'hw:maxphysaddr_bits': '42'}, {}),
        ({'hw:pci_numa_affinity_policy': dice.one('socket', 'preferred')}, {}),
        (
            {
                'hw:ephemeral_encryption': 'true',
                'hw:ephemeral_encryption_format': dice.one('luks', 'plain'),
            },
            {},
        ),
        ({}, {'hw_ephemeral_encryption': True}),
        ({}, {'hw_firmware_type': 'uefi', 'hw_firmware_stateless': True}),
        ({'accel:device_profile': 'profile'}, {}),
        ({'hw:pmem': 'small,large'}, {}),
    ]
    specs, properties = dice.choice(features)
    call.extra_specs(specs)
    call.image(**properties)


def groups_of_flavor(dice: Dice, call: Call) -> None:
    """Resources of separate providers."""
    specs = {f'resources1:{DEVICE}': dice.one('1', '1', '2')}
    if dice.maybe():
        kind = dice.one('required', 'forbidden')
        specs[f'trait1:{dice.one("CUSTOM_GOLD", "CUSTOM_SILVER")}'] = kind
    if dice.maybe(0.4):
        specs |= {
            f'resources_b:{DEVICE}': '1',
            'group_policy': dice.one('none', 'isolate'),
        }
        if dice.maybe(0.3):
            del specs['group_policy']
    if dice.maybe(0.2):
        amount = dice.one('0', '3', 'x')
        specs[
            f'resources:{dice.one("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_UNKNOWN")}'
        ] = amount
    call.extra_specs(specs)


def groups_of_ports(dice: Dice, call: Call) -> None:
    """Resources of ports and device profiles."""
    names = []
    for _ in range(dice.one(1, 1, 2)):
        names.append(dice.uuid())
        resources = dice.one({BANDWIDTH: 1000}, {DEVICE: 1})
        traits = dice.each(
            {
                'required_traits': ([], [], ['OWNER_NOVA']),
                'forbidden_traits': ([], [], ['CUSTOM_GOLD']),
            }
        )
        _add_group(call, names[-1], resources, **traits)
    if dice.maybe(0.4):
        call.ask(
            request_level_params={
                'root_required': dice.some(TRAITS, 1),
                'root_forbidden': dice.some(TRAITS[-3:], 1),
                'same_subtree': [names] if dice.maybe() else [],
            }
        )


def devices(dice: Dice, call: Call) -> None:
    """PCI devices of aliases, with or without resources in Placement."""
    requests = []
    in_placement = dice.maybe(0.7)
    for _ in range(dice.one(1, 1, 2)):
        name = dice.uuid()
        product = dice.one(*PCI_CLASSES)
        count = dice.one(1, 1, 2)
        spec = {'vendor_id': PCI_VENDOR, 'product_id': product}
        spec |= dice.each({'dev_type': ('type-PCI', 'type-VF')}, 0.2)
        requests.append({
            'request_id': name, 'alias_name': 'card', 'count': count, 'spec': [spec],
            'numa_policy': dice.one(*NUMA_POLICIES),
        })  # fmt: skip
        traits = dice.one([], [], ['CUSTOM_GOLD'])
        # One group for each device, named after the request.
        for number in range(count if in_placement else 0):
            _add_group(
                call,
                f'{name}-{number}',
                {PCI_CLASSES[product]: 1},
                required_traits=traits,
            )
    call.ask(pci_requests={'requests': requests})


def _add_group(
    call: Call, name: str, resources: dict[str, int], **traits: list[str]
) -> None:
    groups = call.request.setdefault('requested_resources', [])
    groups.append(a_group(name, resources, **traits))


def too_much(dice: Dice, call: Call) -> None:
    """A size that fits few hosts or no host."""
    sizes = {'vcpus': 64}, {'memory_mb': 40000}, {'root_gb': 500}, {'vcpus': 1000}
    call.flavor(**dice.choice(sizes))


def otherwise(dice: Dice, call: Call) -> None:
    """The forms of moves and of older conductors: no alternates, dicts as answer, no
    UUIDs and no claims."""
    call.return_alternates = False
    if dice.maybe(0.7):
        call.return_objects = False
        call.return_alternates = dice.maybe()
        call.instance_uuids = dice.one(call.instance_uuids, None)


def rebuild(dice: Dice, call: Call) -> None:
    """A rebuild on the same host."""
    server = call.moved = dice.choice(call.world.servers)
    call.instance_uuids = [server.uuid]
    call.return_alternates = False
    host = [server.host]
    call.ask(
        instance_uuid=server.uuid, num_instances=1, force_hosts=host, force_nodes=host
    )
    call.hint(_nova_check_type=['rebuild'])


def evacuation(dice: Dice, call: Call) -> None:
    """A move of a server with allocations on its host."""
    servers = [each for each in call.world.servers if len(each.held) == 1]
    server = call.moved = dice.choice(servers)
    call.instance_uuids = [server.uuid]
    call.return_alternates = dice.maybe()
    call.ask(
        instance_uuid=server.uuid,
        project_id=server.project,
        num_instances=dice.one(1, 4),
    )
    call.ask(ignore_hosts=[server.host])


THEMES: list[Theme] = [
    zone,
    group,
    group,
    group,
    neighbours,
    neighbours,
    address,
    query,
    aggregate,
    forced,
    ignored,
    destination,
    destination,
    capability,
    image,
    devices_of_image,
    traits,
    pinning,
    pinning,
    cells,
    cells,
    feature,
    groups_of_flavor,
    groups_of_ports,
    devices,
    devices,
    too_much,
    otherwise,
    rebuild,
    evacuation,
]
"""Repeated themes are more frequent."""
