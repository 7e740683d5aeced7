# SPDX-License-Identifier: Apache-2.0
"""The rules of the built-in weighers. A row has a host, a request and the raw
weight."""

import dataclasses
from importlib.metadata import entry_points

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.errors import MetricMissing
from novasched.scheduler.model.host import Instance
from novasched.scheduler.model.numa import Pages
from novasched.scheduler.model.pci import Pool
from novasched.scheduler.model.request import Destination
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from tests.lab import topologies
from tests.lab.builders import (
    NOT_ASKED,
    Cases,
    a_flavor,
    a_group,
    a_host,
    a_request,
    a_uuid,
)

CASES = Cases()
rows = CASES.rows


def made(name, **settings):
    """The weigher of an entry point."""
    (weigher,) = loading.weighers(Settings(weight_classes=(name,), **settings))
    return weigher


# One number of a host.
rows('RAMWeigher', ({'ram': 2048}, {}, 2048), ({'ram': -512}, {}, -512))
rows('CPUWeigher', ({'vcpus': 8, 'vcpus_used': 3, 'cpu_allocation_ratio': 4.0}, {}, 29))
rows('DiskWeigher', ({'disk_gb': 3}, {}, 3072))
rows('IoOpsWeigher', ({'num_io_ops': 4}, {}, 4))
rows('NumInstancesWeigher', ({'num_instances': 7}, {}, 7))
rows('BuildFailureWeigher', ({'failed_builds': 2}, {}, 2))
rows(
    'HypervisorVersionWeigher',
    ({'hypervisor_version': 8002000}, {}, 8002000),
    ({}, {}, 0),
)


# A host with fewer free devices weighs more; the least weight is 1.
def devices(*counts):
    """Fields of a host with numbers of free devices, one number for each product."""
    pools = tuple(Pool(f'p{i}', 'v', count) for i, count in enumerate(counts))
    return {'pci': lambda: pools}


rows(
    'PCIWeigher',
    ({}, {}, 100),
    (devices(2, 3), {}, 95),
    (devices(98), {}, 2),
    (devices(500), {}, 1),
)


# An instance that may leave its cell prefers to stay. Other requests have no choice.
def to(**destination):
    """Fields of a request for a destination."""
    return {'requested_destination': Destination(**destination)}


MAY_LEAVE = to(cell_uuid=a_uuid('cell1'), allow_cross_cell_move=True)
rows(
    'CrossCellWeigher',
    ({'cell': 'cell1'}, MAY_LEAVE, 1),
    ({'cell': 'cell2'}, MAY_LEAVE, -1),
    ({}, {}, NOT_ASKED),
    ({}, to(host='h'), NOT_ASKED),
    ({}, to(allow_cross_cell_move=True), NOT_ASKED),
    ({}, to(cell_uuid=a_uuid('cell1')), NOT_ASKED),
)


# Members of the group of the request count for a host, or against a host.
def group(policy, *members):
    """Fields of a request for a further member of a group."""
    return {'group': a_group(policy, members)}


rows(
    'ServerGroupSoftAffinityWeigher',
    ({}, {}, NOT_ASKED),
    ({}, group('soft-affinity'), NOT_ASKED),
    ({}, group('soft-anti-affinity', 'a'), NOT_ASKED),
    ({}, group('soft-affinity', 'a', 'b', 'c'), 2),
    ({'instances': []}, group('soft-affinity', 'a'), 0),
    host={'instances': ['a', 'b', 'x']},
)
rows(
    'ServerGroupSoftAntiAffinityWeigher',
    ({}, group('anti-affinity', 'a'), NOT_ASKED),
    ({}, group('soft-anti-affinity', 'a', 'b', 'c'), -2),
    ({}, group('soft-anti-affinity', 'c'), 0),
    host={'instances': ['a', 'b', 'x']},
)


# Members in the failure domain of the host count. Hosts without a domain share one.
def in_racks(policy, *racks):
    """Fields of a request for a further member of a group with a member in each
    rack."""
    located = {}
    for i, rack in enumerate(racks):
        metadata = rack and {'failure_domain': rack}
        located[str(i)] = (a_host(metadata=metadata),)
    return {'group': a_group(policy, located=located)}


IN_1 = {'metadata': [{'failure_domain': '1'}]}
IN_1_AND_2 = {'metadata': [{'failure_domain': '1'}, {'failure_domain': '2'}]}
rows(
    'FailureDomainWeigher',
    ({}, {}, NOT_ASKED),
    ({}, in_racks('unheard of', '1'), NOT_ASKED),
    (IN_1, in_racks('soft-anti-affinity'), 0),
    (IN_1, in_racks('soft-anti-affinity', '1', '2', '1', ''), -2),
    (IN_1, in_racks('anti-affinity', '1'), -1),
    (IN_1, in_racks('soft-affinity', '1', '2', '1'), 2),
    (IN_1, in_racks('affinity', '2'), 0),
    (IN_1_AND_2, in_racks('soft-affinity', '1', '2', '3'), 2),
    ({}, in_racks('soft-affinity', '1', '', ''), 2),
    failure_domain_weight_multiplier=1.0,
)
rows('FailureDomainWeigher', (IN_1, in_racks('soft-affinity', '1'), NOT_ASKED))


