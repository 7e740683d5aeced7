# SPDX-License-Identifier: Apache-2.0
"""What filters share that judge each allocation candidate of a host for itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from novasched.filters import CANDIDATES
from novasched.filters.alike import Column, SharingFilter, alike
from novasched.fitting import mappings_of
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.pci.match import Mappings, providers_of

NOBODY_ASKED = (None,)
NOTHING_OFFERED = 'Placement offers nothing on it'

FEW, MANY = 4, 4
"""Verdicts are kept for so many kinds of requests, and for so many times as many kinds of
hosts as there are hosts."""

Kept = dict[Hashable, tuple[str | None, Sequence[object]]]


class CandidateFilter(SharingFilter):
    """Drops the candidates that do not fit; a host that has none left is rejected, for the
    reason that the first of them does not fit.

    Hosts and candidates that are alike share their verdict. Without devices the candidates
    of a host are all alike, and its verdict is kept for later requests that are alike too:
    what it depends on are values.
    """

    once_per_host = True

    def __init__(self, settings: Settings, memory: dict[str, Any] | None = None) -> None:
        super().__init__(settings)
        self._memory = {} if memory is None else memory
        self._kept: dict[Hashable, Kept] = {}

    def for_request(self, memory: dict[str, Any]) -> CandidateFilter:
        made = type(self)(self.settings, memory)
        made._kept = self._kept
        return made

    def wanted(self, request: Request) -> Hashable:
        """All of a request without devices that the verdict depends on."""
        return None

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
        if not asked:
            return self._by_host(hosts, columns, request)
        known: dict[Hashable, str | None] = {}
        answers = []
        for host, kind in zip(hosts, alike(columns), strict=True):
            verdicts = []
            for candidate in offers.get(host.uuid, NOBODY_ASKED):
                mappings = mappings_of(request, candidate)
                key = kind, *[providers_of(each, mappings) for each in asked]
                if key not in known:
                    known[key] = self.judge(host, request, mappings)
                verdicts.append(known[key])
            answers.append(_narrowed(offers, host.uuid, verdicts))
        return answers

    def _by_host(
        self, hosts: Sequence[Host], columns: Sequence[Column], request: Request
    ) -> Sequence[str | None]:
        offers = self._memory.get(CANDIDATES, {})
        known = self._kept_for(request, len(hosts))
        answers: list[str | None] = []
        for host, kind, *looked_at in zip(hosts, alike(columns), *columns, strict=True):
            if not offers.get(host.uuid, NOBODY_ASKED):
                answers.append(NOTHING_OFFERED)
                continue
            if kind not in known:
                # Beside the verdict stands what its key names by identity, to keep it alive.
                known[kind] = self.judge(host, request, None), looked_at
            answers.append(known[kind][0])
        return answers

    def _kept_for(self, request: Request, hosts: int) -> Kept:
        """The verdicts for requests like this one; those of a few others are kept as well."""
        wanted = self.wanted(request)
        known = self._kept.get(wanted, {})
        if wanted not in self._kept or len(known) > MANY * hosts:
            if len(self._kept) >= FEW:
                self._kept.clear()
            known = self._kept[wanted] = {}
        return known


def _narrowed(offers: dict[str, Any], uuid: str, verdicts: Sequence[str | None]) -> str | None:
    """Leave a host the candidates that fit; or say why none does."""
    if None not in verdicts:
        return verdicts[0] if verdicts else NOTHING_OFFERED
    if any(verdicts):
        both = zip(offers[uuid], verdicts, strict=True)
        offers[uuid] = [candidate for candidate, why in both if why is None]
    return None
