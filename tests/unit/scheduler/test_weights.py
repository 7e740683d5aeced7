# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler import weights
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.host_table import HostTable
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers import BatchWeigher, Scope, Weigher, host_alone
from novasched.scheduler.weights import normalised
from tests.lab.builders import a_host, a_request, a_uuid

RAM = 'ram_weight_multiplier'
HOSTS = [a_host(f'h{i}', ram=1024 * (i + 1)) for i in range(8)]


class Ram(Weigher):
    """Weighs memory, and records the names of the hosts."""

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
    """A weigher whose weights depend on the request."""

    def request_key(self, request):
        return None


class Fickle(Ram):
    """A weigher whose weights depend on the instance."""

    scope = Scope.INSTANCE


def names(hosts):
    return [host.host for host in hosts]


def less(host):
    """The host with a further instance."""
    return replace(host, free_ram_mb=host.free_ram_mb - 512)


@pytest.fixture(autouse=True)
def unchecked(unchecked_scopes):
    """The tests count the hosts that weighers weigh, so that scopes are not checked by
    further calls."""


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
def test_weights_are_normalised_between_least_and_greatest(raw, bounds, shares):
    """The least value (or minval) becomes 0, the greatest value (or maxval) becomes 1,
    and equal values become 0."""
    assert normalised(np.array(raw), *bounds).tolist() == shares


def weigh(weigher, hosts, table=None):
    """The weights of hosts, and the names of the hosts weighed anew."""
    result = weights.weigh([Enabled(weigher)], hosts, a_request(), table=table)
    return result, weigher.asked()


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
def test_only_changed_hosts_are_weighed_again(hosts, asked, kind, same_request, kept):
    """Only changed hosts are weighed again, if the scope and the request key allow kept
    weights. The weights and contributions equal a weighing of all hosts."""
    table = HostTable()
    weigher = kind()
    _, weighed_first = weigh(weigher, HOSTS, table)
    assert weighed_first == names(HOSTS)

    if not same_request:
        table.request = object()
    result, weighed_again = weigh(weigher, hosts, table)

    assert weighed_again == (asked if kept else names(hosts))
    anew, _ = weigh(kind(), hosts)
    assert result.sums.tolist() == anew.sums.tolist()
    positions = [*range(len(hosts))]
    assert result.explained(positions, hosts) == anew.explained(positions, hosts)


class ByHost(BatchWeigher):
    """Weighs memory, with a scale for each host."""

    def scale(self, host):
        return Ram().scale(host)

    def weigh_all(self, hosts, request):
        return [host.free_ram_mb for host in hosts]


@pytest.mark.parametrize(('kind', 'scaled'), [(Ram, 2), (ByHost, 4)])
def test_a_scale_is_looked_up_once_for_hosts_in_the_same_aggregates(
    kind, scaled, monkeypatch
):
    """Hosts in the same aggregates share the lookup of the scale, unless the weigher
    defines the scale of each host."""
    first = a_host('a', metadata={RAM: '2'})
    second = a_host('b', ram=1024, metadata={RAM: '-1'})
    hosts = [first, second]
    for name, like in (('c', first), ('d', second)):
        hosts.append(replace(like, host=name, uuid=a_uuid(name)))
    asked = []
    scale = kind.scale
    monkeypatch.setattr(kind, 'scale', lambda *x: asked.append(x[1]) or scale(*x))
    enabled = [Enabled(kind(Settings()))]

    result = weights.weigh(enabled, hosts, a_request())

    assert result.sums.tolist() == [2.0, 0.0, 2.0, 0.0]
    assert len(asked) == scaled


def test_an_error_names_the_weigher():
    """The error of a weigher names the weigher, even if only changed hosts are weighed.
    A single host is not weighed."""
    table = HostTable()
    weigh(Ram(), HOSTS, table)
    with pytest.raises(BadPlugin, match='Ram raised ZeroDivisionError'):
        weigh(Ram(), [replace(HOSTS[0], free_ram_mb=0), *HOSTS[1:]], table)

    result, asked = weigh(Ram(), HOSTS[:1])
    assert (result.sums.tolist(), asked) == ([0.0], [])
