# SPDX-License-Identifier: Apache-2.0
"""All prefilters, in the order in which they run.

nova keeps the functions of the same purpose in one module of this name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import os_traits

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NetworkUnavailable, NoValidHost
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Request, RequestedNetwork
from novasched.scheduler.prefilters import LOG, Network, Port, Prefilter, Sources
from novasched.scheduler.requirements.features import DEVICES

REMOTE_MANAGED = 'remote-managed'
TPM_SECRET_SECURITY = {
    'user': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,
    'host': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,
    'deployment': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT,
}
OWNER_NOVA_VERSION = 73
"""The service version of nova-compute (2026.2) from which on nova-compute sets the
trait OWNER_NOVA on its providers."""


class TenantAggregatePrefilter(Prefilter):
    """Restrict a request to the aggregates reserved for its project.

    An aggregate is reserved if the value of a metadata key with the prefix
    ``filter_tenant_id`` is the project. ``[scheduler]
    limit_tenants_to_placement_aggregate`` enables the prefilter. With
    ``placement_aggregate_required_for_tenants``, requests of projects without an
    aggregate are refused.
    """

    option = 'limit_tenants_to_placement_aggregate'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        project = request.project_id

        # As in nova, the value is one project. AggregateMultiTenancyIsolation, also as
        # in nova, takes a list of projects.
        def of_project(aggregates: AggregateList) -> Sequence[Aggregate]:
            return aggregates.reserved_for(project)

        uuids = self.matching_aggregates(of_project, basis)
        if uuids:
            return self.within_aggregates(request, uuids)
        if self.settings.placement_aggregate_required_for_tenants:
            LOG.warning('Tenant %s has no available aggregates', project)
            raise NoValidHost('Scheduling failed: No hosts available for tenant')
        return request


class AvailabilityZonePrefilter(Prefilter):
    """Restrict a request to the aggregates of its availability zone.

    A zone without aggregates does not restrict the request: the zone is the default
    zone, which consists of the hosts outside of all zones. ``[scheduler]
    query_placement_for_availability_zone`` of releases before Antelope (27) disables
    the prefilter.
    """

    option = 'query_placement_for_availability_zone'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        zone = request.availability_zone
        if not zone:
            return request

        def of_zone(aggregates: AggregateList) -> Sequence[Aggregate]:
            return aggregates.in_zone(zone)

        uuids = self.matching_aggregates(of_zone, basis)
        if uuids:
            return self.within_aggregates(request, uuids)
        return request


class ImageTypeSupportPrefilter(Prefilter):
    """Require the trait of the disk format of the image.

    A volume-backed instance has no such requirement, since nova-compute does not
    download the image. ``[scheduler] query_placement_for_image_type_support`` enables
    the prefilter.
    """

    option = 'query_placement_for_image_type_support'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        image = request.image
        if image is None or not image.disk_format or request.is_bfv:
            return request
        trait = f'COMPUTE_IMAGE_TYPE_{image.disk_format.upper()}'
        return self.with_computed_traits(request, trait)


class ComputeStatusPrefilter(Prefilter):
    """Forbid the trait COMPUTE_STATUS_DISABLED.

    nova-compute sets the trait on its providers while the service is disabled.
    """

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        return self.with_forbidden_traits(request, os_traits.COMPUTE_STATUS_DISABLED)


class IsolatedAggregatesPrefilter(Prefilter):
    """Keep requests off the aggregates reserved for traits.

    The metadata ``trait:<name> = required`` reserves an aggregate for requests that
    require the trait, on any provider, by flavor, image or port. ``[scheduler]
    enable_isolated_aggregate_filtering`` enables the prefilter.
    """

    option = 'enable_isolated_aggregate_filtering'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        traits: set[str] = set()
        for group in request.request_groups().values():
            traits |= group.required_traits

        def of_other_traits(aggregates: AggregateList) -> Sequence[Aggregate]:
            return aggregates.isolated_from(traits)

        uuids = self.matching_aggregates(of_other_traits, basis)
        if uuids:
            return self.outside_aggregates(request, uuids)
        return request


class ImageMetadataPrefilter(Prefilter):
    """Require the traits of the device models in the image properties.

    If os-traits lacks the trait of a model, no trait is required. ``[scheduler]
    image_metadata_prefilter`` enables the prefilter.
    """

    option = 'image_metadata_prefilter'
    keys = frozenset(DEVICES)

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        return self.with_computed_traits(request, *request.requirements.device_traits)


class AcceleratorsPrefilter(Prefilter):
    """Require the trait COMPUTE_ACCELERATORS for a flavor with a device profile of
    Cyborg."""

    keys = frozenset({'accel:device_profile'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if request.requirements.device_profile:
            return self.with_required_traits(request, os_traits.COMPUTE_ACCELERATORS)
        return request


class PackedVirtqueuePrefilter(Prefilter):
    """Require the trait COMPUTE_NET_VIRTIO_PACKED if flavor or image ask for packed
    virtqueues."""

    keys = frozenset({'hw:virtio_packed_ring', 'hw_virtio_packed_ring'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if not request.requirements.packed_virtqueue:
            return request
        return self.with_required_traits(request, os_traits.COMPUTE_NET_VIRTIO_PACKED)


def requested_ports(request: Request, network: Network) -> Mapping[str, Port]:
    """The requested ports by UUID. Neutron is not asked if the request has no ports.

    :raises NoValidHost: a port does not exist, or Neutron does not answer.
    """
    uuids = []
    for requested in request.requested_networks:
        if requested.port_id:
            uuids.append(requested.port_id)
    if not uuids:
        return {}

    try:
        ports = network.ports(uuids)
    except NetworkUnavailable as error:
        LOG.error('Failed to access ports: %s', error)
        raise NoValidHost(f'Failed to access ports {", ".join(uuids)}.') from error

    for uuid in uuids:
        if uuid not in ports:
            raise NoValidHost(f'Port {uuid} could not be found.')
    return ports


class RoutedNetworksPrefilter(Prefilter):
    """Restrict a request to the aggregates of the segments of its networks.

    A port with a fixed address is bound to the segment of the subnet. Ports without an
    address, and networks, may use all segments of the network. ``[scheduler]
    query_placement_for_routed_network_aggregates`` enables the prefilter.
    """

    option = 'query_placement_for_routed_network_aggregates'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        network = self.sources.network
        if network is None:
            return request

        # One restriction for each network: a host must reach all of the networks.
        ports = requested_ports(request, network)
        for requested in request.requested_networks:
            aggregates = _aggregates(requested, ports, network)
            if aggregates:
                request = self.within_aggregates(request, aggregates)
        return request


def _aggregates(
    requested: RequestedNetwork, ports: Mapping[str, Port], network: Network
) -> frozenset[str]:
    """The aggregates of the segments that can serve a requested network or port; empty
    if the network is not routed.

    :raises NoValidHost: Neutron does not answer, or contradicts Placement.
    """
    subnet_id = None
    network_id = requested.network_id
    if requested.port_id:
        port = ports[requested.port_id]
        subnet_id = port.subnet_id
        network_id = port.network_id

    if subnet_id:
        name = f'subnet {subnet_id}'
    else:
        name = f'network {network_id}'
    try:
        if subnet_id:
            return network.subnet_aggregates(subnet_id)
        if network_id:
            return network.network_aggregates(network_id)
        return frozenset()
    except NetworkUnavailable as error:
        LOG.error('Routed network: %s', error)
        why = f'Scheduling failed: Aggregates not found for the {name}'
        raise NoValidHost(why) from error


class RemoteManagedPortsPrefilter(Prefilter):
    """Require the trait COMPUTE_REMOTE_MANAGED_PORTS for a port with the VNIC type
    ``remote-managed``."""

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        network = self.sources.network
        if network is None:
            return request

        ports = requested_ports(request, network).values()
        if all(port.vnic_type != REMOTE_MANAGED for port in ports):
            return request
        trait = os_traits.COMPUTE_REMOTE_MANAGED_PORTS
        return self.with_required_traits(request, trait)


class EphemeralEncryptionPrefilter(Prefilter):
    """Require the trait of ephemeral encryption, and the trait of the encryption format
    if flavor or image name a format."""

    keys = frozenset({'hw:ephemeral_encryption', 'hw_ephemeral_encryption'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        traits = request.requirements.encryption_traits
        if traits:
            return self.with_required_traits(request, *traits)
        return request


class VirtioSoundPrefilter(Prefilter):
    """Require the trait of the virtio sound device if flavor or image choose the
    model."""

    keys = frozenset({'hw:sound_model', 'hw_sound_model'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        trait = request.requirements.sound_trait
        if trait:
            return self.with_required_traits(request, trait)
        return request


class TpmSecretSecurityPrefilter(Prefilter):
    """Require the trait of ``hw:tpm_secret_security``, by default ``user``, for an
    instance with an emulated TPM."""

    keys = frozenset({'hw:tpm_version', 'hw_tpm_version'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if not request.requirements.has_tpm:
            return request

        security = request.requirements.tpm_secret_security
        if security not in TPM_SECRET_SECURITY:
            why = f"TPM secret security '{security}' is not supported."
            LOG.warning('%s', why)
            raise NoValidHost(f'Scheduling failed: {why}')
        return self.with_required_traits(request, TPM_SECRET_SECURITY[security])


class OwnerNovaPrefilter(Prefilter):
    """Require the trait OWNER_NOVA on the providers of compute nodes and PCI devices.

    The prefilter starts once all nova-compute services of all cells set the trait.
    """

    def __init__(self, settings: Settings, sources: Sources) -> None:
        super().__init__(settings, sources)
        self._logged_version: int | None = None

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if os_traits.OWNER_NOVA in request.root_required:
            return request

        version = basis.minimum_version or 0
        if version < OWNER_NOVA_VERSION:
            # Logged once for a version: the warning applies to all requests.
            if version != self._logged_version:
                self._logged_version = version
                LOG.warning(
                    'OWNER_NOVA trait not added to scheduling requests: not all'
                    ' nova-compute services are upgraded (min_version=%d, need %d).',
                    version,
                    OWNER_NOVA_VERSION,
                )
            return request

        # Devices of a flavor alias. The devices of ports belong to Neutron.
        alias_requests = set()
        for pci_request in request.pci_requests:
            if pci_request.alias_name and pci_request.request_id:
                alias_requests.add(pci_request.request_id)

        groups = []
        for group in request.requested_resources:
            if _request_id(group) in alias_requests:
                traits = group.required_traits | {os_traits.OWNER_NOVA}
                group = replace(group, required_traits=traits)
            groups.append(group)

        request = replace(request, requested_resources=tuple(groups))
        return self.with_required_traits(request, os_traits.OWNER_NOVA)


def _request_id(group: RequestGroup) -> str | None:
    """The PCI request of a request group, ``None`` for other groups.

    nova names the group of a device ``<request_id>-<number>``.
    """
    if group.requester_id:
        return group.requester_id.rsplit('-', 1)[0]
    return None


PREFILTERS: tuple[type[Prefilter], ...] = (
    TenantAggregatePrefilter,
    AvailabilityZonePrefilter,
    ImageTypeSupportPrefilter,
    ComputeStatusPrefilter,
    IsolatedAggregatesPrefilter,
    ImageMetadataPrefilter,
    AcceleratorsPrefilter,
    PackedVirtqueuePrefilter,
    RoutedNetworksPrefilter,
    RemoteManagedPortsPrefilter,
    EphemeralEncryptionPrefilter,
    VirtioSoundPrefilter,
    TpmSecretSecurityPrefilter,
    OwnerNovaPrefilter,
)


def enabled_prefilters(settings: Settings, sources: Sources) -> list[Prefilter]:
    """The enabled prefilters, in order."""
    prefilters = []
    for prefilter in PREFILTERS:
        if not prefilter.option or getattr(settings, prefilter.option):
            prefilters.append(prefilter(settings, sources))
    return prefilters
