# SPDX-License-Identifier: Apache-2.0
"""What servers need of their hosts: abilities, CPUs of their own, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.lab.descriptions import Case
from tests.parity import numa_cases
from tests.parity.dice import Dice
from tests.parity.rankings.call import Call, Theme
from tests.parity.rankings.words import (
    BANDWIDTH,
    DEVICE,
    PCI_PRODUCTS,
    PCI_VENDOR,
    TRAITS,
    pci_class,
)
from tests.parity.rankings.world import World


def capability(dice: Dice, world: World, call: Call) -> None:
    specs = {
        'capabilities:cpu_info:vendor': dice.one('Intel', 's== Intel', '<or> Intel <or> AMD'),
        'capabilities:cpu_info:features': dice.one('<in> avx', '<all-in> aes sse'),
        'capabilities:hypervisor_version': dice.one('>= 8002000', '<= 8002000', '!= 6002000'),
        'capabilities:free_ram_mb': '>= 16384', 'hypervisor_type': dice.one('QEMU', 's!= VMware'),
        'capabilities:num_instances': '<= 8', 'capabilities:cpu_info:topology:cores': '= 8',
        'capabilities:arch': 'x86_64', 'capabilities:stats:arch': 'x86_64', 'capabilities:unknown': '1',
        'hw:maxphysaddr_bits': dice.one('39', '42'),
    }  # fmt: skip
    call.extra_specs({name: specs[name] for name in dice.some(list(specs), 2, 1)})


def image(dice: Dice, world: World, call: Call) -> None:
    """An image that wants a kind of hypervisor."""
    wanted = {
        'img_hv_type': dice.one('kvm', 'kvm', 'xen'), 'hw_vm_mode': 'hvm',
        'hw_architecture': dice.one('x86_64', 'x86_64', 'i686'),
        'img_hv_requested_version': dice.one('>=8.2', '<9', '>=6.2,<8'),
    }  # fmt: skip
    call.image_properties(**{name: wanted[name] for name in dice.some(list(wanted), 3, 1)})


def devices_of_image(dice: Dice, world: World, call: Call) -> None:
    """What the image's properties need as traits."""
    properties = {
        'hw_disk_bus': 'virtio', 'hw_video_model': 'virtio', 'hw_vif_model': 'virtio', 'hw_architecture': 'x86_64',
        'hw_viommu_model': 'virtio', 'traits_required': dice.some(TRAITS, 2, 1),
    }  # fmt: skip
    call.image_properties(**{name: properties[name] for name in dice.some(list(properties), 2, 1)})


def traits(dice: Dice, world: World, call: Call) -> None:
    wanted = {
        trait: dice.one('required', 'required', 'forbidden', 'preferred')
        for trait in dice.some(TRAITS, 3, 1)
    }
    call.extra_specs({f'trait:{trait}': kind for trait, kind in wanted.items()})


def pinning(dice: Dice, world: World, call: Call) -> None:
    policy = dice.one('dedicated', 'dedicated', 'mixed', 'shared')
    specs = {'hw:cpu_policy': policy}
    if policy == 'mixed':
        call.put('flavor', vcpus=4)
        specs['hw:cpu_dedicated_mask'] = dice.choice(list(MASKS))
    if policy == 'dedicated' and dice.maybe(0.4):
        specs['hw:cpu_thread_policy'] = dice.one('prefer', 'isolate', 'require')
    elif policy != 'shared' and dice.maybe(0.3):
        # Not beside isolated cores, of which nova loses count then; see tests/parity/test_numa.py.
        specs['hw:emulator_threads_policy'] = dice.one('isolate', 'share')
    if dice.maybe(0.3):
        call.image_properties(hw_cpu_policy=policy)
    if dice.maybe(0.15):
        specs['resources:CUSTOM_UNKNOWN'] = '1'
    call.extra_specs(specs)


MASKS = {'0': 1, '0-1': 2, '0-2': 3}
"""Masks of dedicated vCPUs, of which there are four, and how many these are."""


def cells(dice: Dice, world: World, call: Call) -> None:
    """NUMA cells, pages of a size, networks that are near."""
    specs = {'hw:numa_nodes': dice.one('1', '2', '2')}
    if dice.maybe(0.3):
        specs['hw:mem_page_size'] = dice.choice(list(PAGES))
    call.extra_specs(specs)
    if dice.maybe(0.2):
        near = {'physnets': dice.some(numa_cases.PHYSNETS, 2), 'tunneled': dice.maybe(0.3)}
        call.put(network_metadata=near)


PAGES = {'small': -1, '4': 4, '2048': 2048, '1048576': 1048576}
"""Page sizes of flavors, and how they travel: KiB, or a number for a word."""


def cells_of(flavor: Case) -> Case | None:
    """The guest's NUMA topology as nova-api makes it of a flavor: cells that are alike."""
    specs = flavor['extra_specs']
    policy = specs.get('hw:cpu_policy')
    if policy not in ('dedicated', 'mixed') and 'hw:numa_nodes' not in specs:
        return None
    vcpus = list(range(flavor['vcpus']))
    masked = MASKS.get(specs.get('hw:cpu_dedicated_mask'), 0)
    pinned = {'dedicated': len(vcpus), 'mixed': masked}.get(policy, 0)
    count = int(specs.get('hw:numa_nodes', 1))
    if len(vcpus) % count or policy == 'mixed':
        count = 1  # nova-api refuses the flavor, or wants one that says which cell has what
    size = len(vcpus) // count
    return {
        'cells': [
            {
                'id': i,
                'cpuset': [x for x in vcpus[i * size : (i + 1) * size] if x >= pinned],
                'pcpuset': [x for x in vcpus[i * size : (i + 1) * size] if x < pinned],
                'memory': flavor['memory_mb'] // count,
                'pagesize': PAGES.get(specs.get('hw:mem_page_size')),
                'cpu_policy': policy,
                'cpu_thread_policy': specs.get('hw:cpu_thread_policy'),
            }
            for i in range(count)
        ],
        'emulator_threads_policy': specs.get('hw:emulator_threads_policy'),
    }


