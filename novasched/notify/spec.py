# SPDX-License-Identifier: Apache-2.0
"""The RequestSpec as it stands when something is told of it.

nova writes what it finds into the RequestSpec that it was sent, so its notifications show
the aggregates that prefilters ask for and, in the end, the last of the servers, the hosts in
their group, and the cells and CPUs that this server got. Here the message stays as it came,
and this is where the two come together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.fitting import LIMITS, fitted, mappings_of
from novasched.inflight import Flight
from novasched.model.numa import CellFit, Fit
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.objects.base import CHANGES, DATA

Primitive = Mapping[str, Any]
"""An object in its envelope, as it travels."""


def data(primitive: Primitive | None) -> Mapping[str, Any]:
    """The fields of an object; none where there is no object."""
    return primitive[DATA] if primitive else {}


def at_start(sent: Primitive, request: Request) -> dict[str, Any]:
    """The fields of the RequestSpec once Placement has been asked."""
    wanted = request.requested_destination
    before = data(sent).get('requested_destination')
    if wanted is None:
        return {**data(sent)}
    aggregates = list(data(before).get('aggregates') or ())
    aggregates += [','.join(sorted(each)) for each in wanted.aggregates[len(aggregates) :]]
    found = {'host': wanted.host, 'node': wanted.node, 'aggregates': aggregates or None}
    destination = {**data(before), **{k: v for k, v in found.items() if v is not None}}
    return {**data(sent), 'requested_destination': {**(before or {}), DATA: destination}}


def at_end(
    sent: Primitive, request: Request, flights: Sequence[Flight], settings: Settings
) -> dict[str, Any]:
    """The fields of the RequestSpec once all servers have their hosts, in their order."""
    spec = at_start(sent, request)
    spec['instance_uuid'] = request.instance_uuid
    if group := spec.get('instance_group'):
        hosts = [*(data(group).get('hosts') or ()), *(each.host.host for each in flights)]
        spec['instance_group'] = {**group, DATA: {**data(group), 'hosts': hosts}}
    if spec.get('numa_topology') and flights[-1].host.numa_topology:
        spec['numa_topology'] = _landed(spec['numa_topology'], flights[-1], settings)
    return spec


def _landed(guest: Primitive, flight: Flight, settings: Settings) -> Primitive | None:
    """The guest's cells on those of its host; None if no filter has seen to it that they fit,
    and they do not."""
    request = flight.request
    mappings = mappings_of(request, flight.candidate)
    fit = fitted(flight.host, request, mappings, flight.limits.get(LIMITS), settings)
    if not isinstance(fit, Fit):
        return None
    cells = [
        {**cell, DATA: {**data(cell), **_placed(place)}}
        for cell, place in zip(data(guest)['cells'], fit.cells, strict=True)
    ]
    fields = {name: value for name, value in data(guest).items() if name != 'instance_uuid'}
    return {**guest, DATA: {**fields, 'cells': cells}}


def _placed(place: CellFit) -> dict[str, Any]:
    fields: dict[str, Any] = {'id': place.host_cell}
    if place.pagesize is not None:
        fields['pagesize'] = place.pagesize
    if place.pins:
        fields['cpu_pinning_raw'] = {str(guest): host for guest, host in place.pins}
    if place.reserved:
        fields['cpuset_reserved'] = sorted(place.reserved)
    return fields


def stamped(sent: Primitive) -> Primitive:
    """The RequestSpec after nova has made a versioned payload of it, which leaves the UUID of
    the server in what may go without one."""
    fields = {**data(sent)}
    for name in ('numa_topology', 'pci_requests'):
        part = fields.get(name)
        if part and 'instance_uuid' not in data(part):
            changes = [*(part.get(CHANGES) or ()), 'instance_uuid']
            uuid = {**data(part), 'instance_uuid': fields.get('instance_uuid')}
            fields[name] = {**part, DATA: uuid, CHANGES: changes}
    return {**sent, DATA: fields}
