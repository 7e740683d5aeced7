# SPDX-License-Identifier: Apache-2.0
"""What was asked of a sandbox, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as classes

from novasched import objects
from novasched.model.request import Flavor

MB_PER_GB = 1024


@dataclass(frozen=True, slots=True)
class Server:
    """A server that got a host, with the alternates to it."""

    uuid: str
    flavor: Flavor
    selection: objects.Selection
    alternates: tuple[objects.Selection, ...] = ()

    @property
    def host(self) -> str:
        """The name of its host."""
        return str(self.selection.value('service_host'))

    @property
    def node_uuid(self) -> str:
        """The UUID of its compute node, which is also the resource provider's."""
        return str(self.selection.value('compute_node_uuid'))


@dataclass(frozen=True, slots=True)
class Boot:
    """One request for servers: either all are placed, or ``fault`` says why none is."""

    uuids: tuple[str, ...]
    flavor: Flavor
    seconds: float
    servers: tuple[Server, ...] = ()
    fault: str | None = None
    group_uuid: str | None = None


def flavor_id(flavor: Flavor) -> int:
    """The flavor's number in the database; 1 for one that bears none."""
    return flavor.id or 1


def resources(flavor: Flavor) -> Mapping[str, int]:
    """What Placement must count for a server of a flavor without extra specs, whose
    disks are local; a class of which nothing is taken is left out."""
    swap_gb = -(-flavor.swap // MB_PER_GB)
    amounts = {
        classes.VCPU: flavor.vcpus,
        classes.MEMORY_MB: flavor.memory_mb,
        classes.DISK_GB: flavor.root_gb + flavor.ephemeral_gb + swap_gb,
    }
    return {name: amount for name, amount in amounts.items() if amount}
