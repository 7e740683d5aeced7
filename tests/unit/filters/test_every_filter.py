# SPDX-License-Identifier: Apache-2.0
"""What holds for all filters that come with the daemon."""

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched import plugins
from novasched.model.host import Instance
from novasched.model.settings import Settings
from tests.builders import a_flavor, a_host, a_request

ONCE_PER_REQUEST = {
    'AggregateImagePropertiesIsolation', 'AggregateInstanceExtraSpecsFilter',
    'AggregateMultiTenancyIsolation', 'AggregateTypeAffinityFilter', 'AllHostsFilter',
    'AvailabilityZoneFilter', 'ComputeCapabilitiesFilter', 'ComputeFilter', 'DifferentHostFilter',
    'ImagePropertiesFilter', 'IsolatedHostsFilter', 'SameHostFilter', 'SimpleCIDRAffinityFilter',
}  # fmt: skip
ON_REBUILD = {
    'AggregateImagePropertiesIsolation', 'ImagePropertiesFilter', 'IsolatedHostsFilter',
}  # fmt: skip
READ_INSTANCES = {
    'DifferentHostFilter', 'JsonFilter', 'SameHostFilter', 'ServerGroupAntiAffinityFilter',
    'TypeAffinityFilter',
}  # fmt: skip
ABOUT_THE_OTHERS = {'ServerGroupAffinityFilter', 'ServerGroupAntiAffinityFilter'}
MOVED_TO_PLACEMENT = [
    f'{prefix}{what}Filter' for prefix in ('', 'Aggregate', 'Exact') for what in ('Core', 'Ram', 'Disk')
]  # fmt: skip
OTHERS = [
    'AggregateIoOpsFilter', 'AggregateNumInstancesFilter', 'IoOpsFilter', 'JsonFilter', 'MetricsFilter',
    'NUMATopologyFilter', 'NumInstancesFilter', 'PciPassthroughFilter', 'RetryFilter', 'ServerGroupAffinityFilter', 'ServerGroupAntiAffinityFilter',
    'TypeAffinityFilter',
]  # fmt: skip
NAMES = sorted({*ONCE_PER_REQUEST, *MOVED_TO_PLACEMENT, *OTHERS})


@pytest.mark.parametrize('name', NAMES)
def test_when_it_runs(name):
    """Each is found by nova's name, and runs as often as nova's does."""
    (each,) = plugins.filters(Settings(enabled_filters=(name,)))
    assert each.name == name
    assert each.once_per_request is (name in ONCE_PER_REQUEST)
    assert each.once_per_host is (name not in ONCE_PER_REQUEST | ABOUT_THE_OTHERS)
    assert each.on_rebuild is (name in ON_REBUILD)
    assert each.reads_instances is (name in READ_INSTANCES)


KEYS = st.sampled_from([
    'availability_zone', 'cpu_allocation_ratio', 'disk_allocation_ratio', 'filter_tenant_id',
    'hw_boot_menu', 'instance_type', 'max_instances_per_host', 'max_io_ops_per_host',
    'ram_allocation_ratio', 'aggregate_instance_extra_specs:x', 'x',
])  # fmt: skip
TEXTS = st.text(string.printable, max_size=6) | st.sampled_from(
    ['>= 1', '= x', '<or>', '<or> x <or> 1', '<in>', '<all-in> x', 's== x', '==', 'nan', 'inf', '-1', 'x,1']
)  # fmt: skip
NUMBERS = st.integers(-5, 5)
SETTINGS = Settings(
    enabled_filters=tuple(NAMES),
    metrics_weight_setting=('x=1',),
    isolated_hosts=('host1',),
    isolated_images=('x',),
)


@given(
    metadata=st.lists(st.dictionaries(KEYS, TEXTS, max_size=5), max_size=3),
    extra_specs=st.dictionaries(KEYS, TEXTS, max_size=3),
    image=st.none() | st.dictionaries(KEYS, TEXTS | NUMBERS | st.booleans(), max_size=3),
    hints=st.dictionaries(
        st.sampled_from(['same_host', 'different_host', 'query', 'build_near_host_ip', 'cidr']),
        st.lists(TEXTS, max_size=2),
    ),
    numbers=st.fixed_dictionaries(dict.fromkeys(('ram', 'disk_gb', 'vcpus', 'vcpus_used'), NUMBERS)),
    host_ip=st.none() | TEXTS,
    metrics=st.lists(st.none() | st.dictionaries(st.just('name'), TEXTS | st.lists(TEXTS))),
)  # fmt: skip
def test_any_content_has_a_verdict(metadata, extra_specs, image, hints, numbers, host_ip, metrics):
    """Whatever a request and a host hold, a filter accepts or says why not; it never raises."""
    host = a_host(metadata=metadata, host_ip=host_ip, metrics=tuple(metrics), **numbers)
    host = replace(host, instances={'x': Instance('x')})
    request = a_request(flavor=a_flavor(extra_specs, vcpus=2), image=image, hints=hints)
    for each in plugins.filters(SETTINGS):
        why = each.reject(host, request) if each.applies(request) else None
        assert why is None or isinstance(why, str)
        each.limits(host, request)
