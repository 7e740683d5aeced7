# SPDX-License-Identifier: Apache-2.0
"""Neutron over HTTP, as far as prefilters ask it: GETs of ports and subnets.

The segments of a routed network are providers in Placement, and their aggregates there
are host aggregates of nova's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.errors import NetworkUnavailable
from novasched.prefilters import Port
from novasched.secrets import hide


class Providers(Protocol):
    """What is asked of Placement (``placement/client.py``)."""

    def aggregates(self, provider: str) -> frozenset[str]:
        """The aggregates of a provider; none also where there is no such provider."""


class _FixedIp(msgspec.Struct):
    subnet_id: str


class _Port(msgspec.Struct):
    id: str
    network_id: str
    fixed_ips: list[_FixedIp] = []
    vnic_type: str = msgspec.field(default='normal', name='binding:vnic_type')


class _Subnet(msgspec.Struct):
    segment_id: str | None = None


class _Ports(msgspec.Struct):
    ports: list[_Port]


class _Subnets(msgspec.Struct):
    subnets: list[_Subnet]


class Neutron:
    """Implements :class:`novasched.prefilters.Network` with the service's own credentials."""

    def __init__(self, http: adapter.Adapter, providers: Providers) -> None:
        self.http = http
        self.providers = providers

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """See :class:`novasched.prefilters.Network`; one GET for all of them."""
        fields = ('id', 'network_id', 'fixed_ips', 'binding:vnic_type')
        body = self._get('ports', {'id': sorted(set(uuids)), 'fields': fields})
        return {
            port.id: Port(
                network_id=port.network_id,
                subnet_id=port.fixed_ips[0].subnet_id if port.fixed_ips else None,
                vnic_type=port.vnic_type,
            )
            for port in _decoded(body, _Ports).ports
        }

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        """See :class:`novasched.prefilters.Network`."""
        return self._aggregates(self._subnets({'network_id': [uuid]}))

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        """See :class:`novasched.prefilters.Network`."""
        subnets = self._subnets({'id': [uuid]})
        if not subnets:
            raise NetworkUnavailable(f'there is no subnet {uuid}')
        return self._aggregates(subnets)

    def _subnets(self, wanted: Mapping[str, Iterable[str]]) -> list[_Subnet]:
        """Subnets; without Neutron's extension ``segment`` they have no segment_id."""
        body = self._get('subnets', {**wanted, 'fields': ['segment_id']})
        subnets: list[_Subnet] = _decoded(body, _Subnets).subnets
        return subnets

    def _aggregates(self, subnets: Iterable[_Subnet]) -> frozenset[str]:
        """The aggregates of all segments; a segment without any is set up wrongly."""
        found: frozenset[str] = frozenset()
        for segment in sorted({each.segment_id for each in subnets if each.segment_id}):
            aggregates = self.providers.aggregates(segment)
            if not aggregates:
                raise NetworkUnavailable(f'segment {segment} has no aggregate in Placement')
            found |= aggregates
        return found

    def _get(self, what: str, parameters: Mapping[str, Iterable[str]]) -> bytes:
        query = urlencode(parameters, doseq=True)
        try:
            response = self.http.get(f'/v2.0/{what}?{query}', raise_exc=False)
        except (ks_exc.ClientException, OSError) as error:  # the latter of the files of TLS
            raise NetworkUnavailable(f'Neutron: {hide(error)}') from None
        if response.status_code != 200:
            raise NetworkUnavailable(f'Neutron answers {response.status_code} for its {what}')
        return bytes(response.content)


def _decoded(body: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise NetworkUnavailable(f'Neutron sends what is not understood: {error}') from None
