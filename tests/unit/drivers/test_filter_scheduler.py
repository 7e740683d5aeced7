# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import (
    DatabaseUnavailable,
    InstancesUnread,
    NoValidHost,
    PlacementUnavailable,
)
from novasched.filters import Filter
from novasched.filters.pci_passthrough import PciPassthroughFilter
from novasched.model.pci import PciRequest, Pool
from novasched.model.request import RequestGroup
from novasched.model.settings import Settings
from tests.builders import a_host, a_mapped_candidate, a_request
from tests.ports import Audience, CountingPlacement, StillHosts

POOLS = (Pool('p', 'v', 2, tags={'rp_uuid': 'A'}), Pool('p', 'v', 2, tags={'rp_uuid': 'B'}))
DEVICE = {
    'pci_requests': (PciRequest(1, ({'product_id': 'p'},), 'gpu', 'id'),),
    'requested_resources': (RequestGroup('id-0', {'CUSTOM_PCI': 1}),),
}


class Cards(CountingPlacement):
    """Offers a device of either card of a host for a claim, whatever it gave before, and
    keeps of which card it gave one."""

    given = ()

    def candidates(self, request):
        return {rp: [a_mapped_candidate(rp, 'id', [card]) for card in 'AB'] for rp in self.slots}

    def claim(self, request, candidate):
        self.given += (*candidate.providers_by_group()['id-0'],)
        return super().claim(request, candidate)


class Seeing(Filter):
    """Keeps which card the request group has when a server is about to be placed."""

    def __init__(self):
        super().__init__(Settings())
        self.seen = []

    def reject(self, host, request):
        self.seen.append(request.requested_resources[0].provider_uuids)


def placed(count, *others):
    """The cards that so many servers got on the one host."""
    host = a_host(pci=lambda: POOLS)
    cards = Cards({host.uuid: 9})
    filters = [PciPassthroughFilter(Settings()), *others]
    driver = FilterScheduler(Parts(Settings(), [], cards, StillHosts([host]), filters))
    driver.select_destinations(a_request(count=count, **DEVICE))
    return cards.given


def test_devices_are_those_of_the_card_that_was_claimed():
    """Each server of a request finds the cards as the claims before it have left them, and
    the request group names the card that was claimed last."""
    seeing = Seeing()
    assert placed(4, seeing) == ('A', 'A', 'B', 'B')
    assert seeing.seen == [(), ('A',), ('A',), ('B',)]
    with pytest.raises(NoValidHost):
        placed(5)


class Curious(Filter):
    """Finds out in the middle of a request that it wants to see servers."""

    def reject(self, host, request):
        if not self.reads_instances:
            self.reads_instances = True
            raise InstancesUnread('Curious')


def test_a_request_that_is_answered_anew_starts_once():
    """Who listens does not hear of the first attempt's end, nor of the second one's start."""
    host, audience = a_host(), Audience()
    parts = Parts(
        Settings(), [], CountingPlacement({host.uuid: 1}), StillHosts([host]), [Curious(Settings())]
    )
    FilterScheduler(replace(parts, notices=audience)).select_destinations(a_request())
    assert [phase for phase, *_ in audience.heard] == ['start', 'end']


class Failing(StillHosts):
    """Hosts that cannot be looked up."""

    def __init__(self, error):
        super().__init__([])
        self.error = error

    def aimed(self, request):
        raise self.error


@pytest.mark.parametrize(
    ('error', 'told'),
    [
        (PlacementUnavailable('away'), 'Cannot schedule, since Placement fails: away'),
        (DatabaseUnavailable('db: away'), 'Cannot schedule, since a database fails: db: away'),
    ],
)
def test_what_a_request_cannot_do_without(error, told, caplog):
    """No host is valid, which callers understand; the log tells the operator why."""
    driver = FilterScheduler(Parts(Settings(), [], CountingPlacement({}), Failing(error)))
    with pytest.raises(NoValidHost) as refusal:
        driver.select_destinations(a_request())
    assert refusal.value.reason == ''
    assert told in caplog.messages
