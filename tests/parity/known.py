# SPDX-License-Identifier: Apache-2.0
"""The differences that are meant, from known.yaml, and what that may say of a case, by
name.

A reason looks at a description, of verdicts with one host, of weights with all of them.
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
"""What nova's host object has for its own use."""
ENDLESS = ('inf', '-inf', '1e400')
OF_SERVICES = {'service.binary', 'service.forced_down', 'service.id', 'service.up'}
CONDITION = re.compile(r'\s*([<>=!]=|[<>])\s*\d[\d.]*\s*')


def _lists_several_values(case: Case) -> bool:
    """A metadata value is a list, or a key occurs in several aggregates."""
    rows = _metadata(case)
    keys = [key for row in rows for key in row]
    return len(keys) > len(set(keys)) or any(
        ',' in value for row in rows for value in row.values()
    )


def _one_of_several_is_nan(case: Case) -> bool:
    """The aggregates of a host give a key several values, one of which is no number."""
    for host in case.get('hosts', ()):
        rows = host.get('aggregates', ())
        values = [
            {row[key] for row in rows if key in row}
            for key in {x for row in rows for x in row}
        ]
        if any('nan' in each and len(each) > 1 for each in values):
            return True
    return False


def _names_an_internal_in_the_query(case: Case) -> bool:
    names = re.findall(r'\$([\w.]*)', _query(case))
    return any(
        name.split('.')[0] in NOT_OURS or name.startswith('_') or name in OF_SERVICES
        for name in names
    )


def _may_choose_a_provider(case: Case) -> bool:
    """Devices are wanted, or disks, which may be local or of a shared provider."""
    groups = [
        each['resources'] for each in _request(case).get('requested_resources') or ()
    ]
    classes = {
        name.rpartition(':')[2]
        for name in _extra_specs(case)
        if name.startswith('resources')
    }
    classes.update(*groups)
    flavor = _request(case).get('flavor') or {}
    has_disk = flavor.get('root_gb') or flavor.get('ephemeral_gb') or flavor.get('swap')
    return bool(
        has_disk or any(re.match('VGPU|PGPU|CUSTOM_', name) for name in classes)
    )


def _has_several_in_a_group(case: Case) -> bool:
    """The call is for more than one instance of a server group."""
    uuids = case.get('instance_uuids')
    count = len(uuids) if uuids else _request(case).get('num_instances', 1)
    return bool(_request(case).get('instance_group')) and count > 1


def _has_unequal_cells(case: Case) -> bool:
    """Guest cells differ in CPUs, memory or page size."""
    wants = {
        (len(each['cpuset']), len(each['pcpuset']), each['memory'], each['pagesize'])
        for each in _guest_cells(case)
    }
    return len(wants) > 1


def _has_cells_with_different_wishes(case: Case) -> bool:
    """Guest cells differ, or only one has the emulator threads, or CPUs of them are
    shared and others pinned, which nova looks up by their numbers."""
    cells = _guest_cells(case)
    is_mixed = any(each['cpuset'] and each['pcpuset'] for each in cells)
    different = is_mixed or _emulator_threads(case) == 'isolate'
    return _has_unequal_cells(case) or (len(cells) > 1 and different)


def _has_a_physical_function_beside_its_virtual_ones(case: Case) -> bool:
    """Pools of both have the address of the physical function."""
    kinds: dict[str, set[str | None]] = {}
    for pool in pools(case['pci_stats']):
        if address := pool.tags.get('address'):
            kinds.setdefault(address, set()).add(pool.tags.get('dev_type'))
    return any(
        'type-PF' in found and found & {'type-VF', 'vdpa'} for found in kinds.values()
    )


def _has_devices_of_different_providers(case: Case) -> bool:
    """The requests' groups, or what the requests say of themselves, name several."""
    data = [each['nova_object.data'] for each in case['requests']]
    asked = [each for each in data if each['alias_name']]
    named = {
        provider
        for each in asked
        for group, given in (case['mappings'] or {}).items()
        if group.startswith(each['request_id'])
        for provider in given
    }
    known = {
        provider
        for each in asked
        if each['spec'] and not case['mappings']
        for provider in filter(None, each['spec'][0].get('rp_uuids', '').split(','))
    }
    return len(named | known) > 1


