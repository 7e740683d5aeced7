# SPDX-License-Identifier: Apache-2.0
"""The queue of decisions, and the claims that a queued request counts."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from statistics import fmean

import pytest

from novasched.scheduler.claims.decision_lock import DecisionLock, Turn
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.filters.num_instances import NumInstancesFilter
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid, numbered_hosts
from tests.lab.memory_schedulers import ManualClock, a_driver
from tests.lab.processes import wait_until

AT_ONCE = 64


def wait_for_turns(lock, number):
    """Wait until ``number`` requests decide or wait for their turn."""

    def all_queue():
        deciding = int(lock._deciding is not None)
        return deciding + len(lock._single) + len(lock._several) == number

    wait_until(all_queue, 10, f'{number} turns', pause=0.0005)


def test_requests_decide_in_order_of_arrival():
    """Requests decide in the order of their arrival."""
    lock = DecisionLock()
    served = []

    def decide(number):
        with lock.turn() as turn:
            served.append(number)
        assert not turn.was_overtaken

    with ThreadPoolExecutor(20) as pool:
        with lock.turn():
            decisions = []
            for number in range(20):
                decisions.append(pool.submit(decide, number))
                wait_for_turns(lock, number + 2)
        for decision in decisions:
            decision.result(10)

    assert served == [*range(20)]


def test_no_request_is_overtaken_while_decisions_are_quick():
    """However long the queue is, no request is overtaken while decisions are quick."""
    clock = ManualClock()
    lock = DecisionLock(timeout=5.0, clock=clock)

    def decide():
        with lock.turn() as turn:
            clock.now += 4.0
        return turn.was_overtaken

    with ThreadPoolExecutor(4) as pool:
        with lock.turn() as first:
            decisions = [pool.submit(decide) for _ in range(4)]
            wait_for_turns(lock, 5)
            clock.now += 4.0
        for decision in decisions:
            assert decision.result(10) is False
    assert not first.was_overtaken


def test_a_decision_that_hangs_is_overtaken():
    """After the timeout, the next request decides, and the later requests in turn. The
    end of the overtaken decision does not end the turn of another request."""
    clock = ManualClock()
    lock = DecisionLock(timeout=5.0, clock=clock)
    second_may_end = threading.Event()
    served = []

    def decide(number):
        with lock.turn() as turn:
            served.append(number)
            second_may_end.wait(10)
        return turn.was_overtaken

    with ThreadPoolExecutor(2) as pool:
        with lock.turn() as first:
            clock.now += 6.0
            second = pool.submit(decide, 2)
            wait_until(lambda: served == [2], 10, 'the second decision')
            third = pool.submit(decide, 3)
            wait_for_turns(lock, 2)
        assert first.was_overtaken
        assert served == [2]
        second_may_end.set()
        assert [second.result(10), third.result(10)] == [False, False]
    assert served == [2, 3]


class StoppedLock(DecisionLock):
    """A lock of a process that is stopped while a request is about to overtake."""

    def __init__(self, stopped):
        self.clock = ManualClock()
        self.stopped = stopped
        super().__init__(timeout=0.05, clock=self.clock)

    def _overtake(self, *turn):
        self.stopped()
        super()._overtake(*turn)


def test_a_request_that_notices_the_turn_late_keeps_the_turn():
    """A request that notices its turn late does not overtake its own turn."""
    waits = threading.Event()
    ended = threading.Event()

    def stopped():
        waits.set()
        ended.wait(10)
        lock.clock.now += 10.0

    lock = StoppedLock(stopped)

    def decide():
        with lock.turn() as turn:
            assert lock._deciding is turn
        return turn.was_overtaken

    with ThreadPoolExecutor(1) as pool:
        with lock.turn():
            second = pool.submit(decide)
            assert waits.wait(10)
        ended.set()
        assert second.result(10) is False


class BusyClients:
    """Clients that want one decision after the other, in virtual time.

    Every decision takes its seconds when all clients wait, so that the order of the
    threads does not matter.
    """

    def __init__(self, number):
        self.clock = ManualClock()
        self.lock = DecisionLock(clock=self.clock)
        self.number = number
        self.is_over = threading.Event()

    def decide(self, seconds):
        """Decide as soon as all clients are in the queue, within a turn."""
        if not self.is_over.is_set():
            wait_for_turns(self.lock, self.number)
        self.clock.now += seconds

    def want_single(self, seconds):
        """The seconds that single decisions take with their waits."""
        times = []
        while not self.is_over.is_set():
            began = self.clock.now
            with self.lock.turn():
                self.decide(seconds)
            times.append(self.clock.now - began)
        return times

    def want_several(self, count, seconds):
        """The seconds that many decisions of a request take together."""
        began = self.clock.now
        with closing(self.lock.turns(of_several=True)) as turns:
            for number in range(count):
                next(turns)
                self.decide(seconds)
                if number == count - 1:
                    self.is_over.set()
        return self.clock.now - began


@pytest.mark.parametrize(
    ('single', 'several', 'large'),
    [
        (0.004, 0.004, 1),
        (0.025, 0.025, 1),
        (0.025, 0.001, 1),
        (0.004, 0.05, 1),
        (0.5, 0.5, 1),
        (0.004, 0.004, 3),
    ],
)
def test_large_and_single_requests_do_not_starve_each_other(single, several, large):
    """A request for a hundred instances takes less than three times as long as alone,
    and single instances less than twice as long as without the request. Large requests
    share the time of one."""
    clients = BusyClients(8 + large)
    alone = 100 * several * large
    with ThreadPoolExecutor(clients.number) as pool:
        many = [pool.submit(clients.want_several, 100, several) for _ in range(large)]
        singles = [pool.submit(clients.want_single, single) for _ in range(8)]
        seconds_of_many = [future.result(10) for future in many]
        seconds_of_singles = [s for future in singles for s in future.result(10)]

    assert max(seconds_of_many) < 3 * alone
    assert fmean(seconds_of_singles) < 2 * 8 * single


def test_a_large_request_that_hangs_loses_a_single_turn():
    """A request that hangs at one of its instances loses the turn of this instance."""
    clock = ManualClock()
    lock = DecisionLock(timeout=5.0, clock=clock)

    def decide():
        with lock.turn() as turn:
            pass
        return turn.was_overtaken

    with ThreadPoolExecutor(1) as pool, closing(lock.turns(of_several=True)) as turns:
        first = next(turns)
        second = next(turns)
        clock.now += 6.0
        assert pool.submit(decide).result(10) is False
        third = next(turns)
        assert lock._deciding is third
    assert lock._deciding is None
    overtaken = [turn.was_overtaken for turn in (first, second, third)]
    assert overtaken == [False, True, False]


def test_a_request_in_a_turn_cannot_ask_for_a_second_turn():
    """A request that has a turn does not ask for another one."""
    lock = DecisionLock()
    assert not lock.is_in_turn()
    with lock.turn():
        assert lock.is_in_turn()
        with pytest.raises(AssertionError, match='wait for itself'), lock.turn():
            pass
    assert not lock.is_in_turn()


class NoLock(DecisionLock):
    """A lock that lets every request decide without a turn."""

    @contextmanager
    def turn(self, of_several=False):
        yield Turn(of_several)


def test_a_host_is_not_chosen_without_a_turn():
    """A host is not chosen without a turn: other requests may choose it as well."""
    uuid = a_uuid('instance')
    request = a_request(instance_uuids=(uuid,), instance_uuid=uuid)
    driver = a_driver([a_host('a')], in_flight_timeout=60.0)
    driver.pending_claims.decision_lock = NoLock()
    with pytest.raises(AssertionError, match='without a turn'):
        driver.select_destinations(request)
    assert driver.pending_claims.count() == 0


class SlowFilter(Filter):
    """A filter that takes 2 seconds of a manual clock for the host ``h0``."""

    def __init__(self, settings):
        super().__init__(settings)
        self.clock = ManualClock()

    def reject(self, host, request):
        if host.host == 'h0':
            self.clock.now += 2.0


@pytest.mark.parametrize(
    ('filters', 'fields', 'most_on_a_host'),
    [
        ([ServerGroupAntiAffinityFilter], {'group': a_group('anti-affinity')}, 1),
        ([NumInstancesFilter], {}, 2),
        ([], {}, 2),
    ],
    ids=['anti-affinity', 'max_instances_per_host', 'plain'],
)
def test_a_queued_request_counts_the_choices_of_earlier_requests(
    filters, fields, most_on_a_host
):
    """A request counts the choices of all requests before, although the whole queue
    takes longer than a single decision may take."""
    hosts = numbered_hosts(AT_ONCE)
    slow = SlowFilter(None)
    driver = a_driver(
        hosts,
        slow,
        *filters,
        weighers=[RAMWeigher],
        in_flight_timeout=60.0,
        max_instances_per_host=most_on_a_host,
    )
    began = slow.clock.now
    driver.pending_claims.decision_lock = DecisionLock(timeout=5.0, clock=slow.clock)

    def boot(number):
        uuid = a_uuid(f'instance{number}')
        request = a_request(instance_uuids=(uuid,), instance_uuid=uuid, **fields)
        [[selection]] = driver.select_destinations(request)
        return selection.service_host

    with ThreadPoolExecutor(AT_ONCE) as pool:
        chosen = Counter(pool.map(boot, range(AT_ONCE)))
    assert max(chosen.values()) <= most_on_a_host
    assert slow.clock.now - began >= 2.0 * AT_ONCE
    assert driver.pending_claims.given_back == 0


class HangingFilter(Filter):
    """A filter that hangs for an instance until the test sets ``may_answer``."""

    hangs_for = a_uuid('hangs')

    def __init__(self, settings):
        super().__init__(settings)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def reject(self, host, request):
        if request.instance_uuid == self.hangs_for:
            self.is_asked.set()
            self.may_answer.wait(10)


@pytest.mark.parametrize(
    ('group', 'chosen', 'given_back'),
    [(a_group('anti-affinity'), ['a', 'b'], 1), (None, ['a', 'a'], 0)],
    ids=['anti-affinity', 'plain'],
)
@pytest.mark.parametrize('count', [1, 2])
def test_an_overtaken_request_releases_only_a_conflicting_claim(
    group, chosen, given_back, count
):
    """An overtaken request checks its claim against the other claims of the process. If
    the claims conflict, the claim of the overtaken request is released."""
    hosts = [a_host('a', ram=4096), a_host('b', ram=3072), a_host('c', ram=2048)]
    hanging = HangingFilter(None)
    driver = a_driver(
        hosts,
        hanging,
        ServerGroupAntiAffinityFilter,
        weighers=[RAMWeigher],
        in_flight_timeout=60.0,
    )
    driver.pending_claims.decision_lock = DecisionLock(timeout=0.05)

    def boot(*names):
        uuids = tuple(map(a_uuid, names))
        request = a_request(instance_uuids=uuids, instance_uuid=uuids[0], group=group)
        return [row[0].service_host for row in driver.select_destinations(request)]

    with ThreadPoolExecutor(1) as pool:
        overtaken = pool.submit(boot, *['hangs', 'beside it'][:count])
        hanging.is_asked.wait(10)
        first = boot('overtakes')
        hanging.may_answer.set()
        hosts_of_all = [*first, *overtaken.result(10)]

    assert hosts_of_all[:2] == chosen
    assert group is None or len({*hosts_of_all}) == len(hosts_of_all)
    assert driver.pending_claims.given_back == given_back


class TurnsFilter(Filter):
    """Records the instances, and stops at the second instance until another request
    waits."""

    def __init__(self, lock):
        super().__init__(None)
        self.lock = lock
        self.instance_uuids = []

    def reject(self, host, request):
        self.instance_uuids.append(request.instance_uuid)
        if len(self.instance_uuids) == 2:
            wait_for_turns(self.lock, 2)


def test_a_request_decides_between_two_instances_of_a_multi_create():
    """A request decides between two instances of a multi-create."""
    lock = DecisionLock()
    turns = TurnsFilter(lock)
    driver = a_driver([a_host('a')], turns, in_flight_timeout=60.0)
    driver.pending_claims.decision_lock = lock
    names = ['first', 'second', 'third', 'fourth']
    uuids = tuple(map(a_uuid, names))

    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(
            driver.select_destinations,
            a_request(count=4, instance_uuids=uuids, instance_uuid=uuids[0]),
        )
        wait_until(lambda: len(turns.instance_uuids) == 2, 10, 'the second instance')
        alone = a_uuid('alone')
        driver.select_destinations(
            a_request(instance_uuids=(alone,), instance_uuid=alone)
        )
        many.result(10)
    assert turns.instance_uuids == [*uuids[:2], alone, *uuids[2:]]
