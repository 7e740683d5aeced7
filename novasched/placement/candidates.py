# SPDX-License-Identifier: Apache-2.0
"""Offers from answers of Placement to the requests themselves."""

from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.placement.wire import (
    HostSummaries,
    HostSummary,
    ProviderSummaries,
    ProviderSummary,
    ProviderSummaryTraits,
    UnusableAnswer,
    decode,
)
from novasched.scheduler.model.candidate import Candidate, CandidateIndex
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog


class AskedCandidates(CandidateIndex):
    """The candidates of answers to the request itself.

    Few requests look at provider summaries. The summary of a provider is decoded at the
    first look.
    """

    def __init__(
        self, candidates: Iterable[Candidate], texts: Sequence[bytes] = ()
    ) -> None:
        """:param texts: the answers of Placement, with the provider summaries."""
        super().__init__(candidates)
        self._texts = texts
        self._summaries: dict[str, msgspec.Raw] | None = None
        self._capacity_left: dict[str, Mapping[str, int]] = {}
        # By resource class and host, the capacity of the providers.
        self._devices: dict[str, Mapping[str, Sequence[int]]] = {}

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        if provider in self._capacity_left:
            return self._capacity_left[provider]

        try:
            resources = decode(self._summary(provider), ProviderSummary).resources
        except UnusableAnswer:
            # Unknown capacity excludes no candidate: Placement checks the claim.
            resources = {}
        left = {name: resource.capacity_left for name, resource in resources.items()}
        return self._capacity_left.setdefault(provider, left)

    def traits(self, provider: str) -> Collection[str]:
        try:
            return decode(self._summary(provider), ProviderSummaryTraits).traits
        except UnusableAnswer:
            return ()

    def devices_left(self, hosts: Sequence[str], name: str) -> NDArray[np.float64]:
        devices = self._devices.get(name)
        if devices is None:
            devices = self._devices_of_hosts(name)
            self._devices[name] = devices
        amounts = [devices.get(host, ()) for host in hosts]
        left = np.zeros((len(hosts), max(map(len, amounts), default=0)))
        for row, of_host in enumerate(amounts):
            left[row, : len(of_host)] = of_host
        return left

    @cached_property
    def device_changes(self) -> ChangeLog:
        return UNVERSIONED.with_step(())

    def _devices_of_hosts(self, name: str) -> Mapping[str, Sequence[int]]:
        """By host, the unused capacity of a resource class on the providers of its
        tree, the largest capacity first."""
        summaries: dict[str, HostSummary] = {}
        for text in self._texts:
            with suppress(UnusableAnswer):
                answer = decode(text, HostSummaries)
                summaries.update(answer.provider_summaries)

        devices: dict[str, list[int]] = {}
        for summary in summaries.values():
            resource = summary.resources.get(name)
            if resource is not None and resource.capacity_left > 0:
                of_host = devices.setdefault(summary.root_provider_uuid, [])
                of_host.append(resource.capacity_left)
        for of_host in devices.values():
            of_host.sort(reverse=True)
        return devices

    def _summary(self, provider: str) -> msgspec.Raw:
        """The text of the summary of a provider.

        :raises UnusableAnswer: the answers lack the summary.
        """
        if self._summaries is None:
            # Splitting the texts is cheap; few summaries are ever decoded.
            self._summaries = {}
            for text in self._texts:
                answer = decode(text, ProviderSummaries)
                self._summaries.update(answer.provider_summaries)
        if provider not in self._summaries:
            raise UnusableAnswer(f'{provider} has no summary')
        return self._summaries[provider]
