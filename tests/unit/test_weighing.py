# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.errors import BadPlugin
from novasched.model.settings import Settings
from novasched.weighers import Weigher
from novasched.weighing import FEW, Weighing, normalised
from tests.builders import a_host, a_request

RAM = 'ram_weight_multiplier'
TEN = a_request(count=10)
HOSTS = [a_host(f'h{i}', ram=1024 * (i + 1)) for i in range(FEW)]


class Ram(Weigher):
    """Weighs memory, and tells whom it was asked about."""

    multiplier = RAM
    once_per_host = True

    def __init__(self, settings=Settings()):  # noqa: B008  (frozen)
        super().__init__(settings)
        self.weighed, self.scaled = [], 0

    def asked(self):
        weighed, self.weighed = self.weighed, []
        return weighed

    def scale(self, host):
        self.scaled += 1
        return super().scale(host)

    def weigh(self, host, request):
        if not host.free_ram_mb:
            raise ZeroDivisionError('no memory')
        self.weighed.append(host.host)
        return host.free_ram_mb


class Fickle(Ram):
    """May weigh a host otherwise for the next server."""

    once_per_host = False


def names(hosts):
    return [host.host for host in hosts]


def less(host):
    """The host with one server more."""
    return replace(host, free_ram_mb=host.free_ram_mb - 512)


@pytest.mark.parametrize(
    ('raw', 'bounds', 'shares'),
    [
        ([1, 3, 2], (None, None), [0, 1, 0.5]),
        ([2, 2], (None, None), [0, 0]),
        ([0, 0], (0, None), [0, 0]),
        ([5, 10], (0, None), [0.5, 1]),
        ([5, 10], (0, 20), [0.25, 0.5]),
        ([-3], (None, None), [0]),
    ],
)
def test_normalised(raw, bounds, shares):
    """The least found (or minval) is 0, the greatest (or maxval) 1; equal is 0."""
    assert normalised(raw, *bounds) == shares


@pytest.mark.parametrize(
    ('hosts', 'asked'),
    [
        (HOSTS, []),
        (HOSTS[::-1], []),
        ([less(HOSTS[0]), *HOSTS[1:]], ['h0']),
        ([*HOSTS[:4], less(HOSTS[4]), *HOSTS[5:]], ['h4']),
        (HOSTS[1:], []),
        ([*map(less, HOSTS[:2]), *HOSTS[2:]], names(HOSTS)),
        (HOSTS[2:], names(HOSTS[2:])),
        ([*HOSTS, a_host('new')], [*names(HOSTS), 'new']),
        ([a_host('h0', metadata={RAM: '2'}), *HOSTS[1:]], names(HOSTS)),
    ],
)
def test_only_what_has_changed_is_weighed_again(hosts, asked):
    """For the next server a weigher is asked about changed hosts, unless these are many, new
    or in other aggregates; and all weights are what they would be otherwise."""
    weigher = Ram()
    weighing = Weighing([weigher], remembers=True)
    weighing.weights(HOSTS, TEN)
    assert weigher.asked() == names(HOSTS)
    found = weighing.weights(hosts, TEN)
    assert weigher.asked() == asked
    assert found == Weighing([weigher]).weights(hosts, TEN)


@pytest.mark.parametrize(
    ('weigher', 'remembers', 'request_'),
    [(Ram, False, TEN), (Fickle, True, TEN), (Ram, True, a_request())],
)
def test_else_all_are_weighed_again(weigher, remembers, request_):
    """Nothing is remembered between requests, for one server alone, or for a weigher that
    has not said that it may be."""
    weighing = Weighing([each := weigher()], remembers)
    for _ in range(2):
        weighing.weights(HOSTS, request_)
        assert each.asked() == names(HOSTS)


@pytest.mark.parametrize('by_host', [False, True])
def test_a_scale_is_looked_up_once_for_hosts_in_the_same_aggregates(by_host):
    """Unless the weigher scales each host in its own way."""
    first, second = a_host('a', metadata={RAM: '2'}), a_host('b', ram=1024, metadata={RAM: '-1'})
    hosts = [first, second, replace(first, host='c'), replace(second, host='d')]
    weigher = Ram()
    weigher.scale_by_host = by_host
    assert Weighing([weigher]).weights(hosts, a_request()) == [2.0, 0.0, 2.0, 0.0]
    assert weigher.scaled == (4 if by_host else 2)


def test_a_host_alone_is_not_weighed():
    """There is nothing to choose."""
    weigher = Ram()
    assert Weighing([weigher]).weights(HOSTS[:1], a_request()) == [0.0]
    assert weigher.asked() == []


def test_an_error_names_its_weigher():
    """Also when only the changed hosts are weighed."""
    weighing = Weighing([Ram()], remembers=True)
    weighing.weights(HOSTS, TEN)
    with pytest.raises(BadPlugin, match='Ram raised ZeroDivisionError'):
        weighing.weights([replace(HOSTS[0], free_ram_mb=0), *HOSTS[1:]], TEN)
