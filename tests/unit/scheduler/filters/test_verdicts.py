# SPDX-License-Identifier: Apache-2.0
"""The rules of built-in filters. A row has a host, a request and the verdict; the tests
of every filter find the rows."""

from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.model.flavor import Image
from novasched.scheduler.model.host import Instance
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.model.request import Retry
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import (
    NOT_ASKED,
    Cases,
    a_flavor,
    a_group,
    a_host,
    a_request,
    a_uuid,
)

GROUP = a_uuid('group')
CASES = Cases()
rows = CASES.rows


def made(name, **settings):
    """The filter of an entry point."""
    (plugin,) = loading.filters(Settings(enabled_filters=(name,), **settings))
    return plugin


# Every host passes.
rows('AllHostsFilter', ({'up': False}, {}, NOT_ASKED))

# Only hosts with a service that is enabled and up take instances.
rows(
    'ComputeFilter',
    ({}, {}, None),
    ({'disabled': True, 'why': 'disk swap'}, {}, 'disabled, reason: disk swap'),
    ({'up': False}, {}, 'has not been heard from in a while'),
    ({'disabled': True, 'up': False}, {}, 'disabled, reason: None'),
)

# A host is in the zones of its aggregates, or in the default zone.
ZONE_1 = {'availability_zone': 'az1'}
ZONE_2 = {'availability_zone': 'az2'}
rows(
    'AvailabilityZoneFilter',
    ({}, {}, NOT_ASKED),
    ({'metadata': ZONE_1}, ZONE_1, None),
    ({'metadata': {'availability_zone': 'az2, az1'}}, ZONE_1, None),
    ({'metadata': [ZONE_2, ZONE_1]}, ZONE_1, None),
    ({'metadata': ZONE_2}, ZONE_1, 'in az2, az1 wanted'),
    ({'metadata': {'ssd': 'true'}}, ZONE_1, 'in nova, az1 wanted'),
    default_availability_zone='nova',
)
rows(
    'AvailabilityZoneFilter',
    ({'metadata': ZONE_2}, ZONE_1, 'in az2, az1 wanted'),
    ({}, ZONE_1, None),
    default_availability_zone='az1',
)
rows(
    'AvailabilityZoneFilter',
    ({}, ZONE_1, 'in no zone, az1 wanted'),
    default_availability_zone=None,
)

# A node is tried once. Other nodes of the same host may be tried.
rows(
    'RetryFilter',
    ({}, {'retry': Retry(1, (('host1', 'host1'),))}, 'was tried before'),
)
rows(
    'RetryFilter',
    ({}, {}, NOT_ASKED),
    ({}, {'retry': Retry()}, NOT_ASKED),
    (
        {},
        {'retry': Retry(3, (('host2', 'node2'), ('host1', 'node1')))},
        'was tried before',
    ),
    ({}, {'retry': Retry(2, (('host1', 'node2'),))}, None),
    ({}, {'retry': Retry(2, (('host1', None),))}, None),
    host={'nodename': 'node1'},
)

