# SPDX-License-Identifier: Apache-2.0
"""What known.yaml may say of a case: one small function for each name.

They look at descriptions, of verdicts with one host, of weights with all of them.
"""

from __future__ import annotations

import re
from typing import Any

from novasched.pci.parse import pools
from tests.parity.descriptions import JSON_COLUMNS, Case

NUMERIC = ('=', '==', '!=', '>=', '<=')
STRUCTURES = {'aggregates', 'instances', 'metrics', 'service', 'supported_instances'}
NOT_OURS = {
    'allocation_candidates', 'consume_from_request', 'limits', 'numa_topology', 'pci_stats',
    'update', 'updated',
}  # fmt: skip
ENDLESS = ('inf', '-inf', '1e400')
OF_SERVICES = {'service.binary', 'service.forced_down', 'service.id', 'service.up'}


def an_extra_spec_names_an_internal(case: Case) -> bool:
    """A key names what nova's host object has for its own use."""
    paths = (key.removeprefix('capabilities:').split(':')[0] for key in _extra_specs(case))
    return any(name in NOT_OURS or name.startswith('_') for name in paths)


def an_extra_spec_compares_numbers(case: Case) -> bool:
    """A value starts with an operator on numbers."""
    return any(
        value.split()[:1] and value.split()[0] in NUMERIC for value in _extra_specs(case).values()
    )


def an_aggregate_lists_several_values(case: Case) -> bool:
    """A metadata value is a list, or a key occurs in several aggregates."""
    rows = _metadata(case)
    keys = [key for row in rows for key in row]
    return len(keys) > len(set(keys)) or any(',' in value for row in rows for value in row.values())


def one_of_several_values_is_nan(case: Case) -> bool:
    """The aggregates of a host give a key several values, one of which is no number."""
    for host in case.get('hosts', ()):
        rows = host.get('aggregates', ())
        values = [
            {row[key] for row in rows if key in row} for key in {x for row in rows for x in row}
        ]
        if any('nan' in each and len(each) > 1 for each in values):
            return True
    return False


def an_aggregate_says_infinite(case: Case) -> bool:
    """A metadata value is greater or less than all numbers."""
    return not _metadata_values(case).isdisjoint(ENDLESS)


def an_aggregate_says_no_finite_number(case: Case) -> bool:
    """A metadata value is infinite, or the number that is none."""
    return an_aggregate_says_infinite(case) or 'nan' in _metadata_values(case)


def a_column_was_never_written(case: Case) -> bool:
    """free_disk_gb or uuid is null."""
    rows = [host.get('row', {}) for host in case['hosts']]
    return any(row.get(name, 0) is None for row in rows for name in ('free_disk_gb', 'uuid'))


def a_column_is_odd(case: Case) -> bool:
    """A JSON column of a host, or its address, holds what no nova-compute writes."""
    return any({*JSON_COLUMNS, 'host_ip'} & set(host.get('row', {})) for host in case['hosts'])


def a_metric_is_no_number(case: Case) -> bool:
    """A metric has a text or nothing for a value."""
    rows = [host.get('row', {}) for host in case['hosts']]
    found = [each for row in rows for each in row.get('metrics') or ()]
    return any(isinstance(each.get('value'), str | None) for each in found)


def the_image_wants_no_version(case: Case) -> bool:
    """The image's hypervisor version is not a list of conditions."""
    wanted = _image_properties(case).get('img_hv_requested_version', '>1')
    return not all(
        re.fullmatch(r'\s*([<>=!]=|[<>])\s*\d[\d.]*\s*', each) for each in wanted.split(',')
    )


def an_extra_spec_names_a_structure(case: Case) -> bool:
    """A key names what is no number or text, but a list or a dict of such."""
    paths = (key.removeprefix('capabilities:') for key in _extra_specs(case))
    return any(path in STRUCTURES for path in paths)


def the_image_wants_address_bits(case: Case) -> bool:
    """The image has hw_maxphysaddr_bits."""
    return 'hw_maxphysaddr_bits' in _image_properties(case)


def the_query_compares_an_address(case: Case) -> bool:
    """The query reads the host's address."""
    return '$host_ip' in str(_hints(case).get('query'))


def the_query_names_an_internal(case: Case) -> bool:
    """The query reads what nova's host and service objects have for their own use."""
    names = re.findall(r'\$([\w.]*)', str(_hints(case).get('query')))
    return any(
        name.split('.')[0] in NOT_OURS or name.startswith('_') or name in OF_SERVICES
        for name in names
    )


def the_group_lacks_a_list(case: Case) -> bool:
    """Members or hosts of the group are null."""
    group = case.get('request', {}).get('instance_group', {})
    return any(group.get(name, ()) is None for name in ('members', 'hosts'))


def a_hint_is_empty(case: Case) -> bool:
    """A hint is a list of nothing."""
    return [] in _hints(case).values()


def a_hint_is_a_text_or_a_dict(case: Case) -> bool:
    """A hint is no list, but can be read as one."""
    return any(isinstance(each, str | dict) for each in _hints(case).values())


def the_multiplier_of_metrics_is_zero(case: Case) -> bool:
    """[metrics] weight_multiplier is 0."""
    return _option(case, 'metrics', 'weight_multiplier') == 0.0


def there_is_no_image(case: Case) -> bool:
    """The request has no image at all."""
    return case.get('request', {}).get('image') is None


def there_is_no_project(case: Case) -> bool:
    """The request's project is null."""
    return case.get('request', {}).get('project_id', 'project') is None