# A host weighs less by the usual guests that no longer fit. A vCPU of a usual guest,
# floating or pinned, is worth 1 here, and no further resource has a price. A free vCPU
# that a usual guest no longer reaches counts 6.
def usual(*flavors):
    """Fields of a request, in a cloud with usual guests."""
    guests = tuple(UsualGuest(flavor, 1) for flavor in flavors)
    return {'usual_guests': UsualGuests(guests, {'VCPU': 1, 'PCPU': 1})}


SMALL = a_flavor(vcpus=2, memory_mb=1024, root_gb=0)
LARGE = a_flavor(vcpus=8, memory_mb=1024, root_gb=0)
PINNED = a_flavor({'hw:cpu_policy': 'dedicated'}, vcpus=2, root_gb=0)
PAGES = a_flavor({'hw:mem_page_size': '2048'}, vcpus=2, memory_mb=1024, root_gb=0)
HUGE = (Pages(4, 0), Pages(2048, 1024))


def cells(**fields):
    """Fields of a host with two NUMA cells of eight CPUs."""
    topology = topologies.a_host(*(topologies.a_cell(i, **fields) for i in (0, 1)))
    return {'numa': lambda: topology}


def pinned(*vcpus):
    """Fields of a request for a guest with pinned CPUs in each of its cells."""
    guest_cells = [topologies.a_pinned(number) for number in vcpus]
    return {'numa_topology': topologies.a_guest(*guest_cells)}


IN_PAGES = {
    'numa_topology': topologies.a_guest(topologies.a_shared(memory=512, pagesize=2048))
}
rows(
    'FragmentationWeigher',
    ({}, {}, 0),
    ({}, usual(SMALL), -1 - 6),
    ({}, usual(SMALL, LARGE), -9 - 6 - 6 * 8),
    ({'vcpus_used': 1}, usual(LARGE), 0),
    ({'ram': 1024}, usual(SMALL), -2 - 6 * 8),
    ({'ram': 1000}, usual(SMALL), 0),
    ({'vcpus': 99, 'disk_gb': 16}, usual(a_flavor(vcpus=4, root_gb=4)), -1 - 6),
    ({}, usual(PINNED), 0),
    (cells(), usual(PINNED), 0),
    (cells(), {**usual(PINNED), **pinned(2)}, -2 - 6 * 2),
    ({'vcpus': 99, **cells()}, {**usual(PINNED), **pinned(2)}, -2 - 6 * 2),
    ({'vcpus': 99, **cells()}, {**usual(PINNED), **pinned(7)}, -8 - 6 * 8),
    ({'vcpus': 99, **cells()}, {**usual(PINNED), **pinned(7, 7)}, -16 - 6 * 16),
    (cells(), usual(PAGES), 0),
    ({'vcpus': 99, **cells(mempages=HUGE)}, usual(PAGES), -6),
    ({'vcpus': 99, **cells(mempages=HUGE)}, {**usual(PAGES), **IN_PAGES}, -1 - 6),
    fragmentation_weight_multiplier=1.0,
)
rows('FragmentationWeigher', ({}, usual(SMALL), NOT_ASKED))


# Metrics are whole numbers, and fractions of a CPU are percents, rounded down. Each
# metric counts by its ratio.
def reports(**values):
    """Fields of a host that reports metrics. An underscore stands for a dot."""
    metrics = []
    for name, value in values.items():
        metrics.append({'name': name.replace('_', '.'), 'value': value})
    return {'nodename': 'n', 'metrics': tuple(metrics)}


MISSING = 'Metric cpu.frequency could not be found on the compute host node host1.n.'
TWICE = {
    'metrics': (
        {'name': 'cpu.frequency', 'value': 1},
        {'name': 'cpu.frequency', 'value': 2},
    )
}
for setting, host, weight in [
    ('', {}, NOT_ASKED),
    ('broken', {}, NOT_ASKED),
    ('cpu.frequency=-0.5', reports(cpu_frequency=1600, cpu_idle_time=9), -800.0),
    (
        'cpu.frequency=1 cpu.idle.time=2',
        reports(cpu_frequency=3, cpu_idle_time=5),
        13.0,
    ),
    ('cpu.frequency=1 cpu.frequency=1', reports(cpu_frequency=3), 6.0),
    ('cpu.frequency=1 broken =1 x=y', reports(cpu_frequency=3), 3.0),
    ('cpu.frequency=1', reports(cpu_frequency=2.9), 2.0),
    ('cpu.frequency=1', reports(cpu_frequency='7'), 7.0),
    ('cpu.percent=1', reports(cpu_percent=0.5), 50.0),
    ('cpu.user.percent=1', reports(cpu_user_percent=0.29), 28.0),
    ('cpu.frequency=1', TWICE, 2.0),
    ('cpu.frequency=1', reports(), MetricMissing('cpu.frequency', 'host1', 'n')),
    (
        'cpu.frequency=1',
        reports(cpu_frequency=None),
        MetricMissing('cpu.frequency', 'host1', 'n'),
    ),
    (
        'cpu.frequency=1',
        reports(cpu_frequency='x'),
        MetricMissing('cpu.frequency', 'host1', 'n'),
    ),
]:
    rows(
        'MetricsWeigher',
        (host, {}, weight),
        metrics_weight_setting=tuple(setting.split()),
    )

