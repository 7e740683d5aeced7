# SPDX-License-Identifier: Apache-2.0
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from novasched.placement.allocations import Claim
from novasched.placement.batching import POST_MAX_CONSUMERS, Batches, BatchWindow, Order
from tests.lab.builders import a_candidate, a_uuid


@pytest.mark.parametrize(
    ('posts', 'consumers'),
    [
        pytest.param([], 50, id='nothing was measured'),
        pytest.param([(0.05, 10)] * 9, POST_MAX_CONSUMERS, id='quick'),
        pytest.param([(4.0, 10)] * 9, 2, id='slow'),
        pytest.param([(4.0, 10)] * 9 + [(0.05, 10)] * 19, 100, id='quick again'),
        pytest.param([(60.0, 2)], 1, id='one that took very long'),
        pytest.param([(60.0, 1)] * 9 + [(0.0, 2)] * 99, POST_MAX_CONSUMERS, id='no time at all'),
    ],
)
def test_pace(posts, consumers):
    """A POST has as many consumers as took a second the last times, within bounds."""
    batches = Batches()
    for post in posts:
        batches.took(*post)
    assert batches.max_consumers == consumers


def order(*uuids, lost=None):
    return Order([Claim(uuid, a_candidate(a_uuid('one')), {}) for uuid in uuids], lost)


@pytest.mark.parametrize(('pace', 'orders', 'batches'), [
    pytest.param(9, [order('a'), order('b')], [['a', 'b']], id='together'),
    pytest.param(2, [order('a'), order('b'), order('c')], [['a', 'b'], ['c']], id='bounded'),
    pytest.param(2, [order('a'), order('b', 'c'), order('d')], [['a'], ['b', 'c'], ['d']], id='bounded by instances'),
    pytest.param(2, [order(*'abcd'), order('e')], [['a', 'b', 'c', 'd'], ['e']], id='one request is not divided'),
    pytest.param(9, [order('a'), order('a'), order('b')], [['a'], ['a', 'b']], id='the same instance'),
    pytest.param(9, [order('a', lost='cut'), order('b', lost='cut'), order('c'), order('d')], [['a'], ['b'], ['c', 'd']], id='alone'),
    pytest.param(9, [order('c'), order('a', lost='cut')], [['c'], ['a']], id='alone behind'),
])  # fmt: skip
def test_batches(pace, orders, batches):
    """The first that may be written together are one batch, and each order is in one."""
    waiting = Batches()
    for _ in range(99):
        waiting.took(2.0, 2 * pace)
    mine = [replace(each) for each in orders]
    for each in mine:
        waiting.add(each)
    taken = filter(None, map(waiting.take, mine))
    assert [[claim.uuid for x in batch for claim in x.claims] for batch in taken] == batches
    assert not waiting.waiting


def test_who_writes_is_in_the_batch():
    """One's own order is written before those that came earlier, and again by nobody."""
    waiting, mine = Batches(), [order(uuid) for uuid in 'abcd']
    for _ in range(99):
        waiting.took(2.0, 4)  # so that a batch has two
    for each in mine:
        waiting.add(each)
    assert list(waiting.take(mine[3])) == [mine[3], mine[0]]
    assert list(waiting.take(mine[0])) == []
    assert list(waiting.take(mine[1])) == [mine[1], mine[2]]


def stopped_clock():
    return 100.0


@pytest.mark.parametrize(
    ('set_out', 'per_request', 'longest'),
    [
        pytest.param([], 60, 60, id='alone'),
        pytest.param([99.9], 0.05, 60, id='one that is late'),
        pytest.param([99.9, 50.0], 0.05, 60, id='two that are late'),
        pytest.param([100.0], 60, 0, id='no time'),
    ],
)
def test_no_wait(set_out, per_request, longest):
    """Late requests have given up, and however many set out there is an end."""
    window = BatchWindow(per_request, longest, stopped_clock)
    for moment in set_out:
        window.expect(moment)
    thread = threading.Thread(target=window.wait, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_wait_for_requests_on_their_way():
    """It ends once every request is there that set out in time."""
    window = BatchWindow(per_request=60, longest=60, clock=stopped_clock)
    window.expect(99)
    window.expect(98)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(window.wait)
        window.arrived(99)
        assert not waiting.done()
        window.arrived(98)
        waiting.result(10)