# The limit is the option, or the least number of the aggregates of the host.
NINE = {'max_io_ops_per_host': '9'}
rows(
    'IoOpsFilter',
    ({'num_io_ops': 7}, {}, None),
    ({'num_io_ops': 8}, {}, '8 I/O operations, limit 8'),
    ({'num_io_ops': 8, 'metadata': NINE}, {}, '8 I/O operations, limit 8'),
    max_io_ops_per_host=8,
)
rows(
    'AggregateIoOpsFilter',
    ({'num_io_ops': 8}, {}, '8 I/O operations, limit 8'),
    ({'num_io_ops': 8, 'metadata': NINE}, {}, None),
    ({'num_io_ops': 9, 'metadata': NINE}, {}, '9 I/O operations, limit 9'),
    (
        {'num_io_ops': 9, 'metadata': [NINE, {}, {'max_io_ops_per_host': '20'}]},
        {},
        '9 I/O operations, limit 9',
    ),
    ({'num_io_ops': 7, 'metadata': {'max_io_ops_per_host': 'many'}}, {}, None),
    (
        {'num_io_ops': 8, 'metadata': [NINE, {'max_io_ops_per_host': 'many'}]},
        {},
        '8 I/O operations, limit 8',
    ),
    max_io_ops_per_host=8,
)
SIXTY = {'max_instances_per_host': '60'}
rows(
    'NumInstancesFilter',
    ({'num_instances': 49}, {}, None),
    ({'num_instances': 50}, {}, '50 servers, limit 50'),
    ({'num_instances': 50, 'metadata': SIXTY}, {}, '50 servers, limit 50'),
    max_instances_per_host=50,
)
rows(
    'AggregateNumInstancesFilter',
    ({'num_instances': 50}, {}, '50 servers, limit 50'),
    ({'num_instances': 50, 'metadata': SIXTY}, {}, None),
    ({'metadata': {'max_instances_per_host': '0'}}, {}, '0 servers, limit 0'),
    ({'num_instances': 49, 'metadata': {'max_instances_per_host': '2.5'}}, {}, None),
    max_instances_per_host=50,
)


# The rule of the group limits the members on a host. An instance may stay on its host.
def anti(*members, **rules):
    """Fields of a request for a further member of a group with anti-affinity."""
    return {'group': a_group('anti-affinity', members, rules=rules)}


NO_NUMBER = 'for max_server_per_host, which is no whole number'
rows(
    'ServerGroupAntiAffinityFilter',
    ({}, {}, NOT_ASKED),
    ({}, {'group': a_group('soft-affinity')}, NOT_ASKED),
    ({}, {'group': a_group('soft-anti-affinity')}, NOT_ASKED),
    ({'instances': ['x']}, anti('a', 'b'), None),
    ({'instances': ['a']}, anti('a', 'b'), '1 servers of the group, limit 1'),
    ({'instances': ['a']}, anti('a', 'b', max_server_per_host='2'), None),
    (
        {'instances': ['a', 'b']},
        anti('a', 'b', max_server_per_host='2'),
        '2 servers of the group, limit 2',
    ),
    ({}, anti('a', max_server_per_host='few'), f"the group has 'few' {NO_NUMBER}"),
    ({}, anti('a', max_server_per_host='1.5'), f"the group has '1.5' {NO_NUMBER}"),
    ({'instances': [a_uuid('server0'), 'a']}, anti('a', a_uuid('server0')), None),
)


# Further members of a group go to a host of the group.
def on(*hosts):
    """Fields of a request for a further member of a group on these hosts."""
    return {'group': a_group('affinity', hosts=frozenset(hosts))}


rows(
    'ServerGroupAffinityFilter',
    ({}, {}, NOT_ASKED),
    ({}, {'group': a_group('soft-affinity')}, NOT_ASKED),
    ({}, {'group': a_group('soft-anti-affinity')}, NOT_ASKED),
    ({}, on(), NOT_ASKED),
    ({}, on('host1'), None),
    ({}, on('host2', 'host1'), None),
    ({}, on('host3', 'host2'), 'the group is on host2, host3'),
)


# Members on all hosts of the failure domain count. Hosts without a domain take none.
def in_racks(policy, *racks, **rules):
    """Fields of a request for a further member of a group with a member in each
    rack."""
    located = {}
    for rack in racks:
        located[f'in {rack}'] = (a_host(metadata=rack and {'rack': rack}),)
    return {'group': a_group(policy, ['a'], rules=rules, located=located)}


