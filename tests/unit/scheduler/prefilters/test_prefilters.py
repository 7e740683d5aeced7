# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import Destination
from novasched.scheduler.prefilters import Sources
from novasched.scheduler.prefilters.request_filter import (
    PREFILTERS,
    AvailabilityZonePrefilter,
    IsolatedAggregatesPrefilter,
    OwnerNovaPrefilter,
    TenantAggregatePrefilter,
    enabled_prefilters,
)
from tests.lab.builders import a_request
from tests.lab.ports import sources

ZONES = sources(
    Aggregate(1, 'agg1', 'rack1', {'availability_zone': 'az01'}),
    Aggregate(2, 'agg2', 'rack2', {'availability_zone': 'az01'}),
    Aggregate(3, 'agg3', 'rack3', {'availability_zone': 'az02'}),
)


HERE = Destination(host='h', aggregates=(frozenset({'x'}),))


@pytest.mark.parametrize(
    ('zone', 'before', 'after'),
    [
        (None, None, None),
        ('nova', None, None),
        ('az01', None, Destination(aggregates=(frozenset({'agg1', 'agg2'}),))),
        (
            'az02',
            HERE,
            Destination(host='h', aggregates=(*HERE.aggregates, frozenset({'agg3'}))),
        ),
    ],
)
def test_a_zone_is_its_aggregates(zone, before, after):
    """Any aggregate of the zone will do; the default zone has none. A destination that
    was asked for is kept, and must be in the zone."""
    request = a_request(availability_zone=zone, requested_destination=before)
    found = AvailabilityZonePrefilter(Settings(), ZONES)(request)
    assert found.requested_destination == after
    assert request.requested_destination == before


class GrowingAggregates:
    """Aggregates that are read at a moment: the zone is made at the moment 100."""

    def all(self, since):
        zone = Aggregate(1, 'agg1', 'rack1', {'availability_zone': 'az01'})
        if since >= 100:
            return [zone]
        return []


@pytest.mark.parametrize(
    ('arrived', 'is_known'), [(99.9, False), (100.0, True), (100.2, True)]
)
def test_a_zone_that_was_just_made(arrived, is_known):
    """A zone that existed when the request arrived is known, though aggregates were
    read for other requests a little before."""
    request = a_request(availability_zone='az01')
    basis = Basis(began=arrived, read_since=arrived - 0.25)
    prefilter = AvailabilityZonePrefilter(Settings(), Sources(GrowingAggregates()))
    narrowed = prefilter(request, basis)
    assert (narrowed.requested_destination is not None) == is_known


def test_an_ordinary_request():
    """With nova's defaults, a request that asks for nothing special has disabled
    computes kept out and providers that are not nova's, no more; it is not itself
    changed."""
    asked = {'image': {}, 'root_forbidden': frozenset({'X'})}
    before = request = a_request(**asked)
    for prefilter in enabled_prefilters(Settings(), sources()):
        request = prefilter(request, Basis(minimum_version=74))
    assert request.root_required == {'OWNER_NOVA'}
    assert request.root_forbidden == {'X', 'COMPUTE_STATUS_DISABLED'}
    assert request.requested_destination is None
    assert before == a_request(**asked)


def test_an_option_switches_its_prefilter():
    """Each that has one runs where it is set, and no other is missing where none is."""
    by_option = {kind.option: kind for kind in PREFILTERS if kind.option}
    assert by_option
    for option, kind in by_option.items():
        for is_on in (True, False):
            enabled = enabled_prefilters(Settings(**{option: is_on}), sources())
            assert any(isinstance(each, kind) for each in enabled) is is_on
    nothing = enabled_prefilters(Settings(**dict.fromkeys(by_option, False)), sources())
    assert len(nothing) == len(PREFILTERS) - len(by_option)


REQUIRE = {'placement_aggregate_required_for_tenants': True}


def aggregates(*metadata):
    return sources(
        *(Aggregate(i, f'agg{i}', 'name', row) for i, row in enumerate(metadata, 1))
    )


