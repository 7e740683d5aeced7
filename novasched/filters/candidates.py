# SPDX-License-Identifier: Apache-2.0
"""What filters share that judge each allocation candidate of a host for itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from novasched.filters import CANDIDATES
from novasched.filters.alike import SharingFilter, alike
from novasched.fitting import mappings_of
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.pci.match import Mappings, providers_of

NOBODY_ASKED = (None,)


class CandidateFilter(SharingFilter):
    """Drops the candidates that do not fit; a host that has none left is rejected, for the
    reason that the first of them does not fit.

    Hosts and candidates that are alike share their verdict.
    """

    once_per_host = True

    def __init__(self, settings: Settings, memory: dict[str, Any] | None = None) -> None:
        super().__init__(settings)
        self._memory = {} if memory is None else memory

    def for_request(self, memory: dict[str, Any]) -> CandidateFilter:
        return type(self)(self.settings, memory)

    def judge(self, host: Host, request: Request, mappings: Mappings | None) -> str | None:
        """Why a candidate with these mappings does not fit; None if it does."""
        raise NotImplementedError

    def reject(self, host: Host, request: Request) -> str | None:
        (verdict,) = self.reject_all([host], request)
        return verdict

    def reject_all(self, hosts: Sequence[Host], request: Request) -> Sequence[str | None]:
        offers = self._memory.get(CANDIDATES, {})
        asked = request.pci_requests
        columns = self.looks_at(hosts, request)  # kept: some is told apart by identity
        known: dict[Hashable, str | None] = {}
        answers = []
        for host, kind in zip(hosts, alike(columns), strict=True):
            verdicts = []
            for candidate in offers.get(host.uuid, NOBODY_ASKED):
                mappings = mappings_of(request, candidate) if asked else None
                key = kind, *[providers_of(each, mappings) for each in asked]
                if key not in known:
                    known[key] = self.judge(host, request, mappings)
                verdicts.append(known[key])
            answers.append(_narrowed(offers, host.uuid, verdicts))
        return answers


def _narrowed(offers: dict[str, Any], uuid: str, verdicts: Sequence[str | None]) -> str | None:
    """Leave a host the candidates that fit; or say why none does."""
    if None not in verdicts:
        return verdicts[0] if verdicts else 'Placement offers nothing on it'
    if any(verdicts):
        both = zip(offers[uuid], verdicts, strict=True)
        offers[uuid] = [candidate for candidate, why in both if why is None]
    return None
