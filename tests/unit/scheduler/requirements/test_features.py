# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.errors import NoValidHost
from tests.lab.builders import a_request

SEV = {'hw:mem_encryption': 'true'}
UEFI = {'hw_firmware_type': 'uefi'}
STATELESS = {**UEFI, 'hw_firmware_stateless': True}
TPM_2 = 'COMPUTE_SECURITY_TPM_2_0'
TIS, CRB = 'COMPUTE_SECURITY_TPM_TIS', 'COMPUTE_SECURITY_TPM_CRB'


@pytest.mark.parametrize(
    ('specs', 'image', 'traits'),
    [
        ({}, None, set()),
        ({}, {}, set()),
        ({'os:secure_boot': 'required'}, {}, {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({}, {'os_secure_boot': 'required'}, {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({'os:secure_boot': 'optional'}, {}, set()),
        ({'hw:maxphysaddr_mode': 'emulate'}, {}, {'COMPUTE_ADDRESS_SPACE_EMULATED'}),
        ({}, {'hw_maxphysaddr_mode': 'passthrough'}, {'COMPUTE_ADDRESS_SPACE_PASSTHROUGH'}),
        ({'hw:pci_numa_affinity_policy': 'socket'}, {}, {'COMPUTE_SOCKET_PCI_NUMA_AFFINITY'}),
        ({'hw:pci_numa_affinity_policy': 'legacy'}, {}, set()),
        ({'hw:tpm_version': '2.0'}, {}, {TPM_2, TIS}),
        ({'hw:tpm_version': '1.2'}, {}, {'COMPUTE_SECURITY_TPM_1_2', TIS}),
        ({'hw:tpm_version': '2.0', 'hw:tpm_model': 'tpm-crb'}, {}, {TPM_2, CRB}),
        ({'hw:tpm_version': '2.0'}, {'hw_tpm_version': '2.0', 'hw_tpm_model': 'tpm-crb'}, {TPM_2, CRB}),
        ({'hw:tpm_model': 'anything'}, {}, set()),
        ({'os:secure_boot': ''}, {'os_secure_boot': 'required'}, {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({**SEV, 'hw:mem_encryption_model': ''}, UEFI, {'HW_CPU_X86_AMD_SEV'}),
        (SEV, UEFI, {'HW_CPU_X86_AMD_SEV'}),
        ({}, {**UEFI, 'hw_mem_encryption': True, 'hw_machine_type': 'pc-q35-9.2'}, {'HW_CPU_X86_AMD_SEV'}),
        (SEV, {**STATELESS, 'hw_video_model': 'none', 'hw_mem_encryption_model': 'intel-tdx'},
         {'HW_CPU_X86_INTEL_TDX', 'COMPUTE_SECURITY_STATELESS_FIRMWARE'}),
        ({**SEV, 'hw:mem_encryption_model': 'amd-sev-snp'}, STATELESS,
         {'HW_CPU_X86_AMD_SEV_SNP', 'COMPUTE_SECURITY_STATELESS_FIRMWARE'}),
        ({'hw:mem_encryption': 'no', 'hw:mem_encryption_model': 'amd-sev-es'}, {}, set()),
        ({}, STATELESS, {'COMPUTE_SECURITY_STATELESS_FIRMWARE'}),
        ({}, {'hw_firmware_stateless': True, 'hw_firmware_type': 'bios'}, set()),
        ({}, {'hw_firmware_stateless': False, 'hw_firmware_type': 'uefi'}, set()),
        ({'hw:firmware_stateless': 'true'}, {'hw_firmware_type': 'uefi'}, set()),
    ],
)  # fmt: skip
def test_traits(specs, image, traits):
    """Each choice of flavor or image needs the traits that nova asks for."""
    assert a_request(extra_specs=specs, image=image).requirements.feature_traits == traits


@pytest.mark.parametrize(
    ('specs', 'image', 'amounts'),
    [
        ({}, None, {}),
        (SEV, {}, {'MEM_ENCRYPTION_CONTEXT': 1}),
        ({}, {'hw_mem_encryption': True}, {'MEM_ENCRYPTION_CONTEXT': 1}),
        ({'hw:mem_encryption': 'false'}, {}, {}),
        ({'hw:pmem': ''}, {}, {}),
        ({'hw:pmem': '6GB'}, {}, {'CUSTOM_PMEM_NAMESPACE_6GB': 1}),
        ({'hw:pmem': '6GB, 6gb ,my-label,'}, {}, {'CUSTOM_PMEM_NAMESPACE_6GB': 2, 'CUSTOM_PMEM_NAMESPACE_MY_LABEL': 1}),
    ],
)  # fmt: skip
def test_resources(specs, image, amounts):
    """Encrypted memory takes one context; each label of persistent memory one namespace."""
    assert a_request(extra_specs=specs, image=image).requirements.feature_resources == amounts


@pytest.mark.parametrize(
    ('specs', 'image', 'why'),
    [
        ({'os:secure_boot': 'disabled'}, {'os_secure_boot': 'required'},
         'The flavor sets os:secure_boot to disabled, the image to required.'),
        ({'hw:tpm_version': '2.0'}, {'hw_tpm_version': '1.2'},
         'The flavor sets hw:tpm_version to 2.0, the image to 1.2.'),
        ({'hw:tpm_version': '3'}, {}, 'hw:tpm_version is 3, not one of 1.2, 2.0.'),
        ({'hw:tpm_version': '1.2', 'hw:tpm_model': 'tpm-crb'}, {},
         'TPM model CRB is only valid with TPM version 2.0.'),
        (SEV, {'hw_mem_encryption': False}, 'The flavor sets hw:mem_encryption to True, the image to False.'),
        (SEV, {'hw_machine_type': 'pc'},
         'Memory encryption amd-sev needs an image with hw_firmware_type=uefi, hw_machine_type=q35.'),
        ({**SEV, 'hw:mem_encryption_model': 'intel-tdx'}, UEFI,
         'Memory encryption intel-tdx needs an image with hw_firmware_stateless=true, hw_video_model=none.'),
        ({**SEV, 'hw:mem_encryption_model': ''}, {**UEFI, 'hw_mem_encryption_model': 'amd-sev'},
         'The flavor sets hw:mem_encryption_model to , the image to amd-sev.'),
        ({**SEV, 'hw:mem_encryption_model': 'rot13'}, {},
         'hw:mem_encryption_model is rot13, not one of amd-sev, amd-sev-es, amd-sev-snp, intel-tdx.'),
    ],
)  # fmt: skip
def test_what_cannot_be(specs, image, why):
    """A flavor and an image that contradict each other, or nonsense, are refused."""
    with pytest.raises(NoValidHost) as caught:
        _ = a_request(extra_specs=specs, image=image).requirements.feature_traits
    assert caught.value.reason == why