MOVING = {'a': (a_host(metadata={'rack': '1'}), a_host(metadata={'rack': '2'}))}
NO_RACK = 'no aggregate gives it a rack'
rows(
    'FailureDomainFilter',
    ({'metadata': {}}, in_racks('anti-affinity'), NO_RACK),
    ({}, {}, NOT_ASKED),
    ({}, in_racks('soft-anti-affinity', '1'), NOT_ASKED),
    ({}, in_racks('anti-affinity'), None),
    ({}, in_racks('anti-affinity', '2', '3'), None),
    (
        {},
        in_racks('anti-affinity', '2', '1'),
        '1 servers of the group in rack 1, limit 1',
    ),
    ({}, in_racks('anti-affinity', '1', max_server_per_host='2'), None),
    (
        {},
        in_racks('anti-affinity', max_server_per_host='few'),
        f"the group has 'few' {NO_NUMBER}",
    ),
    ({}, in_racks('anti-affinity', ''), None),
    ({'metadata': {'failure_domain': '1'}}, in_racks('anti-affinity'), NO_RACK),
    (
        {'metadata': [{'rack': '1'}, {'rack': '7'}]},
        in_racks('anti-affinity', '7'),
        '1 servers of the group in rack 1, 7, limit 1',
    ),
    (
        {},
        {'group': a_group('anti-affinity', located=MOVING)},
        '1 servers of the group in rack 1, limit 1',
    ),
    ({}, in_racks('affinity'), None),
    ({}, in_racks('affinity', '1'), None),
    ({}, in_racks('affinity', '2', '1'), None),
    ({}, in_racks('affinity', '3', '2'), 'in rack 1, the group is in 2, 3'),
    ({}, in_racks('affinity', ''), None),
    ({'metadata': {}}, in_racks('affinity'), NO_RACK),
    host={'metadata': {'rack': '1'}},
    failure_domain_key='rack',
)

# One instance on the host decides: against the host for different_host, and for the
# host for same_host.
rows(
    'DifferentHostFilter',
    ({}, {'hints': {'different_host': []}}, NOT_ASKED),
    ({}, {'hints': {'different_host': ['c']}}, None),
    ({}, {'hints': {'different_host': ['c', 'b', 'a']}}, 'has a, b'),
    host={'instances': ['a', 'b']},
)
rows(
    'SameHostFilter',
    ({}, {'hints': {'same_host': []}}, NOT_ASKED),
    ({}, {'hints': {'same_host': ['a']}}, None),
    ({}, {'hints': {'same_host': ['c', 'b']}}, None),
    ({}, {'hints': {'same_host': ['c', 'd']}}, 'has none of c, d'),
    host={'instances': ['a', 'b']},
)


# A host passes if its address is in the network, by default a /24.
def near(*addresses, **hints):
    """Fields of a request for a host near an address."""
    return {'hints': {'build_near_host_ip': addresses, **hints}}


IP_9 = {'host_ip': '10.0.0.9'}
IP_19 = {'host_ip': '10.0.1.9'}
IPV6 = {'host_ip': '2001:db8::9'}
MASK = '/ffff:ffff::'
CANNOT_TELL = 'cannot tell whether it is near: '
NO_NETWORK = 'does not appear to be an IPv4 or IPv6 network'
NO_ADDRESS = 'does not appear to be an IPv4 or IPv6 address'
rows(
    'SimpleCIDRAffinityFilter',
    (IP_9, {}, NOT_ASKED),
    (IP_9, {'hints': {'cidr': ['/24']}}, NOT_ASKED),
    (IP_9, near(''), NOT_ASKED),
    (IP_9, near('10.0.0.1'), None),
    (IP_9, near('10.0.0.1', cidr=['']), '10.0.0.9 is not in 10.0.0.1/32'),
    (IP_19, near('10.0.0.1'), '10.0.1.9 is not in 10.0.0.0/24'),
    (IP_19, near('10.0.0.1', cidr=['/16']), None),
    (IP_19, near('10.0.0.1', cidr=['/255.255.0.0']), None),
    (IPV6, near('2001:db8::1', cidr=[MASK]), None),
    (IPV6, near('2001:db9::1', cidr=[MASK]), '2001:db8::9 is not in 2001:db9::/32'),
    (IPV6, near('10.0.0.1'), '2001:db8::9 is not in 10.0.0.0/24'),
    (IP_9, near('here'), f"{CANNOT_TELL}'here/24' {NO_NETWORK}"),
    (IP_9, near('10.0.0.1', cidr=['/33']), f"{CANNOT_TELL}'10.0.0.1/33' {NO_NETWORK}"),
    (
        IP_9,
        near('10.0.0.1', cidr=['/ffff::']),
        f"{CANNOT_TELL}'10.0.0.1/ffff::' {NO_NETWORK}",
    ),
    (
        IPV6,
        near('2001:db8::1', cidr=['/f:0:f::']),
        f"{CANNOT_TELL}'f:0:f::' is no netmask",
    ),
    (
        IP_9,
        near('10.0.0.1', '10.0.0.2'),
        f'{CANNOT_TELL}build_near_host_ip takes one value, not 2',
    ),
    (
        IP_9,
        near('10.0.0.1', cidr=['/8', '/9']),
        f'{CANNOT_TELL}cidr takes one value, not 2',
    ),
    ({'host_ip': None}, near('10.0.0.1'), f"{CANNOT_TELL}'' {NO_ADDRESS}"),
)


