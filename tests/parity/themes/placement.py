# SPDX-License-Identifier: Apache-2.0
"""Themes of the parts of a query to Placement."""

from collections.abc import Mapping, Sequence

from tests.lab.builders import a_uuid
from tests.parity.dice import Dice, Draft
from tests.parity.world import AGGREGATES, HOSTS, NETWORKS, PORTS

CLASSES = (
    'VCPU',
    'PCPU',
    'MEMORY_MB',
    'DISK_GB',
    'VGPU',
    'CUSTOM_GOLD',
    'SRIOV_NET_VF',
    'BOGUS',
    'custom_x',
    'MEM_ENCRYPTION_CONTEXT',
)
TRAITS = (
    'HW_CPU_X86_AVX',
    'HW_CPU_X86_AVX2',
    'CUSTOM_FAST',
    'COMPUTE_ACCELERATORS',
    'HW_CPU_HYPERTHREADING',
)
SUFFIXES = ('', '', '1', '2', '_a', '-b', 'A1', 'x' * 64, 'x' * 65, 'a.b')
AMOUNTS = ('0', '1', '2', '4', '4096', '-1', 'x', ' 2', '1.5', '', '+3', '1_0')
REFUSED = ('bogus', 'maybe', 'x', '3.0', 'nowhere')
"""Values that the API refuses. They are rare, so that requests with many themes are
served."""

YES_OR_NO = ('true', 'True', 'yes', '1', 'false', 'no', '0', 'maybe', '')
ENCRYPTION = ('amd-sev', 'amd-sev-es', 'amd-sev-snp', 'intel-tdx')


def an_image(dice: Dice, draft: Draft) -> None:
    """An image, or the image of a volume, and a project, in nearly all cases."""
    if dice.maybe(0.98):
        draft.ask(image={'disk_format': 'qcow2'})


def flavor(dice: Dice, draft: Draft) -> None:
    """Sizes, swap to be rounded up, and a volume for a disk."""
    draft.flavor(**dice.each({
        'vcpus': (1, 2, 4), 'memory_mb': (0, 512, 2048), 'root_gb': (0, 1, 20),
        'ephemeral_gb': (0, 0, 5), 'swap': (0, 0, 1, 1023, 1024, 1025, 4096),
    }))  # fmt: skip
    if dice.maybe(0.3):
        draft.ask(is_bfv=dice.maybe(0.7))


def resources_and_traits(dice: Dice, draft: Draft) -> None:
    """Extra specs for the query, valid or invalid."""
    specs = {}
    for _ in range(dice.one(0, 0, 1, 2, 3)):
        specs[f'resources{dice.one(*SUFFIXES)}:{dice.one(*CLASSES)}'] = dice.one(
            *AMOUNTS
        )
    for _ in range(dice.one(0, 0, 1, 2)):
        kind = dice.one('required', 'required', 'forbidden', 'optional', '')
        specs[f'trait{dice.one(*SUFFIXES)}:{dice.one(*TRAITS, "not a trait")}'] = kind
    if dice.maybe(0.3):
        specs['group_policy'] = dice.one('none', 'isolate', 'bogus', '')
    draft.extra_specs(specs)


def pinning(dice: Dice, draft: Draft) -> None:
    """Pinned CPUs, by flavor and image."""
    _specs(dice, draft, 0.5, {
        'hw:cpu_policy': ('dedicated', 'dedicated', 'mixed', 'shared', 'bogus', ''),
        'hw:cpu_thread_policy': ('prefer', 'isolate', 'require', 'bogus'),
        'hw:emulator_threads_policy': ('isolate', 'share', 'bogus'),
        'hw:cpu_dedicated_mask': ('0', '0-1', '^0', '1-3', '^0-1', 'x', ''),
        'hw:cpu_realtime': YES_OR_NO, 'hw:cpu_realtime_mask': ('^0', '0-1', '1', 'x'),
    })  # fmt: skip
    _image(
        dice,
        draft,
        0.3,
        {
            'hw_cpu_policy': ('dedicated', 'shared', 'mixed'),
            'hw_cpu_thread_policy': ('prefer', 'isolate', 'require'),
            'hw_cpu_realtime_mask': ('^0', '0-1'),
        },
    )


