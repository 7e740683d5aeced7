# SPDX-License-Identifier: Apache-2.0
"""Intended differences between nova and novasched, from known.yaml, and the conditions
on cases that known.yaml names.

A condition looks at the description of a case: at a single host for verdicts, at all
hosts for weights.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from novasched.scheduler.pci.parse import pools
from tests.lab.descriptions import JSON_COLUMNS, Case

NUMERIC = {'=', '==', '!=', '>=', '<='}
STRUCTURES = {'aggregates', 'instances', 'metrics', 'service', 'supported_instances'}
NOT_OURS = {
    'allocation_candidates',
    'consume_from_request',
    'limits',
    'numa_topology',
    'pci_stats',
    'update',
    'updated',
}
"""Attributes of nova's host object for nova's internal use."""
MANY_CANDIDATES = 1000
"""More candidates than the hosts of a test have: the default limit."""
ENDLESS = ('inf', '-inf', '1e400')
OF_SERVICES = {'service.binary', 'service.forced_down', 'service.id', 'service.up'}
CONDITION = re.compile(r'\s*([<>=!]=|[<>])\s*\d[\d.]*\s*')


def _lists_several_values(case: Case) -> bool:
    """A metadata value is a list, or a key occurs in several aggregates."""
    keys = set()
    for row in _metadata(case):
        for key, value in row.items():
            if key in keys or ',' in value:
                return True
            keys.add(key)
    return False


def _one_of_several_is_nan(case: Case) -> bool:
    """The aggregates of a host give a key several values, and a value is no number."""
    for host in case.get('hosts', ()):
        values: dict[str, set[str]] = {}
        for row in host.get('aggregates', ()):
            for key, value in row.items():
                values.setdefault(key, set()).add(value)
        for values_of_key in values.values():
            if 'nan' in values_of_key and len(values_of_key) > 1:
                return True
    return False


def _says_an_aggregate(case: Case, texts: Iterable[str]) -> bool:
    """A metadata value is one of the texts."""
    values = set()
    for row in _metadata(case):
        values.update(row.values())
    return not values.isdisjoint(texts)


def _names_an_internal_in_the_query(case: Case) -> bool:
    for name in re.findall(r'\$([\w.]*)', _query(case)):
        if name.split('.')[0] in NOT_OURS:
            return True
        if name.startswith('_') or name in OF_SERVICES:
            return True
    return False


def _an_extra_spec_names_an_internal(case: Case) -> bool:
    for path in _paths(case):
        if path.split(':')[0] in NOT_OURS or path.startswith('_'):
            return True
    return False


def _an_extra_spec_compares_numbers(case: Case) -> bool:
    operators = set()
    for value in _extra_specs(case).values():
        operators.update(value.split()[:1])
    return not NUMERIC.isdisjoint(operators)


def _may_choose_a_provider(case: Case) -> bool:
    """The request is for devices, or for disk, which may be local or shared."""
    classes = set()
    for name in _extra_specs(case):
        if name.startswith('resources'):
            classes.add(name.rpartition(':')[2])
    for group in _request(case).get('requested_resources') or ():
        classes.update(group['resources'])

    flavor = _request(case).get('flavor') or {}
    has_disk = flavor.get('root_gb') or flavor.get('ephemeral_gb') or flavor.get('swap')
    if has_disk:
        return True
    return any(re.match('VGPU|PGPU|CUSTOM_', name) for name in classes)


def _has_several_in_a_group(case: Case) -> bool:
    """The call is for more than one instance of a server group."""
    uuids = case.get('instance_uuids')
    count = len(uuids) if uuids else _request(case).get('num_instances', 1)
    return bool(_request(case).get('instance_group')) and count > 1


def _has_unequal_cells(case: Case) -> bool:
    """Guest cells differ in CPUs, memory or page size."""
    sizes = set()
    for cell in _guest_cells(case):
        cpus = (len(cell['cpuset']), len(cell['pcpuset']))
        sizes.add((*cpus, cell['memory'], cell['pagesize']))
    return len(sizes) > 1


def _has_cells_with_different_wishes(case: Case) -> bool:
    """Guest cells differ, or one cell alone has the emulator threads, or a cell has
    shared and pinned CPUs, which nova looks up by number."""
    cells = _guest_cells(case)
    is_mixed = any(cell['cpuset'] and cell['pcpuset'] for cell in cells)
    different = is_mixed or _emulator_threads(case) == 'isolate'
    return _has_unequal_cells(case) or (len(cells) > 1 and different)


def _has_a_physical_function_beside_its_virtual_ones(case: Case) -> bool:
    """Pools of a physical function and of virtual functions have the same address."""
    kinds: dict[str, set[str | None]] = {}
    for pool in pools(case['pci_stats']):
        if address := pool.tags.get('address'):
            kinds.setdefault(address, set()).add(pool.tags.get('dev_type'))
    for kinds_at_address in kinds.values():
        if 'type-PF' in kinds_at_address and kinds_at_address & {'type-VF', 'vdpa'}:
            return True
    return False


def _has_devices_of_different_providers(case: Case) -> bool:
    """The requests name several providers, by their groups or in their specs."""
    providers = set()
    for request in case['requests']:
        data = request['nova_object.data']
        if not data['alias_name']:
            continue
        if case['mappings']:
            for group, providers_of_group in case['mappings'].items():
                if group.startswith(data['request_id']):
                    providers.update(providers_of_group)
        elif data['spec']:
            uuids = data['spec'][0].get('rp_uuids', '').split(',')
            providers.update(filter(None, uuids))
    return len(providers) > 1


def _devices_come_from_several_providers(case: Case) -> bool:
    """A candidate of a host has groups with suffixes of several providers."""
    for host in case['hosts']:
        for candidate in host.get('candidates', ()):
            groups = {name for name in candidate['mappings'] if name}
            if len(groups) > 1:
                return True
    return False


def _a_column_was_never_written(case: Case) -> bool:
    for row in _rows(case):
        if row.get('free_disk_gb', 0) is None or row.get('uuid', 0) is None:
            return True
    return False


def _a_metric_is_no_number(case: Case) -> bool:
    for row in _rows(case):
        for metric in row.get('metrics') or ():
            if isinstance(metric.get('value'), str | None):
                return True
    return False


def _the_image_wants_no_version(case: Case) -> bool:
    """A condition on the hypervisor's version cannot be read."""
    conditions = _image_properties(case).get('img_hv_requested_version', '>1')
    return not all(map(CONDITION.fullmatch, conditions.split(',')))


