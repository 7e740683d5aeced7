# SPDX-License-Identifier: Apache-2.0
"""Aggregates, whose metadata is text and anything in it."""

from __future__ import annotations

from collections.abc import Callable

from tests.lab.builders import a_uuid
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put
from tests.parity.themes.abilities import requirement
from tests.parity.themes.neighbours import TENANTS

IMAGES = [a_uuid('image'), a_uuid('image2'), a_uuid('image3')]
ZONES = ['nova', 'az1', 'az2', 'internal']


def metadata(
    dice: Dice, case: Case, values: dict[str, Callable[[], str]], chance: float = 0.6
) -> None:
    """Put hosts into aggregates whose metadata has some of the keys."""
    for host in case['hosts']:
        for _ in range(dice.one(0, 1, 1, 2, 3)):
            chosen = {key: value() for key, value in values.items() if dice.maybe(chance)}
            host.setdefault('aggregates', []).append(chosen)


def tenants(dice: Dice, case: Case) -> None:
    names = [*TENANTS, '', 'PROJECT']
    keys = (
        'filter_tenant_id',
        'filter_tenant_id2',
        'filter_tenant_id:x',
        'filter_tenant',
        'xfilter_tenant_id',
        'other',
    )
    metadata(dice, case, {key: lambda: dice.joined(names) for key in keys}, 0.25)
    put(case, 'request', project_id=dice.one('project', 'other', 'third', None, ''))


def isolation(dice: Dice, case: Case) -> None:
    hosts = ['host1', 'host2', 'HOST3', 'host3']
    put(
        case, 'config', 'filter_scheduler',
        isolated_images=dice.some(IMAGES, 2), isolated_hosts=dice.some(hosts, 3),
        restrict_isolated_hosts_to_isolated_images=dice.maybe(),
    )  # fmt: skip
    if dice.maybe(0.85):
        put(case, 'request', image={'id': dice.one(*IMAGES)})


def image_properties_of_aggregates(dice: Dice, case: Case) -> None:
    """Aggregates for images with certain properties."""
    prefix = dice.one('', '', 'ns.', 'os_')
    values = {
        'os_distro': ('ubuntu', 'rhel', 'Ubuntu'), 'hw_architecture': ('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': ('True', 'true', 'False', 'yes'), 'hw_cpu_cores': ('1', '2', '02'),
        'os_type': ('linux', 'windows'), 'hw_video_ram': ('0', '16'), 'img_owner_id': ('a', 'b'),
        'unknown_property': ('1', '2'), 'trait:HW_CPU_X86_AVX': ('required',), 'ns.os_distro': ('ubuntu', 'rhel'),
    }  # fmt: skip
    metadata(dice, case, {
        key: lambda key=key: dice.joined(values[key], 2) for key in values  # type: ignore[misc]
    }, 0.3)  # fmt: skip
    properties = {
        'os_distro': dice.one('ubuntu', 'rhel', ''), 'hw_architecture': dice.one('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': dice.maybe(), 'hw_cpu_cores': dice.one(1, 2, 0), 'os_type': dice.one('linux', 'windows'),
        'hw_video_ram': dice.one(0, 16), 'img_owner_id': dice.one('a', 'b', 'a,b'),
        'traits_required': ['HW_CPU_X86_AVX'],
    }  # fmt: skip
    chosen = {name: value for name, value in properties.items() if dice.maybe(0.4)}
    if dice.maybe(0.95):
        put(case, 'request', image={'properties': chosen})
    if prefix or dice.maybe(0.1):
        put(
            case, 'config', 'filter_scheduler',
            aggregate_image_properties_isolation_namespace=prefix[:-1],
            aggregate_image_properties_isolation_separator=dice.one(prefix[-1:], prefix[-1:], '.', ''),
        )  # fmt: skip


def extra_specs_of_aggregates(dice: Dice, case: Case) -> None:
    """Extra specs against aggregate metadata."""
    keys = ('ssd', 'size', 'rack', 'cpu', 'a:b')
    words = ('true', 'false', '1', '4', '8', 'avx', 'x', 'a', '<or>', 'avx2', '')
    metadata(dice, case, {key: lambda: dice.joined(words) for key in keys})
    for _ in range(dice.one(0, 1, 1, 2)):
        scope = dice.one('aggregate_instance_extra_specs:', '', '', 'capabilities:', 'trait:')
        wanted = dice.one(*words) if dice.maybe() else requirement(dice)
        put(
            case, 'request', 'flavor', 'extra_specs', **{scope + dice.one(*keys, 'lacking'): wanted}
        )


def flavors_of_aggregates(dice: Dice, case: Case) -> None:
    names = ('small', 'large', 'Small', '', 'a,b')
    metadata(dice, case, {'instance_type': lambda: dice.joined(names)})
    put(case, 'request', 'flavor', name=dice.one(*names), id=dice.one(1, 2))


def zones(dice: Dice, case: Case) -> None:
    metadata(dice, case, {'availability_zone': lambda: dice.joined([*ZONES, ''], 2)})
    put(case, 'request', availability_zone=dice.one(*ZONES, 'AZ1', '', None))
    if dice.maybe(0.3):
        put(case, 'config', 'DEFAULT', default_availability_zone=dice.one('az1', 'default', 'az2'))
    put(case, 'config', 'scheduler', query_placement_for_availability_zone=dice.maybe())


def limits_of_aggregates(dice: Dice, case: Case) -> None:
    """Aggregates that override the limits of I/O and of servers."""
    metadata(dice, case, {
        'max_io_ops_per_host': dice.number_text,
        'max_instances_per_host': dice.number_text,
    })  # fmt: skip


def ratios_of_aggregates(dice: Dice, case: Case) -> None:
    """Aggregates that override allocation ratios."""
    metadata(dice, case, {
        f'{name}_allocation_ratio': dice.number_text for name in ('cpu', 'ram', 'disk')
    })  # fmt: skip


def multipliers(dice: Dice, case: Case) -> None:
    """Multipliers of weighers, by option and by aggregate."""
    names = [
        f'{name}_weight_multiplier' for name in (
            'ram', 'cpu', 'disk', 'io_ops', 'num_instances', 'build_failure', 'hypervisor_version',
            'pci', 'soft_affinity', 'soft_anti_affinity', 'cross_cell_move', 'image_props',
        )
    ]  # fmt: skip
    at_least_0 = ('pci', 'soft_affinity', 'soft_anti')
    for name in names:
        if dice.maybe(0.4):
            value = dice.one(0.0, 1.0, -1.0, 2.5, 1000000.0, -0.5)
            value = abs(value) if name.startswith(at_least_0) else value
            put(case, 'config', 'filter_scheduler', **{name: value})
    if dice.maybe(0.4):
        put(case, 'config', 'metrics', weight_multiplier=dice.one(0.0, 1.0, -1.0, 2.5))
    if dice.maybe():
        keys = [*names, 'metrics_weight_multiplier']
        metadata(dice, case, {key: lambda: dice.number_text(0.1) for key in keys})
