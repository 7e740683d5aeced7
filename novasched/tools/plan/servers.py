# SPDX-License-Identifier: Apache-2.0
"""Servers on hosts, and the moves of a server that nova accepts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from novasched.scheduler.memory import Amounts
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request


class Kind(StrEnum):
    """The kinds of moves, by the names of nova's API actions."""

    LIVE = 'live migration'
    COLD = 'cold migration'
    EVACUATION = 'evacuation'


STATES: Mapping[Kind, frozenset[str]] = {
    Kind.LIVE: frozenset({'active', 'paused'}),
    Kind.COLD: frozenset({'stopped'}),
    Kind.EVACUATION: frozenset({'active', 'stopped', 'error'}),
}
"""The states (``vm_state``) in which nova moves a server. nova also migrates an active
server cold, which a plan does not: the server would stop for a while."""


MICROVERSIONS: Mapping[Kind, str] = {
    Kind.LIVE: '2.30',
    Kind.COLD: '2.56',
    Kind.EVACUATION: '2.29',
}
"""The versions of the compute API that let the scheduler check a requested host."""


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """A server on its host.

    :ivar host: the name of the compute host.
    :ivar node_uuid: the UUID of the compute node.
    :ivar request: the request of nova-conductor for a move of the server, without the
        hosts of the server group, hosts to ignore and a destination.
    :ivar amounts: the allocations on the host, by provider UUID and resource class.
    :ivar fit: the NUMA cells and CPUs of the server; None without a topology.
    :ivar state: the ``vm_state``.
    :ivar task: the ``task_state``.
    :ivar moved_ago_s: the seconds since the latest move; None if unknown.
    :ivar unknown: why the request or the allocations are unknown, so that the server
        cannot be planned; otherwise empty.
    """

    uuid: str
    name: str
    host: str
    node_uuid: str
    request: Request
    amounts: Amounts
    fit: Fit | None = None
    state: str = 'active'
    task: str | None = None
    is_locked: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    moved_ago_s: float | None = None
    unknown: str = ''

    @property
    def group_uuid(self) -> str | None:
        """The UUID of the server group."""
        group = self.request.instance_group
        if group is None:
            return None
        return group.uuid

    @property
    def is_pinned(self) -> bool:
        """True if vCPUs are pinned to CPUs of the host."""
        topology = self.request.numa_topology
        return topology is not None and any(cell.is_pinned for cell in topology.cells)

    @property
    def local_disk_gb(self) -> int:
        """The disks on the host, in GiB. A plan cannot tell whether hosts share the
        storage."""
        flavor = self.request.flavor
        root_gb = 0 if self.request.is_bfv else flavor.root_gb
        return root_gb + flavor.ephemeral_gb


def kind_of_move(server: PlacedServer, host: Host) -> Kind | None:
    """The kind of a move of a server; None if nova does not move the server.

    :param host: the present host of the server.
    """
    kinds = [Kind.LIVE, Kind.COLD]
    if not host.service.up:
        kinds = [Kind.EVACUATION]
    for kind in kinds:
        if server.state in STATES[kind]:
            return kind
    return None


@dataclass(frozen=True, slots=True)
class LiveMigrationRule:
    """A kind of servers that nova does not migrate live, at least not in old clouds.

    :ivar what: the property of the server, for a sentence.
    :ivar applies: True for a server of the kind.
    :ivar since: the lowest version of all nova-computes with which nova migrates such
        servers; None if no release does so.
    :ivar release: the release of nova with this version.
    """

    what: str
    applies: Callable[[PlacedServer], bool]
    since: int | None = None
    release: str = ''

    def forbids(self, server: PlacedServer, minimum_version: int) -> bool:
        """True if nova refuses to migrate a server.

        :param minimum_version: the lowest version of all nova-computes; 0 if unknown.
        """
        if not self.applies(server):
            return False
        return self.since is None or minimum_version < self.since


def _has_topology(server: PlacedServer) -> bool:
    return server.request.numa_topology is not None


def _has_fixed_devices(server: PlacedServer) -> bool:
    """True for PCI devices by alias, unless the alias says ``live_migratable``."""
    for pci_request in server.request.pci_requests:
        if pci_request.is_for_port:
            continue
        migratable = [
            spec.get('live_migratable') == 'true' for spec in pci_request.spec
        ]
        if not migratable or not all(migratable):
            return True
    return False


def _has_tpm(server: PlacedServer) -> bool:
    return server.request.requirements.has_tpm


def _has_private_tpm(server: PlacedServer) -> bool:
    """True if the host does not know the secret of the TPM."""
    requirements = server.request.requirements
    return requirements.has_tpm and requirements.tpm_secret_security != 'host'


def _has_encrypted_memory(server: PlacedServer) -> bool:
    return server.request.requirements.encrypts_memory


def _has_accelerators(server: PlacedServer) -> bool:
    return server.request.requirements.device_profile is not None


def _has_persistent_memory(server: PlacedServer) -> bool:
    return bool(server.request.flavor.extra_specs.get('hw:pmem'))


LIVE_MIGRATION_RULES = (
    LiveMigrationRule('a NUMA topology', _has_topology, 40, '20.0.0 (Train)'),
    LiveMigrationRule(
        'persistent memory', _has_persistent_memory, 51, '21.0.0 (Ussuri)'
    ),
    LiveMigrationRule('PCI devices that are not live_migratable', _has_fixed_devices),
    LiveMigrationRule(
        'a TPM with a secret that the host does not know', _has_private_tpm
    ),
    LiveMigrationRule('a TPM', _has_tpm, 72, '33.0.0 (2026.1)'),
    LiveMigrationRule('encrypted memory', _has_encrypted_memory),
    LiveMigrationRule('accelerators of Cyborg', _has_accelerators),
)
"""The servers that nova-api or nova-conductor refuses to migrate live. The versions are
those of ``nova/objects/service.py``."""


def obstacle(server: PlacedServer, host: Host, minimum_version: int) -> str:
    """Why nova does not move a server; empty if nova does.

    :param host: the present host of the server.
    :param minimum_version: the lowest version of all nova-computes.
    """
    if server.unknown:
        return server.unknown
    if server.task is not None:
        return f'is busy ({server.task})'
    if server.is_locked:
        return 'is locked'

    kind = kind_of_move(server, host)
    if kind is None:
        where = 'its host is up' if host.service.up else 'its host is down'
        return f'is {server.state or "in no state"}, and {where}'
    if kind is Kind.LIVE:
        for rule in LIVE_MIGRATION_RULES:
            if rule.forbids(server, minimum_version):
                text = f'has {rule.what}, which nova does not migrate live'
                if rule.since is not None:
                    text += f' before {rule.release} on all hosts'
                return text
    return ''
