# SPDX-License-Identifier: Apache-2.0
"""A request in short."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from novasched.model.request import Destination, Request
from novasched.records.reasons import told
from novasched.records.record import Asked

HASHED = 16
"""So many digits stand for an id that is not shown."""
MOST = 20
"""So many extra specs, hints, properties and names of each kind are kept."""

NAMES = ('ignore_hosts', 'force_hosts', 'force_nodes')
UNKEPT = (
    'instance_group', 'requested_destination', 'pci_requests', 'requested_resources',
    'requested_networks', 'root_required', 'root_forbidden', 'same_subtree',
)  # fmt: skip
"""What is not kept, or only in short, of the requests that have it."""


def of(request: Request, hashed: bool) -> Asked:
    """What is kept of a request.

    :param hashed: the ids of project and user are not shown.
    """
    show = _digest if hashed else _same
    flavor, group = request.flavor, request.instance_group
    kept = Asked(
        servers=request.instance_uuids or (),
        count=request.count,
        project=show(request.project_id),
        user=show(request.user_id),
        flavor=told(flavor.name),
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=(0 if request.is_bfv else flavor.root_gb) + flavor.ephemeral_gb,
        extra_specs=_short(flavor.extra_specs),
        image=request.image.id if request.image else None,
        zone=request.availability_zone,
        hints=_short({key: ', '.join(each) for key, each in request.scheduler_hints.items()}),
        policy=group.policy if group else None,
        destination=_destination(request.requested_destination),
        ignore_hosts=request.ignore_hosts[:MOST],
        force_hosts=request.force_hosts[:MOST],
        force_nodes=request.force_nodes[:MOST],
        root_gb=flavor.root_gb,
        swap_mb=flavor.swap,
        is_bfv=request.is_bfv,
        flavor_id=flavor.id,
        image_format=request.image.disk_format if request.image else None,
        image_properties=_properties(request),
    )
    return replace(kept, lacks=tuple(_lacks(request, kept, hashed)))


def _lacks(request: Request, kept: Asked, hashed: bool) -> Iterator[str]:
    """The parts of a request that are not kept, or not as they are."""
    flavor, hints = request.flavor, request.scheduler_hints
    if hashed and request.project_id:
        yield 'project_id'
    if kept.extra_specs != flavor.extra_specs:
        yield 'extra_specs'
    if {name: (text,) for name, text in kept.hints.items()} != hints:
        yield 'scheduler_hints'
    if request.image and kept.image_properties != request.image.properties:
        yield 'image'
    if request.numa_topology and (request.physnets or request.tunneled):
        yield 'network_metadata'
    if request.retry and request.retry.hosts:
        yield 'retry'
    yield from (name for name in NAMES if len(getattr(request, name)) > MOST)
    yield from (name for name in UNKEPT if getattr(request, name))


def _properties(request: Request) -> Mapping[str, Any]:
    """Those of the image that are numbers, flags, and texts of a bearable length."""
    properties = request.image.properties if request.image else {}
    return {
        told(name): value
        for name, value in list(properties.items())[:MOST]
        if isinstance(value, int) or (isinstance(value, str) and told(value) == value)
    }


def _short(texts: Mapping[str, object]) -> dict[str, str]:
    return {told(key): told(str(value)) for key, value in list(texts.items())[:MOST]}


def _destination(wanted: Destination | None) -> str | None:
    names = (wanted.host, wanted.node) if wanted else ()
    return ' '.join(filter(None, names)) or None


def _digest(text: str | None) -> str | None:
    return text and hashlib.sha256(text.encode()).hexdigest()[:HASHED]


def _same(text: str | None) -> str | None:
    return text
