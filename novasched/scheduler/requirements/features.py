# SPDX-License-Identifier: Apache-2.0
"""Hardware and hypervisor features of flavor and image, as traits and resources.

An extra spec ``hw:x`` and an image property ``hw_x`` choose the same feature, so the
two must not contradict each other.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import os_resource_classes as classes
import os_traits

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.values import is_true

Properties = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Feature:
    """A choice between values; ``traits`` has the trait of each value, or None.

    The choice is ignored if the condition ``when`` is given and does not hold. Without
    a choice of flavor and image, ``default`` applies.
    """

    name: str
    traits: Mapping[str, str | None]
    prefix: str = 'hw'
    when: Callable[[Flavor, Properties], bool] | None = None
    default: str | None = None
    empty_contradicts: bool = False
    """An empty extra spec chooses no value, but contradicts a choice of the image."""

    def value(self, flavor: Flavor, properties: Properties) -> str | None:
        """Return the choice of flavor or image, None without a choice.

        :raises NoValidHost: flavor and image contradict each other, or the chosen value
            does not exist.
        """
        if self.when is not None and not self.when(flavor, properties):
            return None

        full_name = f'{self.prefix}:{self.name}'
        of_flavor, of_image = flavor_and_image_values(
            flavor, properties, self.name, self.prefix
        )
        of_flavor = of_flavor and str(of_flavor)
        of_image = of_image and str(of_image)
        chooses = of_flavor or (self.empty_contradicts and of_flavor is not None)
        if of_image and chooses and of_flavor != of_image:
            raise _contradiction(full_name, of_flavor, of_image)

        value: str | None = of_flavor or of_image or self.default
        if value is not None and value not in self.traits:
            valid = ', '.join(self.traits)
            raise NoValidHost(f'{full_name} is {value}, not one of {valid}.')
        return value

    def trait(self, flavor: Flavor, properties: Properties) -> str | None:
        """Return the trait of the chosen value, None without a trait.

        :raises NoValidHost: see :meth:`value`.
        """
        value = self.value(flavor, properties)
        if value:
            return self.traits[value]
        return None


def flavor_and_image_values(
    flavor: Flavor, properties: Properties, name: str, prefix: str = 'hw'
) -> tuple[Any, Any]:
    """Return the values of extra spec and image property; None for a missing value."""
    of_flavor = flavor.extra_specs.get(f'{prefix}:{name}')
    of_image = properties.get(f'{prefix}_{name}')
    return of_flavor, of_image


def flag(flavor: Flavor, properties: Properties, name: str) -> bool:
    """Return True if flavor (``hw:``) or image (``hw_``) set the flag.

    :raises NoValidHost: flavor and image contradict each other.
    """
    of_flavor, of_image = flavor_and_image_values(flavor, properties, name)
    if of_flavor is None:
        return of_image is not None and is_true(of_image)

    answer = is_true(of_flavor)
    if of_image is not None and is_true(of_image) != answer:
        raise _contradiction(f'hw:{name}', answer, not answer)
    return answer


def _contradiction(name: str, of_flavor: object, of_image: object) -> NoValidHost:
    return NoValidHost(
        f'The flavor sets {name} to {of_flavor}, the image to {of_image}.'
    )


TPM_VERSION = Feature(
    'tpm_version',
    {
        '1.2': os_traits.COMPUTE_SECURITY_TPM_1_2,
        '2.0': os_traits.COMPUTE_SECURITY_TPM_2_0,
    },
)
MEM_ENCRYPTION = Feature(
    'mem_encryption_model',
    {
        'amd-sev': os_traits.HW_CPU_X86_AMD_SEV,
        'amd-sev-es': os_traits.HW_CPU_X86_AMD_SEV_ES,
        'amd-sev-snp': os_traits.HW_CPU_X86_AMD_SEV_SNP,
        'intel-tdx': os_traits.HW_CPU_X86_INTEL_TDX,
    },
    when=lambda flavor, properties: flag(flavor, properties, 'mem_encryption'),
    default='amd-sev',
    empty_contradicts=True,
)
ENCRYPTION_FORMAT = Feature(
    'ephemeral_encryption_format',
    {
        'plain': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
        'luks': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
        'luksv2': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2,
    },
)
SOUND_MODEL = Feature(
    'sound_model',
    {
        **dict.fromkeys(('sb16', 'es1370', 'pcspk', 'ac97', 'ich6', 'ich9', 'usb')),
        'virtio': os_traits.COMPUTE_SOUND_MODEL_VIRTIO,
    },
)
FEATURES = (
    TPM_VERSION,
    Feature(
        'tpm_model',
        {
            'tpm-tis': os_traits.COMPUTE_SECURITY_TPM_TIS,
            'tpm-crb': os_traits.COMPUTE_SECURITY_TPM_CRB,
        },
        when=lambda flavor, properties: (
            TPM_VERSION.value(flavor, properties) is not None
        ),
        default='tpm-tis',
    ),
    MEM_ENCRYPTION,
    Feature(
        'pci_numa_affinity_policy',
        {
            **dict.fromkeys(('required', 'legacy', 'preferred')),
            'socket': os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY,
        },
    ),
    Feature(
        'secure_boot',
        {
            'required': os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT,
            **dict.fromkeys(('disabled', 'optional')),
        },
        prefix='os',
    ),
    Feature(
        'maxphysaddr_mode',
        {
            'passthrough': os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH,
            'emulate': os_traits.COMPUTE_ADDRESS_SPACE_EMULATED,
        },
    ),
)
"""The features of every query; prefilters add sound model and encryption format."""

DEVICES = {
    'hw_architecture': 'HW_ARCH',
    'hw_cdrom_bus': 'COMPUTE_STORAGE_BUS',
    'hw_disk_bus': 'COMPUTE_STORAGE_BUS',
    'hw_emulation_architecture': 'COMPUTE_ARCH',
    'hw_vif_model': 'COMPUTE_NET_VIF_MODEL',
    'hw_video_model': 'COMPUTE_GRAPHICS_MODEL',
    'hw_viommu_model': 'COMPUTE_VIOMMU',
}
"""Prefix of the trait by image property, as in nova's ``transform_image_metadata``.