def _guest_cells(case: Case) -> list[Case]:
    return _guest(case).get('cells', [])


def _emulator_threads(case: Case) -> str | None:
    return _guest(case).get('emulator_threads_policy')


def _guest(case: Case) -> Case:
    return case.get('guest') or _request(case).get('numa_topology') or {}


def _rows(case: Case) -> list[Case]:
    return [host.get('row', {}) for host in case['hosts']]


def _metadata(case: Case) -> list[dict[str, str]]:
    return [row for host in case.get('hosts', ()) for row in host.get('aggregates', ())]


def _metadata_values(case: Case) -> set[str]:
    return {value for row in _metadata(case) for value in row.values()}


def _option(case: Case, group: str, name: str) -> Any:
    return case.get('config', {}).get(group, {}).get(name)


def _request(case: Case) -> Case:
    return case.get('request', {})


def _extra_specs(case: Case) -> dict[str, str]:
    return _request(case).get('flavor', {}).get('extra_specs', {})


def _paths(case: Case) -> list[str]:
    """What the keys of extra specs name of a host."""
    return [key.removeprefix('capabilities:') for key in _extra_specs(case)]


def _image_properties(case: Case) -> Case:
    return (_request(case).get('image') or {}).get('properties', {}) or {}


def _hints(case: Case) -> dict[str, list[str]]:
    return _request(case).get('scheduler_hints') or {}


def _query(case: Case) -> str:
    return str(_hints(case).get('query'))


