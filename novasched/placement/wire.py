# SPDX-License-Identifier: Apache-2.0
"""Placement's JSON, as far as the scheduler reads it.

Classes and fields have the names of the Placement API reference. Each class names the
response that it describes, and a microversion where the field or the response came
later than 1.0. Fields that the scheduler does not need are left out, and skipped.
:class:`novasched.scheduler.model.candidate.Candidate` is an allocation request with
everything that a claim needs.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from novasched.scheduler.model.candidate import Candidate, ProviderAllocation

Resources = Mapping[str, Mapping[str, int]]
"""Amounts by resource provider UUID and resource class."""

Request = TypeVar('Request')
Summary = TypeVar('Summary')


# GET /allocation_candidates. The format with provider UUIDs as keys came with 1.12.


class AllocationRequest(msgspec.Struct):
    """The providers of an allocation request, without its mappings."""

    allocations: dict[str, msgspec.Raw]


class ProviderSummaryResource(msgspec.Struct, frozen=True):
    """Capacity and usage of one resource class. Placement has subtracted the reserved
    amount from the capacity, and multiplied it by the allocation ratio."""

    capacity: int
    used: int

    @property
    def capacity_left(self) -> int:
        return self.capacity - self.used


class ProviderSummary(msgspec.Struct, frozen=True):
    """The inventories of a provider by resource class."""

    resources: dict[str, ProviderSummaryResource]


class ProviderSummaryTraits(msgspec.Struct, frozen=True):
    """The traits of a provider (1.17)."""

    traits: list[str]


class ProviderSummaryRoot(msgspec.Struct, frozen=True):
    """The root of the tree that a provider belongs to (1.29)."""

    root_provider_uuid: str


class HostSummary(msgspec.Struct, frozen=True):
    """The summary of a compute node among thousands. Traits stay undecoded, since many
    hosts have the same."""

    resources: dict[str, ProviderSummaryResource]
    traits: msgspec.Raw
    root_provider_uuid: str


class AllocationCandidates(msgspec.Struct, Generic[Request, Summary]):
    """The response, with the classes that a caller needs for the two parts."""

    allocation_requests: list[Request]
    provider_summaries: dict[str, Summary]


class AllocationRequests(msgspec.Struct):
    """The response without provider summaries. Most requests do not look at them."""

    allocation_requests: list[Candidate]


class ProviderSummaries(msgspec.Struct):
    """The provider summaries of the response, each of them undecoded."""

    provider_summaries: dict[str, msgspec.Raw]


# GET /allocations/{consumer_uuid}, GET /resource_providers/{uuid}/allocations


class ConsumerAllocations(msgspec.Struct):
    """The allocations of a consumer, by provider.

    The consumer generation came with 1.28. Placement leaves it out for a consumer
    without allocations.
    """

    allocations: dict[str, ProviderAllocation]
    consumer_generation: int | None = None

    @property
    def resources(self) -> Resources:
        held: dict[str, Mapping[str, int]] = {}
        for provider, allocation in self.allocations.items():
            held[provider] = allocation.resources
        return held

    @property
    def generation(self) -> int:
        """The generation of a consumer that Placement knows.

        After Placement has lost a provider of a claim, it keeps a consumer without
        allocations, in generation 0, and does not show it.
        """
        if self.allocations:
            return self.consumer_generation or 0
        return 0


class ProviderAllocations(msgspec.Struct):
    """The allocations of a provider, by consumer."""

    allocations: dict[str, ProviderAllocation]


# GET /resource_providers and what is below it


class ResourceProvider(msgspec.Struct, frozen=True):
    """A resource provider, and the root of its tree (1.14)."""

    uuid: str
    root_provider_uuid: str


class ResourceProviders(msgspec.Struct):
    """The response to GET /resource_providers."""

    resource_providers: list[ResourceProvider]


class ProviderAggregates(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/aggregates (1.1)."""

    aggregates: list[str]


class Inventory(msgspec.Struct):
    """The inventory of a resource class. Defaults are those of Placement."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1
    allocation_ratio: float = 1.0

    def has(self, amount: int, used: int) -> bool:
        """Tell whether one consumer can get an amount beside the amount in use."""
        fits = used + amount <= (self.total - self.reserved) * self.allocation_ratio
        is_unit = self.min_unit <= amount <= self.max_unit
        return fits and is_unit and amount % self.step_size == 0


class ProviderInventories(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/inventories."""

    inventories: dict[str, Inventory]


# Errors


class Error(msgspec.Struct):
    """An error. The code came with 1.23."""

    detail: str = ''
    code: str = ''


class Errors(msgspec.Struct):
    """The body of any response with a status of 400 or more."""

    errors: list[Error]