def mixed(dice: Dice, draft: Draft) -> None:
    """Pinned CPUs beside floating CPUs, by masks that may not fit the flavor."""
    draft.extra_specs({'hw:cpu_policy': 'mixed'})
    masks = ('0', '^0', '1-3', '0-1', '^0-1', '0-3', '^1-9', '0-', '^', ' ^0', '0,2')
    _specs(dice, draft, 0.7, {'hw:cpu_dedicated_mask': masks})
    _specs(dice, draft, 0.4, {
        'hw:cpu_realtime': ('true', 'true', 'false'),
        'hw:cpu_realtime_mask': ('^0', '0-1', '0-3', '^0-3', '-1'),
        'hw:emulator_threads_policy': ('isolate', 'share'),
    })  # fmt: skip


def tpm(dice: Dice, draft: Draft) -> None:
    """An emulated TPM, and the security of its secret."""
    versions = ('1.2', '2.0', '2.0')
    models = ('tpm-tis', 'tpm-crb')
    _specs(dice, draft, 0.6, {
        'hw:tpm_version': (*versions, ''), 'hw:tpm_model': (*models, 'bogus', ''),
    })  # fmt: skip
    secrets = ('user', 'host', 'deployment', 'bogus', '')
    draft.extra_specs(dice.each({'hw:tpm_secret_security': secrets}, 0.5))
    _image(dice, draft, 0.4, {'hw_tpm_version': versions, 'hw_tpm_model': models})


def encryption(dice: Dice, draft: Draft) -> None:
    """Encrypted memory, with machine types and firmware that may not allow it."""
    _specs(dice, draft, 0.6, {
        'hw:mem_encryption': ('true', 'true', '1', 'false', 'maybe'),
        'hw:mem_encryption_model': (*ENCRYPTION, 'bogus', ''),
    })  # fmt: skip
    _image(dice, draft, 0.25, {
        'hw_mem_encryption': (True, True, False), 'hw_mem_encryption_model': ENCRYPTION,
    })  # fmt: skip
    _image(dice, draft, 0.9, {'hw_firmware_type': ('uefi', 'uefi', 'uefi', 'bios')})
    _image(
        dice,
        draft,
        0.6,
        {
            'hw_machine_type': ('q35', 'pc-q35-2.1', 'pc'),
            'hw_firmware_stateless': (True, True, False),
            'hw_video_model': ('none', 'none', 'vga'),
        },
    )


def features(dice: Dice, draft: Draft) -> None:
    """Devices and protections of a few hosts."""
    _specs(
        dice,
        draft,
        0.15,
        {
            'hw:tpm_version': ('1.2', '2.0', '3.0', ''),
            'hw:tpm_model': ('tpm-tis', 'tpm-crb', 'bogus'),
            'hw:mem_encryption': YES_OR_NO,
            'hw:mem_encryption_model': ('amd-sev', 'amd-sev-es', 'bogus'),
            'hw:pmem': ('4GB', '4GB,4GB', '4GB, small', ''),
            'os:secure_boot': ('required', 'disabled', 'optional', 'bogus', ''),
            'hw:maxphysaddr_mode': ('passthrough', 'emulate', 'bogus', ''),
            'hw:maxphysaddr_bits': ('42',),
            'hw:pci_numa_affinity_policy': (
                'required',
                'socket',
                'legacy',
                'bogus',
                '',
            ),
            'hw:virtio_packed_ring': YES_OR_NO,
            'hw:ephemeral_encryption': YES_OR_NO,
            'hw:ephemeral_encryption_format': ('luks', 'plain', 'bogus', ''),
            'hw:sound_model': ('virtio', 'ich6', 'bogus', ''),
            'hw:tpm_secret_security': ('user', 'host', 'deployment', 'bogus'),
            'accel:device_profile': ('gpu', ''),
        },
    )
    _image(
        dice,
        draft,
        0.15,
        {
            'hw_tpm_version': ('1.2', '2.0'),
            'hw_tpm_model': ('tpm-tis', 'tpm-crb'),
            'hw_mem_encryption': (True, False),
            'hw_mem_encryption_model': ('amd-sev', 'amd-sev-es'),
            'hw_firmware_type': ('uefi', 'bios'),
            'hw_machine_type': ('q35', 'pc-q35-2.1', 'pc'),
            'hw_firmware_stateless': (True, False),
            'os_secure_boot': ('required', 'disabled', 'optional'),
            'hw_maxphysaddr_mode': ('passthrough', 'emulate'),
            'hw_pci_numa_affinity_policy': ('required', 'socket'),
            'hw_virtio_packed_ring': (True, False),
            'hw_ephemeral_encryption': (True, False),
            'hw_ephemeral_encryption_format': ('luks', 'plain'),
            'hw_sound_model': ('virtio', 'ich6'),
        },
    )