os-traits has other names for vIOMMU models, so the query asks for no such trait.
"""


def device_traits(properties: Properties) -> tuple[str, ...]:
    """Return the names of traits for the properties in :data:`DEVICES`.

    The names may not exist in os-traits.
    """
    traits = []
    for name, prefix in DEVICES.items():
        if name in properties:
            model = str(properties[name]).replace('-', '_').upper()
            traits.append(f'{prefix}_{model}')
    return tuple(traits)


def required_traits(flavor: Flavor, properties: Properties) -> frozenset[str]:
    """Return the traits of :data:`FEATURES` and of stateless firmware.

    :raises NoValidHost: flavor and image contradict each other, or a value does not
        exist.
    """
    traits = set()
    for feature in FEATURES:
        trait = feature.trait(flavor, properties)
        if trait:
            traits.add(trait)
    if _has_stateless_firmware(properties):
        traits.add(os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE)
    _check_encryption(MEM_ENCRYPTION.value(flavor, properties), properties)
    if traits >= {
        os_traits.COMPUTE_SECURITY_TPM_CRB,
        os_traits.COMPUTE_SECURITY_TPM_1_2,
    }:
        raise NoValidHost('TPM model CRB is only valid with TPM version 2.0.')
    return frozenset(traits)


def resources(flavor: Flavor, properties: Properties) -> dict[str, int]:
    """Return amounts by resource class for persistent memory and memory encryption.

    Each label of ``hw:pmem`` is a namespace of persistent memory.

    :raises NoValidHost: flavor and image contradict each other.
    """
    amounts: Counter[str] = Counter()
    for label in flavor.extra_specs.get('hw:pmem', '').split(','):
        if label.strip():
            amounts[classes.normalize_name(f'PMEM_NAMESPACE_{label.strip()}')] += 1
    if flag(flavor, properties, 'mem_encryption'):
        amounts[classes.MEM_ENCRYPTION_CONTEXT] = 1
    return dict(amounts)


def _check_encryption(model: str | None, properties: Properties) -> None:
    """Check the image of an instance with encrypted memory.

    Encrypted memory needs UEFI and the machine type q35. amd-sev-snp and intel-tdx need
    stateless firmware, intel-tdx also an instance without a video device.

    :raises NoValidHost: a property of the image does not fit.
    """
    if model is None:
        return

    missing = []
    if properties.get('hw_firmware_type') != 'uefi':
        missing.append('hw_firmware_type=uefi')
    # nova-compute checks the default machine type of the host.
    machine = properties.get('hw_machine_type')
    if machine is not None and 'q35' not in str(machine):
        missing.append('hw_machine_type=q35')
    if model not in ('amd-sev', 'amd-sev-es') and not _has_stateless_firmware(
        properties
    ):
        missing.append('hw_firmware_stateless=true')
    if model == 'intel-tdx' and properties.get('hw_video_model') != 'none':
        missing.append('hw_video_model=none')

    if missing:
        raise NoValidHost(
            f'Memory encryption {model} needs an image with {", ".join(missing)}.'
        )


def _has_stateless_firmware(properties: Properties) -> bool:
    """Return True for stateless UEFI firmware, which only an image can request."""
    return properties.get('hw_firmware_type') == 'uefi' and is_true(
        properties.get('hw_firmware_stateless')
    )
