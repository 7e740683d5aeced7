# SPDX-License-Identifier: Apache-2.0
"""A client of Neutron for prefilters: GETs of ports and subnets.

A segment of a routed network is a resource provider in Placement. The aggregates of the
provider are host aggregates of nova.
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
    """Implements :class:`novasched.scheduler.prefilters.Network`.

    :param http: an adapter with the credentials of ``[neutron]``.
    :param provider_aggregates: returns the aggregates of a resource provider in
        Placement, empty without the provider.
    """

    def __init__(
        self,
        http: adapter.Adapter,
        provider_aggregates: Callable[[str], frozenset[str]],
    ) -> None:
        self.http = http
        self.provider_aggregates = provider_aggregates

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """Return the ports by UUID, with a single GET."""
        fields = ('id', 'network_id', 'fixed_ips', 'binding:vnic_type')
        query = {'id': sorted(set(uuids)), 'fields': fields}
        ports = {}
        for port in self._get('ports', query, _Port):
            subnet_id = None
            if port.fixed_ips:
                subnet_id = port.fixed_ips[0].subnet_id
            ports[port.id] = Port(port.network_id, subnet_id, port.vnic_type)
        return ports

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        return self._aggregates(self._subnets({'network_id': [uuid]}))

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        subnets = self._subnets({'id': [uuid]})
        if not subnets:
            raise NetworkUnavailable(f'subnet {uuid} does not exist')
        return self._aggregates(subnets)

    def _subnets(self, filters: Mapping[str, Iterable[str]]) -> list[_Subnet]:
        """Return subnets; the segment_id needs the Neutron extension ``segment``."""
        return self._get('subnets', {**filters, 'fields': ['segment_id']}, _Subnet)

    def _aggregates(self, subnets: Iterable[_Subnet]) -> frozenset[str]:
        """Return the aggregates of all segments of the subnets.

        :raises NetworkUnavailable: a segment has no aggregate.
        """
        segments = {subnet.segment_id for subnet in subnets if subnet.segment_id}
        all_aggregates: frozenset[str] = frozenset()
        for segment in sorted(segments):
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
        """Get a list of resources.

        :raises NetworkUnavailable: Neutron does not answer, or with an error.
        """
        query = urlencode(parameters, doseq=True)
        try:
            # All failures become NetworkUnavailable below, also errors of HTTP.
            response = self.http.get(f'/v2.0/{resource}?{query}', raise_exc=False)
        except (ks_exc.ClientException, OSError) as error:
            # OSError: a file for TLS cannot be read.
            raise NetworkUnavailable(f'Neutron: {hide(error)}') from None
        if response.status_code != 200:
            raise NetworkUnavailable(
                f'Neutron answered GET {resource} with {response.status_code}'
            )

        try:
            answer = msgspec.json.decode(response.content, type=dict[str, msgspec.Raw])
            list_of_shape = list[shape]  # type: ignore[valid-type]
            return msgspec.json.decode(answer.get(resource, b''), type=list_of_shape)
        except (msgspec.DecodeError, RecursionError) as error:
            raise NetworkUnavailable(
                f'Neutron sent an invalid answer: {error}'
            ) from None


class UnusableNeutron:
    """Stands for Neutron if ``[neutron]`` cannot be used. Implements
    :class:`novasched.scheduler.prefilters.Network`; each method raises
    :exc:`NetworkUnavailable`.

    :param why: the defect of the section, for the operator.
    """

    def __init__(self, why: str) -> None:
        self.why = why

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        raise NetworkUnavailable(self.why)

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        raise NetworkUnavailable(self.why)

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        raise NetworkUnavailable(self.why)
