# SPDX-License-Identifier: Apache-2.0
"""Random requests to a random cloud, made of themes as cases are elsewhere.

A theme adds one matter to a call. Most leave some hosts over, so that several can meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.parity.descriptions import Case, wire
from tests.parity.dice import Dice, put
from tests.parity.rankings_words import (
    BANDWIDTH,
    DEVICE,
    FLAVORS,
    IMAGES,
    POLICIES,
    PROJECTS,
    PROPERTIES,
    TRAITS,
    ZONES,
)
from tests.parity.rankings_world import Server, World, new_uuid

NOBODY = 'no-such-host'


@dataclass
class Call:
    """One call of select_destinations, in the words of descriptions.py."""

    request: Case
    instance_uuids: list[str] | None
    return_objects: bool = True
    return_alternates: bool = True
    moved: Server | None = None
    """The server that exists already: it is moved or rebuilt."""
    themes: list[str] = field(default_factory=list)

    def arguments(self, cells: Mapping[str, Case]) -> dict[str, Any]:
        """What goes over the wire; a cell, here its UUID, is there the whole mapping."""
        request = self.request
        wanted = request.get('requested_destination')
        if wanted and 'cell' in wanted:
            whole = {**wanted, 'cell': cells[wanted['cell']['uuid']]}
            request = {**request, 'requested_destination': whole}
        return {
            'spec_obj': wire('RequestSpec', request),
            'instance_uuids': self.instance_uuids,
            'return_objects': self.return_objects,
            'return_alternates': self.return_alternates,
        }


Theme = Callable[[Dice, World, Call], None]


def a_call(dice: Dice, world: World) -> Call:
    """A request for one to five servers, about a few matters."""
    count = dice.one(1, 1, 1, 1, 2, 3, 4, 5)
    uuids = [new_uuid(dice) for _ in range(count)]
    flavor = {
        'name': dice.choice(FLAVORS), 'vcpus': dice.one(1, 2, 4), 'memory_mb': dice.one(256, 1024, 4096),
        'root_gb': dice.one(0, 1, 10, 20), 'ephemeral_gb': dice.one(0, 0, 5), 'swap': dice.one(0, 0, 512, 1024),
        'extra_specs': {},
    }  # fmt: skip
    request: Case = {
        'flavor': flavor, 'project_id': dice.choice(PROJECTS), 'instance_uuid': uuids[0],
        'num_instances': count, 'is_bfv': dice.maybe(0.15), 'scheduler_hints': {},
        'image': {
            'id': dice.choice(IMAGES), 'disk_format': dice.one('qcow2', 'qcow2', 'raw'),
            'properties': {name: dice.choice(PROPERTIES[name]) for name in dice.some(list(PROPERTIES), 2)},
        },
    }  # fmt: skip
    call = Call(request, uuids)
    for theme in dice.sample(THEMES, dice.one(0, 1, 1, 1, 2, 2, 3)):
        theme(dice, world, call)
        call.themes.append(theme.__name__)
    return call


def zone(dice: Dice, world: World, call: Call) -> None:
    """An availability zone."""
    call.request['availability_zone'] = dice.one(*ZONES, *ZONES, 'nova', 'nowhere')


def group(dice: Dice, world: World, call: Call) -> None:
    """A server group, with members somewhere."""
    policy = dice.choice(POLICIES)
    members = dice.some(world.servers, 2 if policy == 'affinity' else 9)
    rules = (
        {'max_server_per_host': dice.one('1', '2', '3')}
        if policy == 'anti-affinity' and dice.maybe()
        else {}
    )
    call.request['instance_group'] = {
        'policy': policy, 'policies': [policy], '_rules': rules,
        'members': [*(each.uuid for each in members), *(call.instance_uuids or [])],
        'hosts': sorted({each.host for each in members}),
    }  # fmt: skip
    put(call.request, 'scheduler_hints', group=[new_uuid(dice)])


def neighbours(dice: Dice, world: World, call: Call) -> None:
    """With or without some other servers."""
    name = dice.one('same_host', 'different_host', 'different_host')
    uuids = [each.uuid for each in dice.some(world.servers, 6, 1)]
    put(call.request, 'scheduler_hints', **{name: uuids})


def address(dice: Dice, world: World, call: Call) -> None:
    """Near a host's address."""
    near = dice.one('10.0.1.9', '10.0.2.1', '10.0.3.3', '10.0.0.1')
    put(
        call.request,
        'scheduler_hints',
        build_near_host_ip=[near],
        cidr=[dice.one('/24', '/23', '/16', '/28')],
    )


