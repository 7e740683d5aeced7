# SPDX-License-Identifier: Apache-2.0
"""A request in short."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from novasched.model.request import Destination, Request
from novasched.records.reasons import told
from novasched.records.record import Asked

HASHED = 16
"""So many digits stand for an id that is not shown."""
MOST = 20
"""So many extra specs, hints and names of each kind are kept."""


def of(request: Request, hashed: bool) -> Asked:
    """What is kept of a request.

    :param hashed: the ids of project and user are not shown.
    """
    show = _digest if hashed else _same
    flavor, group = request.flavor, request.instance_group
    return Asked(
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
    )


def _short(texts: Mapping[str, object]) -> dict[str, str]:
    return {told(key): told(str(value)) for key, value in list(texts.items())[:MOST]}


def _destination(wanted: Destination | None) -> str | None:
    names = (wanted.host, wanted.node) if wanted else ()
    return ' '.join(filter(None, names)) or None


def _digest(text: str | None) -> str | None:
    return text and hashlib.sha256(text.encode()).hexdigest()[:HASHED]


def _same(text: str | None) -> str | None:
    return text
