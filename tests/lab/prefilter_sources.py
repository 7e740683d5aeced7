# SPDX-License-Identifier: Apache-2.0
"""Aggregates and networks in memory, as prefilters look them up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.prefilters import Port, Prefilter, Sources


@dataclass
class StaticAggregates:
    """Aggregates without changes."""

    aggregates: AggregateList

    def all(self, since):
        return self.aggregates


@dataclass
class StaticNetwork:
    """A Neutron without changes of ports and segments.

    :ivar known_ports: ports by UUID. Neutron does not know other ports.
    :ivar aggregates: the UUIDs of the aggregates of each network and subnet. Neutron
        answers with an error for other networks.
    :ivar down: Neutron does not answer.
    :ivar asked: number of requests for ports.
    """

    known_ports: Mapping[str, Port]
    aggregates: Mapping[str, Collection[str]] = field(default_factory=dict)
    down: bool = False
    asked: int = 0

    def ports(self, uuids):
        self.asked += 1
        if self.down:
            raise NetworkUnavailable('down')

        ports = {}
        for uuid in uuids:
            if uuid in self.known_ports:
                ports[uuid] = self.known_ports[uuid]
        return ports

    def network_aggregates(self, uuid):
        if uuid not in self.aggregates:
            raise NetworkUnavailable(f'what is {uuid}?')
        return frozenset(self.aggregates[uuid])

    subnet_aggregates = network_aggregates


def sources(*aggregates, network=None):
    """The sources of prefilters, with no aggregates and networks but the given."""
    return Sources(StaticAggregates(AggregateList(aggregates)), network)


class FunctionPrefilter(Prefilter):
    """A function as a prefilter."""

    def __init__(self, function):
        self._function = function

    def __call__(self, request, basis=FRESH):
        return self._function(request, basis)