def query(dice: Dice, world: World, call: Call) -> None:
    """A JSON query."""
    terms: list[Any] = [
        ['>=', '$free_ram_mb', dice.one(1024, 20000, 40000)], ['<', '$num_instances', 8],
        ['>', '$free_disk_mb', 100 * 1024], ['=', '$hypervisor_type', 'QEMU'], ['<=', '$vcpus_used', 5],
        ['in', '$host', *world.hosts[::2]], ['not', ['=', '$service.disabled', True]],
        ['=', '$stats.arch', 'x86_64'], ['>', '$vcpus_total', '$num_io_ops'],
    ]  # fmt: skip
    chosen = dice.some(terms, 3, 1)
    put(call.request, 'scheduler_hints', query=[json.dumps([dice.one('and', 'or'), *chosen])])


def capability(dice: Dice, world: World, call: Call) -> None:
    """Extra specs about what hosts can do."""
    specs = {
        'capabilities:cpu_info:vendor': dice.one('Intel', 's== Intel', '<or> Intel <or> AMD'),
        'capabilities:cpu_info:features': dice.one('<in> avx', '<all-in> aes sse'),
        'capabilities:hypervisor_version': dice.one('>= 8002000', '<= 8002000', '!= 6002000'),
        'capabilities:free_ram_mb': '>= 16384', 'hypervisor_type': dice.one('QEMU', 's!= VMware'),
        'capabilities:num_instances': '<= 8', 'capabilities:cpu_info:topology:cores': '= 8',
        'capabilities:arch': 'x86_64', 'capabilities:stats:arch': 'x86_64', 'capabilities:unknown': '1',
        'hw:maxphysaddr_bits': dice.one('39', '42'),
    }  # fmt: skip
    _extra_specs(call, {name: specs[name] for name in dice.some(list(specs), 2, 1)})


def aggregate(dice: Dice, world: World, call: Call) -> None:
    """Extra specs about aggregates, whose hosts alone can have them."""
    wanted = dice.one(
        ('ssd', 'true'), ('rack', dice.one('>= 3', '<= 4', '<or> 1 <or> 7')), ('cpu', '<in> avx')
    )
    _extra_specs(call, {f'aggregate_instance_extra_specs:{wanted[0]}': wanted[1]})


def image(dice: Dice, world: World, call: Call) -> None:
    """An image that wants a kind of hypervisor."""
    wanted = {
        'img_hv_type': dice.one('kvm', 'kvm', 'xen'), 'hw_vm_mode': 'hvm',
        'hw_architecture': dice.one('x86_64', 'x86_64', 'i686'),
        'img_hv_requested_version': dice.one('>=8.2', '<9', '>=6.2,<8'),
    }  # fmt: skip
    _image_properties(call, **{name: wanted[name] for name in dice.some(list(wanted), 3, 1)})


def devices_of_image(dice: Dice, world: World, call: Call) -> None:
    """What the image's properties need as traits."""
    properties = {
        'hw_disk_bus': 'virtio', 'hw_video_model': 'virtio', 'hw_vif_model': 'virtio', 'hw_architecture': 'x86_64',
        'hw_viommu_model': 'virtio', 'traits_required': dice.some(TRAITS, 2, 1),
    }  # fmt: skip
    _image_properties(
        call, **{name: properties[name] for name in dice.some(list(properties), 2, 1)}
    )


def traits(dice: Dice, world: World, call: Call) -> None:
    """Traits that flavors require or forbid."""
    wanted = {
        trait: dice.one('required', 'required', 'forbidden', 'preferred')
        for trait in dice.some(TRAITS, 3, 1)
    }
    _extra_specs(call, {f'trait:{trait}': kind for trait, kind in wanted.items()})


def pinning(dice: Dice, world: World, call: Call) -> None:
    """Pinned CPUs."""
    policy = dice.one('dedicated', 'dedicated', 'mixed', 'shared')
    specs = {'hw:cpu_policy': policy}
    if policy == 'mixed':
        put(call.request, 'flavor', vcpus=4)
        specs['hw:cpu_dedicated_mask'] = dice.one('0-1', '^0', '3')
    if policy != 'shared' and dice.maybe(0.3):
        specs['hw:emulator_threads_policy'] = dice.one('isolate', 'share')
    if policy == 'dedicated' and dice.maybe(0.4):
        specs['hw:cpu_thread_policy'] = dice.one('prefer', 'isolate', 'require')
    if dice.maybe(0.3):
        _image_properties(call, hw_cpu_policy=policy)
    if dice.maybe(0.15):
        specs['resources:CUSTOM_UNKNOWN'] = '1'
    _extra_specs(call, specs)


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
    _extra_specs(call, specs)
    _image_properties(call, **properties)


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
    _extra_specs(call, specs)


