# SPDX-License-Identifier: Apache-2.0
"""Placement's JSON, in the parts that the scheduler reads.

Classes and fields have the names of the Placement API reference. Numbers in parentheses
are the microversions with which a response or a field came. Decoders skip unknown
fields. :class:`novasched.scheduler.model.candidate.Candidate` is an allocation request
with all parts of a claim.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.candidate import Candidate, ProviderAllocation

Resources = Mapping[str, Mapping[str, int]]
"""Amounts by resource provider UUID and resource class."""

Body = TypeVar('Body')
Request = TypeVar('Request')
Summary = TypeVar('Summary')


class UnusableAnswer(PlacementUnavailable):
    """For the operator: an answer of Placement has another format than the API
    reference says, or lacks a part. Also raised for an answer about hosts that share
    providers, from which no candidates can be worked out."""


def decode(text: bytes, kind: type[Body]) -> Body:
    """Decode the body of an answer, or a part of the body.

    :raises UnusableAnswer: the text has another format.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise UnusableAnswer(f'Placement sends what cannot be read: {error}') from None


# GET /allocation_candidates. The format with provider UUIDs as keys came with 1.12.


class AllocationRequest(msgspec.Struct):
    """The providers of an allocation request, without mappings."""

    allocations: dict[str, msgspec.Raw]


class ProviderSummaryResource(msgspec.Struct, frozen=True):
    """Capacity and usage of a resource class. The capacity is the total less the
    reserved amount, times the allocation ratio."""

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
    """The root of the tree of a provider (1.29)."""

    root_provider_uuid: str


class HostSummary(msgspec.Struct, frozen=True):
    """The summary of a compute node among thousands. Traits stay undecoded, since many
    hosts have the same."""

    resources: dict[str, ProviderSummaryResource]
    traits: msgspec.Raw
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class AllocationCandidates(msgspec.Struct, Generic[Request, Summary]):
    """The response, with the classes of the two parts."""

    allocation_requests: list[Request]
    provider_summaries: dict[str, Summary]


class AllocationRequests(msgspec.Struct):
    """The response without provider summaries."""

    allocation_requests: list[Candidate]


class HostSummaries(msgspec.Struct):
    """The response without allocation requests, and with decoded summaries."""

    provider_summaries: dict[str, HostSummary]


class ProviderSummaries(msgspec.Struct):
    """The response without allocation requests, and with undecoded summaries."""

    provider_summaries: dict[str, msgspec.Raw]


# GET /allocations/{consumer_uuid}, GET /resource_providers/{uuid}/allocations


class ConsumerAllocations(msgspec.Struct):
    """The allocations of a consumer, by provider.

    The response for a consumer without allocations has no generation (1.28).
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
        """The generation of the consumer.

        After Placement has lost the provider of a claim, the consumer remains without
        allocations, in generation 0. The response does not tell.
        """
        if self.allocations:
            return self.consumer_generation or 0
        return 0


class ProviderAllocations(msgspec.Struct):
    """The allocations of a provider, by consumer."""

    allocations: dict[str, ProviderAllocation]


# GET /resource_providers and what is below it


class ResourceProvider(msgspec.Struct, frozen=True):
    """A resource provider, its parent, and the root of the tree (1.14)."""

    uuid: str
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class ResourceProviders(msgspec.Struct):
    """The response to GET /resource_providers."""

    resource_providers: list[ResourceProvider]


class ProviderAggregates(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/aggregates (1.1)."""

    aggregates: list[str]


class Inventory(msgspec.Struct):
    """The inventory of a resource class, with Placement's defaults."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1
    allocation_ratio: float = 1.0

    def has(self, amount: int, used: int) -> bool:
        """True if a consumer can get an amount beside the amount in use."""
        fits = used + amount <= (self.total - self.reserved) * self.allocation_ratio
        is_unit = self.min_unit <= amount <= self.max_unit
        return fits and is_unit and amount % self.step_size == 0


class ProviderInventories(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/inventories."""

    inventories: dict[str, Inventory]


class ProviderUsages(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/usages."""

    usages: dict[str, int]


class ProviderTraits(msgspec.Struct):
    """The response to GET /resource_providers/{uuid}/traits (1.6)."""

    traits: list[str]


# Errors


class Error(msgspec.Struct):
    """An error. The code came with 1.23."""

    detail: str = ''
    code: str = ''


class Errors(msgspec.Struct):
    """The body of a response with a status of 400 or more."""

    errors: list[Error]