# If metrics are not required, a host without a metric weighs weight_of_unavailable,
# unless the ratio of the metric or the multiplier of the host is 0.
UNAVAILABLE = -10000.0
for setting, multiplier, metadata, weight in [
    ('cpu.frequency=1 cpu.idle.time=1', 1.0, (), UNAVAILABLE),
    ('cpu.idle.time=1 cpu.frequency=1', 1.0, (), UNAVAILABLE),
    ('cpu.frequency=1 cpu.idle.time=0', 1.0, (), 5.0),
    ('cpu.frequency=1 cpu.idle.time=1', 0.0, (), 5.0),
    ('cpu.frequency=1 cpu.idle.time=1', 1.0, {'metrics_weight_multiplier': '0'}, 5.0),
    (
        'cpu.frequency=1 cpu.idle.time=1',
        1.0,
        {'metrics_weight_multiplier': 'x'},
        UNAVAILABLE,
    ),
]:
    rows(
        'MetricsWeigher',
        ({'metadata': metadata, **reports(cpu_frequency=5)}, {}, weight),
        metrics_weight_setting=tuple(setting.split()),
        metrics_required=False,
        metrics_weight_multiplier=multiplier,
    )


@pytest.mark.parametrize(('name', 'settings', 'host', 'request_', 'weight'), CASES)
def test_a_weigher_returns_the_expected_raw_weight(
    name, settings, host, request_, weight
):
    """A weigher that applies returns the raw weight, or raises an error about a missing
    metric."""
    weigher = made(name, **settings)
    request = a_request(**request_)
    assert weigher.applies(request) is (weight is not NOT_ASKED)

    if isinstance(weight, Exception):
        with pytest.raises(type(weight)) as caught:
            weigher.weigh(a_host(**host), request)
        assert str(caught.value) == str(weight) == MISSING
    elif weight is not NOT_ASKED:
        assert weigher.weigh(a_host(**host), request) == weight


LINUX = {'os_type': 'linux', 'hw_pmu': True}


@pytest.mark.parametrize(
    ('setting', 'multiplier', 'image', 'instances', 'weight'),
    [
        ('', 0.0, LINUX, [LINUX], NOT_ASKED),
        ('', 1.0, {}, [LINUX], NOT_ASKED),
        ('', 1.0, None, [LINUX], NOT_ASKED),
        ('os_distro=1', 1.0, LINUX, [LINUX], NOT_ASKED),
        ('', 1.0, LINUX, [], 0),
        ('', 1.0, LINUX, [{}, {'os_type': 'windows'}], 0),
        ('', -1.0, LINUX, [LINUX, {'os_type': 'linux'}], 3),
        ('', 1.0, LINUX, [{'hw_pmu': False, 'os_distro': 'x'}], 0),
        ('os_type=2', 1.0, LINUX, [LINUX, LINUX], 4.0),
        ('os_type=2 hw_pmu=-0.5', 1.0, LINUX, [LINUX, {'hw_pmu': True}], 1.0),
        ('os_type=2 os_type=3', 1.0, LINUX, [LINUX], 3.0),
        ('os_type=much', 1.0, LINUX, [LINUX], 2),
    ],
)
def test_instances_with_equal_image_properties_count(
    setting, multiplier, image, instances, weight
):
    """Every instance with an equal property counts, by the ratio of the property. The
    weigher applies if the option is not 0 and the image has a property that counts."""
    weigher = made(
        'ImagePropertiesWeigher',
        image_props_weight_setting=tuple(setting.split()),
        image_props_weight_multiplier=multiplier,
    )
    on_host = {}
    for i, properties in enumerate(instances):
        on_host[str(i)] = Instance(str(i), image_properties=properties)
    host = dataclasses.replace(a_host(), instances=on_host)
    request = a_request(image=image)

    assert weigher.applies(request) is (weight is not NOT_ASKED)
    assert weight is NOT_ASKED or weigher.weigh(host, request) == weight


@pytest.mark.parametrize('name', sorted(entry_points(group='novasched.weighers').names))
def test_the_multiplier_of_a_weigher_is_an_option(name):
    names = [field.name for field in dataclasses.fields(Settings)]
    assert made(name).multiplier in names