def feature(dice: Dice, world: World, call: Call) -> None:
    """What some hypervisors can do."""
    features: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({'hw:tpm_version': '2.0', 'hw:tpm_model': dice.one('tpm-crb', 'tpm-tis')}, {}),
        ({'hw:tpm_version': '2.0', 'hw:tpm_secret_security': dice.one('host', 'user', 'deployment')}, {}),
        ({}, {'hw_tpm_version': '2.0'}),
        ({'hw:mem_encryption': 'true'}, {'hw_firmware_type': 'uefi', 'hw_machine_type': 'q35'}),
        ({'os:secure_boot': dice.one('required', 'optional')}, {'hw_firmware_type': 'uefi'}),
        ({'hw:virtio_packed_ring': dice.one('true', 'false')}, {}),
        ({'hw:sound_model': dice.one('virtio', 'usb')}, {}),
        ({'hw:maxphysaddr_mode': 'emulate', 'hw:maxphysaddr_bits': '42'}, {}),
        ({'hw:pci_numa_affinity_policy': dice.one('socket', 'preferred')}, {}),
        ({'hw:ephemeral_encryption': 'true', 'hw:ephemeral_encryption_format': dice.one('luks', 'plain')}, {}),
        ({}, {'hw_ephemeral_encryption': True}),
        ({}, {'hw_firmware_type': 'uefi', 'hw_firmware_stateless': True}),
        ({'accel:device_profile': 'profile'}, {}),
        ({'hw:pmem': 'small,large'}, {}),
    ]  # fmt: skip
    specs, properties = dice.choice(features)
    call.extra_specs(specs)
    call.image_properties(**properties)


def groups_of_flavor(dice: Dice, world: World, call: Call) -> None:
    """Resources from providers of their own."""
    specs = {f'resources1:{DEVICE}': dice.one('1', '1', '2')}
    if dice.maybe():
        specs[f'trait1:{dice.one("CUSTOM_GOLD", "CUSTOM_SILVER")}'] = dice.one(
            'required', 'forbidden'
        )
    if dice.maybe(0.4):
        specs |= {f'resources_b:{DEVICE}': '1', 'group_policy': dice.one('none', 'isolate')}
        if dice.maybe(0.3):
            del specs['group_policy']
    if dice.maybe(0.2):
        specs[f'resources:{dice.one("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_UNKNOWN")}'] = dice.one(
            '0', '3', 'x'
        )
    call.extra_specs(specs)


def groups_of_ports(dice: Dice, world: World, call: Call) -> None:
    """Resources that ports and device profiles ask for."""
    groups = [
        _group(
            dice.uuid(),
            dice.one({BANDWIDTH: 1000}, {DEVICE: 1}),
            required=dice.one([], [], ['OWNER_NOVA']),
            forbidden=dice.one([], [], ['CUSTOM_GOLD']),
        )
        for _ in range(dice.one(1, 1, 2))
    ]
    call.request.setdefault('requested_resources', []).extend(groups)
    if dice.maybe(0.4):
        names = [each['requester_id'] for each in groups]
        call.request['request_level_params'] = {
            'root_required': dice.some(TRAITS, 1), 'root_forbidden': dice.some(TRAITS[-3:], 1),
            'same_subtree': [names] if dice.maybe() else [],
        }  # fmt: skip


def devices(dice: Dice, world: World, call: Call) -> None:
    """PCI devices of aliases; Placement is asked for them, or not."""
    requests, groups = [], []
    in_placement = dice.maybe(0.7)
    for _ in range(dice.one(1, 1, 2)):
        name, product, count = dice.uuid(), dice.choice(PCI_PRODUCTS), dice.one(1, 1, 2)
        spec = {'vendor_id': PCI_VENDOR, 'product_id': product}
        if dice.maybe(0.2):
            spec['dev_type'] = dice.one('type-PCI', 'type-VF')
        requests.append({
            'request_id': name, 'alias_name': 'card', 'count': count, 'spec': [spec],
            'numa_policy': dice.one(None, 'legacy', 'preferred', 'required', 'socket'),
        })  # fmt: skip
        traits = dice.one([], [], ['CUSTOM_GOLD'])
        # One group for each device, named after the request.
        for number in range(count if in_placement else 0):
            groups.append(_group(f'{name}-{number}', {pci_class(product): 1}, traits))
    call.put(pci_requests={'requests': requests})
    call.request.setdefault('requested_resources', []).extend(groups)


def _group(
    name: str,
    resources: dict[str, int],
    required: Sequence[str] = (),
    forbidden: Sequence[str] = (),
) -> Case:
    return {
        'requester_id': name, 'resources': resources, 'use_same_provider': True,
        'required_traits': list(required), 'forbidden_traits': list(forbidden),
        'aggregates': [], 'forbidden_aggregates': [], 'in_tree': None, 'provider_uuids': [],
    }  # fmt: skip


THEMES: list[Theme] = [
    capability, image, devices_of_image, traits, pinning, pinning, cells, cells, feature,
    groups_of_flavor, groups_of_ports, devices, devices,
]  # fmt: skip
