# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.flavor import Image
from novasched.scheduler.prefilters.request_filter import (
    AcceleratorsPrefilter,
    EphemeralEncryptionPrefilter,
    ImageMetadataPrefilter,
    ImageTypeSupportPrefilter,
    PackedVirtqueuePrefilter,
    TpmSecretSecurityPrefilter,
    VirtioSoundPrefilter,
)
from tests.lab.builders import a_request
from tests.lab.prefilter_sources import sources

TPM = {'hw:tpm_version': '2.0'}
ENCRYPTED = 'COMPUTE_EPHEMERAL_ENCRYPTION'
TRAITS = [
    (AcceleratorsPrefilter, {'accel:device_profile': ''}, {}, set()),
    (
        AcceleratorsPrefilter,
        {'accel:device_profile': 'gpu'},
        {},
        {'COMPUTE_ACCELERATORS'},
    ),
    (
        PackedVirtqueuePrefilter,
        {'hw:virtio_packed_ring': 'true'},
        {},
        {'COMPUTE_NET_VIRTIO_PACKED'},
    ),
    (
        PackedVirtqueuePrefilter,
        {},
        {'hw_virtio_packed_ring': True},
        {'COMPUTE_NET_VIRTIO_PACKED'},
    ),
    (
        PackedVirtqueuePrefilter,
        {'hw:virtio_packed_ring': 'no'},
        {'hw_virtio_packed_ring': False},
        set(),
    ),
    (
        EphemeralEncryptionPrefilter,
        {},
        {'hw_ephemeral_encryption_format': 'luks'},
        set(),
    ),
    (EphemeralEncryptionPrefilter, {}, {'hw_ephemeral_encryption': True}, {ENCRYPTED}),
    (
        EphemeralEncryptionPrefilter,
        {'hw:ephemeral_encryption': 'yes'},
        {'hw_ephemeral_encryption_format': 'luks'},
        {ENCRYPTED, f'{ENCRYPTED}_LUKS'},
    ),
    (
        EphemeralEncryptionPrefilter,
        {'hw:ephemeral_encryption': 'yes', 'hw:ephemeral_encryption_format': 'plain'},
        {'hw_ephemeral_encryption_format': 'plain'},
        {ENCRYPTED, f'{ENCRYPTED}_PLAIN'},
    ),
    (
        VirtioSoundPrefilter,
        {'hw:sound_model': 'virtio'},
        {},
        {'COMPUTE_SOUND_MODEL_VIRTIO'},
    ),
    (
        VirtioSoundPrefilter,
        {},
        {'hw_sound_model': 'virtio'},
        {'COMPUTE_SOUND_MODEL_VIRTIO'},
    ),
    (VirtioSoundPrefilter, {}, {'hw_sound_model': 'ich9'}, set()),
    (TpmSecretSecurityPrefilter, {'hw:tpm_secret_security': 'host'}, {}, set()),
    (
        TpmSecretSecurityPrefilter,
        TPM,
        {},
        {'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER'},
    ),
    (
        TpmSecretSecurityPrefilter,
        {},
        {'hw_tpm_version': '1.2'},
        {'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER'},
    ),
    (
        TpmSecretSecurityPrefilter,
        {**TPM, 'hw:tpm_secret_security': 'host'},
        {},
        {'COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST'},
    ),
    (
        TpmSecretSecurityPrefilter,
        {**TPM, 'hw:tpm_secret_security': 'deployment'},
        {},
        {'COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT'},
    ),
    (
        ImageMetadataPrefilter,
        {},
        {'hw_disk_bus': 'virtio', 'hw_cdrom_bus': 'ide', 'os_type': 'linux'},
        {'COMPUTE_STORAGE_BUS_VIRTIO', 'COMPUTE_STORAGE_BUS_IDE'},
    ),
    (
        ImageMetadataPrefilter,
        {},
        {'hw_vif_model': 'e1000e', 'hw_video_model': 'qxl'},
        {'COMPUTE_NET_VIF_MODEL_E1000E', 'COMPUTE_GRAPHICS_MODEL_QXL'},
    ),
    (
        ImageMetadataPrefilter,
        {},
        {'hw_architecture': 'aarch64', 'hw_emulation_architecture': 'x86_64'},
        {'HW_ARCH_AARCH64', 'COMPUTE_ARCH_X86_64'},
    ),
    # An unknown device model: no trait is required, not even of the known model.
    (
        ImageMetadataPrefilter,
        {},
        {'hw_viommu_model': 'intel', 'hw_disk_bus': 'virtio'},
        set(),
    ),
    (
        ImageMetadataPrefilter,
        {},
        {'hw_disk_bus': 'virtio', 'hw_vif_model': 'no-such-model'},
        set(),
    ),
]