# A host in aggregates for projects takes the instances of these projects only.
def of_projects(*texts):
    """Fields of a host with an aggregate for each text."""
    return {'metadata': [{'filter_tenant_id': text} for text in texts]}


OTHERS = 'for other projects'
rows(
    'AggregateMultiTenancyIsolation',
    ({}, {}, None),
    ({'metadata': [{}, {'ssd': 'true'}]}, {}, None),
    (of_projects('project'), {}, None),
    (of_projects('a, project'), {}, None),
    (of_projects('a'), {}, OTHERS),
    (of_projects(''), {}, OTHERS),
    ({'metadata': [{'filter_tenant_id': 'a'}, {'ssd': 'true'}]}, {}, OTHERS),
    ({'metadata': {'filter_tenant_id': 'a', 'filter_tenant_id2': 'project'}}, {}, None),
    (
        {'metadata': [{'filter_tenant_id': 'a'}, {'filter_tenant_id_more': 'project'}]},
        {},
        None,
    ),
    ({'metadata': {'filter_tenant_id_more': 'a'}}, {}, OTHERS),
    ({'metadata': {'my_filter_tenant_id': 'a'}}, {}, None),
)

# A host in aggregates for flavors takes these flavors only.
LARGE = {'instance_type': 'm1.large'}
rows(
    'AggregateTypeAffinityFilter',
    ({}, {}, None),
    ({'metadata': {'ssd': 'true'}}, {}, None),
    ({'metadata': {'instance_type': 'm1.large, m1.small'}}, {}, None),
    ({'metadata': LARGE}, {}, 'for flavors m1.large'),
    ({'metadata': [LARGE, {'instance_type': 'm1.small'}]}, {}, None),
    (
        {'metadata': [LARGE, {'instance_type': 'm1.big'}]},
        {},
        'for flavors m1.big, m1.large',
    ),
    request={'flavor': a_flavor(name='m1.small')},
)

# Aggregates may list the values of an image property. A property that is false or
# empty is not checked.
PROPERTIES = [
    {'hw_firmware_type': 'uefi, bios', 'hw_boot_menu': 'True', 'os_distro': ''},
    {'hw_numa_nodes': '2', 'ssd': 'true'},
]
ONE_NODE = {'image': {'hw_numa_nodes': 1}}
NOT_TWO = "'hw_numa_nodes' is '1' in the image, not 2"
rows(
    'AggregateImagePropertiesIsolation',
    ({}, {}, NOT_ASKED),
    ({}, {'image': {}}, NOT_ASKED),
    ({}, {'image': {'hw_boot_menu': False, 'hw_numa_nodes': 0}}, NOT_ASKED),
    ({'metadata': ()}, ONE_NODE, None),
    ({}, {'image': {'hw_firmware_type': 'bios', 'hw_vif_model': 'e1000'}}, None),
    (
        {},
        {'image': {'hw_firmware_type': 'none'}},
        "'hw_firmware_type' is 'none' in the image, not bios, uefi",
    ),
    ({}, {'image': {'hw_boot_menu': True, 'hw_numa_nodes': 2}}, None),
    ({}, ONE_NODE, NOT_TWO),
    ({}, {'image': {'os_distro': 'arch'}}, "'os_distro' is 'arch' in the image, not "),
    host={'metadata': PROPERTIES},
)
for namespace, verdict in [('os', NOT_ASKED), ('h', NOT_ASKED), ('hw', NOT_TWO)]:
    rows(
        'AggregateImagePropertiesIsolation',
        ({'metadata': PROPERTIES}, ONE_NODE, verdict),
        aggregate_image_properties_isolation_namespace=namespace,
        aggregate_image_properties_isolation_separator='_',
    )


