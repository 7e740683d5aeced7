# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.errors import NoValidHost
from novasched.model.host import Aggregate
from novasched.model.request import Destination, RequestGroup
from novasched.model.settings import Settings
from novasched.prefilters.isolated_aggregates import IsolatedAggregatesPrefilter
from novasched.prefilters.tenant_aggregate import TenantAggregatePrefilter
from tests.builders import a_request
from tests.ports import sources

LIMIT = {'limit_tenants_to_placement_aggregate': True}
REQUIRE = {**LIMIT, 'placement_aggregate_required_for_tenants': True}
ISOLATE = {'enable_isolated_aggregate_filtering': True}


def aggregates(*metadata):
    return sources(*(Aggregate(i, f'agg{i}', 'name', row) for i, row in enumerate(metadata, 1)))


@pytest.mark.parametrize(
    ('settings', 'metadata', 'wanted'),
    [
        ({}, [{'filter_tenant_id': 'project'}], ()),
        (LIMIT, [], ()),
        (LIMIT, [{'filter_tenant_id': 'other'}], ()),
        (LIMIT, [{'filter_tenant_id': 'project'}, {}], ({'agg1'},)),
        (
            LIMIT,
            [{'filter_tenant_id3': 'project'}, {'filter_tenant_id': 'project'}],
            ({'agg1', 'agg2'},),
        ),
        (LIMIT, [{'filter_tenant_id': 'other,project'}], ()),
        (LIMIT, [{'owner': 'project'}], ()),
        (LIMIT, [{'filter_tenant_id': 'other', 'filter_tenant_id2': 'project'}], ({'agg1'},)),
        (REQUIRE, [{'filter_tenant_id': 'project'}], ({'agg1'},)),
    ],
)
def test_a_project_stays_in_its_aggregates(settings, metadata, wanted):
    """Any aggregate that names the project will do; who has none may go anywhere."""
    prefilter = TenantAggregatePrefilter(Settings(**settings), aggregates(*metadata))
    after = prefilter(a_request()).requested_destination or Destination()
    assert after.aggregates == wanted


def test_a_project_must_have_aggregates(caplog):
    """Where they are required, a project without any is refused in nova's words."""
    prefilter = TenantAggregatePrefilter(Settings(**REQUIRE), aggregates())
    with pytest.raises(NoValidHost) as caught:
        prefilter(a_request())
    assert caught.value.reason == 'Scheduling failed: No hosts available for tenant'
    assert 'Tenant project has no available aggregates' in caplog.text


@pytest.mark.parametrize(
    ('settings', 'request_', 'metadata', 'forbidden'),
    [
        ({}, {}, [{'trait:HW_A': 'required'}], set()),
        (ISOLATE, {}, [{'trait:HW_A': 'required'}, {'trait:HW_B': 'forbidden'}, {}], {'agg1'}),
        (ISOLATE, {'extra_specs': {'trait:HW_A': 'required'}}, [{'trait:HW_A': 'required'}], set()),
        (ISOLATE, {'extra_specs': {'trait1:HW_A': 'required'}}, [{'trait:HW_A': 'required'}], set()),
        (ISOLATE, {'extra_specs': {'trait:HW_A': 'forbidden'}}, [{'trait:HW_A': 'required'}], {'agg1'}),
        (ISOLATE, {'image': {'traits_required': ['HW_A']}}, [{'trait:HW_A': 'required'}], set()),
        (ISOLATE, {'image': {'os_secure_boot': 'required'}},
         [{'trait:COMPUTE_SECURITY_UEFI_SECURE_BOOT': 'required'}], set()),
        (ISOLATE, {'root_required': frozenset({'HW_A'})}, [{'trait:HW_A': 'required'}], {'agg1'}),
        (ISOLATE, {'requested_resources': (
            RequestGroup('port', {'NET_BW_EGR_KILOBIT_PER_SEC': 1}, frozenset({'HW_A'})),
        )}, [{'trait:HW_A': 'required'}], set()),
        (ISOLATE, {'extra_specs': {'trait:HW_A': 'required'}},
         [{'trait:HW_A': 'required', 'trait:HW_B': 'required'}], {'agg1'}),
    ],
)  # fmt: skip
def test_isolated_aggregates(settings, request_, metadata, forbidden):
    """An aggregate that requires a trait takes only requests that require it too."""
    prefilter = IsolatedAggregatesPrefilter(Settings(**settings), aggregates(*metadata))
    after = prefilter(a_request(**request_)).requested_destination or Destination()
    assert after.forbidden_aggregates == forbidden


def test_isolated_aggregates_add_to_what_is_forbidden():
    """What the request forbids itself stays forbidden."""
    wanted = Destination(host='h', forbidden_aggregates=frozenset({'x'}))
    request = a_request(requested_destination=wanted)
    prefilter = IsolatedAggregatesPrefilter(
        Settings(**ISOLATE), aggregates({'trait:HW_A': 'required'})
    )
    after = prefilter(request).requested_destination
    assert after == Destination(host='h', forbidden_aggregates=frozenset({'x', 'agg1'}))