def _a_network_request_names_nothing(case: Case) -> bool:
    for network in _request(case).get('requested_networks', {}).get('objects', ()):
        if not network.get('network_id') and not network.get('port_id'):
            return True
    return False


def _the_group_lacks_a_list(case: Case) -> bool:
    group = _request(case).get('instance_group', {})
    return group.get('members', ()) is None or group.get('hosts', ()) is None


def _a_group_asks_for_zero(case: Case) -> bool:
    for group in _request(case).get('requested_resources') or ():
        if 0 in group.get('resources', {}).values():
            return True
    return False


def _may_be_cut(case: Case) -> bool:
    """Placement may have more candidates than the limit, since several groups have
    permutations."""
    options = case.get('config', {}).get('scheduler', {})
    limit = options.get('max_placement_results', MANY_CANDIDATES)
    groups = _request(case).get('requested_resources') or ()
    return limit < MANY_CANDIDATES and len(groups) > 1


def _cpus_are_pinned(case: Case) -> bool:
    by_flavor = _extra_specs(case).get('hw:cpu_policy')
    by_image = _image_properties(case).get('hw_cpu_policy')
    return 'dedicated' in (by_flavor, by_image)


def _the_host_lists_no_siblings(case: Case) -> bool:
    for row in _rows(case):
        for cell in (row.get('numa_topology') or {}).get('cells', ()):
            if not cell['siblings']:
                return True
    return False


