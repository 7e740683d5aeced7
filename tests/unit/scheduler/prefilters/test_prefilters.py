# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.aggregate_list import AggregateList
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
from tests.lab.prefilter_sources import sources

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
def test_a_zone_restricts_the_request_to_aggregates_of_the_zone(zone, before, after):
    """A host may be in any aggregate of the zone. The default zone has no aggregates.
    The requested destination stays a restriction."""
    request = a_request(availability_zone=zone, requested_destination=before)
    restricted = AvailabilityZonePrefilter(Settings(), ZONES)(request)
    assert restricted.requested_destination == after
    assert request.requested_destination == before


class GrowingAggregates:
    """Aggregates with a zone that is created at the moment 100."""

    def all(self, since):
        zone = Aggregate(1, 'agg1', 'rack1', {'availability_zone': 'az01'})
        if since >= 100:
            return AggregateList([zone])
        return AggregateList()


@pytest.mark.parametrize(
    ('arrived', 'is_known'), [(99.9, False), (100.0, True), (100.2, True)]
)
def test_a_zone_created_before_the_request_arrives_is_found(arrived, is_known):
    """A zone created before the arrival of the request is found, even if aggregates
    were read earlier for another request."""
    request = a_request(availability_zone='az01')
    basis = Basis(began=arrived, read_since=arrived - 0.25)
    prefilter = AvailabilityZonePrefilter(Settings(), Sources(GrowingAggregates()))
    restricted = prefilter(request, basis)
    assert (restricted.requested_destination is not None) == is_known


def test_a_plain_request_requires_owner_trait_and_enabled_hosts():
    """With nova's defaults, a plain request excludes disabled hosts and providers
    without the owner trait, and is not modified."""
    fields = {'image': {}, 'root_forbidden': frozenset({'X'})}
    before = a_request(**fields)
    request = before
    for prefilter in enabled_prefilters(Settings(), sources()):
        request = prefilter(request, Basis(minimum_version=74))
    assert request.root_required == {'OWNER_NOVA'}
    assert request.root_forbidden == {'X', 'COMPUTE_STATUS_DISABLED'}
    assert request.requested_destination is None
    assert before == a_request(**fields)


def test_every_prefilter_is_enabled_by_the_matching_option():
    """Every option enables its prefilter and no other."""
    by_option = {}
    for prefilter in PREFILTERS:
        if prefilter.option:
            by_option[prefilter.option] = prefilter
    assert by_option

    for option, prefilter in by_option.items():
        for value in (True, False):
            enabled = enabled_prefilters(Settings(**{option: value}), sources())
            assert (prefilter in map(type, enabled)) is value

    all_off = Settings(**dict.fromkeys(by_option, False))
    enabled = enabled_prefilters(all_off, sources())
    assert len(enabled) == len(PREFILTERS) - len(by_option)


REQUIRE = {'placement_aggregate_required_for_tenants': True}


def aggregates(*metadata):
    rows = enumerate(metadata, 1)
    return sources(*[Aggregate(i, f'agg{i}', 'name', row) for i, row in rows])


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
def test_a_project_is_restricted_to_aggregates_of_the_project(
    settings, metadata, wanted
):
    """A project may use all aggregates with its name; a project without aggregates may
    use every host."""
    prefilter = TenantAggregatePrefilter(Settings(**settings), aggregates(*metadata))
    after = prefilter(a_request()).requested_destination or Destination()
    assert after.aggregates == wanted


def test_a_project_without_required_aggregates_is_refused(caplog):
    """If aggregates are required, a project without aggregates is refused in nova's
    words."""
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
def test_aggregates_with_traits_a_request_lacks_are_forbidden(
    request_, metadata, forbidden
):
    """An aggregate that requires a trait takes only requests that require the trait.
    Aggregates that the request forbids stay forbidden."""
    prefilter = IsolatedAggregatesPrefilter(Settings(), aggregates(*metadata))
    before = Destination(host='h', forbidden_aggregates=frozenset({'x'}))
    request = prefilter(a_request(**request_, requested_destination=before))
    after = frozenset({'x', *forbidden})
    expected = Destination(host='h', forbidden_aggregates=after)
    assert request.requested_destination == expected


ALIAS = PciRequest(1, alias_name='gpu', request_id='11-aa')
PORT = PciRequest(1, request_id='22-bb')


def traits_by_group(request):
    groups = request.requested_resources
    return {group.requester_id: set(group.required_traits) for group in groups}


@pytest.mark.parametrize(
    ('version', 'traits'), [(0, set()), (72, set()), (73, {'OWNER_NOVA'})]
)
def test_the_owner_trait_is_required_if_all_services_are_new_enough(version, traits):
    """The owner trait is required once all nova-compute services set the trait. A
    request that requires the trait already is returned unchanged."""
    prefilter = OwnerNovaPrefilter(Settings(), sources())
    basis = Basis(minimum_version=version)
    assert prefilter(a_request(), basis).root_required == traits
    request = a_request(root_required=frozenset({'OWNER_NOVA'}))
    assert prefilter(request, basis) is request


def test_groups_of_flavor_devices_require_the_owner_trait():
    """The groups of PCI devices of a flavor require the owner trait too, but not the
    groups of ports and device profiles."""
    groups = []
    for name in ('11-aa-0', '11-aa-1', '22-bb-0', 'port', None):
        groups.append(RequestGroup(name, {'CUSTOM_X': 1}, frozenset({'T'})))
    request = a_request(pci_requests=(ALIAS, PORT), requested_resources=tuple(groups))

    prefilter = OwnerNovaPrefilter(Settings(), sources())
    after = prefilter(request, Basis(minimum_version=73))
    assert traits_by_group(after) == {
        '11-aa-0': {'T', 'OWNER_NOVA'},
        '11-aa-1': {'T', 'OWNER_NOVA'},
        '22-bb-0': {'T'},
        'port': {'T'},
        None: {'T'},
    }


def test_old_services_are_warned_about_once_for_each_version(caplog):
    """The warning about old nova-compute services is logged once for each version."""
    prefilter = OwnerNovaPrefilter(Settings(), sources())
    for version in (60, 60, 61):
        prefilter(a_request(), Basis(minimum_version=version))

    logged_versions = []
    for record in caplog.records:
        if record.levelname == 'WARNING':
            logged_versions.append(record.args[0])
    assert logged_versions == [60, 61]