@pytest.mark.parametrize(('prefilter', 'specs', 'image', 'traits'), TRAITS)
def test_flavor_and_image_require_traits_of_the_compute_node(
    prefilter, specs, image, traits
):
    """The traits of flavor and image are required of the compute node's provider, in
    addition to earlier requirements. A volume-backed instance may have no image."""
    assert not traits or prefilter.keys & {*specs, *image}
    request = a_request(extra_specs=specs, image=image, root_required=frozenset({'X'}))
    assert prefilter(Settings(), sources())(request).root_required == {'X', *traits}
    assert prefilter(Settings(), sources())(a_request()) == a_request()


@pytest.mark.parametrize(
    ('prefilter', 'specs', 'image', 'why'),
    [
        (
            PackedVirtqueuePrefilter,
            {'hw:virtio_packed_ring': 'true'},
            {'hw_virtio_packed_ring': False},
            'The flavor sets hw:virtio_packed_ring to True, the image to False.',
        ),
        (
            EphemeralEncryptionPrefilter,
            {'hw:ephemeral_encryption': 'no'},
            {'hw_ephemeral_encryption': True},
            'The flavor sets hw:ephemeral_encryption to False, the image to True.',
        ),
        (
            EphemeralEncryptionPrefilter,
            {'hw:ephemeral_encryption': '1', 'hw:ephemeral_encryption_format': 'zip'},
            {},
            'hw:ephemeral_encryption_format is zip, not one of plain, luks, luksv2.',
        ),
        (
            VirtioSoundPrefilter,
            {'hw:sound_model': 'virtio'},
            {'hw_sound_model': 'usb'},
            'The flavor sets hw:sound_model to virtio, the image to usb.',
        ),
        (
            TpmSecretSecurityPrefilter,
            {**TPM, 'hw:tpm_secret_security': 'none'},
            {},
            "Scheduling failed: TPM secret security 'none' is not supported.",
        ),
    ],
)
def test_contradictory_or_invalid_flavor_values_are_refused(
    prefilter, specs, image, why
):
    """A flavor that contradicts the image, or has an invalid value, is refused."""
    with pytest.raises(NoValidHost) as caught:
        prefilter(Settings(), sources())(a_request(extra_specs=specs, image=image))
    assert caught.value.reason == why


@pytest.mark.parametrize(
    ('disk_format', 'is_bfv', 'traits'),
    [
        ('qcow2', False, {'COMPUTE_IMAGE_TYPE_QCOW2'}),
        ('qcow2', True, set()),
        (None, False, set()),
        ('cow3', False, set()),
    ],
)
def test_a_host_must_support_the_disk_format_of_the_image(
    disk_format, is_bfv, traits, caplog
):
    """A host must support the disk format of the image, unless the root disk is a
    volume or os-traits lacks the format."""
    request = replace(a_request(is_bfv=is_bfv), image=Image(disk_format=disk_format))
    after = ImageTypeSupportPrefilter(Settings(), sources())(request)
    assert after.root_required == traits
    is_logged = "'COMPUTE_IMAGE_TYPE_COW3' is not valid" in caplog.text
    assert is_logged == (disk_format == 'cow3')
