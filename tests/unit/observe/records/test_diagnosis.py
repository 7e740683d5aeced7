# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest
from keystoneauth1 import exceptions as ks_exc

from novasched.conf.settings import Settings
from novasched.observe.records.diagnosis import BAD_REQUEST_PREFIX, diagnose
from novasched.observe.records.record import Diagnosis
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_request, a_uuid
from tests.lab.ports import StillAggregates

WEST = Aggregate(1, a_uuid('west'), 'rack-1', {'availability_zone': 'west'})
SSD = Aggregate(2, a_uuid('ssd'), 'ssd', {})
KNOWN = StillAggregates([WEST, SSD])


class Placement:
    """Has a candidate for queries in which nothing that is lacking is asked for."""

    def __init__(self, *lacking, status=200):
        self.lacking, self.status = lacking, status
        self.asked = []

    def request(self, path, method, **_):
        self.asked.append(path)
        values = [value for _, value in parse_qsl(path.partition('?')[2])]
        if self.status is None:
            raise ks_exc.ConnectFailure('down')
        missing = any(
            each in value.split(',') or each == value for each in self.lacking for value in values
        )
        body = b'{"allocation_requests": [%s]}' % (b'' if missing else b'{}')
        status = 200 if self.status == 400 and not missing else self.status
        if status == 400:
            body = (
                b'{"errors": [{"detail": "%s\\n\\n No such trait(s): CUSTOM_A."}]}'
                % BAD_REQUEST_PREFIX.strip().encode()
            )
        return SimpleNamespace(status_code=status, content=body, reason='')


def diagnosis(placement, questions=12, aggregates=KNOWN, **asked):
    settings = Settings(decisions_questions=questions)
    return diagnose(settings, placement, aggregates, a_request(**asked))


def within(*aggregates, **fields):
    sets = tuple(frozenset([each.uuid]) for each in aggregates)
    return {'requested_destination': Destination(aggregates=sets, **fields)}


@pytest.mark.parametrize(('lacking', 'asked', 'found'), [
    ((), {}, Diagnosis(passing=True)),
    (('VCPU:1',), {}, Diagnosis(('1 VCPU',), 3, 3)),
    (('MEMORY_MB:512',), {}, Diagnosis(('512 MEMORY_MB',), 3, 3)),
    (('CUSTOM_A',), {'extra_specs': {'trait:CUSTOM_A': 'required'}}, Diagnosis(('trait CUSTOM_A',), 3, 3)),
    (('!CUSTOM_A',), {'extra_specs': {'trait:CUSTOM_A': 'forbidden'}}, Diagnosis(('forbidding trait CUSTOM_A',), 3, 3)),
    (('!COMPUTE_STATUS_DISABLED',), {'root_forbidden': frozenset(['COMPUTE_STATUS_DISABLED'])}, Diagnosis(('leaving out disabled hosts',), 4, 4)),
    ((f'in:{WEST.uuid}',), {'availability_zone': 'west', **within(WEST)}, Diagnosis(('availability zone west',), 3, 3)),
    ((f'in:{SSD.uuid}',), {'availability_zone': 'west', **within(WEST, SSD)}, Diagnosis(('aggregate ssd',), 4, 4)),
    ((f'!in:{SSD.uuid}',), within(forbidden_aggregates=frozenset([SSD.uuid])), Diagnosis(('staying out of aggregate ssd',), 3, 3)),
    (('node',), {'in_tree': 'node'}, Diagnosis(('the one host node',), 3, 3)),
    (('CUSTOM_X:2',), {'requested_resources': (RequestGroup('_nic', {'CUSTOM_X': 2}),)}, Diagnosis(('2 CUSTOM_X (group _nic)',), 3, 3)),
    (('512', 'MEMORY_MB:512', 'DISK_GB:1'), {}, Diagnosis((), 3, 3)),
])  # fmt: skip
def test_what_leaves_no_host(lacking, asked, found):
    """The constraints without any one of which there is a host, in the words of those who
    set them."""
    answer = diagnosis(Placement(*lacking), **asked)
    assert (answer.found, answer.passing) == (found.found, found.passing)
    assert answer.asked == answer.constraints


def test_a_query_that_is_refused():
    """What Placement has against it is told, with the constraint that it is about."""
    specs = {'trait:CUSTOM_A': 'required'}
    answer = diagnosis(Placement('CUSTOM_A', status=400), extra_specs=specs)
    assert answer.refusal == 'No such trait(s): CUSTOM_A.'
    assert answer.found == ('trait CUSTOM_A',)


@pytest.mark.parametrize(('questions', 'asked'), [(1, 1), (2, 2), (99, 3)])
def test_so_many_questions(questions, asked):
    """One for the query itself, and no more than the option allows."""
    placement = Placement('DISK_GB:1', 'MEMORY_MB:512')
    answer = diagnosis(placement, questions)
    assert len(placement.asked) == 1 + asked
    assert (answer.asked, answer.constraints) == (asked, 3)
    assert all('limit=1&' in path or path.endswith('limit=1') for path in placement.asked)


@pytest.mark.parametrize('status', [None, 503])
def test_placement_that_fails(status):
    with pytest.raises(PlacementUnavailable):
        diagnosis(Placement(status=status))


def test_aggregates_that_cannot_be_read():
    """They are named by their UUIDs."""

    class Down:
        def all(self, since):
            raise PlacementUnavailable('down')

    answer = diagnosis(Placement(f'in:{SSD.uuid}'), aggregates=Down(), **within(SSD))
    assert answer.found == (f'aggregate {SSD.uuid}',)
