# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.host import Aggregate
from novasched.model.request import Destination
from novasched.model.settings import Settings
from novasched.prefilters.availability_zone import AvailabilityZonePrefilter
from novasched.prefilters.compute_status import ComputeStatusPrefilter
from tests.builders import a_request


class Table:
    """Aggregates by what their metadata says."""

    def __init__(self, *rows):
        self.rows = rows

    def having(self, key, value):
        return [row for row in self.rows if row.metadata.get(key) == value]


ZONES = Table(
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
    after = ComputeStatusPrefilter(Settings(), Table())(a_request(root_forbidden=frozenset({'X'})))
    assert after.root_forbidden == {'X', 'COMPUTE_STATUS_DISABLED'}
