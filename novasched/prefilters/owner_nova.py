# SPDX-License-Identifier: Apache-2.0
"""Providers that are nova's own, and not those of another service."""

from __future__ import annotations

from dataclasses import replace

import os_traits

from novasched.model.request import Request, RequestGroup
from novasched.model.settings import Settings
from novasched.prefilters import LOG, Prefilter, Sources

FIRST_VERSION = 73
"""The version of nova-compute (2026.2) that marks its providers."""


class OwnerNovaPrefilter(Prefilter):
    """Require nova's mark on the host's own provider and on those of PCI devices, once
    every nova-compute of every cell sets it."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        super().__init__(settings, sources)
        self._told: int | None = None

    def __call__(self, request: Request) -> Request:
        if os_traits.OWNER_NOVA in request.root_required:
            return request
        version = self.sources.computes.minimum_version(request.arrived)
        if version < FIRST_VERSION:
            self._say_why_not(version)
            return request
        of_devices = {
            each.request_id for each in request.pci_requests if each.alias_name and each.request_id
        }
        groups = tuple(
            _owned(group) if _request_id(group) in of_devices else group
            for group in request.requested_resources
        )
        return self.requiring(replace(request, requested_resources=groups), os_traits.OWNER_NOVA)

    def _say_why_not(self, version: int) -> None:
        """Once for each version, since it holds for every request of an older cloud."""
        if version != self._told:
            self._told = version
            LOG.warning(
                'OWNER_NOVA trait not added to scheduling requests: not all nova-compute '
                'services are upgraded (min_version=%d, need %d).',
                version,
                FIRST_VERSION,
            )


def _request_id(group: RequestGroup) -> str | None:
    """The PCI request that a group was made for: its name without the device's number."""
    return group.requester_id.rsplit('-', 1)[0] if group.requester_id else None


def _owned(group: RequestGroup) -> RequestGroup:
    return replace(group, required_traits=group.required_traits | {os_traits.OWNER_NOVA})
