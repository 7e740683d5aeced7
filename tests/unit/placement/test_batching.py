# SPDX-License-Identifier: Apache-2.0
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import msgspec
import pytest

from novasched.concurrency.single_flight import STUCK_AFTER_S
from novasched.placement import batching
from novasched.placement.allocations import Claim
from novasched.placement.batching import POST_MAX_CONSUMERS, Batches, BatchWindow, Order
from novasched.scheduler.model.basis import RequestId
from novasched.scheduler.model.candidate import Candidate
from tests.lab.builders import a_uuid


@pytest.mark.parametrize(
    ('posts', 'consumers'),
    [
        pytest.param([], 50, id='nothing was measured'),
        pytest.param([(0.05, 10)] * 9, POST_MAX_CONSUMERS, id='quick'),
        pytest.param([(4.0, 10)] * 9, 2, id='slow'),
        pytest.param([(4.0, 10)] * 9 + [(0.05, 10)] * 19, 100, id='quick again'),
        pytest.param(
            [(60.0, 2)], 2, id='one that took very long, and the next that tells'
        ),
        pytest.param(
            [(60.0, 1)] * 9 + [(0.0, 2)] * 99, POST_MAX_CONSUMERS, id='no time at all'
        ),
    ],
)
def test_a_post_has_as_many_consumers_as_take_a_second(posts, consumers):
    """A POST has as many consumers as took a second the last times, within bounds."""
    batches = Batches()
    for post in posts:
        batches.took(*post)
    assert batches.max_consumers == consumers


def order(*instances, is_separate=False):
    """An order for instances and providers, named by letters."""
    claims = []
    for instance, *providers in instances:
        uuids = map(a_uuid, providers or '1')
        allocations = dict.fromkeys(uuids, msgspec.Raw(b'{}'))
        claims.append(Claim(instance, Candidate(allocations), {}))
    return Order(claims, is_separate)


def named(batch):
    names = []
    for each in batch:
        names += [claim.uuid for claim in each.claims]
    return names


def in_flight(orders):
    """The batches that the threads of orders got."""
    batches = []
    for each in orders:
        if each.others.done() and each.others.result() is not None:
            batches.append([each, *each.others.result()])
    return batches


@pytest.mark.parametrize(
    ('pace', 'orders', 'batches'),
    [
        pytest.param(9, [order('a'), order('b')], [['a', 'b']], id='together'),
        pytest.param(
            2, [order('a'), order('b'), order('c')], [['a', 'b'], ['c']], id='bounded'
        ),
        pytest.param(
            2,
            [order('a'), order('b', 'c'), order('d')],
            [['a'], ['b', 'c'], ['d']],
            id='bounded by instances',
        ),
        pytest.param(
            2,
            [order(*'abcd'), order('e')],
            [['a', 'b', 'c', 'd'], ['e']],
            id='one request is not divided',
        ),
        pytest.param(
            9,
            [order('a'), order('a'), order('b')],
            [['a'], ['a', 'b']],
            id='the same instance',
        ),
        pytest.param(
            9,
            [
                order('a', is_separate=True),
                order('b', is_separate=True),
                order('c'),
                order('d'),
            ],
            [['a'], ['b'], ['c', 'd']],
            id='alone',
        ),
        pytest.param(
            9,
            [order('c'), order('a', is_separate=True)],
            [['c'], ['a']],
            id='alone behind',
        ),
    ],
)
def test_orders_without_a_conflict_form_a_batch(pace, orders, batches):
    """The first orders without a conflict form a batch. No order is left out or written
    twice."""
    waiting = Batches()
    for _ in range(99):
        waiting.took(2.0, 2 * pace)
    mine = [Order(each.claims, each.is_separate) for each in orders]
    waiting.waiting += mine
    waiting.begin()
    taken = []
    while begun := in_flight(mine):
        [batch] = begun
        taken.append(named(batch))
        waiting.end(batch)
        mine = [each for each in mine if each not in batch]
    assert taken == batches
    assert not mine
    assert not waiting.waiting


@pytest.mark.parametrize(
    'steps',
    [
        pytest.param(
            '+a1: a, +b2: a b, +c3: a b, +d4: a b, -b: a cd',
            id='two, and the others are next',
        ),
        pytest.param(
            '+a1: a, +b1: a, +c2: a c, +d1: a c, -a: c bd', id='a provider in flight'
        ),
        pytest.param('+a1: a, +a2: a, +b2: a, -a: ab', id='an instance in flight'),
        pytest.param(
            '+a12: a, +b23: a, +c34: a, +d5: a d, -a: d bc',
            id='one of its providers in flight',
        ),
        pytest.param(
            '+a1: a, +b2: a b, +c12: a b, -a: b, +d1: b, +e3: b e, +f3: b e, -e: b f, +g2: b f, -b: f cdg',
            id='nobody overtakes it',
        ),
        pytest.param(
            '+a1: a, +b1: a, stuck: a b, +c1: a b, +d2: a b d, -b: a d c, -a: d c',
            id='one is stuck',
        ),
        pytest.param(
            '+a1: a, +b2: a b, +c3: a b, stuck: a b c, +d1: a b c d, +e4: a b c d, -b: a c d, -c: a d e',
            id='both are stuck',
        ),
    ],
)
def test_at_most_two_batches_are_written_at_once_unless_stuck(monkeypatch, steps):
    """Batches in flight after an order has come (+), a batch has ended (-), or time has
    passed."""
    now = [0.0]
    batches = Batches()
    waiting = []
    flying = []
    monkeypatch.setattr(batching, 'time', SimpleNamespace(monotonic=lambda: now[0]))
    for line in steps.split(', '):
        step, expected = line.split(': ')
        if step == 'stuck':
            now[0] += STUCK_AFTER_S
            batches.begin()
        elif step.startswith('+'):
            waiting.append(order(step[1:]))
            batches.waiting.append(waiting[-1])
            batches.begin()
        else:
            [ended] = [batch for batch in flying if named(batch) == [step[1:]]]
            flying.remove(ended)
            batches.end(ended)
        flying += in_flight(waiting)
        waiting = [waiter for waiter in waiting if not waiter.others.done()]
        names = [''.join(named(batch)) for batch in flying]
        assert ' '.join(names) == expected, step
    assert waiting == batches.waiting == [], 'nobody waits in the end'


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
def test_a_batch_waits_neither_for_late_requests_nor_too_long(
    set_out, per_request, longest
):
    """The wait does not include late requests, and has a longest time."""
    window = BatchWindow(per_request, longest, stopped_clock)
    for moment in set_out:
        window.expect(RequestId(), moment)
    thread = threading.Thread(target=window.wait, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_batch_waits_until_expected_requests_have_arrived():
    """The wait ends after the arrival of all requests that set out in time."""
    window = BatchWindow(per_request=60, longest=60, clock=stopped_clock)
    # At the same moment.
    first = RequestId()
    second = RequestId()
    window.expect(first, 99)
    window.expect(second, 99)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(window.wait)
        window.arrived(second)
        assert not waiting.done()
        window.arrived(first)
        waiting.result(10)
