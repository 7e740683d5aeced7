# SPDX-License-Identifier: Apache-2.0
"""The room of the cloud: how many of the usual servers still fit in each zone, and the
free capacity that no usual server can use."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from novasched.observe.page.hosts import NO_ZONE, HostsView, natural
from novasched.scheduler.model.host import UP, Host, state
from novasched.scheduler.weighers.fragmentation import (
    CELLS,
    free_capacity,
    resource_name,
    usual_demands,
)
from novasched.scheduler.weighers.usable_capacity import Stranded, UsualDemands

MAX_ZONES = 20
"""Zones with a column. Further zones count in the column of all zones only."""


@dataclass(frozen=True, slots=True)
class FlavorRoom:
    """The servers of a flavor that still fit, if all room is for this flavor.

    :ivar number: the servers of the flavor in the cloud.
    :ivar fit: the number that fits in each zone.
    """

    label: str
    number: int
    fit: Mapping[str, int]
    fit_anywhere: int


@dataclass(frozen=True, slots=True)
class Room:
    """The room on the hosts that are up and enabled.

    :ivar zones: the zones with a column, in natural order.
    :ivar with_devices: the usual flavors with devices, which are not counted: only
        Placement knows the free devices.
    :ivar stranded: free capacity by the name of the resource.
    """

    zones: Sequence[str]
    flavors: Sequence[FlavorRoom]
    with_devices: Sequence[str]
    stranded: Mapping[str, Stranded]


def room(view: HostsView, zone: str | None) -> Room:
    """The room for the usual guests.

    :param zone: the availability zone of hosts without a zone
        (``[DEFAULT] default_availability_zone``).
    """
    hosts: list[Host] = []
    for cell in view.cells:
        hosts += [host for host in cell.hosts if state(host) == UP]
    rows_of_zone: dict[str, list[int]] = defaultdict(list)
    for row, host in enumerate(hosts):
        rows_of_zone[host.zone(zone) or NO_ZONE].append(row)
    zones = sorted(rows_of_zone, key=natural)[:MAX_ZONES]

    guests = []
    demands = []
    with_devices = []
    all_demands = usual_demands(view.usual).demands
    for guest, demand in zip(view.usual.guests, all_demands, strict=True):
        if all(part.kind == CELLS for part in demand.parts):
            guests.append(guest)
            demands.append(demand)
        else:
            with_devices.append(guest.flavor.label)

    usual = UsualDemands(demands, [float(guest.number) for guest in guests])
    free = free_capacity(hosts, demands, None)
    flavors = []
    for guest, numbers in zip(guests, usual.whole_guests(free), strict=True):
        fit = {}
        for name in zones:
            fit[name] = int(numbers[rows_of_zone[name]].sum())
        flavors.append(
            FlavorRoom(guest.flavor.label, guest.number, fit, int(numbers.sum()))
        )

    stranded = {}
    for resource, amount in usual.stranded(free).items():
        stranded[resource_name(resource)] = amount
    return Room(zones, flavors, with_devices, stranded)
