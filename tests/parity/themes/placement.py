# SPDX-License-Identifier: Apache-2.0
"""What makes up a query to Placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.lab.builders import a_uuid
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put
from tests.parity.world import AGGREGATES, HOSTS, NETWORKS, PORTS

CLASSES = (
    'VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB', 'VGPU', 'CUSTOM_GOLD', 'SRIOV_NET_VF', 'BOGUS', 'custom_x',
    'MEM_ENCRYPTION_CONTEXT',
)  # fmt: skip
TRAITS = (
    'HW_CPU_X86_AVX',
    'HW_CPU_X86_AVX2',
    'CUSTOM_FAST',
    'COMPUTE_ACCELERATORS',
    'HW_CPU_HYPERTHREADING',
)
SUFFIXES = ('', '', '1', '2', '_a', '-b', 'A1', 'x' * 64, 'x' * 65, 'a.b')
REFUSED = ('bogus', 'maybe', 'x', '3.0', 'nowhere')
"""What the API lets nobody ask for; rare, so that requests with many themes are served."""

YES_OR_NO = ('true', 'True', 'yes', '1', 'false', 'no', '0', 'maybe', '')


def an_image(dice: Dice, case: Case) -> None:
    """Nearly always there is an image, if only that of a volume, and a project."""
    if dice.maybe(0.98):
        put(case, 'request', image={'disk_format': 'qcow2'})


def flavor(dice: Dice, case: Case) -> None:
    """Sizes, swap to be rounded up, and a volume for a disk."""
    put(
        case, 'request', 'flavor',
        vcpus=dice.one(1, 2, 4), memory_mb=dice.one(0, 512, 2048), root_gb=dice.one(0, 1, 20),
        ephemeral_gb=dice.one(0, 0, 5), swap=dice.one(0, 0, 1, 1023, 1024, 1025, 4096),
    )  # fmt: skip
    if dice.maybe(0.3):
        put(case, 'request', is_bfv=dice.maybe(0.7))


def resources_and_traits(dice: Dice, case: Case) -> None:
    """Extra specs that are part of the query, well or badly written."""
    specs = {}
    for _ in range(dice.one(0, 0, 1, 2, 3)):
        amount = dice.one('0', '1', '2', '4', '4096', '-1', 'x', ' 2', '1.5', '', '+3', '1_0')
        specs[f'resources{dice.one(*SUFFIXES)}:{dice.one(*CLASSES)}'] = amount
    for _ in range(dice.one(0, 0, 1, 2)):
        kind = dice.one('required', 'required', 'forbidden', 'optional', '')
        specs[f'trait{dice.one(*SUFFIXES)}:{dice.one(*TRAITS, "not a trait")}'] = kind
    if dice.maybe(0.3):
        specs['group_policy'] = dice.one('none', 'isolate', 'bogus', '')
    put(case, 'request', 'flavor', 'extra_specs', **specs)


def pinning(dice: Dice, case: Case) -> None:
    """Pinned CPUs, by flavor and image."""
    chosen = _some_of(dice, 0.5, {
        'hw:cpu_policy': ('dedicated', 'dedicated', 'mixed', 'shared', 'bogus', ''),
        'hw:cpu_thread_policy': ('prefer', 'isolate', 'require', 'bogus'),
        'hw:emulator_threads_policy': ('isolate', 'share', 'bogus'),
        'hw:cpu_dedicated_mask': ('0', '0-1', '^0', '1-3', '^0-1', 'x', ''),
        'hw:cpu_realtime': YES_OR_NO,
        'hw:cpu_realtime_mask': ('^0', '0-1', '1', 'x'),
    })  # fmt: skip
    put(case, 'request', 'flavor', 'extra_specs', **chosen)
    _image(dice, case, 0.3, {
        'hw_cpu_policy': ('dedicated', 'shared', 'mixed'),
        'hw_cpu_thread_policy': ('prefer', 'isolate', 'require'),
        'hw_cpu_realtime_mask': ('^0', '0-1'),
    })  # fmt: skip


def mixed(dice: Dice, case: Case) -> None:
    """Pinned CPUs beside floating ones, by masks that fit the flavor, or do not."""
    put(case, 'request', 'flavor', 'extra_specs', **{'hw:cpu_policy': 'mixed'}, **_some_of(dice, 0.7, {
        'hw:cpu_dedicated_mask': ('0', '^0', '1-3', '0-1', '^0-1', '0-3', '^1-9', '0-', '^', ' ^0', '0,2'),
    }), **_some_of(dice, 0.4, {
        'hw:cpu_realtime': ('true', 'true', 'false'), 'hw:cpu_realtime_mask': ('^0', '0-1', '0-3', '^0-3', '-1'),
        'hw:emulator_threads_policy': ('isolate', 'share'),
    }))  # fmt: skip


def tpm(dice: Dice, case: Case) -> None:
    """An emulated TPM, and who may know its secret."""
    put(case, 'request', 'flavor', 'extra_specs', **_some_of(dice, 0.6, {
        'hw:tpm_version': ('1.2', '2.0', '2.0', ''), 'hw:tpm_model': ('tpm-tis', 'tpm-crb', 'bogus', ''),
    }))  # fmt: skip
    if dice.maybe():
        secret = dice.one('user', 'host', 'deployment', 'bogus', '')
        put(case, 'request', 'flavor', 'extra_specs', **{'hw:tpm_secret_security': secret})
    _image(dice, case, 0.4, {
        'hw_tpm_version': ('1.2', '2.0', '2.0'), 'hw_tpm_model': ('tpm-tis', 'tpm-crb'),
    })  # fmt: skip


def encryption(dice: Dice, case: Case) -> None:
    """Encrypted memory, on machines and with firmware that allow it, or do not."""
    models = ('amd-sev', 'amd-sev-es', 'amd-sev-snp', 'intel-tdx')
    put(case, 'request', 'flavor', 'extra_specs', **_some_of(dice, 0.6, {
        'hw:mem_encryption': ('true', 'true', '1', 'false', 'maybe'),
        'hw:mem_encryption_model': (*models, 'bogus', ''),
    }))  # fmt: skip
    _image(
        dice,
        case,
        0.25,
        {'hw_mem_encryption': (True, True, False), 'hw_mem_encryption_model': models},
    )
    _image(dice, case, 0.9, {'hw_firmware_type': ('uefi', 'uefi', 'uefi', 'bios')})
    _image(dice, case, 0.6, {
        'hw_machine_type': ('q35', 'pc-q35-2.1', 'pc'), 'hw_firmware_stateless': (True, True, False),
        'hw_video_model': ('none', 'none', 'vga'),
    })  # fmt: skip


def features(dice: Dice, case: Case) -> None:
    """Devices and protections that some hosts can give."""
    chosen = _some_of(dice, 0.15, {
        'hw:tpm_version': ('1.2', '2.0', '3.0', ''), 'hw:tpm_model': ('tpm-tis', 'tpm-crb', 'bogus'),
        'hw:mem_encryption': YES_OR_NO, 'hw:mem_encryption_model': ('amd-sev', 'amd-sev-es', 'bogus'),
        'hw:pmem': ('4GB', '4GB,4GB', '4GB, small', ''), 'os:secure_boot': ('required', 'disabled', 'optional', 'bogus', ''),
        'hw:maxphysaddr_mode': ('passthrough', 'emulate', 'bogus', ''), 'hw:maxphysaddr_bits': ('42',),
        'hw:pci_numa_affinity_policy': ('required', 'socket', 'legacy', 'bogus', ''),
        'hw:virtio_packed_ring': YES_OR_NO, 'hw:ephemeral_encryption': YES_OR_NO,
        'hw:ephemeral_encryption_format': ('luks', 'plain', 'bogus', ''), 'hw:sound_model': ('virtio', 'ich6', 'bogus', ''),
        'hw:tpm_secret_security': ('user', 'host', 'deployment', 'bogus'), 'accel:device_profile': ('gpu', ''),
    })  # fmt: skip
    put(case, 'request', 'flavor', 'extra_specs', **chosen)
    _image(dice, case, 0.15, {
        'hw_tpm_version': ('1.2', '2.0'), 'hw_tpm_model': ('tpm-tis', 'tpm-crb'),
        'hw_mem_encryption': (True, False), 'hw_mem_encryption_model': ('amd-sev', 'amd-sev-es'),
        'hw_firmware_type': ('uefi', 'bios'), 'hw_machine_type': ('q35', 'pc-q35-2.1', 'pc'),
        'hw_firmware_stateless': (True, False), 'os_secure_boot': ('required', 'disabled', 'optional'),
        'hw_maxphysaddr_mode': ('passthrough', 'emulate'), 'hw_pci_numa_affinity_policy': ('required', 'socket'),
        'hw_virtio_packed_ring': (True, False), 'hw_ephemeral_encryption': (True, False),
        'hw_ephemeral_encryption_format': ('luks', 'plain'), 'hw_sound_model': ('virtio', 'ich6'),
    })  # fmt: skip


def image_devices(dice: Dice, case: Case) -> None:
    """Traits and devices that the image names, and its format."""
    _image(dice, case, 0.25, {
        'traits_required': (['HW_CPU_X86_AVX'], ['CUSTOM_FAST', 'HW_CPU_X86_AVX2'], []),
        'hw_cdrom_bus': ('ide', 'sata'), 'hw_disk_bus': ('virtio', 'scsi', 'lxc'), 'hw_video_model': ('vga', 'none'),
        'hw_vif_model': ('virtio', 'e1000', 'vmxnet3'), 'hw_architecture': ('x86_64', 'aarch64', 'cris'),
        'hw_emulation_architecture': ('aarch64',), 'hw_viommu_model': ('intel', 'auto', 'smmuv3'),
    })  # fmt: skip
    if 'image' in case['request']:
        format_ = dice.one('qcow2', 'qcow2', 'raw', 'raw', 'vhdx', 'ami', 'bogus', '', None)
        put(case, 'request', 'image', disk_format=format_)
        if dice.maybe(0.1):
            del case['request']['image']['disk_format']
    _options(
        dice,
        case,
        'scheduler',
        'query_placement_for_image_type_support',
        'image_metadata_prefilter',
    )


def outside_groups(dice: Dice, case: Case) -> None:
    """Groups of ports and devices, request-level parameters, and PCI requests of these."""
    groups = []
    for number in range(dice.one(0, 0, 1, 2, 3)):
        name = dice.one(a_uuid(f'port{number}'), f'{a_uuid("pci")}-{number}', '1', '', None)
        group = {
            'requester_id': name if dice.maybe(0.2) else a_uuid(f'port{number}'),
            'resources': dice.one({'NET_BW_EGR_KILOBIT_PER_SEC': 1000}, {'VCPU': 1}, {'CUSTOM_X': 0}, {}),
            'required_traits': dice.some(TRAITS, 2), 'forbidden_traits': dice.some(TRAITS[2:], 1),
            'aggregates': dice.one([], [], [[AGGREGATES[0], AGGREGATES[1]], [AGGREGATES[2]]]),
            'forbidden_aggregates': dice.one([], [], [AGGREGATES[3]]),
            'in_tree': dice.one(None, None, a_uuid('tree')), 'use_same_provider': True, 'provider_uuids': [],
        }  # fmt: skip
        groups.append(group)
    put(
        case,
        'request',
        requested_resources=groups or dice.one([], None),
    )
    if dice.maybe(0.4):
        names = [group['requester_id'] or 'x' for group in groups]
        put(case, 'request', request_level_params={
            'root_required': dice.some([*TRAITS, 'OWNER_NOVA'], 2), 'root_forbidden': dice.some(TRAITS, 1),
            'same_subtree': [dice.some(names, 3, 1) for _ in range(dice.one(0, 1, 2))] if names else [],
        })  # fmt: skip
    if dice.maybe(0.2):
        devices = [
            {'request_id': a_uuid(dice.one('pci', 'pci2')), 'alias_name': dice.one('gpu', None),
             'requester_id': dice.one(None, a_uuid('port1'))}
        ]  # fmt: skip
        put(case, 'request', pci_requests={'requests': devices})


def isolated(dice: Dice, case: Case) -> None:
    """Aggregates that are for servers with certain traits alone."""
    put(case, 'config', 'scheduler', enable_isolated_aggregate_filtering=True)
    specs = {f'trait{dice.one("", "", "1")}:{trait}': 'required' for trait in dice.some(TRAITS, 2)}
    put(case, 'request', 'flavor', 'extra_specs', **specs)
    _image(dice, case, 0.3, {
        'traits_required': (['HW_CPU_X86_AVX'], ['CUSTOM_FAST', 'HW_CPU_X86_AVX2']),
    })  # fmt: skip


def aim(dice: Dice, case: Case) -> None:
    """Destinations: hosts, nodes, cells, aggregates, zones, hints that lift the limit."""
    if dice.maybe(0.4):
        destination = _some_of(dice, 0.3, {
            'aggregates': ([AGGREGATES[0]], [f'{AGGREGATES[1]},{AGGREGATES[0]}', AGGREGATES[2]], []),
            'forbidden_aggregates': ([AGGREGATES[3]], [AGGREGATES[0], AGGREGATES[3]], []),
            'host': (*HOSTS, 'nowhere'), 'node': ('host1', 'node1', 'nowhere', None, None),
            'cell': ({'uuid': a_uuid('cell1')}, {'uuid': a_uuid('cell2')}, None),
        })  # fmt: skip
        put(case, 'request', requested_destination=destination)
    if dice.maybe(0.15):
        put(case, 'request', force_hosts=[dice.one(*HOSTS, *HOSTS, 'nowhere')])
    if dice.maybe(0.1):
        put(case, 'request', force_nodes=[dice.one('node1', 'node2', 'host1')])
    put(case, 'request', availability_zone=dice.one(None, None, 'az1', 'az2', 'AZ1', 'nova', ''))
    put(case, 'request', project_id=dice.one('project', 'other', 'third', None))
    _options(dice, case, 'scheduler', 'limit_tenants_to_placement_aggregate', 'enable_isolated_aggregate_filtering',
             'placement_aggregate_required_for_tenants')  # fmt: skip
    for hint in ('group', 'same_host', 'different_host', 'query'):
        if dice.maybe(0.1):
            put(case, 'request', 'scheduler_hints', **{hint: dice.one(['x'], [])})
    if dice.maybe(0.2):
        put(case, 'config', 'scheduler', max_placement_results=dice.one(1, 500))
    _options(dice, case, 'workarounds', 'disable_fallback_pcpu_query')


def networks(dice: Dice, case: Case) -> None:
    """Routed networks, and ports that a smart card manages."""
    if dice.maybe(0.5):
        wanted = [
            {
                'network_id': dice.one(None, *NETWORKS),
                'port_id': dice.one(None, *PORTS, a_uuid('no port')),
            }
            for _ in range(dice.one(1, 1, 2))
        ]
        for each in wanted:
            if each['port_id'] == a_uuid('no port') and dice.maybe(0.8):
                each['port_id'] = None
        if dice.maybe(0.2):
            wanted.append({'network_id': None, 'port_id': None})
        put(case, 'request', requested_networks={'objects': wanted})
    if dice.maybe():
        put(case, 'config', 'scheduler', query_placement_for_routed_network_aggregates=True)


def _options(dice: Dice, case: Case, group: str, *names: str) -> None:
    for name in names:
        if dice.maybe(0.3):
            put(case, 'config', group, **{name: True})


def _some_of(dice: Dice, chance: float, values: Mapping[str, Sequence[object]]) -> Case:
    refused = REFUSED if dice.maybe(0.9) else ()
    return {
        key: dice.choice([each for each in options if each not in refused])
        for key, options in values.items()
        if dice.maybe(chance)
    }


def _image(dice: Dice, case: Case, chance: float, values: Mapping[str, Sequence[object]]) -> None:
    if 'image' in case['request']:
        put(case, 'request', 'image', 'properties', **_some_of(dice, chance, values))
