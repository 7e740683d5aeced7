# SPDX-License-Identifier: Apache-2.0
"""Features of hardware and hypervisor that flavor or image choose, as traits and
resources.

An extra spec ``hw:x`` and an image property ``hw_x`` mean the same, so they must not
contradict each other.
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
    """A choice between values, each of which may need a trait.

    Where ``when`` holds and nothing is chosen, the default counts; where it does not
    hold, the choice does not matter.
    """

    name: str
    traits: Mapping[str, str | None]
    prefix: str = 'hw'
    when: Callable[[Flavor, Properties], bool] | None = None
    default: str | None = None
    empty_contradicts: bool = False
    """An extra spec that is empty chooses nothing, yet contradicts an image that
    chooses."""

    def value(self, flavor: Flavor, properties: Properties) -> str | None:
        """The choice of flavor or image.

        :raises NoValidHost: they contradict each other, or choose what does not exist.
        """
        if self.when is not None and not self.when(flavor, properties):
            return None
        of_flavor, of_image = choices(flavor, properties, self.name, self.prefix)
        of_flavor = of_flavor and str(of_flavor)
        of_image = of_image and str(of_image)
        chooses = of_flavor or (self.empty_contradicts and of_flavor is not None)
        if of_image and chooses and of_flavor != of_image:
            raise _contradiction(f'{self.prefix}:{self.name}', of_flavor, of_image)
        chosen: str | None = of_flavor or of_image or self.default
        if chosen is not None and chosen not in self.traits:
            valid = ', '.join(self.traits)
            raise NoValidHost(
                f'{self.prefix}:{self.name} is {chosen}, not one of {valid}.'
            )
        return chosen

    def trait(self, flavor: Flavor, properties: Properties) -> str | None:
        """The trait of that choice, if it needs one.

        :raises NoValidHost: see :meth:`value`.
        """
        chosen = self.value(flavor, properties)
        if chosen:
            return self.traits[chosen]
        return None


def choices(
    flavor: Flavor, properties: Properties, name: str, prefix: str = 'hw'
) -> tuple[Any, Any]:
    """The values of the extra spec and of the image property, None where one is
    missing."""
    return flavor.extra_specs.get(f'{prefix}:{name}'), properties.get(
        f'{prefix}_{name}'
    )


def flag(flavor: Flavor, properties: Properties, name: str) -> bool:
    """True if flavor (``hw:``) or image (``hw_``) say yes.

    :raises NoValidHost: one says yes and the other says no.
    """
    of_flavor, of_image = choices(flavor, properties, name)
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
"""The features that the query asks for; prefilters ask for the others."""

DEVICES = {
    'hw_architecture': 'HW_ARCH',
    'hw_cdrom_bus': 'COMPUTE_STORAGE_BUS',
    'hw_disk_bus': 'COMPUTE_STORAGE_BUS',
    'hw_emulation_architecture': 'COMPUTE_ARCH',
    'hw_vif_model': 'COMPUTE_NET_VIF_MODEL',
    'hw_video_model': 'COMPUTE_GRAPHICS_MODEL',
    'hw_viommu_model': 'COMPUTE_VIOMMU',
}
"""Image property to the prefix of a trait, as in nova's ``transform_image_metadata``.
os-traits has other names for vIOMMU models, so that such an image is asked nothing of
its host."""


def device_traits(properties: Properties) -> tuple[str, ...]:
    """The name of a trait for each of those properties, be there such a trait or
    not."""
    return tuple(
        f'{prefix}_{str(properties[name]).replace("-", "_").upper()}'
        for name, prefix in DEVICES.items()
        if name in properties
    )


def required_traits(flavor: Flavor, properties: Properties) -> frozenset[str]:
    """The traits that those features need.

    :raises NoValidHost: flavor and image contradict each other, or name what does not
        exist.
    """
    traits = {feature.trait(flavor, properties) for feature in FEATURES} - {None}
    if _has_stateless_firmware(properties):
        traits.add(os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE)
    _check_encryption(MEM_ENCRYPTION.value(flavor, properties), properties)
    if traits >= {
        os_traits.COMPUTE_SECURITY_TPM_CRB,
        os_traits.COMPUTE_SECURITY_TPM_1_2,
    }:
        raise NoValidHost('TPM model CRB is only valid with TPM version 2.0.')
    return frozenset(filter(None, traits))


def resources(flavor: Flavor, properties: Properties) -> dict[str, int]:
    """Amounts by resource class; each label of ``hw:pmem`` is one namespace of
    persistent memory.

    :raises NoValidHost: flavor and image contradict each other.
    """
    labels = flavor.extra_specs.get('hw:pmem', '').split(',')
    amounts = Counter(
        classes.normalize_name(f'PMEM_NAMESPACE_{label.strip()}')
        for label in labels
        if label.strip()
    )
    if flag(flavor, properties, 'mem_encryption'):
        amounts[classes.MEM_ENCRYPTION_CONTEXT] = 1
    return dict(amounts)


def _check_encryption(model: str | None, properties: Properties) -> None:
    """Encrypted memory needs UEFI and q35; the newer models need firmware without
    state, and TDX no screen. The machine type that a host has by default is for
    nova-compute to see."""
    if model is None:
        return
    machine = properties.get('hw_machine_type')
    needs = {
        'hw_firmware_type=uefi': properties.get('hw_firmware_type') == 'uefi',
        'hw_machine_type=q35': machine is None or 'q35' in str(machine),
        'hw_firmware_stateless=true': (
            model in ('amd-sev', 'amd-sev-es') or _has_stateless_firmware(properties)
        ),
        'hw_video_model=none': (
            model != 'intel-tdx' or properties.get('hw_video_model') == 'none'
        ),
    }
    lacking = [need for need, met in needs.items() if not met]
    if lacking:
        raise NoValidHost(
            f'Memory encryption {model} needs an image with {", ".join(lacking)}.'
        )


def _has_stateless_firmware(properties: Properties) -> bool:
    """Only UEFI can be without state; only an image can ask for it."""
    return properties.get('hw_firmware_type') == 'uefi' and is_true(
        properties.get('hw_firmware_stateless')
    )
