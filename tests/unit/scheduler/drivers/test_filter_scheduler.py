# SPDX-License-Identifier: Apache-2.0
import logging
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import (
    DatabaseUnavailable,
    NoValidHost,
    PlacementUnavailable,
    StaleData,
)
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.pci import PciRequest, Pool
from tests.lab.builders import a_host, a_mapped_candidate, a_request
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import (
    ManualClock,
    RecordingNotifier,
    a_driver,
    ask,
)

POOLS = (
    Pool('p', 'v', 2, tags={'rp_uuid': 'A'}),
    Pool('p', 'v', 2, tags={'rp_uuid': 'B'}),
)
DEVICE = {
    'pci_requests': (PciRequest(1, ({'product_id': 'p'},), 'gpu', 'id'),),
    'requested_resources': (RequestGroup('id-0', {'CUSTOM_PCI': 1}),),
}


class Cards(CountingPlacement):
    """A Placement that always offers a device of either card of a host.

    :ivar claimed_cards: the cards of all claims.
    """

    claimed_cards = ()

    def candidates(self, request, basis=FRESH):
        candidates = []
        for provider in self.slots:
            for card in 'AB':
                candidates.append(a_mapped_candidate(provider, 'id', [card]))
        return CandidateIndex(candidates)

    def claim_together(self, wanted, basis=FRESH):
        for _, candidate in wanted:
            self.claimed_cards += tuple(candidate.providers_by_group()['id-0'])
        return super().claim_together(wanted, basis)


class Seeing(Filter):
    """Records the card of the request group before an instance is placed."""

    def __init__(self):
        super().__init__(Settings())
        self.seen = []

    def reject(self, host, request):
        self.seen.append(request.requested_resources[0].provider_uuids)


def placed(count, *filters, pools=POOLS, kind=Cards):
    """The cards of ``count`` instances on a single host."""
    host = a_host(pci=lambda: pools)
    cards = kind({host.uuid: 9})
    driver = a_driver([host], PciPassthroughFilter, *filters, placement=cards)
    driver.select_destinations(a_request(count=count, **DEVICE))
    return cards.claimed_cards


def test_devices_are_taken_from_the_claimed_card():
    """Earlier claims of the request reduce the free devices of the cards. The request
    group names the card that was claimed last."""
    seeing = Seeing()
    assert placed(4, seeing) == ('A', 'A', 'B', 'B')
    assert seeing.seen == [(), ('A',), ('A',), ('B',)]
    with pytest.raises(NoValidHost):
        placed(5)


class Refusing(Cards):
    """A Placement that refuses claims of several instances."""

    def claim_together(self, wanted, basis=FRESH):
        if len(wanted) == 1:
            return super().claim_together(wanted, basis)
        return None


