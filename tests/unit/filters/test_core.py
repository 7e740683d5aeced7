# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.aggregate_core import AggregateCoreFilter
from novasched.filters.core import CoreFilter
from novasched.filters.exact_core import ExactCoreFilter
from novasched.model.settings import Settings
from tests.builders import a_flavor, a_host, a_request

OVERRIDE = {'cpu_allocation_ratio': '2'}


@pytest.mark.parametrize(
    ('kind', 'host', 'verdict', 'limits'),
    [
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 4}, None, {'vcpu': 8}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'cpu_allocation_ratio': 1.5}, None, {'vcpu': 12}),
        (CoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'metadata': OVERRIDE}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (CoreFilter, {'vcpus': 3, 'cpu_allocation_ratio': 16.0}, '3 vCPUs before overcommit, 4 wanted', {'vcpu': 48}),
        (CoreFilter, {'vcpus': 0, 'vcpus_used': 5}, None, {}),
        (CoreFilter, {'vcpus': 8, 'cpu_allocation_ratio': 0.0}, '0 vCPUs free, 4 wanted', {}),
        (AggregateCoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, 4 wanted', {'vcpu': 8}),
        (AggregateCoreFilter, {'vcpus': 8, 'vcpus_used': 5, 'metadata': OVERRIDE}, None, {'vcpu': 16}),
        (AggregateCoreFilter, {'vcpus': 8, 'metadata': {'cpu_allocation_ratio': 'all'}}, None, {'vcpu': 8}),
        (AggregateCoreFilter, {'vcpus': 8, 'metadata': {'cpu_allocation_ratio': 'inf'}}, None, {}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 4}, None, {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 3}, '5 vCPUs free, exactly 4 wanted', {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 8, 'vcpus_used': 5}, '3 vCPUs free, exactly 4 wanted', {'vcpu': 8}),
        (ExactCoreFilter, {'vcpus': 0, 'vcpus_used': -4}, '4 vCPUs free, exactly 4 wanted', {'vcpu': 0}),
    ],
)  # fmt: skip
def test_vcpus(kind, host, verdict, limits):
    """A host has room for four vCPUs, and compute is told how many there are in all."""
    request, each = a_request(flavor=a_flavor(vcpus=4)), kind(Settings())
    assert each.reject(a_host(**host), request) == verdict
    assert each.limits(a_host(**host), request) == limits
