# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.affinity import SimpleCIDRAffinityFilter
from tests.lab.builders import a_host, a_request

UNREADABLE = 'cannot tell whether it is near: '


@pytest.mark.parametrize(
    ('host_ip', 'hints', 'verdict'),
    [
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1']}, None),
        ('10.0.1.9', {'build_near_host_ip': ['10.0.0.1']}, '10.0.1.9 is not in 10.0.0.0/24'),
        ('10.0.1.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['/16']}, None),
        ('10.0.1.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['/255.255.0.0']}, None),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['']}, '10.0.0.9 is not in 10.0.0.1/32'),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': []}, None),
        ('2001:db8::9', {'build_near_host_ip': ['2001:db8::1'], 'cidr': ['/64']}, None),
        ('2001:db8::9', {'build_near_host_ip': ['2001:db8::1'], 'cidr': ['/ffff:ffff::']}, None),
        ('2001:db9::9', {'build_near_host_ip': ['2001:db8::1'], 'cidr': ['/ffff:ffff::']}, '2001:db9::9 is not in 2001:db8::/32'),
        ('2001:db8::9', {'build_near_host_ip': ['10.0.0.1']}, '2001:db8::9 is not in 10.0.0.0/24'),
    ],
)  # fmt: skip
def test_network_around_an_address(host_ip, hints, verdict):
    """A host passes whose address is in the network, a /24 where nothing else is said."""
    each = SimpleCIDRAffinityFilter(Settings())
    assert each.reject(a_host(host_ip=host_ip), a_request(hints=hints)) == verdict


@pytest.mark.parametrize(
    ('host_ip', 'hints', 'what'),
    [
        ('10.0.0.9', {'build_near_host_ip': ['here']}, "'here/24'"),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['/33']}, "'10.0.0.1/33'"),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['/ffff::']}, "'10.0.0.1/ffff::'"),
        ('2001:db8::9', {'build_near_host_ip': ['2001:db8::1'], 'cidr': ['/ffff:0:ffff::']}, "'ffff:0:ffff::'"),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1', '10.0.0.2']}, 'build_near_host_ip'),
        ('10.0.0.9', {'build_near_host_ip': ['10.0.0.1'], 'cidr': ['/24', '/25']}, 'cidr'),
        (None, {'build_near_host_ip': ['10.0.0.1']}, "''"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(host_ip, hints, what):
    """A host is rejected with the part that is at fault."""
    each = SimpleCIDRAffinityFilter(Settings())
    verdict = each.reject(a_host(host_ip=host_ip), a_request(hints=hints))
    assert verdict.startswith(UNREADABLE + what)


@pytest.mark.parametrize(
    ('hints', 'applies'),
    [
        ({}, False),
        ({'cidr': ['/24']}, False),
        ({'build_near_host_ip': ['']}, False),
        ({'build_near_host_ip': ['10.0.0.1']}, True),
    ],
)
def test_applies_to_an_address_alone(hints, applies):
    """The size of a network says nothing without an address."""
    assert SimpleCIDRAffinityFilter(Settings()).applies(a_request(hints=hints)) is applies