# A value of the aggregates must meet each extra spec with the scope of the filter, or
# without a scope.
def specs(**extra_specs):
    """Fields of a request for a flavor with extra specs. Two underscores stand for a
    colon."""
    fields = {}
    for key, text in extra_specs.items():
        fields[key.replace('__', ':')] = text
    return {'extra_specs': fields}


rows(
    'AggregateInstanceExtraSpecsFilter',
    ({}, {}, NOT_ASKED),
    ({}, specs(hw__cpu_policy='dedicated', resources__VGPU='1'), NOT_ASKED),
    ({}, specs(ssd='true'), None),
    ({}, specs(aggregate_instance_extra_specs__ssd='true'), None),
    (
        {},
        specs(aggregate_instance_extra_specs__ssd='false'),
        "'ssd' is 'true', 'false' wanted",
    ),
    ({}, specs(aggregate_instance_extra_specs__a__b='1'), None),
    ({}, specs(color='blue'), None),
    ({}, specs(color='black'), "'color' is 'blue, green, red', 'black' wanted"),
    ({}, specs(color='<or> black <or> green'), None),
    ({}, specs(racks='>= 4'), "'racks' is '3', '>= 4' wanted"),
    ({}, specs(ssd='>= 1'), "'ssd' is 'true', '>= 1' wanted"),
    ({}, specs(racks='>= few'), "'racks' is '3', '>= few' wanted"),
    ({}, specs(racks=''), "'racks' is '3', '' wanted"),
    ({}, specs(ssd='true', unknown='1'), "no aggregate with 'unknown'"),
    host={
        'metadata': [
            {'ssd': 'true', 'racks': '3', 'color': 'red, blue'},
            {'color': 'green', 'a:b': '1'},
        ]
    },
)

# A host must have every capability of the flavor.
FEATURES = "'cpu_info:features' is '['aes', 'avx2']', '<in> sgx' wanted"
rows(
    'ComputeCapabilitiesFilter',
    ({}, {}, NOT_ASKED),
    ({}, specs(hw__cpu_policy='dedicated', resources__VGPU='1'), NOT_ASKED),
    ({}, specs(somebody_elses='x'), None),
    ({}, specs(pci='x', numa='x'), None),
    ({}, specs(capabilities__hypervisor_type='s== QEMU'), None),
    (
        {},
        specs(capabilities__hypervisor_type='s== X'),
        "'hypervisor_type' is 'QEMU', 's== X' wanted",
    ),
    ({}, specs(capabilities__gpus='>= 2'), None),
    ({}, specs(capabilities__gpus='>= 3'), "'gpus' is '2', '>= 3' wanted"),
    ({}, specs(capabilities__gpus='>= few'), "'gpus' is '2', '>= few' wanted"),
    ({}, specs(capabilities__stats__color='red'), None),
    ({}, specs(capabilities__cpu_info__features='<in> avx2'), None),
    ({}, specs(capabilities__cpu_info__features='<in> sgx'), FEATURES),
    (
        {},
        specs(capabilities__cpu_info__topology__cores='4'),
        "no capability 'cpu_info:topology:cores'",
    ),
    (
        {},
        specs(capabilities__cpu_info__arch__bits='64'),
        "no capability 'cpu_info:arch:bits'",
    ),
    (
        {},
        specs(capabilities__supported_instances='<in> kvm'),
        "'supported_instances' is '[]', '<in> kvm' wanted",
    ),
    ({}, specs(capabilities__after='x'), "no capability 'after'"),
    ({}, {'extra_specs': {'capabilities:': '1'}}, "no capability ''"),
    ({}, specs(hw__maxphysaddr_bits='46'), None),
    (
        {},
        specs(hw__maxphysaddr_bits='48'),
        "'cpu_info:maxphysaddr:bits' is '46', '>= 48' wanted",
    ),
    ({}, specs(gpus='2'), None),
    ({}, specs(gpus='1'), "'gpus' is '2', '1' wanted"),
    ({}, specs(vcpus_total='>= 9'), "'vcpus_total' is '8', '>= 9' wanted"),
    ({}, specs(host_ip='x'), "no capability 'host_ip'"),
    host={
        'hypervisor_type': 'QEMU',
        'hypervisor_version': 8002002,
        'stats': {'gpus': '2', 'color': 'red'},
        'cpu_info': '{"arch": "x86_64", "features": ["aes", "avx2"],'
        ' "maxphysaddr": {"bits": 46}}',
    },
)