def image_devices(dice: Dice, draft: Draft) -> None:
    """Traits and devices of the image's properties, and the format of the image."""
    _image(
        dice,
        draft,
        0.25,
        {
            'traits_required': (
                ['HW_CPU_X86_AVX'],
                ['CUSTOM_FAST', 'HW_CPU_X86_AVX2'],
                [],
            ),
            'hw_cdrom_bus': ('ide', 'sata'),
            'hw_disk_bus': ('virtio', 'scsi', 'lxc'),
            'hw_video_model': ('vga', 'none'),
            'hw_vif_model': ('virtio', 'e1000', 'vmxnet3'),
            'hw_architecture': ('x86_64', 'aarch64', 'cris'),
            'hw_emulation_architecture': ('aarch64',),
            'hw_viommu_model': ('intel', 'auto', 'smmuv3'),
        },
    )
    if image := draft.request.get('image'):
        formats = ('qcow2', 'qcow2', 'raw', 'raw', 'vhdx', 'ami', 'bogus', '', None)
        image['disk_format'] = dice.one(*formats)
        if dice.maybe(0.1):
            del image['disk_format']
    _options(
        dice,
        draft,
        'scheduler',
        'query_placement_for_image_type_support',
        'image_metadata_prefilter',
    )


def outside_groups(dice: Dice, draft: Draft) -> None:
    """Groups of ports and devices, request-level parameters, and PCI requests of
    ports and devices."""
    groups = []
    for number in range(dice.one(0, 0, 1, 2, 3)):
        name = a_uuid(f'port{number}')
        odd = dice.one(name, f'{a_uuid("pci")}-{number}', '1', '', None)
        groups.append(
            a_group(
                odd if dice.maybe(0.2) else name,
                dice.one(
                    {'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
                    {'VCPU': 1},
                    {'CUSTOM_X': 0},
                    {},
                ),
                required_traits=dice.some(TRAITS, 2),
                forbidden_traits=dice.some(TRAITS[2:], 1),
                aggregates=dice.one(
                    [], [], [[AGGREGATES[0], AGGREGATES[1]], [AGGREGATES[2]]]
                ),
                forbidden_aggregates=dice.one([], [], [AGGREGATES[3]]),
                in_tree=dice.one(None, None, a_uuid('tree')),
            )
        )
    draft.ask(requested_resources=groups or dice.one([], None))
    if dice.maybe(0.4):
        names = [group['requester_id'] or 'x' for group in groups]
        draft.ask(
            request_level_params={
                'root_required': dice.some([*TRAITS, 'OWNER_NOVA'], 2),
                'root_forbidden': dice.some(TRAITS, 1),
                'same_subtree': [
                    dice.some(names, 3, 1) for _ in range(dice.one(0, 1, 2))
                ]
                if names
                else [],
            }
        )
    if dice.maybe(0.2):
        device = {'request_id': a_uuid(dice.one('pci', 'pci2')), **dice.each({
            'alias_name': ('gpu', None), 'requester_id': (None, a_uuid('port1')),
        })}  # fmt: skip
        draft.ask(pci_requests={'requests': [device]})


def a_group(
    name: str | None, resources: Mapping[str, int], **fields: object
) -> dict[str, object]:
    """The resource group of a port or a device profile, for a single provider."""
    return {
        'requester_id': name,
        'resources': resources,
        'use_same_provider': True,
        'required_traits': [],
        'forbidden_traits': [],
        'aggregates': [],
        'forbidden_aggregates': [],
        'in_tree': None,
        'provider_uuids': [],
        **fields,
    }


def isolated(dice: Dice, draft: Draft) -> None:
    """Aggregates only for servers with certain traits."""
    draft.set('scheduler', enable_isolated_aggregate_filtering=True)
    traits = dice.some(TRAITS, 2)
    draft.extra_specs(
        {f'trait{dice.one("", "", "1")}:{trait}': 'required' for trait in traits}
    )
    _image(dice, draft, 0.3, {
        'traits_required': (['HW_CPU_X86_AVX'], ['CUSTOM_FAST', 'HW_CPU_X86_AVX2']),
    })  # fmt: skip


def aim(dice: Dice, draft: Draft) -> None:
    """Destinations: hosts, nodes, cells, aggregates, zones, and hints without a
    limit on candidates."""
    if dice.maybe(0.4):
        draft.ask(
            requested_destination=dice.each(
                {
                    'aggregates': (
                        [AGGREGATES[0]],
                        [f'{AGGREGATES[1]},{AGGREGATES[0]}', AGGREGATES[2]],
                        [],
                    ),
                    'forbidden_aggregates': (
                        [AGGREGATES[3]],
                        [AGGREGATES[0], AGGREGATES[3]],
                        [],
                    ),
                    'host': (*HOSTS, 'nowhere'),
                    'node': ('host1', 'node1', 'nowhere', None, None),
                    'cell': (
                        {'uuid': a_uuid('cell1')},
                        {'uuid': a_uuid('cell2')},
                        None,
                    ),
                },
                0.3,
                REFUSED,
            )
        )
    if dice.maybe(0.15):
        draft.ask(force_hosts=[dice.one(*HOSTS, *HOSTS, 'nowhere')])
    if dice.maybe(0.1):
        draft.ask(force_nodes=[dice.one('node1', 'node2', 'host1')])
    draft.ask(**dice.each({
        'availability_zone': (None, None, 'az1', 'az2', 'AZ1', 'nova', ''),
        'project_id': ('project', 'other', 'third', None),
    }))  # fmt: skip
    _options(
        dice,
        draft,
        'scheduler',
        'limit_tenants_to_placement_aggregate',
        'enable_isolated_aggregate_filtering',
        'placement_aggregate_required_for_tenants',
    )
    draft.hint(
        **dice.each(
            {
                hint: (['x'], [])
                for hint in ('group', 'same_host', 'different_host', 'query')
            },
            0.1,
        )
    )
    if dice.maybe(0.2):
        draft.set('scheduler', max_placement_results=dice.one(1, 500))
    _options(dice, draft, 'workarounds', 'disable_fallback_pcpu_query')


def networks(dice: Dice, draft: Draft) -> None:
    """Routed networks, and remote-managed ports."""
    if dice.maybe(0.5):
        lost = a_uuid('no port')
        choices = {'network_id': (None, *NETWORKS), 'port_id': (None, *PORTS, lost)}
        wanted = []
        for _ in range(dice.one(1, 1, 2)):
            wanted.append(dice.each(choices))
        for each in wanted:
            if each['port_id'] == lost and dice.maybe(0.8):
                each['port_id'] = None
        if dice.maybe(0.2):
            wanted.append({'network_id': None, 'port_id': None})
        draft.ask(requested_networks={'objects': wanted})
    if dice.maybe():
        draft.set('scheduler', query_placement_for_routed_network_aggregates=True)


def _options(dice: Dice, draft: Draft, group: str, *names: str) -> None:
    draft.set(group, **{name: True for name in names if dice.maybe(0.3)})


def _specs(
    dice: Dice, draft: Draft, chance: float, table: Mapping[str, Sequence[object]]
) -> None:
    draft.extra_specs(dice.each(table, chance, REFUSED))


def _image(
    dice: Dice, draft: Draft, chance: float, table: Mapping[str, Sequence[object]]
) -> None:
    if 'image' in draft.request:
        draft.image(**dice.each(table, chance, REFUSED))
