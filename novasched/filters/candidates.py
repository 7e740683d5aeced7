# SPDX-License-Identifier: Apache-2.0
"""What filters share that judge each allocation candidate of a host for itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from novasched.filters import CANDIDATES, Filter
from novasched.fitting import mappings_of
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.pci.match import Mappings, providers_of

NOBODY_ASKED = (None,)


class CandidateFilter(Filter):
    """Drops the candidates that do not fit; a host that has none left is rejected, for the
    reason that the first of them does not fit.

    Within a request, hosts and candidates that are alike share their verdict.
    """

    def __init__(self, settings: Settings, memory: dict[str, Any] | None = None) -> None:
        super().__init__(settings)
        self._memory = memory

    def for_request(self, memory: dict[str, Any]) -> Filter:
        return type(self)(self.settings, memory)

    def looks_at(self, host: Host) -> tuple[object, ...]:
        """All of a host that the verdict depends on: numbers, and values that alike hosts
        have in common."""
        raise NotImplementedError

    def judge(self, host: Host, request: Request, mappings: Mappings | None) -> str | None:
        """Why a candidate with these mappings does not fit; None if it does."""
        raise NotImplementedError

    def reject(self, host: Host, request: Request) -> str | None:
        memory = {} if self._memory is None else self._memory
        known = memory.setdefault(self.name, {})
        offers = memory.get(CANDIDATES, {})
        offered = offers.get(host.uuid, NOBODY_ASKED)
        looked_at = self.looks_at(host)
        alike = tuple(x if isinstance(x, int | float) else id(x) for x in looked_at)
        kept: list[Any] = []
        why = None
        for candidate in offered:
            mappings = mappings_of(request, candidate)
            key: Hashable = (alike, *(providers_of(x, mappings) for x in request.pci_requests))
            if key not in known:
                # Beside the verdict stands what its key names by identity, to keep it alive.
                known[key] = self.judge(host, request, mappings), looked_at
            verdict = known[key][0]
            if verdict is None:
                kept.append(candidate)
            why = why or verdict
        if not kept:
            return why or 'Placement offers nothing on it'
        if len(kept) < len(offered):
            offers[host.uuid] = kept
        return None