# A triple of the host must match the image, and so must version and address width.
def image(**properties):
    """Fields of a request for an image with these properties."""
    return {'image': properties}


SUPPORTED = 'host supports x86_64/kvm/hvm, i686/kvm/hvm'
XEN = {'supported_instances': (('x86_64', 'xen', 'xen'),)}
rows(
    'ImagePropertiesFilter',
    ({}, {}, NOT_ASKED),
    ({}, image(), NOT_ASKED),
    ({}, image(img_hv_requested_version='>=1'), NOT_ASKED),
    ({}, image(hw_architecture='AMD64'), None),
    ({}, image(hw_architecture='i386'), None),
    ({}, image(hw_architecture='aarch64'), f'image wants aarch64, {SUPPORTED}'),
    ({}, image(hw_architecture='x86_64', img_hv_type='kvm', hw_vm_mode='hvm'), None),
    ({}, image(hw_vm_mode='hv'), None),
    (XEN, image(img_hv_type='xapi'), None),
    ({}, image(img_hv_type='baremetal'), f'image wants baremetal, {SUPPORTED}'),
    ({}, image(hw_vm_mode='baremetal'), None),
    ({}, image(hw_vm_mode=['hvm']), f"image wants ['hvm'], {SUPPORTED}"),
    (
        {'supported_instances': ()},
        image(hw_architecture='x86_64'),
        'image wants x86_64, host supports nothing',
    ),
    ({}, image(hw_vm_mode='hvm', img_hv_requested_version='>=8.0'), None),
    (
        {},
        image(hw_vm_mode='hvm', img_hv_requested_version='>=6.0,<8.0'),
        'hypervisor version 8.2.2, image wants >=6.0,<8.0',
    ),
    (
        {},
        image(hw_vm_mode='hvm', img_hv_requested_version='newest'),
        'hypervisor version 8.2.2, image wants newest',
    ),
    (
        {'hypervisor_version': None},
        image(hw_vm_mode='hvm', img_hv_requested_version='>=1'),
        None,
    ),
    ({}, image(hw_vm_mode='hvm', hw_maxphysaddr_bits=42), None),
    (
        {},
        image(hw_vm_mode='hvm', hw_maxphysaddr_bits=48),
        '46 physical address bits, image wants 48',
    ),
    (
        {},
        image(hw_vm_mode='hvm', hw_maxphysaddr_bits='x'),
        '46 physical address bits, image wants x',
    ),
    ({'cpu_info': 'not JSON'}, image(hw_vm_mode='hvm', hw_maxphysaddr_bits=48), None),
    host={
        'supported_instances': (('x86_64', 'kvm', 'hvm'), ('i686', 'kvm', 'hvm')),
        'hypervisor_version': 8002002,
        'cpu_info': '{"maxphysaddr": {"bits": 46}}',
    },
)
rows(
    'ImagePropertiesFilter',
    ({}, image(), 'image wants x86_64, host supports nothing'),
    image_properties_default_architecture='x86_64',
)