REASONS: dict[str, Callable[[Case], bool]] = {
    'an_extra_spec_names_an_internal': lambda case: any(
        path.split(':')[0] in NOT_OURS or path.startswith('_') for path in _paths(case)
    ),
    'an_extra_spec_names_a_structure': lambda case: (
        not STRUCTURES.isdisjoint(_paths(case))
    ),
    'an_extra_spec_compares_numbers': lambda case: any(
        not NUMERIC.isdisjoint(value.split()[:1])
        for value in _extra_specs(case).values()
    ),
    'an_aggregate_lists_several_values': _lists_several_values,
    'one_of_several_values_is_nan': _one_of_several_is_nan,
    'an_aggregate_says_infinite': lambda case: (
        not _metadata_values(case).isdisjoint(ENDLESS)
    ),
    'an_aggregate_says_no_finite_number': lambda case: (
        not _metadata_values(case).isdisjoint({*ENDLESS, 'nan'})
    ),
    'a_column_was_never_written': lambda case: any(
        row.get(name, 0) is None
        for row in _rows(case)
        for name in ('free_disk_gb', 'uuid')
    ),
    'a_column_is_odd': lambda case: any(
        {*JSON_COLUMNS, 'host_ip'} & set(row) for row in _rows(case)
    ),
    'a_metric_is_no_number': lambda case: any(
        isinstance(each.get('value'), str | None)
        for row in _rows(case)
        for each in row.get('metrics') or ()
    ),
    'the_image_wants_no_version': lambda case: (
        not all(
            CONDITION.fullmatch(each)
            for each in _image_properties(case)
            .get('img_hv_requested_version', '>1')
            .split(',')
        )
    ),
    'the_image_wants_address_bits': lambda case: (
        'hw_maxphysaddr_bits' in _image_properties(case)
    ),
    'the_query_compares_an_address': lambda case: '$host_ip' in _query(case),
    'the_query_names_an_internal': _names_an_internal_in_the_query,
    'the_group_lacks_a_list': lambda case: any(
        _request(case).get('instance_group', {}).get(name, ()) is None
        for name in ('members', 'hosts')
    ),
    'a_hint_is_empty': lambda case: [] in _hints(case).values(),
    'a_hint_is_a_text_or_a_dict': lambda case: any(
        isinstance(each, str | dict) for each in _hints(case).values()
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
    'a_network_request_names_nothing': lambda case: any(
        not each.get('network_id') and not each.get('port_id')
        for each in _request(case).get('requested_networks', {}).get('objects', ())
    ),
    'a_group_asks_for_zero': lambda case: any(
        0 in each.get('resources', {}).values()
        for each in _request(case).get('requested_resources') or ()
    ),
    'images_weigh': lambda case: bool(
        _option(case, 'filter_scheduler', 'image_props_weight_multiplier')
    ),
    'several_servers_are_in_a_group': _has_several_in_a_group,
    'a_provider_may_be_chosen': _may_choose_a_provider,
    'several_servers_may_choose_a_provider_each': lambda case: (
        len(case.get('instance_uuids') or ()) > 1 and _may_choose_a_provider(case)
    ),
    'cpus_are_pinned': lambda case: (
        'dedicated'
        in (
            _extra_specs(case).get('hw:cpu_policy'),
            _image_properties(case).get('hw_cpu_policy'),
        )
    ),
    'the_guest_leaves_the_page_size_open': lambda case: any(
        (each.get('pagesize') or 0) < 0 for each in _guest_cells(case)
    ),
    'the_guest_has_unequal_cells': _has_unequal_cells,
    'guest_cells_want_different_things': _has_cells_with_different_wishes,
    'emulator_threads_are_isolated': lambda case: _emulator_threads(case) == 'isolate',
    'vcpus_are_isolated': lambda case: any(
        each.get('cpu_thread_policy') == 'isolate' for each in _guest_cells(case)
    ),
    'a_physical_function_has_its_virtual_ones_beside_it': _has_a_physical_function_beside_its_virtual_ones,
    'devices_come_from_different_providers': _has_devices_of_different_providers,
    'devices_come_from_several_providers': lambda case: any(
        len({name for name in each['mappings'] if name}) > 1
        for host in case['hosts']
        for each in host.get('candidates', ())
    ),
    'the_host_lists_no_siblings': lambda case: any(
        not cell['siblings']
        for row in _rows(case)
        for cell in (row.get('numa_topology') or {}).get('cells', ())
    ),
}

LISTS = ('of', 'when', 'nova', 'ours')


@dataclass(frozen=True)
class Known:
    """An intended difference: whose, in which cases, what each side does, and why."""

    id: str
    of: tuple[str, ...]
    when: tuple[str, ...]
    nova: tuple[str, ...]
    ours: tuple[str, ...]
    why: str
    most: float = 1.0
    """In what part of a run's cases it occurs at the most."""
    smallest: Mapping[str, Any] | None = None
    """An example of nova's answer that cannot be made any smaller."""

    def covers(self, name: str, case: Case, nova: str, ours: str) -> bool:
        return (
            _subject(name) in self.of
            and nova in self.nova
            and ours in self.ours
            and all(REASONS[reason](case) for reason in self.when)
        )


def _load() -> list[Known]:
    """All of them; a name in ``when`` is one of :data:`REASONS`."""
    rows = yaml.safe_load(Path(__file__).with_name('known.yaml').read_text())
    for row in rows:
        for key in LISTS:
            row[key] = (row[key],) if isinstance(row[key], str) else tuple(row[key])
    return [Known(**row) for row in rows]


KNOWN = _load()


def too_frequent(name: str, seen: Mapping[str, int], cases: int) -> list[str]:
    """Those of a run that occurred more often than they may: something else hides
    behind them."""
    of_run = [each for each in KNOWN if _subject(name) in each.of]
    return [
        each.id for each in of_run if seen.get(each.id, 0) > max(3.0, each.most * cases)
    ]


def explanation(name: str, case: Case, nova: str, ours: str) -> str | None:
    """The id of the intended difference that this one is."""
    return next(
        (each.id for each in KNOWN if each.covers(name, case, nova, ours)), None
    )


def stale(seen: Collection[str], ran: Iterable[str]) -> list[str]:
    """Those that did not occur, though everything that they are said of ran."""
    subjects = {_subject(name) for name in ran}
    return [
        each.id
        for each in KNOWN
        if each.id not in seen and subjects.issuperset(each.of)
    ]


def _subject(name: str) -> str:
    """What a run is about: ``query`` for ``query: networks``."""
    return name.partition(':')[0]
