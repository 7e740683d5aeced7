# SPDX-License-Identifier: Apache-2.0
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from novasched.conf.settings import Settings
from novasched.placement import query, remembered
from novasched.placement.api import OutcomeUnknown
from novasched.placement.remembered import SHARE, UNFIT_S, RememberedAnswers
from novasched.scheduler.errors import PlacementUnavailable
from tests.lab.builders import a_flavor, a_request
from tests.lab.memory_schedulers import ManualClock

TRAITS = {'a': ['HW_CPU_X86_AVX'], 'b': ['HW_CPU_X86_AVX', 'CUSTOM_GOLD'], 'c': []}
LEFT = {'a': (16, 4096), 'b': (8, 2048), 'c': (4, 8192)}
"""VCPU and MEMORY_MB that hosts have left."""
MAX_AGE_S = 10.0
TAKES_S = 1.0


def left(name):
    return LEFT.get(name, (16, 4096))


def answer(names='abc', provider=lambda name: name, root=lambda name: name):
    """Placement's answer about hosts, by name."""
    requests = []
    summaries = {}
    for name in names:
        uuid = provider(name)
        allocation = {'resources': {'VCPU': 1, 'MEMORY_MB': 1}}
        requests.append({'allocations': {uuid: allocation}, 'mappings': {}})
        vcpus, memory_mb = left(name)
        summaries[uuid] = {
            'resources': {
                'VCPU': {'capacity': 100, 'used': 100 - vcpus},
                'MEMORY_MB': {'capacity': 10_000, 'used': 10_000 - memory_mb},
                'CUSTOM_FPGA': {'capacity': 1, 'used': 0},
            },
            'traits': TRAITS.get(name, []),
            'root_provider_uuid': root(name),
        }
    body = {'allocation_requests': requests, 'provider_summaries': summaries}
    return json.dumps(body).encode()


class Site:
    """Remembered answers over a Placement. The answer is ``text``, or the error
    ``text``, after ``meanwhile``."""

    def __init__(self, text=None, max_age=MAX_AGE_S, processes=1):
        self.text = text or answer()
        self.clock = ManualClock()
        self.asked = []
        self.taken = {}
        self.meanwhile = lambda: None
        self.answers = RememberedAnswers(
            max_age, self._get, lambda *_: (1, True, self.taken), processes, self.clock
        )

    def _get(self, built):
        self.asked.append(built.string)
        self.clock.now += TAKES_S
        self.meanwhile()
        if isinstance(self.text, Exception):
            raise self.text
        return self.text

    def offer(self, request=None):
        """The names of the offered hosts, after the end of the refresh; None if
        Placement is to be asked."""
        queries = query.build_all(request or asking(), Settings())
        offer = self.answers.offer(queries)
        if self.answers._refresh is not None:
            self.answers._refresh.ended.result(10)
        return offer and ''.join(offer)

    def offers(self, number):
        """The results of several requests in turn."""
        return [self.offer() for _ in range(number)]


def asking(vcpus=1, memory_mb=1024, disk_gb=0, **extra_specs):
    flavor = a_flavor(extra_specs, vcpus=vcpus, memory_mb=memory_mb, root_gb=disk_gb)
    return a_request(flavor=flavor, is_bfv=not disk_gb)


@pytest.fixture
def site():
    site = Site()
    assert site.offers(2) == [None, 'abc']
    return site


@pytest.mark.parametrize(
    ('request_', 'offered'),
    [
        (asking(), 'abc'),
        (asking(vcpus=5), 'ab'),
        (asking(memory_mb=4096), 'ac'),
        (asking(memory_mb=4097), 'c'),
        (asking(vcpus=8, memory_mb=2048), 'ab'),
        (asking(vcpus=9, memory_mb=4097), None),
        (asking(**{'trait:HW_CPU_X86_AVX': 'required'}), 'ab'),
        (asking(**{'trait:HW_CPU_X86_AVX': 'forbidden'}), 'c'),
        (asking(**{'trait:HW_CPU_X86_AVX512F': 'forbidden'}), 'abc'),
        (asking(**{'trait:CUSTOM_GOLD': 'forbidden'}), 'ac'),
        (asking(**{'trait:CUSTOM_NOBODYS': 'forbidden'}), None),
        (asking(**{'trait:CUSTOM_NOBODYS': 'required'}), None),
    ],
)
def test_a_remembered_answer_offers_the_hosts_that_fit_a_request(
    site, request_, offered
):
    """Hosts with sufficient amounts and fitting traits; None without such a host, or if
    Placement may not know a trait. No query is asked."""
    asked = len(site.asked)
    assert site.offer(request_) == offered
    assert len(site.asked) == asked