# A host must report every metric of the option that has a valid ratio.
METRICS = {
    'metrics': ({'name': 'cpu.frequency', 'value': 1000}, {'name': 'cpu.percent'})
}
GARBAGE = {'metrics': (None, {}, {'name': []})}
for weighed, host, verdict in [
    ((), METRICS, NOT_ASKED),
    (('a=fast',), METRICS, NOT_ASKED),
    (('cpu.frequency=1.0', 'cpu.percent=-2'), METRICS, None),
    (('b=1', 'cpu.percent=1', 'a=1'), METRICS, 'has no metric a, b'),
    (('cpu.frequency=1.0',), {}, 'has no metric cpu.frequency'),
    (('cpu.frequency=1.0',), GARBAGE, 'has no metric cpu.frequency'),
    (('a=fast', 'b', '=1', 'cpu.percent=1'), METRICS, None),
]:
    rows('MetricsFilter', (host, {}, verdict), metrics_weight_setting=weighed)


# A host must have all requested devices, on whichever NUMA node.
def devices(*counts, **fields):
    """Fields of a request for numbers of devices of a product, one number for each PCI
    request."""
    spec = ({'product_id': 'p'},)
    pci_requests = [PciRequest(n, spec, 'gpu', 'id', **fields) for n in counts]
    return {'pci_requests': tuple(pci_requests)}


rows(
    'PciPassthroughFilter',
    ({}, {}, NOT_ASKED),
    ({}, devices(2, 1), None),
    ({}, devices(3, numa_policy='required'), None),
    ({}, devices(2, 2), 'PCI gpu: 1 of 2 devices are of that kind'),
    ({'pci': lambda: ()}, devices(1), 'PCI gpu: 0 of 1 devices are of that kind'),
    host={'pci': lambda: (Pool('p', 'v', 2, 0), Pool('p', 'v', 1, 1))},
)


# Filters with further tests of their own.
BIG = {'flavor': a_flavor(vcpus=64, memory_mb=999_999, root_gb=9_999)}
for aggregate in ('', 'Aggregate'):
    rows(
        f'{aggregate}CoreFilter',
        ({}, BIG, '8 vCPUs before overcommit, 64 wanted'),
        ({'vcpus_used': 8}, {}, '0 vCPUs free, 1 wanted'),
    )
    rows(
        f'{aggregate}DiskFilter',
        ({}, BIG, '102400 MiB of disk before overcommit, 10238976 wanted'),
        ({'disk_gb': 0}, {}, '0 MiB of disk before overcommit, 1024 wanted'),
    )
    rows(
        f'{aggregate}RamFilter',
        ({}, BIG, '8192 MiB of memory before overcommit, 999999 wanted'),
        (
            {'ram': 100, 'total_usable_ram_mb': 8192},
            {},
            '100 MiB of memory free, 512 wanted',
        ),
    )

# Aggregates may set the ratios, for the filters of aggregates only.
TWICE = {
    'cpu_allocation_ratio': '2',
    'disk_allocation_ratio': '2',
    'ram_allocation_ratio': '2',
}
FULL = {'vcpus_used': 8, 'metadata': TWICE}
rows('CoreFilter', (FULL, {}, '0 vCPUs free, 1 wanted'))
rows('AggregateCoreFilter', (FULL, {}, None))
FULL = {'ram': 100, 'total_usable_ram_mb': 8192, 'metadata': TWICE}
rows('RamFilter', (FULL, {}, '100 MiB of memory free, 512 wanted'))
rows('AggregateRamFilter', (FULL, {}, None))

