# SPDX-License-Identifier: Apache-2.0
"""What flavor or image may ask of a host's hardware and hypervisor, as traits and
resources.

An extra spec ``hw:x`` and an image property ``hw_x`` mean the same, so they must not
contradict each other. nova-api checks that when a server is made or resized; what comes
here all the same is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import os_resource_classes as classes
import os_traits

from novasched.errors import NoValidHost
from novasched.model.request import Request
from novasched.model.texts import is_true


@dataclass(frozen=True, slots=True)
class Feature:
    """A choice between values, each of which may need a trait.

    Where ``when`` holds and nobody chooses, the default is chosen; where it does not
    hold, what is chosen does not matter.
    """

    name: str
    traits: Mapping[str, str | None]
    prefix: str = 'hw'
    when: Callable[[Request], bool] | None = None
    default: str | None = None
    empty_contradicts: bool = False
    """An extra spec that is empty chooses nothing, yet contradicts an image that chooses."""

    def value(self, request: Request) -> str | None:
        """What flavor or image choose.

        :raises NoValidHost: they contradict each other, or choose what does not exist.
        """
        if self.when is not None and not self.when(request):
            return None
        flavor, image = (x and str(x) for x in _asked(request, self.name, self.prefix))
        chooses = flavor or (self.empty_contradicts and flavor is not None)
        if image and chooses and flavor != image:
            raise _contradiction(f'{self.prefix}:{self.name}', flavor, image)
        chosen = flavor or image or self.default
        if chosen is not None and chosen not in self.traits:
            valid = ', '.join(self.traits)
            raise NoValidHost(f'{self.prefix}:{self.name} is {chosen}, not one of {valid}.')
        return chosen

    def trait(self, request: Request) -> str | None:
        """The trait of what they choose.

        :raises NoValidHost: see :meth:`value`.
        """
        chosen = self.value(request)
        return self.traits[chosen] if chosen else None


def flag(request: Request, name: str) -> bool:
    """Whether flavor (``hw:``) or image (``hw_``) say yes.

    :raises NoValidHost: one says yes and the other says no.
    """
    said = [is_true(each) for each in _asked(request, name) if each is not None]
    if len(set(said)) > 1:
        raise _contradiction(f'hw:{name}', *said)
    return any(said)


TPM_VERSION = Feature(
    'tpm_version',
    {'1.2': os_traits.COMPUTE_SECURITY_TPM_1_2, '2.0': os_traits.COMPUTE_SECURITY_TPM_2_0},
)
MEM_ENCRYPTION = Feature(
    'mem_encryption_model',
    {
        'amd-sev': os_traits.HW_CPU_X86_AMD_SEV,
        'amd-sev-es': os_traits.HW_CPU_X86_AMD_SEV_ES,
        'amd-sev-snp': os_traits.HW_CPU_X86_AMD_SEV_SNP,
        'intel-tdx': os_traits.HW_CPU_X86_INTEL_TDX,
    },
    when=lambda request: flag(request, 'mem_encryption'),
    default='amd-sev',
    empty_contradicts=True,
)
FEATURES = (
    TPM_VERSION,
    Feature(
        'tpm_model',
        {
            'tpm-tis': os_traits.COMPUTE_SECURITY_TPM_TIS,
            'tpm-crb': os_traits.COMPUTE_SECURITY_TPM_CRB,
        },
        when=lambda request: TPM_VERSION.value(request) is not None,
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


def required_traits(request: Request) -> frozenset[str]:
    """The traits that the request's features need.

    :raises NoValidHost: flavor and image contradict each other, or ask for what does not
        exist.
    """
    traits = {feature.trait(request) for feature in FEATURES} - {None}
    if _has_stateless_firmware(request):
        traits.add(os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE)
    _check_encryption(MEM_ENCRYPTION.value(request), request)
    if traits >= {os_traits.COMPUTE_SECURITY_TPM_CRB, os_traits.COMPUTE_SECURITY_TPM_1_2}:
        raise NoValidHost('TPM model CRB is only valid with TPM version 2.0.')
    return frozenset(filter(None, traits))


def resources(request: Request) -> dict[str, int]:
    """What these features take from a host, by resource class.

    Each label of ``hw:pmem`` is one namespace of persistent memory.

    :raises NoValidHost: flavor and image contradict each other.
    """
    labels = request.flavor.extra_specs.get('hw:pmem', '').split(',')
    taken = Counter(
        classes.normalize_name(f'PMEM_NAMESPACE_{label.strip()}')
        for label in labels
        if label.strip()
    )
    if flag(request, 'mem_encryption'):
        taken[classes.MEM_ENCRYPTION_CONTEXT] = 1
    return dict(taken)


def _check_encryption(model: str | None, request: Request) -> None:
    """Encrypted memory needs UEFI and q35; the newer models need firmware without state,
    and TDX no screen. Which machine a host takes by default is for nova-compute to see."""
    if model is None:
        return
    properties = request.image.properties if request.image else {}
    machine = properties.get('hw_machine_type')
    needs = {
        'hw_firmware_type=uefi': properties.get('hw_firmware_type') == 'uefi',
        'hw_machine_type=q35': machine is None or 'q35' in str(machine),
        'hw_firmware_stateless=true': model in ('amd-sev', 'amd-sev-es')
        or _has_stateless_firmware(request),
        'hw_video_model=none': model != 'intel-tdx' or properties.get('hw_video_model') == 'none',
    }
    lacking = [need for need, met in needs.items() if not met]
    if lacking:
        raise NoValidHost(f'Memory encryption {model} needs an image with {", ".join(lacking)}.')


def _has_stateless_firmware(request: Request) -> bool:
    """Only UEFI can be without state; only an image can ask for it."""
    properties = request.image.properties if request.image else {}
    return properties.get('hw_firmware_type') == 'uefi' and is_true(
        properties.get('hw_firmware_stateless')
    )


def _asked(request: Request, name: str, prefix: str = 'hw') -> tuple[Any, Any]:
    """What the flavor and the image say, None for nothing."""
    properties = request.image.properties if request.image else {}
    return request.flavor.extra_specs.get(f'{prefix}:{name}'), properties.get(f'{prefix}_{name}')


def _contradiction(name: str, flavor: object, image: object) -> NoValidHost:
    return NoValidHost(f'The flavor sets {name} to {flavor}, the image to {image}.')
