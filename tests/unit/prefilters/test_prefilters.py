# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.host import Aggregate
from novasched.model.request import Destination
from novasched.model.settings import Settings
from novasched.prefilters.availability_zone import AvailabilityZonePrefilter
from novasched.prefilters.compute_status import ComputeStatusPrefilter
from novasched.prefilters.order import PREFILTERS
from tests.builders import a_request
from tests.ports import sources

ZONES = sources(
    Aggregate(1, 'agg1', 'rack1', {'availability_zone': 'az01'}),
    Aggregate(2, 'agg2', 'rack2', {'availability_zone': 'az01'}),
    Aggregate(3, 'agg3', 'rack3', {'availability_zone': 'az02'}),
)


@pytest.mark.parametrize(
    ('zone', 'settings', 'aggregates'),
    [
        (None, {}, ()),
        ('az01', {}, ({'agg1', 'agg2'},)),
        ('az02', {}, ({'agg3'},)),
        ('nova', {}, ()),
        ('az01', {'query_placement_for_availability_zone': False}, ()),
    ],
)
def test_a_zone_is_its_aggregates(zone, settings, aggregates):
    """Any aggregate of the zone will do; the default zone has none."""
    before = a_request(availability_zone=zone)
    after = AvailabilityZonePrefilter(Settings(**settings), ZONES)(before)
    wanted = after.requested_destination or Destination()
    assert wanted.aggregates == aggregates
    assert before.requested_destination is None


def test_a_zone_adds_to_what_is_wanted():
    """A destination that was asked for is kept, and must be in the zone."""
    wanted = Destination(host='h', aggregates=(frozenset({'x'}),))
    request = a_request(availability_zone='az02', requested_destination=wanted)
    after = AvailabilityZonePrefilter(Settings(), ZONES)(request).requested_destination
    assert after == Destination(host='h', aggregates=(frozenset({'x'}), frozenset({'agg3'})))


def test_disabled_computes_are_left_out_by_placement():
    """Every query forbids the trait of disabled compute services on the root."""
    request = a_request(root_forbidden=frozenset({'X'}))
    after = ComputeStatusPrefilter(Settings(), sources())(request)
    assert after.root_forbidden == {'X', 'COMPUTE_STATUS_DISABLED'}


def test_an_ordinary_request():
    """With nova's defaults, a request that asks for nothing special has disabled computes
    kept out and providers that are not nova's, no more; it is not itself changed."""
    before = request = a_request(image={})
    for prefilter in PREFILTERS:
        request = prefilter(Settings(), sources(version=74))(request)
    assert (request.root_required, request.root_forbidden) == (
        {'OWNER_NOVA'},
        {'COMPUTE_STATUS_DISABLED'},
    )
    assert request.requested_destination is None
    assert before == a_request(image={})