@pytest.mark.parametrize(
    ('settings', 'metadata', 'wanted'),
    [
        ({}, [], ()),
        ({}, [{'filter_tenant_id': 'other'}], ()),
        ({}, [{'filter_tenant_id': 'project'}, {}], ({'agg1'},)),
        (
            {},
            [{'filter_tenant_id3': 'project'}, {'filter_tenant_id': 'project'}],
            ({'agg1', 'agg2'},),
        ),
        ({}, [{'filter_tenant_id': 'other,project'}], ()),
        ({}, [{'owner': 'project'}], ()),
        (
            {},
            [{'filter_tenant_id': 'other', 'filter_tenant_id2': 'project'}],
            ({'agg1'},),
        ),
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
    ('request_', 'metadata', 'forbidden'),
    [
        ({}, [{'trait:HW_A': 'required'}, {'trait:HW_B': 'forbidden'}, {}], {'agg1'}),
        (
            {'extra_specs': {'trait:HW_A': 'required'}},
            [{'trait:HW_A': 'required'}],
            set(),
        ),
        (
            {'extra_specs': {'trait:HW_A': 'forbidden'}},
            [{'trait:HW_A': 'required'}],
            {'agg1'},
        ),
        (
            {'root_required': frozenset({'HW_A'})},
            [{'trait:HW_A': 'required'}],
            {'agg1'},
        ),
        (
            {'extra_specs': {'trait:HW_A': 'required'}},
            [{'trait:HW_A': 'required', 'trait:HW_B': 'required'}],
            {'agg1'},
        ),
    ],
)
def test_isolated_aggregates(request_, metadata, forbidden):
    """An aggregate that requires a trait takes only requests that require it too; what
    a request forbids itself stays forbidden."""
    prefilter = IsolatedAggregatesPrefilter(Settings(), aggregates(*metadata))
    before = Destination(host='h', forbidden_aggregates=frozenset({'x'}))
    after = prefilter(
        a_request(**request_, requested_destination=before)
    ).requested_destination
    assert after == Destination(
        host='h', forbidden_aggregates=frozenset({'x', *forbidden})
    )


ALIAS = PciRequest(1, alias_name='gpu', request_id='11-aa')
PORT = PciRequest(1, request_id='22-bb')


def groups(request):
    return {
        each.requester_id: set(each.required_traits)
        for each in request.requested_resources
    }


@pytest.mark.parametrize(
    ('version', 'traits'), [(0, set()), (72, set()), (73, {'OWNER_NOVA'})]
)
def test_every_compute_must_set_the_mark(version, traits):
    """Providers of older computes have no mark, so none is required until all are new;
    a request that requires it already is passed on as it is."""
    prefilter = OwnerNovaPrefilter(Settings(), sources())
    basis = Basis(minimum_version=version)
    assert prefilter(a_request(), basis).root_required == traits
    request = a_request(root_required=frozenset({'OWNER_NOVA'}))
    assert prefilter(request, basis) is request


def test_the_mark_of_devices():
    """The groups of a flavor's PCI devices need it too; those of ports and of device
    profiles do not."""
    asked = [RequestGroup(name, {'CUSTOM_X': 1}, frozenset({'T'}))
             for name in ('11-aa-0', '11-aa-1', '22-bb-0', 'port', None)]  # fmt: skip
    request = a_request(pci_requests=(ALIAS, PORT), requested_resources=tuple(asked))
    prefilter = OwnerNovaPrefilter(Settings(), sources())
    after = prefilter(request, Basis(minimum_version=73))
    assert groups(after) == {
        '11-aa-0': {'T', 'OWNER_NOVA'}, '11-aa-1': {'T', 'OWNER_NOVA'},
        '22-bb-0': {'T'}, 'port': {'T'}, None: {'T'},
    }  # fmt: skip


def test_an_older_cloud_is_told_once(caplog):
    """The log says once why the mark is not required, and again when that changes."""
    prefilter = OwnerNovaPrefilter(Settings(), sources())
    for version in (60, 60, 61):
        prefilter(a_request(), Basis(minimum_version=version))
    warnings = [record for record in caplog.records if record.levelname == 'WARNING']
    assert [record.args[0] for record in warnings] == [60, 61]