@pytest.mark.parametrize('count', [2, 4])
def test_a_refused_common_claim_frees_the_devices_for_single_claims(count):
    """After the refusal, the instances are claimed one by one, and may have any card of
    the refused claim."""
    pools = tuple(replace(pool, count=count // 2) for pool in POOLS)
    cards = ''.join(placed(count, pools=pools, kind=Refusing))
    assert cards == 'A' * (count // 2) + 'B' * (count // 2)


@pytest.fixture
def clock(monkeypatch):
    """A clock of monotonic seconds that nothing but pauses moves."""
    clock = ManualClock()

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr('time.monotonic', clock)
    monkeypatch.setattr('time.sleep', sleep)
    return clock


class Failing(MemoryHosts):
    """Hosts that cannot be read while ``errors`` last; the errors are raised in
    turn."""

    def __init__(self, *errors, hosts=()):
        super().__init__(hosts)
        self.errors = iter(errors)
        self.began = []

    def prefetch(self, moment):
        self.began.append(moment)

    def with_requested_destination(self, request):
        for error in self.errors:
            raise error
        return request


class Claimless(CountingPlacement):
    """A Placement that gives no answer to the first claim."""

    failed = False

    def claim(self, request, candidate, basis=FRESH):
        if not self.failed:
            self.failed = True
            raise PlacementUnavailable('no answer')
        return super().claim(request, candidate, basis)


@pytest.mark.parametrize(
    'error', [PlacementUnavailable('away'), DatabaseUnavailable('db: away')]
)
def test_a_request_waits_for_the_end_of_a_short_outage(error, clock, caplog):
    """A request waits for the end of the outage, and is decided by fresh data. The
    start is notified once, and the log has a single line."""
    host = a_host()
    notifier = RecordingNotifier()
    hosts = Failing(error, error, hosts=[host])
    driver = a_driver(hosts, placement=Claimless({host.uuid: 1}), notifier=notifier)

    assert ask(driver) == [[host.host]]

    assert len(hosts.began) == 4
    assert hosts.began == sorted(set(hosts.began))
    assert [phase for phase, *_ in notifier.sent] == ['start', 'end']
    (record,) = [record for record in caplog.records if 'wait' in record.message]
    assert record.levelname == 'WARNING'


def test_a_request_with_stale_data_is_decided_again_at_once(caplog):
    """The request is decided again at once, by fresh data. The log has no line."""
    host = a_host()
    notifier = RecordingNotifier()
    hosts = Failing(
        StaleData('another version'), StaleData('and another'), hosts=[host]
    )
    driver = a_driver(hosts, notifier=notifier)

    assert ask(driver) == [[host.host]]

    assert len(hosts.began) == 3
    assert hosts.began == sorted(set(hosts.began))
    assert [phase for phase, *_ in notifier.sent] == ['start', 'end']
    assert all(record.levelno <= logging.DEBUG for record in caplog.records)


def test_a_false_rebuild_hint_is_logged_once_for_several_tries(caplog):
    """A request with a user's hint of a rebuild that is tried several times is logged
    once for the hint, and stays without the hint."""
    host = a_host()
    hosts = Failing(DatabaseUnavailable('db: away'), StaleData('old'), hosts=[host])
    placement = CountingPlacement({host.uuid: 1})
    driver = a_driver(hosts, placement=placement)

    assert ask(driver, hints={'_nova_check_type': ['rebuild']}) == [[host.host]]

    assert placement.slots == {host.uuid: 0}
    assert sum('_nova_check_type' in message for message in caplog.messages) == 1


def test_a_request_is_refused_when_an_outage_outlasts_the_patience(clock):
    """A request is tried again until its patience is over, and then refused."""
    hosts = Failing(*[PlacementUnavailable('away')] * 1000)
    with pytest.raises(PlacementUnavailable):
        ask(a_driver(hosts, placement_patience=0.5))
    assert len(hosts.began) > 1
    assert clock.now == pytest.approx(hosts.began[0] + 0.5)


@pytest.mark.parametrize(
    'error', [PlacementUnavailable('away'), DatabaseUnavailable('db: away')]
)
def test_the_patience_of_a_request_begins_when_the_message_arrives(error):
    """The patience of a request begins when its message arrives. A request whose
    patience is over is tried once, and refused at the first failure."""
    hosts = Failing(error, hosts=[a_host()])
    with pytest.raises(type(error)):
        ask(a_driver(hosts), received=time.monotonic() - 31)
    assert len(hosts.began) == 1
    assert hosts.began[0] > time.monotonic() - 31
    assert ask(a_driver(hosts), received=time.monotonic() - 31)


@pytest.mark.parametrize('slots', [10, 0])
def test_requests_do_not_wait_in_an_outage_older_than_the_patience(slots, clock):
    """Requests do not wait for the end of an outage that is older than the patience,
    so that callers in the broker, which get no heartbeats, are read. In a new outage,
    requests wait."""
    hosts = Failing(hosts=[a_host()])
    driver = a_driver(hosts, slots=slots, placement_patience=0.5)

    def tries():
        driver.make_room()
        hosts.began.clear()
        hosts.errors = iter([PlacementUnavailable('away')] * 1000)
        with pytest.raises(PlacementUnavailable):
            ask(driver)
        hosts.errors = iter(())
        return len(hosts.began)

    assert tries() > 1
    assert tries() == 1

    with nullcontext() if slots else pytest.raises(NoValidHost):
        ask(driver)  # the outage is over
    assert tries() > 1


def test_a_refusal_without_a_placement_answer_does_not_end_an_outage(clock):
    """A refusal without an answer of Placement does not end an outage."""
    away = [PlacementUnavailable('away')] * 1000
    hosts = Failing(*away, hosts=[a_host()])
    driver = a_driver(hosts, placement_patience=0.2)
    with pytest.raises(PlacementUnavailable):
        ask(driver)

    hosts.errors = iter([NoValidHost('no such host')] * 2)
    with pytest.raises(NoValidHost):
        ask(driver)
    driver.make_room()
    hosts.began.clear()
    hosts.errors = iter(away)
    with pytest.raises(PlacementUnavailable):
        ask(driver)
    assert len(hosts.began) == 1


def test_a_request_waits_for_a_probe_while_the_circuit_is_open(monkeypatch):
    """A request waits for a probe of the circuit, without further pauses."""
    monkeypatch.setattr('time.sleep', None)
    host = a_host()
    answers = iter([False, False, True])
    away = PlacementUnavailable('left alone', lambda seconds: next(answers))
    hosts = Failing(away, hosts=[host])
    assert ask(a_driver(hosts))
    assert len(hosts.began) == 2
    assert list(answers) == []


def test_waiting_requests_are_refused_before_the_process_ends():
    """Waiting requests are refused before the process ends."""
    driver = None

    def is_over(seconds):
        driver.stop(0)
        return False

    hosts = Failing(
        PlacementUnavailable('left alone', is_over), PlacementUnavailable('away')
    )
    driver = a_driver(hosts, placement_patience=86400)
    with pytest.raises(PlacementUnavailable):
        ask(driver)