def _guest_cells(case: Case) -> list[Case]:
    return _guest(case).get('cells', [])


def _emulator_threads(case: Case) -> str | None:
    return _guest(case).get('emulator_threads_policy')


def _guest(case: Case) -> Case:
    return case.get('guest') or _request(case).get('numa_topology') or {}


def _rows(case: Case) -> list[Case]:
    return [host.get('row', {}) for host in case['hosts']]


def _metadata(case: Case) -> list[dict[str, str]]:
    """The metadata of all aggregates of all hosts."""
    rows = []
    for host in case.get('hosts', ()):
        rows += host.get('aggregates', ())
    return rows


def _option(case: Case, group: str, name: str) -> Any:
    return case.get('config', {}).get(group, {}).get(name)


def _request(case: Case) -> Case:
    return case.get('request', {})


def _extra_specs(case: Case) -> dict[str, str]:
    return _request(case).get('flavor', {}).get('extra_specs', {})


def _paths(case: Case) -> list[str]:
    """Names of host attributes in the keys of extra specs."""
    return [key.removeprefix('capabilities:') for key in _extra_specs(case)]


def _image_properties(case: Case) -> Case:
    return (_request(case).get('image') or {}).get('properties', {}) or {}


def _hints(case: Case) -> dict[str, list[str]]:
    return _request(case).get('scheduler_hints') or {}


def _query(case: Case) -> str:
    return str(_hints(case).get('query'))


REASONS: dict[str, Callable[[Case], bool]] = {
    'an_extra_spec_names_an_internal': _an_extra_spec_names_an_internal,
    'an_extra_spec_names_a_structure': lambda case: (
        not STRUCTURES.isdisjoint(_paths(case))
    ),
    'an_extra_spec_compares_numbers': _an_extra_spec_compares_numbers,
    'an_aggregate_lists_several_values': _lists_several_values,
    'one_of_several_values_is_nan': _one_of_several_is_nan,
    'an_aggregate_says_infinite': lambda case: _says_an_aggregate(case, ENDLESS),
    'an_aggregate_says_nan': lambda case: _says_an_aggregate(case, {'nan'}),
    'a_column_was_never_written': _a_column_was_never_written,
    'a_column_is_odd': lambda case: any(
        {*JSON_COLUMNS, 'host_ip'} & set(row) for row in _rows(case)
    ),
    'a_metric_is_no_number': _a_metric_is_no_number,
    'the_image_wants_no_version': _the_image_wants_no_version,
    'the_image_wants_address_bits': lambda case: (
        'hw_maxphysaddr_bits' in _image_properties(case)
    ),
    'the_query_compares_an_address': lambda case: '$host_ip' in _query(case),
    'the_query_names_an_internal': _names_an_internal_in_the_query,
    'the_group_lacks_a_list': _the_group_lacks_a_list,
    'a_hint_is_empty': lambda case: [] in _hints(case).values(),
    'a_hint_is_a_text_or_a_dict': lambda case: any(
        isinstance(hint, str | dict) for hint in _hints(case).values()
    ),
    'the_multiplier_of_metrics_is_zero': lambda case: (
        _option(case, 'metrics', 'weight_multiplier') == 0.0
    ),
    'there_is_no_image': lambda case: _request(case).get('image') is None,
    'there_is_no_project': lambda case: (
        _request(case).get('project_id', 'project') is None
    ),
    'the_image_has_no_format': lambda case: (
        not (_request(case).get('image') or {}).get('disk_format')
    ),
    'a_network_request_names_nothing': _a_network_request_names_nothing,
    'a_group_asks_for_zero': _a_group_asks_for_zero,
    'images_weigh': lambda case: bool(
        _option(case, 'filter_scheduler', 'image_props_weight_multiplier')
    ),
    'several_servers_are_in_a_group': _has_several_in_a_group,
    'a_provider_may_be_chosen': _may_choose_a_provider,
    'several_servers_may_choose_a_provider_each': lambda case: (
        len(case.get('instance_uuids') or ()) > 1 and _may_choose_a_provider(case)
    ),
    'the_limit_may_cut_candidates': _may_be_cut,
    'cpus_are_pinned': _cpus_are_pinned,
    'the_guest_leaves_the_page_size_open': lambda case: any(
        (cell.get('pagesize') or 0) < 0 for cell in _guest_cells(case)
    ),
    'the_guest_has_unequal_cells': _has_unequal_cells,
    'guest_cells_want_different_things': _has_cells_with_different_wishes,
    'emulator_threads_are_isolated': lambda case: _emulator_threads(case) == 'isolate',
    'vcpus_are_isolated': lambda case: any(
        cell.get('cpu_thread_policy') == 'isolate' for cell in _guest_cells(case)
    ),
    'a_physical_function_has_its_virtual_ones_beside_it': _has_a_physical_function_beside_its_virtual_ones,
    'devices_come_from_different_providers': _has_devices_of_different_providers,
    'devices_come_from_several_providers': _devices_come_from_several_providers,
    'the_host_lists_no_siblings': _the_host_lists_no_siblings,
}

