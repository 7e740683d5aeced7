# SPDX-License-Identifier: Apache-2.0
"""A request, made of what an operator says of a server; the parts that nova-api works out are
worked out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from novasched.errors import BadRequest
from novasched.model.image_properties import typed
from novasched.model.request import Flavor, Image, InstanceGroup, Request
from novasched.numa import asked
from novasched.simulating import devices

GROUP = 'group'
CYBORG = 'accel:device_profile'


@dataclass(frozen=True, slots=True)
class Wanted:
    """Servers that are wanted. ``image`` has properties as Glance keeps them, ``hints`` are
    pairs, of which several may have one name."""

    flavor: Flavor
    count: int = 1
    project: str | None = None
    zone: str | None = None
    image: Mapping[str, str] = field(default_factory=dict)
    hints: Sequence[tuple[str, str]] = ()
    policy: str | None = None


def request(
    wanted: Wanted, uuids: Sequence[str], aliases: Sequence[str], pci_in_placement: bool
) -> Request:
    """The request for these servers.

    :param aliases: the values of ``[pci] alias``.
    :raises NovaschedError: nova-api would refuse it, or know more of it than is here.
    """
    flavor = wanted.flavor
    if flavor.extra_specs.get(CYBORG):
        raise BadRequest(f'{CYBORG}: only Cyborg knows what that is; record a request instead')
    image = Image(properties=typed(wanted.image))
    pci = devices.wanted(flavor, image, aliases)
    hints: dict[str, tuple[str, ...]] = {}
    for name, value in wanted.hints:
        hints[name] = (*hints.get(name, ()), value)
    group = None
    if wanted.policy:
        name = f'simulated-{uuids[0]}'
        group = InstanceGroup(uuid=name, name=name, policy=wanted.policy, members=frozenset(uuids))
        hints[GROUP] = (name,)
    return Request(
        flavor=flavor,
        instance_uuids=tuple(uuids),
        instance_uuid=uuids[0],
        num_instances=wanted.count,
        project_id=wanted.project,
        availability_zone=wanted.zone,
        image=image,
        scheduler_hints=hints,
        instance_group=group,
        numa_topology=asked.topology(flavor, image),
        pci_requests=pci,
        requested_resources=devices.groups(pci) if pci_in_placement else (),
    )
