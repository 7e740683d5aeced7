# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler import weights
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers import BatchWeigher, Scope, Weigher, host_alone
from novasched.scheduler.weights import HostTable, normalised
from tests.lab.builders import a_host, a_request

RAM = 'ram_weight_multiplier'
HOSTS = [a_host(f'h{i}', ram=1024 * (i + 1)) for i in range(8)]


class Ram(Weigher):
    """Weighs memory, and tells whom it was asked about."""

    multiplier = RAM
    scope = Scope.HOST
    request_key = host_alone

    def __init__(self, settings=Settings()):  # noqa: B008  (frozen)
        super().__init__(settings)
        self.weighed = []

    def asked(self):
        weighed = self.weighed
        self.weighed = []
        return weighed

    def weigh(self, host, request):
        if not host.free_ram_mb:
            raise ZeroDivisionError('no memory')
        self.weighed.append(host.host)
        return host.free_ram_mb


class Forgotten(Ram):
    """May weigh a host otherwise for the next request."""

    def request_key(self, request):
        return None


class Fickle(Ram):
    """May weigh a host otherwise for the next instance."""

    scope = Scope.INSTANCE


def names(hosts):
    return [host.host for host in hosts]


def less(host):
    """The host with one server more."""
    return replace(host, free_ram_mb=host.free_ram_mb - 512)


@pytest.fixture(autouse=True)
def unchecked(unchecked_scopes):
    """What weighers are asked is counted here."""


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
    assert normalised(np.array(raw), *bounds).tolist() == shares


def weigh(weigher, hosts, table=None):
    """The weights of hosts, and the hosts that the weigher was asked about for them."""
    found = weights.weigh([Enabled(weigher)], hosts, a_request(), table=table)
    return found, weigher.asked()


@pytest.mark.parametrize(
    ('hosts', 'asked'),
    [
        (HOSTS, []),
        (HOSTS[::-1], []),
        ([less(HOSTS[0]), *HOSTS[1:]], ['h0']),
        ([*HOSTS[:4], less(HOSTS[4]), *HOSTS[5:]], ['h4']),
        (HOSTS[2:5], []),
        ([*map(less, HOSTS[:2]), *HOSTS[3:]], ['h0', 'h1']),
        ([*HOSTS[4:], a_host('new', ram=512)], ['new']),
    ],
)
@pytest.mark.parametrize(
    ('kind', 'same_request', 'kept'),
    [
        (Ram, True, True), (Ram, False, True), (Forgotten, True, True),
        (Forgotten, False, False), (Fickle, True, False),
    ],
)  # fmt: skip
def test_only_what_has_changed_is_weighed_again(hosts, asked, kind, same_request, kept):
    """A weigher is asked about changed hosts, where its answers stand for the next
    instance, or the next request; and all weights, and what they consist of, are what
    they would be else."""
    table = HostTable()
    weigher = kind()
    _, of_all = weigh(weigher, HOSTS, table)
    assert of_all == names(HOSTS)
    table.request = table.request if same_request else object()
    found, again = weigh(weigher, hosts, table)
    assert again == (asked if kept else names(hosts))
    anew, _ = weigh(kind(), hosts)
    assert found.sums.tolist() == anew.sums.tolist()
    for index, host in enumerate(hosts):
        assert found.explain(index, host) == anew.explain(index, host)


class ByHost(BatchWeigher):
    """Weighs memory, and scales each host by itself."""

    def scale(self, host):
        return Ram().scale(host)

    def weigh_all(self, hosts, request):
        return [host.free_ram_mb for host in hosts]


@pytest.mark.parametrize(('kind', 'scaled'), [(Ram, 2), (ByHost, 4)])
def test_a_scale_is_looked_up_once_for_hosts_in_the_same_aggregates(
    kind, scaled, monkeypatch
):
    """Unless the weigher scales each host in its own way."""
    first = a_host('a', metadata={RAM: '2'})
    second = a_host('b', ram=1024, metadata={RAM: '-1'})
    hosts = [first, second, replace(first, host='c'), replace(second, host='d')]
    asked = []
    scale = kind.scale
    monkeypatch.setattr(kind, 'scale', lambda *x: asked.append(x[1]) or scale(*x))
    enabled = [Enabled(kind(Settings()))]
    assert weights.weigh(enabled, hosts, a_request()).sums.tolist() == [
        2.0,
        0.0,
        2.0,
        0.0,
    ]
    assert len(asked) == scaled


def test_an_error_names_its_weigher():
    """Also when only the changed hosts are weighed; a host alone is not weighed at
    all."""
    table = HostTable()
    weigh(Ram(), HOSTS, table)
    with pytest.raises(BadPlugin, match='Ram raised ZeroDivisionError'):
        weigh(Ram(), [replace(HOSTS[0], free_ram_mb=0), *HOSTS[1:]], table)
    found, asked = weigh(Ram(), HOSTS[:1])
    assert (found.sums.tolist(), asked) == ([0.0], [])
