# SPDX-License-Identifier: Apache-2.0
"""What cannot be made sense of: nova's verdict, and a line of the log that says what it is."""

from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import a_group, a_host, a_request, a_uuid

HOST = a_host(
    stats={'gpus': '2'}, metadata={'size': '4'}, supported_instances=(('x86_64', 'kvm', 'hvm'),),
    hypervisor_version=8002002, host_ip='192.0.2.1', hypervisor_type='QEMU',
)  # fmt: skip
CANNOT = 'the query cannot be answered: '
GROUP = a_uuid('group')


def ranked(hosts, request, filters=(), weighers='nova.scheduler.weights.all_weighers'):
    """The hosts that are left of some, in order."""
    settings = Settings(enabled_filters=tuple(filters), weight_classes=(weighers,))
    line = Pipeline(settings, loading.filters(settings), loading.weighers(settings))
    return line.rank(hosts, request, 0, Random(1)).hosts


def hints(**values):
    return a_request(hints={name: [value] for name, value in values.items()})


@pytest.mark.parametrize(
    ('name', 'request_', 'reason'),
    [
        ('ComputeCapabilitiesFilter', a_request(extra_specs={'capabilities:gpus': '>= few'}), "'gpus' is '2', '>= few' wanted"),
        ('ComputeCapabilitiesFilter', a_request(extra_specs={'hypervisor_type': '<= 5'}), "'hypervisor_type' is 'QEMU', '<= 5' wanted"),
        ('ComputeCapabilitiesFilter', a_request(extra_specs={'gpus': '<or>'}), "'gpus' is '2', '<or>' wanted"),
        ('ComputeCapabilitiesFilter', a_request(extra_specs={'gpus': '=> 1'}), "'gpus' is '2', '=> 1' wanted"),
        ('ComputeCapabilitiesFilter', a_request(extra_specs={'capabilities:': '1'}), "no capability ''"),
        ('AggregateInstanceExtraSpecsFilter', a_request(extra_specs={'size': '>= big'}), "'size' is '4', '>= big' wanted"),
        ('AggregateInstanceExtraSpecsFilter', a_request(extra_specs={'size': ''}), "'size' is '4', '' wanted"),
        ('JsonFilter', hints(query='no JSON'), f'{CANNOT}Expecting value: line 1 column 1 (char 0)'),
        ('JsonFilter', hints(query='["==", 1, 1]'), f"{CANNOT}'==' is no operator"),
        ('JsonFilter', hints(query='{"=": 1}'), f"{CANNOT}{{'=': 1}} does not start with an operator"),
        ('JsonFilter', hints(query='["<", "$stats.gpus", 3]'), f"{CANNOT}'<' not supported between instances of 'str' and 'int'"),
        ('JsonFilter', a_request(hints={'query': ['[]', '[]']}), f'{CANNOT}query takes one value, not 2'),
        ('SameHostFilter', hints(same_host='no server'), 'has none of no server'),
        ('SimpleCIDRAffinityFilter', hints(build_near_host_ip='here'),
         "cannot tell whether it is near: 'here/24' does not appear to be an IPv4 or IPv6 network"),
        ('SimpleCIDRAffinityFilter', hints(build_near_host_ip='192.0.2.9', cidr='/99'),
         "cannot tell whether it is near: '192.0.2.9/99' does not appear to be an IPv4 or IPv6 network"),
        ('ServerGroupAntiAffinityFilter', a_request(group=a_group('anti-affinity', rules={'max_server_per_host': 'few'})),
         f"group {GROUP} has 'few' for max_server_per_host, which is no whole number"),
        ('ImagePropertiesFilter', a_request(image={'hw_vm_mode': 'hvm', 'img_hv_requested_version': 'newest'}),
         'hypervisor version 8.2.2, image wants newest'),
        ('ImagePropertiesFilter', a_request(image={'hw_architecture': 'unheard of'}),
         'image wants unheard of, host supports x86_64/kvm/hvm'),
    ],
)  # fmt: skip
def test_requests(caplog, name, request_, reason):
    """No host is right for what means nothing, and the log says what that is."""
    caplog.set_level('INFO', logger='nova.filters')
    assert ranked([HOST], request_, [name]) == []
    assert f'{name} rejected 1 host(s): {reason}' in caplog.messages


@pytest.mark.parametrize('value', ['few', '', '1.5', '1,2'])
@pytest.mark.parametrize(
    ('name', 'key'),
    [
        ('AggregateIoOpsFilter', 'max_io_ops_per_host'),
        ('AggregateNumInstancesFilter', 'max_instances_per_host'),
    ],
)
def test_limits_of_aggregates(name, key, value):
    """An aggregate's limit that is no whole number leaves the option in force; who reads
    aggregates says so."""
    busy = a_host('busy', num_io_ops=99, num_instances=99, metadata={key: value})
    idle = a_host('idle', metadata={key: value})
    assert ranked([busy, idle], a_request(), [name]) == [idle]


def test_multipliers_of_aggregates(caplog):
    """A multiplier that is no number leaves the option in force, with a warning."""
    small, big = a_host('small', ram=1), a_host('big', metadata={'ram_weight_multiplier': 'heavy'})
    assert ranked([small, big], a_request()) == [big, small]
    assert caplog.messages == [
        "Could not decode 'ram_weight_multiplier' weight multiplier: "
        "could not convert string to float: 'heavy'"
    ]
