# SPDX-License-Identifier: Apache-2.0
"""All prefilters, in the order in which they run. nova has its own in one file of this
name."""

from collections.abc import Mapping
from dataclasses import replace

import os_traits

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NetworkUnavailable, NoValidHost
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import AVAILABILITY_ZONE
from novasched.scheduler.model.request import Request, RequestedNetwork
from novasched.scheduler.prefilters import LOG, Network, Port, Prefilter, Sources
from novasched.scheduler.requirements.features import DEVICES

TENANT_KEY = 'filter_tenant_id'
TRAIT_KEY = 'trait:'
REMOTE_MANAGED = 'remote-managed'
TPM_SECRET_SECURITY = {
    'user': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,
    'host': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,
    'deployment': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT,
}
OWNER_NOVA_VERSION = 73
"""The version of nova-compute (2026.2) that marks its providers."""


class TenantAggregatePrefilter(Prefilter):
    """Ask only for hosts in the aggregates that name the request's project.

    The name is the whole value of a metadata key that begins with ``filter_tenant_id``.
    ``[scheduler] limit_tenants_to_placement_aggregate`` switches the rule on;
    ``placement_aggregate_required_for_tenants`` refuses projects that have none.
    """

    option = 'limit_tenants_to_placement_aggregate'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        project = request.project_id
        uuids = self.aggregates_with(
            lambda key, value: key.startswith(TENANT_KEY) and value == project, basis
        )
        if uuids:
            return self.within(request, uuids)
        if self.settings.placement_aggregate_required_for_tenants:
            LOG.warning('Tenant %s has no available aggregates', project)
            raise NoValidHost('Scheduling failed: No hosts available for tenant')
        return request


class AvailabilityZonePrefilter(Prefilter):
    """Ask only for providers in the zone's aggregates.

    A zone that no aggregate bears is left alone: it is the default zone, whose hosts
    are those that are in no other. ``[scheduler]
    query_placement_for_availability_zone`` of older releases switches the rule off.
    """

    option = 'query_placement_for_availability_zone'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        zone = request.availability_zone
        if not zone:
            return request
        uuids = self.aggregates_with(
            lambda *pair: pair == (AVAILABILITY_ZONE, zone), basis
        )
        if uuids:
            return self.within(request, uuids)
        return request


class ImageTypeSupportPrefilter(Prefilter):
    """Require the trait of the image's disk format, unless the instance has a root
    volume.

    ``[scheduler] query_placement_for_image_type_support`` switches the rule on.
    """

    option = 'query_placement_for_image_type_support'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        disk_format = request.image.disk_format if request.image else None
        if not disk_format or request.is_bfv:
            return request
        return self.requiring_known(
            request, f'COMPUTE_IMAGE_TYPE_{disk_format.upper()}'
        )


class ComputeStatusPrefilter(Prefilter):
    """Forbid the trait that nova-compute sets on the provider of a disabled service."""

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        return self.forbidding(request, os_traits.COMPUTE_STATUS_DISABLED)


class IsolatedAggregatesPrefilter(Prefilter):
    """Forbid the aggregates whose metadata requires a trait that the request does not.

    Such metadata is ``trait:<name>`` = ``required``. The traits of the request are
    those that flavor, image and ports require of any provider. ``[scheduler]
    enable_isolated_aggregate_filtering`` switches the rule on.
    """

    option = 'enable_isolated_aggregate_filtering'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        groups = request.request_groups().values()
        keys = {
            TRAIT_KEY + trait for group in groups for trait in group.required_traits
        }
        uuids = self.aggregates_with(
            lambda key, value: (
                key.startswith(TRAIT_KEY) and value == 'required' and key not in keys
            ),
            basis,
        )
        if uuids:
            return self.outside(request, uuids)
        return request


class ImageMetadataPrefilter(Prefilter):
    """Require a trait for each device that the image names; none if one has no trait.

    ``[scheduler] image_metadata_prefilter`` switches the rule on.
    """

    option = 'image_metadata_prefilter'
    keys = frozenset(DEVICES)

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        return self.requiring_known(request, *request.requirements.device_traits)


