# SPDX-License-Identifier: Apache-2.0
"""Neutron over HTTP, as far as prefilters ask it: GETs of ports and subnets.

Segments of a routed network are providers in Placement; their aggregates are nova's.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.conf.redaction import hide
from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.prefilters import Port

Item = TypeVar('Item')


class _FixedIp(msgspec.Struct):
    subnet_id: str


class _Port(msgspec.Struct):
    id: str
    network_id: str
    fixed_ips: list[_FixedIp] = []
    vnic_type: str = msgspec.field(default='normal', name='binding:vnic_type')


class _Subnet(msgspec.Struct):
    segment_id: str | None = None


class Neutron:
    """Implements :class:`novasched.scheduler.prefilters.Network` with the service's own
    credentials.

    :param provider_aggregates: Placement's aggregates of a provider; none if there is
        no provider.
    """

    def __init__(
        self,
        http: adapter.Adapter,
        provider_aggregates: Callable[[str], frozenset[str]],
    ) -> None:
        self.http = http
        self.provider_aggregates = provider_aggregates

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """All of them by one GET."""
        fields = ('id', 'network_id', 'fixed_ips', 'binding:vnic_type')
        found = self._get('ports', {'id': sorted(set(uuids)), 'fields': fields}, _Port)
        return {
            port.id: Port(
                network_id=port.network_id,
                subnet_id=port.fixed_ips[0].subnet_id if port.fixed_ips else None,
                vnic_type=port.vnic_type,
            )
            for port in found
        }

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        return self._aggregates(self._subnets({'network_id': [uuid]}))

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        subnets = self._subnets({'id': [uuid]})
        if not subnets:
            raise NetworkUnavailable(f'there is no subnet {uuid}')
        return self._aggregates(subnets)

    def _subnets(self, filters: Mapping[str, Iterable[str]]) -> list[_Subnet]:
        """Subnets; without Neutron's extension ``segment`` they have no segment_id."""
        return self._get('subnets', {**filters, 'fields': ['segment_id']}, _Subnet)

    def _aggregates(self, subnets: Iterable[_Subnet]) -> frozenset[str]:
        """The aggregates of all segments; a segment without any is set up wrongly."""
        all_aggregates: frozenset[str] = frozenset()
        for segment in sorted({x.segment_id for x in subnets if x.segment_id}):
            aggregates = self.provider_aggregates(segment)
            if not aggregates:
                raise NetworkUnavailable(
                    f'segment {segment} has no aggregate in Placement'
                )
            all_aggregates |= aggregates
        return all_aggregates

    def _get(
        self, resource: str, parameters: Mapping[str, Iterable[str]], shape: type[Item]
    ) -> list[Item]:
        query = urlencode(parameters, doseq=True)
        try:
            response = self.http.get(f'/v2.0/{resource}?{query}', raise_exc=False)
        except (
            ks_exc.ClientException,
            OSError,
        ) as error:  # the latter of the files of TLS
            raise NetworkUnavailable(f'Neutron: {hide(error)}') from None
        if response.status_code != 200:
            raise NetworkUnavailable(
                f'Neutron answers {response.status_code} for its {resource}'
            )
        try:
            answer = msgspec.json.decode(response.content, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(answer.get(resource, b''), type=list[shape])  # type: ignore[valid-type]
        except msgspec.DecodeError as error:
            raise NetworkUnavailable(
                f'Neutron sends what is not understood: {error}'
            ) from None
