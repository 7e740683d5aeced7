# SPDX-License-Identifier: Apache-2.0
"""Placement's API as a nova-compute uses it, and as somebody who checks its books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import os_traits
import requests

from novasched.errors import NovaschedError
from novasched.sandbox.computes import zone_uuid
from novasched.sandbox.machines import Machine

MICROVERSION = '1.36'
TIMEOUT = 60  # seconds

Amounts = Mapping[str, int]
"""Resource class to amount."""


class PlacementRefused(NovaschedError):
    """For whoever runs the sandbox: Placement does not do what it is asked."""


class Providers:
    """One connection to Placement."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._http = requests.Session()
        # A proxy of the environment has no business on loopback.
        self._http.trust_env = False
        self._http.headers.update(
            {'X-Auth-Token': token, 'OpenStack-API-Version': f'placement {MICROVERSION}'}
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def register(self, machine: Machine) -> None:
        """Make a machine's provider, with its inventories and nova's mark, in its zone's
        aggregate."""
        made = self.call('POST', '/resource_providers', uuid=machine.uuid, name=machine.name)
        path = f'/resource_providers/{machine.uuid}'
        answer = self.call(
            'PUT',
            f'{path}/inventories',
            resource_provider_generation=made['generation'],
            inventories=machine.inventories,
        )
        if machine.zone:
            self.call(
                'PUT',
                f'{path}/aggregates',
                resource_provider_generation=answer['resource_provider_generation'],
                aggregates=[zone_uuid(machine.zone)],
            )
        self.set_traits(machine.uuid, [os_traits.OWNER_NOVA])

    def set_traits(self, provider: str, traits: Sequence[str]) -> None:
        """Give a provider these traits, and no others."""
        path = f'/resource_providers/{provider}/traits'
        generation = self.call('GET', path)['resource_provider_generation']
        self.call('PUT', path, resource_provider_generation=generation, traits=list(traits))

    def disable(self, provider: str) -> None:
        """What a nova-compute does when its service is disabled."""
        self.set_traits(provider, [os_traits.OWNER_NOVA, os_traits.COMPUTE_STATUS_DISABLED])

    def allocations(self, consumer: str) -> dict[str, Amounts]:
        """What a consumer has, by provider; empty for one that has nothing."""
        held = self.call('GET', f'/allocations/{consumer}')['allocations']
        return {provider: each['resources'] for provider, each in held.items()}

    def delete_allocations(self, consumer: str) -> None:
        """Take away all that a consumer has."""
        self.call('DELETE', f'/allocations/{consumer}')

    def usages(self, provider: str) -> Amounts:
        """What is taken from a provider, of each class in its inventory."""
        usages: Amounts = self.call('GET', f'/resource_providers/{provider}/usages')['usages']
        return usages

    def call(self, method: str, path: str, **body: Any) -> Any:
        """One request; the answer is its JSON, None for an empty one.

        :raises PlacementRefused: Placement cannot be reached or answers with an error
        """
        try:
            response = self._http.request(
                method, self._url + path, json=body or None, timeout=TIMEOUT
            )
        except requests.RequestException as error:
            raise PlacementRefused(f'{method} {path}: {error}') from None
        if not response.ok:
            raise PlacementRefused(f'{method} {path}: {response.status_code} {response.text}')
        return response.json() if response.content else None
