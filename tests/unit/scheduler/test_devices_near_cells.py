# SPDX-License-Identifier: Apache-2.0
"""Guests with devices near their NUMA cells, on hosts with free CPUs on few cells."""

import time
from dataclasses import replace
from functools import partial

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.numa_topology import NUMATopologyFilter
from novasched.scheduler.filters.pci_passthrough import PciPassthroughFilter
from novasched.scheduler.filters.shared import judge
from novasched.scheduler.fitting import host_devices
from novasched.scheduler.model.claim import PendingClaim
from tests.lab.builders import a_host, a_mapped_candidate
from tests.lab.device_hosts import FIRST_CELLS_FULL, DeviceHost, a_device_guest
from tests.lab.memory_schedulers import PlacementOfTrees, a_driver
from tests.lab.topologies import a_guest, a_pinned

FILTERS = (NUMATopologyFilter, PciPassthroughFilter)
EVERY_ORDER = [FILTERS, FILTERS[::-1], FILTERS[:1]]


def placed(device_host, request, filters):
    """The cell of each device of a guest."""
    placement = PlacementOfTrees(device_host.providers())
    driver = a_driver([device_host.host()], *filters, placement=placement)
    [[selection, *_]] = driver.select_destinations(request)
    cell_of = {provider: cell for provider, _, cell in device_host.devices}
    allocated = selection.candidate.allocations.keys() & cell_of.keys()
    return [cell_of[provider] for provider in allocated]


@pytest.mark.parametrize('filters', EVERY_ORDER)
@pytest.mark.parametrize('name', FIRST_CELLS_FULL)
def test_a_guest_is_placed_near_the_free_cells(name, filters):
    """A guest is placed on a host whose first cells are full, with devices of other
    cells."""
    case = FIRST_CELLS_FULL[name]
    devices = placed(case.host, a_device_guest(case.cells, case.aliases), filters)
    assert len(devices) == sum(case.aliases.values())
    assert case.host.full.isdisjoint(devices)


@pytest.mark.parametrize('name', FIRST_CELLS_FULL)
def test_a_request_without_uuids_gets_a_host_with_free_cells(name):
    """A caller that sends no UUIDs gets a host as well."""
    case = FIRST_CELLS_FULL[name]
    request = replace(
        a_device_guest(case.cells, case.aliases),
        instance_uuids=None,
        instance_uuid=None,
    )
    placement = PlacementOfTrees(case.host.providers())
    driver = a_driver([case.host.host()], *FILTERS, placement=placement)
    [[selection, *_]] = driver.select_destinations(request)
    assert selection.service_host == case.host.name


class FasterRival:
    """Another scheduler, whose claim on the only host comes first.

    :ivar claims: the pending claims that get the claim.
    :ivar rival: the claim; None once it was made.
    """

    position = (0, 2)
    missed = 0
    late = 0

    def __init__(self, claims, rival):
        self.claims = claims
        self.rival = rival

    def announce(self, claim, stage):
        """Ignore the announcement."""

    def catch_up(self, claim):
        if self.rival is not None:
            with self.claims.ledger as ledger:
                ledger.chosen(self.rival, position=0)
            self.rival = None


@pytest.mark.parametrize(('rival_cell', 'cell'), [(0, 1), (1, 0)])
def test_a_guest_avoids_the_cell_claimed_by_another_scheduler(rival_cell, cell):
    """A guest whose devices are near the NUMA cell of a guest that another scheduler
    placed before gets devices near another cell. The host alone would fit with these."""
    device_host = DeviceHost('h', ({'nic': 2},) * 2)
    host = device_host.host()
    placement = PlacementOfTrees(device_host.providers())
    driver = a_driver([host], *FILTERS, placement=placement)
    theirs = replace(
        a_device_guest(1, {'nic': 1}), numa_topology=a_guest(a_pinned(4, 0, 0))
    )
    nic_of = {nic_cell: nic for nic, _, nic_cell in device_host.devices}
    candidate = a_mapped_candidate(host.uuid, 'nic-id', [nic_of[rival_cell]])
    # Of the host of another scheduler's claim only the names are known.
    named_host = a_host('h', uuid=host.uuid)
    rival = PendingClaim(
        named_host, theirs, candidate, None, {}, time.monotonic(), {}, is_ours=False
    )
    claims = driver.pending_claims
    claims.peers = FasterRival(claims, rival)

    [[selection, *_]] = driver.select_destinations(a_device_guest(1, {'nic': 1}))

    cell_of = {provider: cell for provider, _, cell in device_host.devices}
    allocated = selection.candidate.allocations.keys() & cell_of.keys()
    assert [cell_of[provider] for provider in allocated] == [cell]
    assert claims.given_back == (rival_cell == 0)


def test_the_filter_keeps_all_candidates_that_fit_the_host():
    """Hosts with the same devices have free CPUs on different cells. The candidates that
    are judged after the first of a host are judged for this host, too."""
    near = ({'gpu': 1},) * 4
    device_hosts = []
    for number in range(4):
        full = frozenset(range(4)) - {number}
        device_hosts.append(DeviceHost(f'free-{number}', near, full))
    hosts = [device_host.host() for device_host in device_hosts]
    providers = []
    for device_host in device_hosts:
        providers += device_host.providers()
    request = a_device_guest(1, {'gpu': 2}, 'preferred')
    offer = PlacementOfTrees(providers).candidates(request)
    plugin = NUMATopologyFilter(Settings())

    offer = offer.beside(dict, partial(devices_of, hosts, request), ())
    verdicts = judge(plugin, hosts, request, offer)

    assert verdicts.reasons == [None] * 4
    for host in hosts:
        fitting = []
        for candidate in offer[host.uuid]:
            mappings = candidate.providers_by_group()
            if plugin.reject_candidate(host, request, mappings) is None:
                fitting.append(candidate)
        assert len(fitting) >= 6
        assert verdicts.candidates[host.uuid] == fitting


def devices_of(hosts, request, uuid):
    [host] = [host for host in hosts if host.uuid == uuid]
    return host_devices(host, request, Settings())
