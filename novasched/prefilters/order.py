# SPDX-License-Identifier: Apache-2.0
"""All prefilters."""

from __future__ import annotations

from novasched.prefilters.accelerators import AcceleratorsPrefilter
from novasched.prefilters.availability_zone import AvailabilityZonePrefilter
from novasched.prefilters.compute_status import ComputeStatusPrefilter
from novasched.prefilters.ephemeral_encryption import EphemeralEncryptionPrefilter
from novasched.prefilters.image_metadata import ImageMetadataPrefilter
from novasched.prefilters.image_type_support import ImageTypeSupportPrefilter
from novasched.prefilters.isolated_aggregates import IsolatedAggregatesPrefilter
from novasched.prefilters.owner_nova import OwnerNovaPrefilter
from novasched.prefilters.packed_virtqueue import PackedVirtqueuePrefilter
from novasched.prefilters.remote_managed_ports import RemoteManagedPortsPrefilter
from novasched.prefilters.routed_networks import RoutedNetworksPrefilter
from novasched.prefilters.tenant_aggregate import TenantAggregatePrefilter
from novasched.prefilters.tpm_secret_security import TpmSecretSecurityPrefilter
from novasched.prefilters.virtio_sound import VirtioSoundPrefilter

PREFILTERS = (
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
"""In the order in which they run."""