def test_a_remembered_answer_leaves_out_full_and_refused_hosts(site):
    site.taken = {
        'a': {'VCPU': 15},
        'b': {'VCPU': 7, 'MEMORY_MB': 1025},
        'stranger': {'VCPU': 1},
    }
    assert site.offer() == 'ac'
    site.answers.refuse(['a', 'stranger'])
    assert site.offer() == 'c'


def test_answers_to_queries_sent_before_forget_are_not_used(site):
    """Answers to queries before the call are not used. The next answer is."""
    pause = TAKES_S / SHARE - TAKES_S
    site.answers.forget()
    site.meanwhile = site.answers.forget
    assert site.offer() is None
    site.clock.now += pause
    assert site.offers(2) == [None, None]
    site.meanwhile = lambda: None
    site.clock.now += pause
    assert site.offer() == 'abc'
    assert len(site.asked) == 3


def test_remembered_candidates_equal_the_candidates_of_placement(site):
    """The candidates equal Placement's."""
    [built] = query.build_all(asking(), Settings())
    offer = site.answers.offer([built])
    assert [*offer] == ['a', 'b', 'c']
    assert (len(offer), offer.count) == (3, 3)
    assert ('a' in offer, 'x' in offer) == (True, False)
    assert offer.age == site.clock.now - offer.asked_at
    for name in 'abc':
        assert set(offer.traits(name)) == set(TRAITS[name])
    assert not offer.traits('x')

    [candidate] = offer['b']
    narrowed = offer.narrowed({'b': []})
    assert narrowed['b'] == []
    assert offer['b'] == [candidate]
    assert narrowed.traits('b') == offer.traits('b')
    assert [*narrowed] == [*offer]
    assert json.loads(candidate.body()) == {
        'allocations': {'b': {'resources': {'MEMORY_MB': 1024, 'VCPU': 1}}},
        'mappings': {'': ['b']},
    }
    with pytest.raises(KeyError):
        offer['x']


@pytest.mark.parametrize(
    'text',
    [
        answer('ab', provider=lambda name: 'shared'),
        answer('ab', root=lambda name: 'root'),
        b'<html>',
        b'{}',
        answer('').replace(b'{}', b'[]'),
    ],
    ids=['shared', 'nested', 'no JSON', 'no answer', 'wrong type'],
)
def test_an_unusable_answer_delays_the_next_query(text):
    """The query is not repeated for a while, however many requests come."""
    site = Site(text)
    assert site.offers(9) == [None] * 9
    assert len(site.asked) == 1
    site.clock.now += UNFIT_S
    assert site.offers(3) == [None] * 3
    assert len(site.asked) == 2


@pytest.mark.parametrize(
    ('pauses', 'offered', 'asked'),
    [
        pytest.param([0, remembered.MAX_AGE_S], [0, 0], 0, id='none comes soon'),
        pytest.param(
            [0, 1, 0, 3, 2, 1],
            [0, 1, 1, 1, 1, 1],
            2,
            id='again when it is half as old as it may be',
        ),
        pytest.param(
            [0, 1, MAX_AGE_S], [0, 1, 0], 1, id='too old, and not needed often'
        ),
        pytest.param(
            [0, 1, MAX_AGE_S - 1.5, 1], [0, 1, 1, 1], 2, id='asked again before'
        ),
    ],
)
def test_a_remembered_answer_is_used_up_to_the_maximum_age(pauses, offered, asked):
    """The second request starts a refresh of a second, and waits. Later requests use
    the answer up to the maximum age, and start a refresh in the background."""
    site = Site()
    found = []
    for pause in pauses:
        site.clock.now += pause
        found.append(site.offer() is not None)
    assert found == offered
    assert len(site.asked) == asked