def groups_of_ports(dice: Dice, world: World, call: Call) -> None:
    """Resources that ports and device profiles ask for."""
    groups = [
        {
            'requester_id': new_uuid(dice), 'use_same_provider': True, 'in_tree': None, 'provider_uuids': [],
            'resources': dice.one({BANDWIDTH: 1000}, {DEVICE: 1}),
            'required_traits': dice.one([], [], ['OWNER_NOVA']), 'forbidden_traits': dice.one([], [], ['CUSTOM_GOLD']),
            'aggregates': [], 'forbidden_aggregates': [],
        }
        for _ in range(dice.one(1, 1, 2))
    ]  # fmt: skip
    names = [each['requester_id'] for each in groups]
    call.request['requested_resources'] = groups
    if dice.maybe(0.4):
        call.request['request_level_params'] = {
            'root_required': dice.some(TRAITS, 1), 'root_forbidden': dice.some(TRAITS[-3:], 1),
            'same_subtree': [names] if dice.maybe() else [],
        }  # fmt: skip


def forced(dice: Dice, world: World, call: Call) -> None:
    """One host, whatever filters say."""
    host = dice.one(world.hosts[0], *world.hosts, NOBODY)
    name, value = dice.one(
        ('force_hosts', host), ('force_nodes', host), ('force_hosts', host.upper())
    )
    call.request[name] = [value]
    if dice.maybe(0.2):
        put(call.request, 'scheduler_hints', _nova_check_type=['something else'])


def ignored(dice: Dice, world: World, call: Call) -> None:
    """Not these hosts."""
    call.request['ignore_hosts'] = [
        dice.one(name, name.upper()) for name in dice.some(world.hosts, 9, 1)
    ]


def destination(dice: Dice, world: World, call: Call) -> None:
    """A host, a node, a cell, or some aggregates."""
    cell = {'uuid': world.cells[dice.one('cell1', 'cell2')]}
    call.request['requested_destination'] = dice.one(
        {'host': dice.choice(world.hosts), 'node': None}, {'node': dice.choice([*world.hosts, NOBODY])}, {'cell': cell},
        *[{'cell': cell, 'allow_cross_cell_move': True}] * 3, {'cell': cell, 'host': dice.choice(world.hosts), 'node': None},
        {'host': dice.choice(world.hosts), 'node': dice.choice(world.hosts[:2])},
        {'aggregates': [','.join(dice.some(world.aggregate_uuids, 3, 1))]},
        {'forbidden_aggregates': dice.some(world.aggregate_uuids, 2, 1)},
    )  # fmt: skip


def too_much(dice: Dice, world: World, call: Call) -> None:
    """A size that few hosts have, or none."""
    put(
        call.request,
        'flavor',
        **dice.one({'vcpus': 64}, {'memory_mb': 40000}, {'root_gb': 500}, {'vcpus': 1000}),
    )


def otherwise(dice: Dice, world: World, call: Call) -> None:
    """As moves and older conductors ask: no alternates, dicts for an answer, no UUIDs and so
    no claims."""
    call.return_alternates = False
    if dice.maybe(0.7):
        call.return_objects, call.return_alternates = False, dice.maybe()
        call.instance_uuids = dice.one(call.instance_uuids, None)


def rebuild(dice: Dice, world: World, call: Call) -> None:
    """A server that stays where it is."""
    server = call.moved = dice.choice(world.servers)
    call.instance_uuids, call.return_alternates = [server.uuid], False
    call.request |= {
        'instance_uuid': server.uuid, 'num_instances': 1,
        'force_hosts': [server.host], 'force_nodes': [server.host],
    }  # fmt: skip
    put(call.request, 'scheduler_hints', _nova_check_type=['rebuild'])


def evacuation(dice: Dice, world: World, call: Call) -> None:
    """A server that has to leave its host, with what it has there."""
    server = call.moved = dice.choice([each for each in world.servers if len(each.held) == 1])
    call.instance_uuids, call.return_alternates = [server.uuid], dice.maybe()
    call.request |= {
        'instance_uuid': server.uuid, 'project_id': server.project, 'num_instances': dice.one(1, 4),
        'ignore_hosts': [server.host],
    }  # fmt: skip


THEMES: list[Theme] = [
    zone, group, group, group, neighbours, neighbours, address, query, capability, aggregate, image,
    devices_of_image, traits, pinning, feature, groups_of_flavor, groups_of_ports, forced, ignored,
    destination, destination, too_much, otherwise, rebuild, evacuation,
]  # fmt: skip
"""Those that stand here more often come more often."""


def _extra_specs(call: Call, specs: dict[str, str]) -> None:
    put(call.request, 'flavor', 'extra_specs', **specs)


def _image_properties(call: Call, **properties: Any) -> None:
    put(call.request, 'image', 'properties', **properties)
