# SPDX-License-Identifier: Apache-2.0
"""Requirements of flavors and images: CPUs, features, NUMA cells and PCI devices."""

import json
from dataclasses import replace

import pytest

from novasched.conf.errors import ConfigError
from novasched.scheduler.errors import BadRequest, NoValidHost
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.image_properties import typed
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.requirements import Requirements, features, numa, pci_aliases
from tests.lab.builders import a_flavor, a_request

REALTIME = {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes'}
SEV = {'hw:mem_encryption': 'true'}
UEFI = {'hw_firmware_type': 'uefi'}
STATELESS = {**UEFI, 'hw_firmware_stateless': True}
TPM_2 = 'COMPUTE_SECURITY_TPM_2_0'
TIS = 'COMPUTE_SECURITY_TPM_TIS'
CRB = 'COMPUTE_SECURITY_TPM_CRB'


@pytest.mark.parametrize(
    ('extra_specs', 'image', 'pins'),
    [
        ({}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {}, None),
        ({'hw:cpu_policy': 'dedicated'}, {}, (8, 0)),
        ({'hw:cpu_policy': 'dedicated'}, {'hw_cpu_policy': 'shared'}, (8, 0)),
        ({}, {'hw_cpu_policy': 'dedicated'}, (8, 0)),
        (
            {'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'isolate'},
            {},
            (9, 0),
        ),
        (
            {'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'share'},
            {},
            (8, 0),
        ),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-2'}, {}, (3, 5)),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-2'}, {}, (5, 3)),
        ({**REALTIME, 'hw:cpu_realtime_mask': '^0'}, {}, (7, 1)),
        (REALTIME, {'hw_cpu_realtime_mask': '7'}, (1, 7)),
        ({**REALTIME, 'hw:emulator_threads_policy': 'share'}, {}, (8, 0)),
        ({'hw:cpu_policy': 'mixed'}, {}, (0, 8)),
    ],
)
def test_pinned_vcpus_are_pcpu_and_floating_vcpus_are_vcpu(extra_specs, image, pins):
    """Pinned vCPUs are PCPU in Placement, floating vCPUs are VCPU."""
    pinning = Requirements(a_flavor(extra_specs, vcpus=8), image).cpu_pinning

    if pins is None:
        assert pinning is None
    else:
        assert (pinning.pcpus, pinning.vcpus) == pins


@pytest.mark.parametrize(
    ('specs', 'image', 'traits'),
    [
        ({}, None, set()),
        ({}, {}, set()),
        ({'os:secure_boot': 'required'}, {}, {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({}, {'os_secure_boot': 'required'}, {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'}),
        ({'os:secure_boot': 'optional'}, {}, set()),
        ({'hw:maxphysaddr_mode': 'emulate'}, {}, {'COMPUTE_ADDRESS_SPACE_EMULATED'}),
        (
            {},
            {'hw_maxphysaddr_mode': 'passthrough'},
            {'COMPUTE_ADDRESS_SPACE_PASSTHROUGH'},
        ),
        (
            {'hw:pci_numa_affinity_policy': 'socket'},
            {},
            {'COMPUTE_SOCKET_PCI_NUMA_AFFINITY'},
        ),
        ({'hw:pci_numa_affinity_policy': 'legacy'}, {}, set()),
        ({'hw:tpm_version': '2.0'}, {}, {TPM_2, TIS}),
        ({'hw:tpm_version': '1.2'}, {}, {'COMPUTE_SECURITY_TPM_1_2', TIS}),
        ({'hw:tpm_version': '2.0', 'hw:tpm_model': 'tpm-crb'}, {}, {TPM_2, CRB}),
        (
            {'hw:tpm_version': '2.0'},
            {'hw_tpm_version': '2.0', 'hw_tpm_model': 'tpm-crb'},
            {TPM_2, CRB},
        ),
        ({'hw:tpm_model': 'anything'}, {}, set()),
        (
            {'os:secure_boot': ''},
            {'os_secure_boot': 'required'},
            {'COMPUTE_SECURITY_UEFI_SECURE_BOOT'},
        ),
        ({**SEV, 'hw:mem_encryption_model': ''}, UEFI, {'HW_CPU_X86_AMD_SEV'}),
        (SEV, UEFI, {'HW_CPU_X86_AMD_SEV'}),
        (
            {},
            {**UEFI, 'hw_mem_encryption': True, 'hw_machine_type': 'pc-q35-9.2'},
            {'HW_CPU_X86_AMD_SEV'},
        ),
        (
            SEV,
            {
                **STATELESS,
                'hw_video_model': 'none',
                'hw_mem_encryption_model': 'intel-tdx',
            },
            {'HW_CPU_X86_INTEL_TDX', 'COMPUTE_SECURITY_STATELESS_FIRMWARE'},
        ),
        (
            {**SEV, 'hw:mem_encryption_model': 'amd-sev-snp'},
            STATELESS,
            {'HW_CPU_X86_AMD_SEV_SNP', 'COMPUTE_SECURITY_STATELESS_FIRMWARE'},
        ),
        (
            {'hw:mem_encryption': 'no', 'hw:mem_encryption_model': 'amd-sev-es'},
            {},
            set(),
        ),
        ({}, STATELESS, {'COMPUTE_SECURITY_STATELESS_FIRMWARE'}),
        ({}, {'hw_firmware_stateless': True, 'hw_firmware_type': 'bios'}, set()),
        ({}, {'hw_firmware_stateless': False, 'hw_firmware_type': 'uefi'}, set()),
        ({'hw:firmware_stateless': 'true'}, {'hw_firmware_type': 'uefi'}, set()),
    ],
)
def test_features_of_flavor_and_image_need_the_traits_of_nova(specs, image, traits):
    """Each choice of flavor or image needs the same traits as in nova."""
    requirements = a_request(extra_specs=specs, image=image).requirements

    assert requirements.feature_traits == traits


@pytest.mark.parametrize(
    ('specs', 'image', 'amounts'),
    [
        ({}, None, {}),
        (SEV, {}, {'MEM_ENCRYPTION_CONTEXT': 1}),
        ({}, {'hw_mem_encryption': True}, {'MEM_ENCRYPTION_CONTEXT': 1}),
        ({'hw:mem_encryption': 'false'}, {}, {}),
        ({'hw:pmem': ''}, {}, {}),
        (
            {'hw:pmem': '6GB, 6gb ,my-label,'},
            {},
            {'CUSTOM_PMEM_NAMESPACE_6GB': 2, 'CUSTOM_PMEM_NAMESPACE_MY_LABEL': 1},
        ),
    ],
)
def test_encrypted_memory_and_pmem_labels_need_resources(specs, image, amounts):
    """Encrypted memory needs an encryption context, and each label of ``hw:pmem`` a
    namespace."""
    requirements = a_request(extra_specs=specs, image=image).requirements

    resources = features.resources(requirements.flavor, requirements.properties)

    assert resources == amounts


@pytest.mark.parametrize(
    ('specs', 'image', 'trait'),
    [
        ({}, {}, None),
        ({'hw:cpu_thread_policy': 'prefer'}, {}, None),
        ({'hw:cpu_thread_policy': 'isolate'}, {}, 'forbidden'),
        ({'hw:cpu_thread_policy': 'require'}, {}, 'required'),
        ({}, {'hw_cpu_thread_policy': 'require'}, 'required'),
        ({'hw:cpu_thread_policy': 'prefer'}, {'hw_cpu_thread_policy': 'require'}, None),
    ],
)
def test_the_thread_policy_requires_or_forbids_smt(specs, image, trait):
    """``isolate`` forbids SMT, ``require`` requires SMT."""
    assert Requirements(a_flavor(specs), image).hyperthreading == trait


def dedicated(mask):
    return {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': mask}


@pytest.mark.parametrize(
    ('part', 'specs', 'image', 'why'),
    [
        (
            'cpu_pinning',
            {'hw:cpu_policy': 'shared'},
            {'hw_cpu_policy': 'dedicated'},
            'The image may not change hw:cpu_policy shared to dedicated.',
        ),
        (
            'cpu_pinning',
            {'hw:cpu_policy': 'mixed'},
            {'hw_cpu_policy': 'dedicated'},
            'The image may not change hw:cpu_policy mixed to dedicated.',
        ),
        (
            'cpu_pinning',
            {'hw:cpu_policy': 'odd'},
            {},
            'hw:cpu_policy is odd, not one of dedicated, mixed, shared.',
        ),
        (
            'cpu_pinning',
            {'hw:emulator_threads_policy': 'odd'},
            {},
            'hw:emulator_threads_policy is odd, not one of share, isolate.',
        ),
        (
            'cpu_pinning',
            dedicated('0-3'),
            {},
            'hw:cpu_dedicated_mask leaves no vCPU unpinned.',
        ),
        (
            'cpu_pinning',
            dedicated('^0-3'),
            {},
            'hw:cpu_dedicated_mask 0-3,^0-3 names none of 4 vCPUs, or more than these.',
        ),
        (
            'cpu_pinning',
            dedicated('3-4'),
            {},
            'hw:cpu_dedicated_mask 3-4 names none of 4 vCPUs, or more than these.',
        ),
        (
            'cpu_pinning',
            dedicated('3-1'),
            {},
            'hw:cpu_dedicated_mask: 3-1 is no range of CPUs.',
        ),
        (
            'cpu_pinning',
            REALTIME,
            {},
            'hw:cpu_realtime_mask leaves no vCPU for emulator threads.',
        ),
        (
            'hyperthreading',
            {'hw:cpu_thread_policy': 'require'},
            {'hw_cpu_thread_policy': 'isolate'},
            'The image may not change hw:cpu_thread_policy require to isolate.',
        ),
        (
            'hyperthreading',
            {'hw:cpu_thread_policy': 'odd'},
            {},
            'hw:cpu_thread_policy is odd, not one of prefer, isolate, require.',
        ),
        (
            'hyperthreading',
            {},
            {'hw_cpu_thread_policy': 'odd'},
            'hw_cpu_thread_policy is odd, not one of prefer, isolate, require.',
        ),
        (
            'feature_traits',
            {'os:secure_boot': 'disabled'},
            {'os_secure_boot': 'required'},
            'The flavor sets os:secure_boot to disabled, the image to required.',
        ),
        (
            'feature_traits',
            {'hw:tpm_version': '2.0'},
            {'hw_tpm_version': '1.2'},
            'The flavor sets hw:tpm_version to 2.0, the image to 1.2.',
        ),
        (
            'feature_traits',
            {'hw:tpm_version': '3'},
            {},
            'hw:tpm_version is 3, not one of 1.2, 2.0.',
        ),
        (
            'feature_traits',
            {'hw:tpm_version': '1.2', 'hw:tpm_model': 'tpm-crb'},
            {},
            'TPM model CRB is only valid with TPM version 2.0.',
        ),
        (
            'feature_traits',
            SEV,
            {'hw_mem_encryption': False},
            'The flavor sets hw:mem_encryption to True, the image to False.',
        ),
        (
            'feature_traits',
            SEV,
            {'hw_machine_type': 'pc'},
            'Memory encryption amd-sev needs an image with '
            'hw_firmware_type=uefi, hw_machine_type=q35.',
        ),
        (
            'feature_traits',
            {**SEV, 'hw:mem_encryption_model': 'intel-tdx'},
            UEFI,
            'Memory encryption intel-tdx needs an image with '
            'hw_firmware_stateless=true, hw_video_model=none.',
        ),
        (
            'feature_traits',
            {**SEV, 'hw:mem_encryption_model': ''},
            {**UEFI, 'hw_mem_encryption_model': 'amd-sev'},
            'The flavor sets hw:mem_encryption_model to , the image to amd-sev.',
        ),
        (
            'feature_traits',
            {**SEV, 'hw:mem_encryption_model': 'rot13'},
            {},
            'hw:mem_encryption_model is rot13, '
            'not one of amd-sev, amd-sev-es, amd-sev-snp, intel-tdx.',
        ),
    ],
)
def test_contradictory_and_invalid_requirements_are_refused(part, specs, image, why):
    """Contradictions of flavor and image, and invalid values, are refused."""
    requirements = Requirements(a_flavor(specs, vcpus=4), image)

    with pytest.raises(NoValidHost) as caught:
        getattr(requirements, part)
    assert caught.value.reason == why


def a_cell(id=0, cpus=(0, 1, 2, 3), memory=1024, pinned=(), **more):
    return GuestCell(id, frozenset(cpus), memory, frozenset(pinned), **more)


def a_pinned(**more):
    return a_cell(0, (), pinned=range(4), cpu_policy='dedicated', **more)


PINNED = {'hw:cpu_policy': 'dedicated'}
MIXED = {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0'}
THREADS = {'trait:HW_CPU_HYPERTHREADING': 'required'}
HALVES = {
    'hw:numa_nodes': '2',
    'hw:numa_cpus.0': '0',
    'hw:numa_cpus.1': '1-3',
    'hw:numa_mem.0': '24',
    'hw:numa_mem.1': '1000',
}


@pytest.mark.parametrize(
    ('specs', 'image', 'cells'),
    [
        ({}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {}, None),
        ({'hw:numa_nodes': '2'}, {}, (a_cell(0, (0, 1), 512), a_cell(1, (2, 3), 512))),
        ({}, {'hw_numa_nodes': 1}, (a_cell(),)),
        (HALVES, {}, (a_cell(0, (0,), 24), a_cell(1, (1, 2, 3), 1000))),
        (
            {},
            typed({key.replace(':', '_'): text for key, text in HALVES.items()}),
            (a_cell(0, (0,), 24), a_cell(1, (1, 2, 3), 1000)),
        ),
        (PINNED, {}, (a_pinned(),)),
        ({**PINNED, 'hw:emulator_threads_policy': 'isolate'}, {}, (a_pinned(),)),
        ({'resources:PCPU': '4'}, {}, (a_pinned(),)),
        (
            PINNED,
            {'hw_cpu_thread_policy': 'isolate'},
            (a_pinned(cpu_thread_policy='isolate'),),
        ),
        ({**PINNED, **THREADS}, {}, (a_pinned(cpu_thread_policy='require'),)),
        (MIXED, {}, (a_cell(0, (0,), pinned=(1, 2, 3), cpu_policy='mixed'),)),
        ({'hw:mem_page_size': '2MB'}, {}, (a_cell(pagesize=2048),)),
        (
            {'hw:mem_page_size': 'large'},
            {'hw_mem_page_size': '1048576'},
            (a_cell(pagesize=1048576),),
        ),
        ({'hw:mem_page_size': 'any'}, {}, (a_cell(pagesize=-3),)),
        ({'hw:pmem': 'X'}, {}, (a_cell(),)),
    ],
)
def test_guest_cells_divide_vcpus_and_memory_of_the_flavor(specs, image, cells):
    """The topology divides 4 vCPUs and 1024 MiB, and has the policy for emulator
    threads."""
    flavor = Flavor(vcpus=4, memory_mb=1024, extra_specs=specs)

    topology = numa.topology(flavor, image)

    if cells is None:
        assert topology is None
    else:
        emulator_policy = specs.get('hw:emulator_threads_policy')
        assert topology == GuestTopology(cells, emulator_policy)


@pytest.mark.parametrize(
    ('specs', 'image'),
    [
        ({'hw:numa_nodes': '3'}, {}),
        ({'hw:numa_nodes': '0'}, {}),
        ({'hw:numa_nodes': '9' * 30}, {}),
        ({'hw:numa_nodes': 'x'}, {}),
        ({**HALVES, 'hw:numa_mem.1': '1'}, {}),
        ({**HALVES, 'hw:numa_mem.1': 'y'}, {}),
        ({**HALVES, 'hw:numa_cpus.1': '0-2'}, {}),
        ({**HALVES, 'hw:numa_cpus.1': '?'}, {}),
        ({'hw:numa_nodes': '2', 'hw:numa_cpus.0': '0-3'}, {}),
        ({'hw:mem_page_size': 'huge'}, {}),
        ({'hw:mem_page_size': '2048'}, {'hw_mem_page_size': 'small'}),
    ],
)
def test_guest_cells_that_nova_api_refuses_are_refused(specs, image):
    """Extra specs that nova-api refuses are refused by the scheduler, too."""
    assert numa.topology(a_flavor(HALVES, vcpus=4, memory_mb=1024), {})

    with pytest.raises(BadRequest):
        numa.topology(a_flavor(specs, vcpus=4, memory_mb=1024), image)


@pytest.mark.parametrize(
    ('fields', 'traits'),
    [
        ({}, set()),
        (
            {
                'extra_specs': {
                    'trait:A': 'required',
                    'trait1:B': 'required',
                    'trait:C': 'forbidden',
                }
            },
            {'A', 'B'},
        ),
        (
            {'image': {'traits_required': ['A'], 'os_secure_boot': 'required'}},
            {'A', 'COMPUTE_SECURITY_UEFI_SECURE_BOOT'},
        ),
        (
            {
                'requested_resources': (
                    RequestGroup('p1', {'CUSTOM_X': 1}, frozenset({'A'})),
                )
            },
            {'A'},
        ),
        (
            {'extra_specs': {'hw:cpu_thread_policy': 'require'}},
            {'HW_CPU_HYPERTHREADING'},
        ),
        ({'root_required': frozenset({'A'})}, set()),
    ],
)
def test_request_groups_have_traits_of_flavor_image_and_ports(fields, traits):
    """The groups have the required traits of flavor, image and ports, without the
    required traits of the root provider."""
    required = set()
    for group in a_request(**fields).request_groups().values():
        required |= group.required_traits

    assert required == traits


def test_requirements_are_kept_until_flavor_or_image_change():
    """A request keeps its requirements until flavor or image change."""
    request = a_request(extra_specs={'hw:cpu_policy': 'dedicated'}, image={})
    assert request.requirements.cpu_pinning is not None

    moved = replace(request, ignore_hosts=('a',)).for_instance('uuid')
    assert moved.requirements is request.requirements

    resized = replace(request, flavor=a_flavor())
    assert resized.requirements.cpu_pinning is None

    rebuilt = replace(request, image=Image(properties={'hw_machine_type': 'q35'}))
    assert rebuilt.requirements.properties == {'hw_machine_type': 'q35'}


def test_an_invalid_part_refuses_a_request_only_when_read():
    """An invalid part refuses a request only when the part is read, and then at every
    read."""
    requirements = a_request(extra_specs={'hw:cpu_policy': 'odd'}).requirements
    assert requirements.feature_traits == set()
    assert not requirements.needs_threads

    for _ in range(2):
        with pytest.raises(NoValidHost):
            _ = requirements.cpu_pinning


GPU = {
    'name': 'gpu',
    'vendor_id': '10de',
    'product_id': '1eb8',
    'device_type': 'type-PCI',
}
OTHER = {**GPU, 'product_id': '1db4', 'numa_policy': 'preferred'}
NIC = {'name': 'nic', 'resource_class': 'fast-nic', 'traits': 'custom_a, CUSTOM_B'}
SPEC = {'vendor_id': '10de', 'product_id': '1eb8', 'dev_type': 'type-PCI'}


def pci_requests(text, *aliases, image=None, **specs):
    flavor = a_flavor({'pci_passthrough:alias': text, **specs})
    return pci_aliases.pci_requests(flavor, image or {}, list(map(json.dumps, aliases)))


def test_aliases_are_not_parsed_for_a_flavor_without_alias():
    """The aliases are not parsed if the flavor names no alias."""
    assert pci_aliases.pci_requests(a_flavor(), {}, ['no JSON']) == ()


def test_aliases_with_the_same_name_are_alternatives():
    """Aliases with the same name are alternatives."""
    gpu, nic = pci_requests('gpu:2, nic:1', GPU, OTHER, NIC)

    specs = (SPEC, {**SPEC, 'product_id': '1db4'})
    assert gpu == PciRequest(2, specs, alias_name='gpu', request_id='pci-0')
    assert nic.spec == ({'resource_class': 'fast-nic', 'traits': 'custom_a, CUSTOM_B'},)


def test_the_numa_policy_of_the_flavor_wins_over_image_and_alias():
    """The policy of the flavor wins over the image, and the image over the alias."""
    of_image = {'hw_pci_numa_affinity_policy': 'socket'}
    of_flavor = {'hw:pci_numa_affinity_policy': 'required'}
    for image, specs, policy in (
        ({}, {}, 'preferred'),
        (of_image, {}, 'socket'),
        (of_image, of_flavor, 'required'),
    ):
        (request,) = pci_requests('gpu:1', OTHER, image=image, **specs)
        assert request.numa_policy == policy


def test_every_device_has_a_request_group():
    """Each device has a request group."""
    groups = pci_aliases.request_groups(pci_requests('gpu:2,nic:1', GPU, NIC))

    first_gpu, second_gpu, nic = groups
    assert first_gpu.requester_id == 'pci-0-0'
    assert second_gpu.requester_id == 'pci-0-1'
    for gpu in (first_gpu, second_gpu):
        assert gpu.resources == {'CUSTOM_PCI_10DE_1EB8': 1}
        assert gpu.required_traits == set()
    assert nic.requester_id == 'pci-1-0'
    assert nic.resources == {'CUSTOM_FAST_NIC': 1}
    assert nic.required_traits == {'CUSTOM_A', 'CUSTOM_B'}


@pytest.mark.parametrize(
    ('text', 'alias', 'error', 'why'),
    [
        ('tpu:1', json.dumps(GPU), BadRequest, 'tpu:1: no alias of that name'),
        ('gpu', json.dumps(GPU), BadRequest, 'gpu: NAME:COUNT is needed'),
        ('gpu:1', '{"name": 1}', ConfigError, r'\[pci\] alias = '),
        ('gpu:1', '[', ConfigError, 'no JSON object'),
    ],
)
def test_the_error_names_the_invalid_alias(text, alias, error, why):
    """The error names the invalid alias."""
    flavor = a_flavor({'pci_passthrough:alias': text})

    with pytest.raises(error, match=why):
        pci_aliases.pci_requests(flavor, {}, [alias])
