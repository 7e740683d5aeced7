# SPDX-License-Identifier: Apache-2.0
"""The PCI devices that a server asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PciRequest:
    """``count`` devices, each matching any of ``spec`` (device pool properties)."""

    count: int
    spec: tuple[Mapping[str, str | None], ...] = ()
    alias_name: str | None = None
    request_id: str | None = None
    requester_id: str | None = None
    numa_policy: str | None = None
    is_new: bool = False