def the_image_has_no_format(case: Case) -> bool:
    """The image does not say its disk format."""
    return not (case.get('request', {}).get('image') or {}).get('disk_format')


def a_network_request_names_nothing(case: Case) -> bool:
    """A requested network has neither a network nor a port."""
    wanted = case.get('request', {}).get('requested_networks', {}).get('objects', ())
    return any(not each.get('network_id') and not each.get('port_id') for each in wanted)


def a_group_asks_for_zero(case: Case) -> bool:
    """A group from outside asks for an amount of 0."""
    groups = case.get('request', {}).get('requested_resources') or ()
    return any(0 in each.get('resources', {}).values() for each in groups)


def images_weigh(case: Case) -> bool:
    """ImagePropertiesWeigher is in force."""
    return bool(_option(case, 'filter_scheduler', 'image_props_weight_multiplier'))


def several_servers_are_in_a_group(case: Case) -> bool:
    """The call is for more than one server of a server group."""
    request, uuids = case.get('request', {}), case.get('instance_uuids')
    count = len(uuids) if uuids else request.get('num_instances', 1)
    return bool(request.get('instance_group')) and count > 1


def cpus_are_pinned(case: Case) -> bool:
    """The flavor or the image wants pinned CPUs."""
    wanted = _extra_specs(case).get('hw:cpu_policy'), _image_properties(case).get('hw_cpu_policy')
    return 'dedicated' in wanted


def the_guest_takes_any_pages(case: Case) -> bool:
    """A guest cell leaves the page size to the host: any, small or large ones."""
    return any((each.get('pagesize') or 0) < 0 for each in _guest_cells(case))


def the_guest_has_unequal_cells(case: Case) -> bool:
    """Guest cells differ in CPUs, memory or page size."""
    return len({_wants(each) for each in _guest_cells(case)}) > 1


def guest_cells_want_different_things(case: Case) -> bool:
    """They are unequal, or the first of several has isolated emulator threads beside it."""
    several = len(_guest_cells(case)) > 1
    return the_guest_has_unequal_cells(case) or (several and emulator_threads_are_isolated(case))


def emulator_threads_are_isolated(case: Case) -> bool:
    """They get a host CPU of their own."""
    return bool(_guest(case).get('emulator_threads_policy') == 'isolate')


def vcpus_are_isolated(case: Case) -> bool:
    """A guest cell wants whole cores."""
    return any(each.get('cpu_thread_policy') == 'isolate' for each in _guest_cells(case))


def the_guest_leaves_the_page_size_open(case: Case) -> bool:
    """A guest cell says small, large or any in place of a size."""
    return any((each.get('pagesize') or 0) < 0 for each in _guest_cells(case))


def a_physical_function_has_its_virtual_ones_beside_it(case: Case) -> bool:
    """Pools of both have the address of the physical function."""
    kinds: dict[str, set[str | None]] = {}
    for pool in pools(case['pci_stats']):
        if address := pool.tags.get('address'):
            kinds.setdefault(address, set()).add(pool.tags.get('dev_type'))
    return any('type-PF' in found and found & {'type-VF', 'vdpa'} for found in kinds.values())


def devices_come_from_different_providers(case: Case) -> bool:
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


def the_host_lists_no_siblings(case: Case) -> bool:
    """A host cell has CPUs and says of none which are on one core."""
    topologies = [host.get('row', {}).get('numa_topology') or {} for host in case['hosts']]
    return any(not cell['siblings'] for each in topologies for cell in each.get('cells', ()))


def emulator_threads_want_a_core(case: Case) -> bool:
    """The emulator threads are isolated, and so are the cores of a guest cell."""
    guest = case.get('request', {}).get('numa_topology') or {}
    policies = {each['cpu_thread_policy'] for each in _guest_cells(case)}
    return guest.get('emulator_threads_policy') == 'isolate' and 'isolate' in policies


def devices_come_from_several_providers(case: Case) -> bool:
    """A candidate takes devices of one request from different providers."""
    mappings = [each['mappings'] for host in case['hosts'] for each in host.get('candidates', ())]
    return any(len({name for name in each if name}) > 1 for each in mappings)


def _guest_cells(case: Case) -> list[Case]:
    found: list[Case] = _guest(case).get('cells', [])
    return found


def _guest(case: Case) -> Case:
    found: Case = case.get('guest') or case.get('request', {}).get('numa_topology') or {}
    return found


def _wants(cell: Case) -> tuple[Any, ...]:
    return len(cell['cpuset']), len(cell['pcpuset']), cell['memory'], cell['pagesize']


def _metadata(case: Case) -> list[dict[str, str]]:
    return [row for host in case.get('hosts', ()) for row in host.get('aggregates', ())]


def _metadata_values(case: Case) -> set[str]:
    return {value for row in _metadata(case) for value in row.values()}


def _option(case: Case, group: str, name: str) -> Any:
    return case.get('config', {}).get(group, {}).get(name)


def _extra_specs(case: Case) -> dict[str, str]:
    found: dict[str, str] = case.get('request', {}).get('flavor', {}).get('extra_specs', {})
    return found


def _image_properties(case: Case) -> Case:
    image = case.get('request', {}).get('image') or {}
    return image.get('properties', {}) or {}


def _hints(case: Case) -> dict[str, list[str]]:
    found: dict[str, list[str]] = case.get('request', {}).get('scheduler_hints') or {}
    return found
