# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.filters.shared import VerdictCache, judge
from novasched.scheduler.model.pci import PciRequest, Pool
from tests.lab.builders import a_host, a_mapped_candidate, a_request

POOLS = (Pool('p', 'v', 2, 0, {'rp_uuid': 'A'}), Pool('p', 'v', 1, 1, {'rp_uuid': 'B'}))
HOST = a_host(pci=lambda: POOLS)


def asks(count=1, **fields):
    return PciRequest(count, ({'product_id': 'p'},), 'gpu', 'id', **fields)


def judged(request, offers):
    """The reason against the host, and the candidates that are left there."""
    plugin, candidates = PciPassthroughFilter(Settings()), {HOST.uuid: offers}
    (reason,), remaining = judge(plugin, [HOST], request, candidates, VerdictCache())
    assert candidates == {HOST.uuid: offers}
    return reason, remaining[HOST.uuid]


@pytest.mark.parametrize(
    ('host', 'requests', 'why'),
    [
        (HOST, [asks(2), asks(1)], None),
        (HOST, [asks(3, numa_policy='required')], None),
        (HOST, [asks(2), asks(2)], 'PCI gpu: 1 of 2 devices are of that kind'),
        (a_host(), [asks(1)], 'PCI gpu: 0 of 1 devices are of that kind'),
    ],
)
def test_verdict(host, requests, why):
    """A host has all devices that the instance asks for, wherever they are; requests for none have
    nothing to check."""
    each, request = PciPassthroughFilter(Settings()), a_request(pci_requests=tuple(requests))
    assert each.applies(request)
    assert each.reject(host, request) == why
    assert not each.applies(a_request())


@pytest.mark.parametrize(
    ('offered', 'left', 'why'),
    [
        ([['A'], ['B']], [['A'], ['B']], None),
        ([['A', 'B'], ['B', 'B'], ['A', 'A']], [['A', 'B'], ['A', 'A']], None),
        ([['B', 'B'], ['C', 'A']], [['B', 'B'], ['C', 'A']],
         'PCI gpu: 0 of 2 devices are those that Placement allocates'),
        ([], [], 'Placement offers nothing on it'),
    ],
)  # fmt: skip
def test_candidates(offered, left, why):
    """A candidate whose providers lack a device is dropped, unless no other is left; the value
    that was given stays as it was."""
    offers = [a_mapped_candidate(HOST.uuid, 'id', each) for each in offered]
    count = len(offered[0]) if offered else 1
    remaining = [a_mapped_candidate(HOST.uuid, 'id', each) for each in left]
    assert judged(a_request(pci_requests=(asks(count),)), offers) == (why, remaining)