rows('ExactCoreFilter', ({}, {}, '8 vCPUs free, exactly 1 wanted'))
rows('ExactDiskFilter', ({}, {}, '102400 MiB of disk free, exactly 1024 wanted'))
rows('ExactRamFilter', ({}, {}, '8192 MiB of memory free, exactly 512 wanted'))
rows(
    'IsolatedHostsFilter',
    ({'name': 'safe'}, {}, 'the host is for isolated images'),
    isolated_hosts=('safe',),
)
rows(
    'JsonFilter',
    (
        {},
        {'hints': {'query': ['[">=", "$free_ram_mb", 9000]']}},
        'the query is not true',
    ),
)
rows(
    'NUMATopologyFilter',
    (
        {},
        {'numa_topology': GuestTopology((GuestCell(0, frozenset({0}), 512),))},
        'it reports no NUMA topology, or none that can be read',
    ),
)
rows(
    'TypeAffinityFilter',
    (
        {'instances': ['a']},
        {'flavor': a_flavor(id=7)},
        'has servers of 1 other flavors',
    ),
)

FOR_HOSTS = 'the image is for isolated hosts'
FOR_IMAGES = 'the host is for isolated images'


@pytest.mark.parametrize(
    ('images', 'restrict', 'host', 'image_id', 'verdict'),
    [
        (('i',), True, 'isolated', 'i', None),
        (('i',), True, 'isolated', 'other', FOR_IMAGES),
        (('i',), True, 'isolated', None, FOR_IMAGES),
        (('i',), True, 'open', 'i', FOR_HOSTS),
        (('i',), True, 'open', 'other', None),
        (('i',), False, 'isolated', 'other', None),
        (('i',), False, 'open', 'i', FOR_HOSTS),
        ((), True, 'isolated', 'i', FOR_IMAGES),
        ((), True, 'open', 'i', None),
        ((), False, 'isolated', 'i', None),
    ],
)
def test_isolated_images_go_with_isolated_hosts(
    images, restrict, host, image_id, verdict
):
    """An isolated image needs an isolated host. Images that are not isolated need a
    host that is not isolated, unless the option lifts the restriction."""
    plugin = made(
        'IsolatedHostsFilter',
        isolated_hosts=('isolated',),
        isolated_images=images,
        restrict_isolated_hosts_to_isolated_images=restrict,
    )
    image = None
    if image_id:
        image = Image(id=image_id)
    request = replace(a_request(), image=image)

    assert plugin.applies(request)
    assert plugin.reject(a_host(host), request) == verdict
    assert not made('IsolatedHostsFilter').applies(request)


@pytest.mark.parametrize(
    ('flavors', 'verdict'),
    [
        ([], None),
        ([1, 1], None),
        ([1, 2], 'has servers of 1 other flavors'),
        ([2, 3, 3], 'has servers of 2 other flavors'),
    ],
)
def test_a_host_with_instances_of_other_flavors_is_rejected(flavors, verdict):
    """A host is empty or has instances of the requested flavor only."""
    instances = {}
    for i, flavor in enumerate(flavors):
        instances[f'{i}'] = Instance(f'{i}', None, flavor)
    host = replace(a_host(), instances=instances)
    request = a_request(flavor=a_flavor(id=1))
    assert made('TypeAffinityFilter').reject(host, request) == verdict


def test_a_request_for_a_different_flavor_is_judged_again():
    """A request for a different flavor is judged again, though no host has changed."""
    hosts = [
        replace(a_host('one'), instances={'a': Instance('a', None, 1)}),
        replace(a_host('two'), instances={'b': Instance('b', None, 2)}),
    ]
    pipeline = Pipeline(Settings(), [made('TypeAffinityFilter')], [])

    for flavor, passing in [(1, ['one']), (2, ['two']), (1, ['one']), (3, [])]:
        request = a_request(flavor=a_flavor(id=flavor))
        ranking = pipeline.filter(hosts, request, 0)
        assert [host.host for host in ranking.hosts] == passing