@pytest.mark.parametrize(('processes', 'pause'), [(1, 3), (4, 15)])
def test_queries_take_a_bounded_share_of_the_time_of_placement(processes, pause):
    """All processes together take a quarter of a worker's."""
    site = Site(PlacementUnavailable('away'), processes=processes)
    site.offers(2)
    counts = []
    for seconds in (pause - 0.5, 0.5):
        site.clock.now += seconds
        site.offers(2)
        counts.append(len(site.asked))
    assert counts == [1, 2]


def test_a_query_without_an_answer_is_repeated_after_a_pause():
    """Requests ask for themselves, and the query is repeated after a pause."""
    site = Site(PlacementUnavailable('away'))
    assert site.offers(5) == [None] * 5
    assert len(site.asked) == 1
    site.text = answer()
    site.clock.now += TAKES_S / SHARE - TAKES_S
    assert site.offer() == 'abc'


PAUSE_S = TAKES_S / SHARE - TAKES_S


def test_a_query_that_failed_twice_is_repeated_after_a_long_pause():
    """After a second failure the query is repeated once in a while."""
    site = Site(OutcomeUnknown('the answer has more than 64 MiB'))
    counts = []
    for pause in (0, PAUSE_S, PAUSE_S, UNFIT_S - PAUSE_S, PAUSE_S, UNFIT_S - PAUSE_S):
        site.clock.now += pause
        assert site.offers(2) == [None, None]
        counts.append(len(site.asked))
    assert counts == [1, 2, 2, 3, 3, 4]


def test_an_answer_between_failures_resets_the_failure_count():
    """An answer between two failures resets the count."""
    site = Site()
    asked = []
    for text in (OutcomeUnknown('slow'), answer(), OutcomeUnknown('slow'), answer()):
        site.text = text
        site.clock.now += MAX_AGE_S / 2
        site.offers(2)
        asked.append(len(site.asked))
    assert asked == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ('failure', 'offered'),
    [
        (OutcomeUnknown('slow'), 'abc'),
        (PlacementUnavailable('away'), 'abc'),
        (b'{}', None),
    ],
    ids=['slow', 'away', 'another form'],
)
def test_the_earlier_answer_serves_after_a_failed_query(site, failure, offered):
    """After a failure the earlier answer serves up to the maximum age. After an
    unusable answer no answer serves."""
    site.text = failure
    site.clock.now += MAX_AGE_S / 2
    assert site.offer() == 'abc'
    assert len(site.asked) == 2
    assert site.offer() == offered
    site.clock.now += MAX_AGE_S / 2
    assert site.offer() is None


def test_a_forgotten_answer_does_not_serve_after_a_failed_query(site):
    """An answer that is forgotten during a refresh does not come back if the refresh
    fails."""
    is_offered = threading.Event()

    def forget():
        is_offered.wait(10)
        site.answers.forget()

    site.text = OutcomeUnknown('slow')
    site.meanwhile = forget
    site.clock.now += MAX_AGE_S / 2
    offered = site.answers.offer(query.build_all(asking(), Settings()))
    assert offered is not None
    refresh = site.answers._refresh
    is_offered.set()
    refresh.ended.result(10)
    assert site.offer() is None


def test_no_request_waits_for_a_query_that_failed_before():
    """Requests ask Placement themselves until there is an answer."""
    site = Site(OutcomeUnknown('slow'))
    assert site.offers(2) == [None, None]
    site.text = answer()
    site.clock.now += PAUSE_S
    begun = threading.Event()
    may_end = threading.Event()
    site.meanwhile = lambda: begun.set() or may_end.wait(10)
    queries = query.build_all(asking(), Settings())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.answers.offer, queries)
        assert begun.wait(10)
        try:
            assert first.result(5) is None
        finally:
            may_end.set()
    site.answers._refresh.ended.result(10)
    assert site.offer() == 'abc'


def test_requests_wait_for_a_running_refresh_of_the_same_query():
    """Requests wait for a running refresh of the same query, and no second query is
    sent. A request for another query does not wait."""
    site = Site()
    begun = threading.Event()
    may_end = threading.Event()
    site.meanwhile = lambda: begun.set() or may_end.wait(10)
    assert site.offer() is None
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(site.offer) for _ in range(4)]
        assert begun.wait(10)
        other = query.build_all(asking(disk_gb=1), Settings())
        assert site.answers.offer(other) is None
        for future in waiting:
            assert not future.done()
        may_end.set()
        assert [each.result(10) for each in waiting] == ['abc'] * 4
    assert len(site.asked) == 1


