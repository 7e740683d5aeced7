# SPDX-License-Identifier: Apache-2.0
"""Themes of aggregates, whose metadata may be an arbitrary text."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.lab.builders import a_uuid
from tests.parity.dice import Dice, Draft
from tests.parity.themes.abilities import requirement
from tests.parity.themes.neighbours import TENANTS

IMAGES = [a_uuid('image'), a_uuid('image2'), a_uuid('image3')]
ZONES = ['nova', 'az1', 'az2', 'internal']
MULTIPLIERS = [
    f'{name}_weight_multiplier'
    for name in (
        'ram',
        'cpu',
        'disk',
        'io_ops',
        'num_instances',
        'hypervisor_version',
        'build_failure',
        'pci',
        'soft_affinity',
        'soft_anti_affinity',
        'cross_cell_move',
        'metrics',
        'image_props',
    )
]
AT_LEAST_0 = ('pci', 'soft_affinity', 'soft_anti')


def metadata(
    dice: Dice,
    draft: Draft,
    values: Mapping[str, Callable[[], str]],
    chance: float = 0.6,
) -> None:
    """Put hosts into aggregates with a few of the keys in the metadata."""
    for host in draft.hosts:
        for _ in range(dice.one(0, 1, 1, 2, 3)):
            chosen = {}
            for key, value in values.items():
                if dice.maybe(chance):
                    chosen[key] = value()
            host['aggregates'].append(chosen)


def tenants(dice: Dice, draft: Draft) -> None:
    names = [*TENANTS, '', 'PROJECT']
    keys = (
        'filter_tenant_id', 'filter_tenant_id2', 'filter_tenant_id:x', 'filter_tenant',
        'xfilter_tenant_id', 'other',
    )  # fmt: skip
    metadata(dice, draft, dict.fromkeys(keys, lambda: dice.joined(names)), 0.25)
    draft.ask(project_id=dice.one('project', 'other', 'third', None, ''))


def isolation(dice: Dice, draft: Draft) -> None:
    draft.set(
        'filter_scheduler',
        isolated_images=dice.some(IMAGES, 2),
        isolated_hosts=dice.some(['host1', 'host2', 'HOST3', 'host3'], 3),
        restrict_isolated_hosts_to_isolated_images=dice.maybe(),
    )
    if dice.maybe(0.85):
        draft.ask(image={'id': dice.one(*IMAGES)})


def image_properties_of_aggregates(dice: Dice, draft: Draft) -> None:
    """Aggregates for images with certain properties."""
    prefix = dice.one('', '', 'ns.', 'os_')
    values = {
        'os_distro': ('ubuntu', 'rhel', 'Ubuntu'),
        'hw_architecture': ('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': ('True', 'true', 'False', 'yes'),
        'hw_cpu_cores': ('1', '2', '02'),
        'os_type': ('linux', 'windows'),
        'hw_video_ram': ('0', '16'),
        'img_owner_id': ('a', 'b'),
        'unknown_property': ('1', '2'),
        'trait:HW_CPU_X86_AVX': ('required',),
        'ns.os_distro': ('ubuntu', 'rhel'),
    }
    texts = {key: partial(dice.joined, options, 2) for key, options in values.items()}
    metadata(dice, draft, texts, 0.3)
    properties = dice.each({
        'os_distro': ('ubuntu', 'rhel', ''), 'hw_architecture': ('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': (True, False), 'hw_cpu_cores': (1, 2, 0),
        'os_type': ('linux', 'windows'), 'hw_video_ram': (0, 16),
        'img_owner_id': ('a', 'b', 'a,b'), 'traits_required': (['HW_CPU_X86_AVX'],),
    }, 0.4)  # fmt: skip
    if dice.maybe(0.95):
        draft.ask(image={'properties': properties})
    if prefix or dice.maybe(0.1):
        draft.set(
            'filter_scheduler',
            aggregate_image_properties_isolation_namespace=prefix[:-1],
            aggregate_image_properties_isolation_separator=dice.one(
                *[prefix[-1:]] * 2, '.', ''
            ),
        )


def extra_specs_of_aggregates(dice: Dice, draft: Draft) -> None:
    """Extra specs against aggregate metadata."""
    keys = ('ssd', 'size', 'rack', 'cpu', 'a:b')
    words = ('true', 'false', '1', '4', '8', 'avx', 'x', 'a', '<or>', 'avx2', '')
    metadata(dice, draft, dict.fromkeys(keys, lambda: dice.joined(words)))
    for _ in range(dice.one(0, 1, 1, 2)):
        scope = dice.one(
            'aggregate_instance_extra_specs:', '', '', 'capabilities:', 'trait:'
        )
        wanted = dice.one(*words) if dice.maybe() else requirement(dice)
        draft.extra_specs({scope + dice.one(*keys, 'lacking'): wanted})


def flavors_of_aggregates(dice: Dice, draft: Draft) -> None:
    names = ('small', 'large', 'Small', '', 'a,b')
    metadata(dice, draft, {'instance_type': lambda: dice.joined(names)})
    draft.flavor(name=dice.one(*names), id=dice.one(1, 2))


def zones(dice: Dice, draft: Draft) -> None:
    metadata(dice, draft, {'availability_zone': lambda: dice.joined([*ZONES, ''], 2)})
    draft.ask(availability_zone=dice.one(*ZONES, 'AZ1', '', None))
    if dice.maybe(0.3):
        draft.set(
            'DEFAULT', default_availability_zone=dice.one('az1', 'default', 'az2')
        )
    draft.set('scheduler', query_placement_for_availability_zone=dice.maybe())


def limits_of_aggregates(dice: Dice, draft: Draft) -> None:
    """Aggregates with limits of I/O operations and of servers."""
    limits = ('max_io_ops_per_host', 'max_instances_per_host')
    metadata(dice, draft, dict.fromkeys(limits, dice.number_text))


def ratios_of_aggregates(dice: Dice, draft: Draft) -> None:
    """Aggregates with allocation ratios."""
    ratios = [f'{name}_allocation_ratio' for name in ('cpu', 'ram', 'disk')]
    metadata(dice, draft, dict.fromkeys(ratios, dice.number_text))


def multipliers(dice: Dice, draft: Draft) -> None:
    """Multipliers of weighers, by option and by aggregate."""
    for name in MULTIPLIERS:
        if name != 'metrics_weight_multiplier' and dice.maybe(0.4):
            value = dice.one(0.0, 1.0, -1.0, 2.5, 1000000.0, -0.5)
            value = abs(value) if name.startswith(AT_LEAST_0) else value
            draft.set('filter_scheduler', **{name: value})
    if dice.maybe(0.4):
        draft.set('metrics', weight_multiplier=dice.one(0.0, 1.0, -1.0, 2.5))
    if dice.maybe():
        metadata(dice, draft, dict.fromkeys(MULTIPLIERS, lambda: dice.number_text(0.1)))