LISTS = ('of', 'when', 'nova', 'ours')


@dataclass(frozen=True)
class Known:
    """An intended difference.

    :ivar of: the subjects of the runs where the difference occurs.
    :ivar when: the conditions on a case, all of them names of :data:`REASONS`.
    :ivar nova: possible outcomes of nova.
    :ivar ours: possible outcomes of novasched.
    :ivar why: the reason for the difference.
    :ivar most: the largest share of a run's cases with the difference.
    :ivar smallest: an example of nova's answer that cannot be made smaller.
    """

    id: str
    of: tuple[str, ...]
    when: tuple[str, ...]
    nova: tuple[str, ...]
    ours: tuple[str, ...]
    why: str
    most: float = 1.0
    smallest: Mapping[str, Any] | None = None

    def covers(self, name: str, case: Case, nova: str, ours: str) -> bool:
        return (
            _subject(name) in self.of
            and nova in self.nova
            and ours in self.ours
            and all(REASONS[reason](case) for reason in self.when)
        )


def _load() -> list[Known]:
    """All intended differences of known.yaml."""
    rows = yaml.safe_load(Path(__file__).with_name('known.yaml').read_text())
    for row in rows:
        for key in LISTS:
            row[key] = (row[key],) if isinstance(row[key], str) else tuple(row[key])
    return [Known(**row) for row in rows]


KNOWN = _load()


def too_frequent(name: str, seen: Mapping[str, int], cases: int) -> list[str]:
    """The intended differences that occurred in more cases of a run than intended: they
    probably hide a further difference."""
    too_many = []
    for known in KNOWN:
        if _subject(name) in known.of:
            limit = max(3.0, known.most * cases)
            if seen.get(known.id, 0) > limit:
                too_many.append(known.id)
    return too_many


def explanation(name: str, case: Case, nova: str, ours: str) -> str | None:
    """The id of the intended difference that covers the outcomes, or None."""
    for known in KNOWN:
        if known.covers(name, case, nova, ours):
            return known.id
    return None


def stale(seen: Collection[str], ran: Iterable[str]) -> list[str]:
    """The intended differences that did not occur, although all of their subjects
    ran."""
    subjects = {_subject(name) for name in ran}
    missing = []
    for known in KNOWN:
        if known.id not in seen and subjects.issuperset(known.of):
            missing.append(known.id)
    return missing


def _subject(name: str) -> str:
    """The subject of a run: ``query`` for ``query: networks``."""
    return name.partition(':')[0]