def test_an_unexpected_error_is_logged_and_delays_the_query(caplog):
    """The log has the error, and the query is not repeated for a while."""
    site = Site(ZeroDivisionError('a bug'))
    assert site.offers(9) == [None] * 9
    assert len(site.asked) == 1
    assert 'ZeroDivisionError: a bug' in caplog.text


def test_several_base_queries_are_refreshed_in_turn():
    """Each set of resource classes has a base query. The oldest answer in use is
    refreshed first."""
    site = Site()
    kinds = [asking(), asking(disk_gb=1), asking()]
    for _ in range(6):
        for each in kinds:
            site.offer(each)
        site.clock.now += MAX_AGE_S / 2
    bases = [query.build(each, Settings()).local.base.string for each in kinds]
    assert site.asked[2:] == [bases[1], bases[0]] * 2


def test_an_answer_about_many_hosts_serves_for_a_minute_at_most():
    """The maximum age is a minute, however many hosts exist."""
    site = Site(answer([f'host{number}' for number in range(30_000)]), max_age=None)
    queries = query.build_all(asking(), Settings())
    assert [site.offer() is not None for _ in range(2)] == [False, True]
    site.text = PlacementUnavailable('away')
    sent = site.clock.now - TAKES_S
    site.clock.now = sent + remembered.MAX_AGE_S / 2 - 1
    offer = site.answers.offer(queries)
    assert offer.age == remembered.MAX_AGE_S / 2 - 1
    site.clock.now = sent + remembered.MAX_AGE_S + 1
    assert site.answers.offer(queries) is None


def test_the_same_hosts_have_the_same_names_after_a_refresh(site):
    """An equal list of other text objects would be compared text by text for each
    request."""
    queries = query.build_all(asking(), Settings())
    before, _ = site.answers.offer(queries).rows()
    site.clock.now += MAX_AGE_S / 2
    site.offer()
    after, _ = site.answers.offer(queries).rows()
    assert len(site.asked) == 2
    assert [*map(id, after)] == [*map(id, before)]


@pytest.mark.parametrize('option', [0, 0.5])
def test_a_zero_or_too_short_maximum_age_offers_no_answer(option):
    """0 disables remembered answers. An answer that took longer than the maximum age is
    not used."""
    site = Site(max_age=option)
    assert site.offers(4) == [None] * 4
    assert len(site.asked) == (option != 0)


@pytest.mark.parametrize('processes', [1, 4])
def test_by_default_a_slow_answer_serves_until_the_next_answer(processes):
    """By default, an answer about few hosts that took Placement long serves until the
    next answer."""
    site = Site(max_age=None, processes=processes)
    assert site.offers(3) == [None, 'abc', 'abc']
    cycle = TAKES_S * processes / SHARE

    site.clock.now += cycle - TAKES_S - 0.5
    assert site.offer() == 'abc'
    assert len(site.asked) == 1

    site.clock.now += 1
    assert site.offers(3) == ['abc'] * 3
    assert len(site.asked) == 2


def test_an_answer_is_remembered_for_requests_that_wait_long_for_placement():
    """The second request waits for the refresh, however long the first request has
    waited for its own query."""
    site = Site(max_age=None)
    assert site.offer() is None
    site.clock.now += remembered.MAX_AGE_S / 2
    assert site.offer() == 'abc'


@pytest.mark.parametrize('processes', [1, 4, 16])
def test_a_slow_answer_is_refreshed_before_the_answer_is_too_old(processes):
    """The pause between two refreshes ends in time for the next answer, however many
    processes share the time of Placement."""
    site = Site(processes=processes)
    site.offers(2)
    found = []
    for _ in range(30):
        site.clock.now += TAKES_S
        found.append(site.offer())
    assert found == ['abc'] * 30


def test_a_claim_is_subtracted_once(site):
    """Subtracting all pending claims again starts from the answer."""
    site.taken = {'a': {'VCPU': 8}}
    assert [site.offer(asking(vcpus=8)) for _ in range(3)] == ['ab'] * 3
