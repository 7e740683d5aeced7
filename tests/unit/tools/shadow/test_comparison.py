# SPDX-License-Identifier: Apache-2.0
"""Decisions without claims, reasons for differences from recorded hosts, and
reports."""

import json

import pytest

from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.filters.io_ops import IoOpsFilter
from novasched.scheduler.weighers.io_ops import IoOpsWeigher
from novasched.scheduler.weighers.ram import RAMWeigher
from novasched.tools.shadow.comparison import (
    ComparedRequest,
    Difference,
    Shadow,
    as_json,
    as_table,
    compare,
    count_results,
    is_same,
)
from tests.lab.builders import a_group, a_host, a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver

A = a_host('a', ram=4096)
B = a_host('b', ram=3072)
TWIN = a_host('twin', ram=3072)
BUSY = a_host('busy', ram=8192, num_io_ops=9)
FULL = a_host('full', ram=9000)
HOSTS = (A, B, TWIN, BUSY, FULL)
BUSY_WITH_IO = 'IoOpsFilter rejects it: 9 I/O operations, limit 8'


def a_shadow(*hosts, offered=None, **settings):
    placement = CountingPlacement(
        {host.uuid: int(host in (offered or hosts)) for host in hosts}
    )
    filters = (IoOpsFilter, ServerGroupAntiAffinityFilter)
    weighers = (RAMWeigher, IoOpsWeigher)
    driver = a_driver(
        hosts, *filters, placement=placement, weighers=weighers, **settings
    )
    return Shadow(driver, seed=1)


def test_a_shadow_decision_makes_no_claim():
    """A repeated request gets the same answer, and claims nothing."""
    shadow = a_shadow(A, B)
    assert [shadow.decide(a_request()).hosts for _ in range(3)] == [('a',)] * 3
    assert shadow.driver.deps.placement.allocations == {}
    assert shadow.driver.pending_claims.count() == 0


@pytest.mark.parametrize(
    ('recorded', 'request_', 'difference'),
    [
        (('a',), a_request(), None),
        (('b', 'a'), a_request(count=2, group=a_group('anti-affinity')), None),
        (
            ('b',),
            a_request(),
            ('b', 'a', 'ours weighs differently: RAMWeigher +0.25 (4096 against 3072)'),
        ),
        (('busy',), a_request(), ('busy', 'a', BUSY_WITH_IO)),
        (
            ('full',),
            a_request(),
            (
                'full',
                'a',
                'Placement offers no candidate there, or the host is in no cell any more',
            ),
        ),
        (
            ('b',),
            a_request(ignore_hosts=('b',)),
            ('b', 'a', 'the request itself rules the host out'),
        ),
        (
            ('twin',),
            a_request(ignore_hosts=('a',)),
            ('twin', 'b', 'both weigh the same, so chance decides'),
        ),
        ((), a_request(), ('(none)', 'a', 'the other scheduler refused the request')),
        (
            ('busy',),
            a_request(ignore_hosts=('a', 'b', 'twin')),
            ('busy', '(none)', BUSY_WITH_IO),
        ),
    ],
)
def test_a_difference_has_the_first_reason_against_the_host(
    recorded, request_, difference
):
    """The difference has the first reason against the recorded host."""
    decision = a_shadow(*HOSTS, offered=(A, B, TWIN, BUSY)).decide(request_)
    found = compare(recorded, decision)
    assert (found and (found.recorded, found.ours, found.why)) == difference


def test_a_refusal_by_placement_is_the_reason_of_the_difference():
    """A refusal by Placement is the reason of the difference."""
    shadow = a_shadow(A)
    shadow.driver.deps.placement.free.by_provider.clear()
    decision = shadow.decide(a_request())
    assert decision.hosts == ()
    assert compare((), decision) is None
    assert compare(('a',), decision).why == 'Placement offers no candidate.'


DIFFERENCE = Difference('s', 'a', 'b', 'RAMWeigher')
SAME = ComparedRequest(1, ('a',), compared=True)
DIFFERENT = ComparedRequest(2, ('b',), compared=True, difference=DIFFERENCE)
HALF = ComparedRequest(
    3,
    ('b',),
    False,
    DIFFERENCE,
    unknown='half',
    server='s',
    missing_fields=('retry.hosts',),
)
UNKNOWN = ComparedRequest(4, ('b',), unknown='no answer', server='t')
FAILED = ComparedRequest(5, failure='away')
RESULTS = [SAME, DIFFERENT, HALF, UNKNOWN, FAILED]


def test_each_request_counts_as_compared_unknown_or_failed():
    """Each request counts once as compared, unknown or failed. Results are the same
    without a difference or a failure."""
    assert count_results(RESULTS) == {
        'requests': 5,
        'compared': 2,
        'same': 1,
        'different': 1,
        'unknown': 2,
        'failed': 1,
    }
    assert is_same([SAME, HALF, UNKNOWN])
    assert not is_same([DIFFERENT])
    assert not is_same([FAILED])


def test_reports_have_a_reason_for_each_different_answer():
    """The table has a row with a reason for each request without the same answer, and
    names missing fields. JSON has all requests."""
    lines = as_table(RESULTS).splitlines()
    cells = []
    for line in lines:
        if '|' in line:
            cells.append([cell.strip() for cell in line.split('|')[1:-1]])
    assert cells[1:] == [
        ['2', 's', 'a', 'b', 'RAMWeigher'],
        ['3', 's', 'a', 'b', 'half'],
        ['4', 't', '', 'b', 'no answer'],
        ['5', '', '', '', 'away'],
    ]
    assert lines[-1] == 'Not in the notifications: retry.hosts (requests: 3).'
    assert (
        as_table([SAME])
        == '1 requests, 1 compared, 1 same, 0 different, 0 unknown, 0 failed.'
    )

    found = json.loads(as_json([HALF]))
    assert found['counts']['unknown'] == 1
    assert found['requests'][0]['difference']['why'] == 'RAMWeigher'
    assert found['requests'][0]['missing_fields'] == ['retry.hosts']
    names = 'line hosts compared difference failure server unknown missing_fields'
    assert [*found['requests'][0]] == names.split()