class AcceleratorsPrefilter(Prefilter):
    """Require the trait where the flavor has a device profile
    (``accel:device_profile``)."""

    keys = frozenset({'accel:device_profile'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        asked = request.requirements.device_profile
        if asked:
            return self.requiring(request, os_traits.COMPUTE_ACCELERATORS)
        return request


class PackedVirtqueuePrefilter(Prefilter):
    """Require the trait where flavor or image ask for it (``virtio_packed_ring``)."""

    keys = frozenset({'hw:virtio_packed_ring', 'hw_virtio_packed_ring'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        asked = request.requirements.packed_virtqueue
        if asked:
            return self.requiring(request, os_traits.COMPUTE_NET_VIRTIO_PACKED)
        return request


def requested_ports(request: Request, network: Network) -> Mapping[str, Port]:
    """The ports that the request names, by UUID; Neutron is asked only if there are
    any.

    :raises NoValidHost: one does not exist, or Neutron does not answer.
    """
    uuids = [x.port_id for x in request.requested_networks if x.port_id]
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
    """Ask only for hosts in the aggregates of a segment of each network.

    A port with an address is bound to its subnet's segment; other ports, and networks,
    may be served by any segment of theirs.
    ``[scheduler] query_placement_for_routed_network_aggregates`` switches the rule on.
    """

    option = 'query_placement_for_routed_network_aggregates'

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        network = self.sources.network
        if network is None:
            return request
        ports = requested_ports(request, network)
        for requested in request.requested_networks:
            aggregates = _aggregates(requested, ports, network)
            if aggregates:
                request = self.within(request, aggregates)
        return request


def _aggregates(
    requested: RequestedNetwork, ports: Mapping[str, Port], network: Network
) -> frozenset[str]:
    port = ports[requested.port_id] if requested.port_id else None
    subnet_id = port.subnet_id if port else None
    network_id = port.network_id if port else requested.network_id
    try:
        if subnet_id:
            return network.subnet_aggregates(subnet_id)
        if network_id:
            return network.network_aggregates(network_id)
        return frozenset()
    except NetworkUnavailable as error:
        LOG.error('Routed network: %s', error)
        name = f'subnet {subnet_id}' if subnet_id else f'network {network_id}'
        raise NoValidHost(
            f'Scheduling failed: Aggregates not found for the {name}'
        ) from error


class RemoteManagedPortsPrefilter(Prefilter):
    """Require the trait where a requested port has the VNIC type ``remote-managed``."""

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        network = self.sources.network
        if network is None:
            return request
        ports = requested_ports(request, network).values()
        if all(port.vnic_type != REMOTE_MANAGED for port in ports):
            return request
        return self.requiring(request, os_traits.COMPUTE_REMOTE_MANAGED_PORTS)


class EphemeralEncryptionPrefilter(Prefilter):
    """Require the traits of encryption, and of its format if flavor or image name
    one."""

    keys = frozenset({'hw:ephemeral_encryption', 'hw_ephemeral_encryption'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        traits = request.requirements.encryption_traits
        if traits:
            return self.requiring(request, *traits)
        return request


class VirtioSoundPrefilter(Prefilter):
    """Require the trait where flavor or image choose that device (``sound_model``)."""

    keys = frozenset({'hw:sound_model', 'hw_sound_model'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        trait = request.requirements.sound_trait
        if trait:
            return self.requiring(request, trait)
        return request


class TpmSecretSecurityPrefilter(Prefilter):
    """Require the trait of ``hw:tpm_secret_security``, by default ``user``, for an
    instance with a TPM."""

    keys = frozenset({'hw:tpm_version', 'hw_tpm_version'})

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if not request.requirements.has_tpm:
            return request
        security = request.requirements.tpm_secret_security
        if security not in TPM_SECRET_SECURITY:
            why = f"TPM secret security '{security}' is not supported."
            LOG.warning('%s', why)
            raise NoValidHost(f'Scheduling failed: {why}')
        return self.requiring(request, TPM_SECRET_SECURITY[security])


class OwnerNovaPrefilter(Prefilter):
    """Require nova's mark on the host's own provider and on those of PCI devices, once
    every nova-compute of every cell sets it."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        super().__init__(settings, sources)
        self._logged: int | None = None

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        if os_traits.OWNER_NOVA in request.root_required:
            return request
        version = basis.minimum_version or 0
        if version < OWNER_NOVA_VERSION:
            if version != self._logged:  # it holds for every request of an older cloud
                self._logged = version
                LOG.warning(
                    'OWNER_NOVA trait not added to scheduling requests: not all'
                    ' nova-compute services are upgraded (min_version=%d, need %d).',
                    version,
                    OWNER_NOVA_VERSION,
                )
            return request
        of_devices = {
            x.request_id for x in request.pci_requests if x.alias_name and x.request_id
        }
        groups = tuple(
            (
                replace(
                    group,
                    required_traits=group.required_traits | {os_traits.OWNER_NOVA},
                )
                if _request_id(group) in of_devices
                else group
            )
            for group in request.requested_resources
        )
        return self.requiring(
            replace(request, requested_resources=groups), os_traits.OWNER_NOVA
        )


def _request_id(group: RequestGroup) -> str | None:
    """The PCI request that a group was made for: its name without the device's
    number."""
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
    """The prefilters that no option switches off, in order."""
    kinds = [
        kind for kind in PREFILTERS if not kind.option or getattr(settings, kind.option)
    ]
    return [kind(settings, sources) for kind in kinds]
