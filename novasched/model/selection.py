# SPDX-License-Identifier: Apache-2.0
"""The answer: a host for a server, and what was or can be claimed on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from novasched.model.candidate import Candidate
from novasched.model.host import Host


@dataclass(frozen=True, slots=True)
class Selection:
    """A chosen host, or an alternate to it.

    ``candidate`` is None where Placement was not asked (a rebuild in place, a caller
    that claims by itself). Limits go to the compute host unchanged.
    """

    compute_node_uuid: str
    service_host: str
    nodename: str
    cell_uuid: str
    availability_zone: str | None = None
    candidate: Candidate | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        host: Host,
        candidate: Candidate | None,
        default_zone: str | None,
        limits: Mapping[str, Any],
    ) -> Selection:
        """The selection that names ``host``."""
        return cls(
            compute_node_uuid=host.uuid,
            service_host=host.host,
            nodename=host.nodename,
            cell_uuid=host.cell_uuid,
            availability_zone=host.zone(default_zone),
            candidate=candidate,
            limits=limits,
        )
