# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.requirements import Requirements
from tests.lab.builders import a_flavor


@pytest.mark.parametrize(
    ('extra_specs', 'image', 'pins'),
    [
        ({}, {}, None),
        ({'hw:cpu_policy': 'shared'}, {}, None),
        ({'hw:cpu_policy': 'dedicated'}, {}, (8, 0)),
        ({'hw:cpu_policy': 'dedicated'}, {'hw_cpu_policy': 'shared'}, (8, 0)),
        ({}, {'hw_cpu_policy': 'dedicated'}, (8, 0)),
        ({'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'isolate'}, {}, (9, 0)),
        ({'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'share'}, {}, (8, 0)),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-2'}, {}, (3, 5)),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-2'}, {}, (5, 3)),
        (
            {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes', 'hw:cpu_realtime_mask': '^0'},
            {},
            (7, 1),
        ),
        (
            {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes'},
            {'hw_cpu_realtime_mask': '7'},
            (1, 7),
        ),
        (
            {
                'hw:cpu_policy': 'mixed',
                'hw:cpu_realtime': '1',
                'hw:emulator_threads_policy': 'share',
            },
            {},
            (8, 0),
        ),
        ({'hw:cpu_policy': 'mixed'}, {}, (0, 8)),
    ],
)
def test_pinned_and_floating_cpus(extra_specs, image, pins):
    """Of 8 vCPUs, some are PCPU in Placement and the others VCPU."""
    found = Requirements(a_flavor(extra_specs, vcpus=8), image).cpu_pinning
    assert (found and (found.pcpus, found.vcpus)) == pins


@pytest.mark.parametrize(
    ('specs', 'image', 'why'),
    [
        ({'hw:cpu_policy': 'shared'}, {'hw_cpu_policy': 'dedicated'},
         'The image may not change hw:cpu_policy shared to dedicated.'),
        ({'hw:cpu_policy': 'mixed'}, {'hw_cpu_policy': 'dedicated'},
         'The image may not change hw:cpu_policy mixed to dedicated.'),
        ({'hw:cpu_policy': 'nonsense'}, {}, 'hw:cpu_policy is nonsense, not one of dedicated, mixed, shared.'),
        ({'hw:emulator_threads_policy': 'nonsense'}, {},
         'hw:emulator_threads_policy is nonsense, not one of share, isolate.'),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-7'}, {},
         'hw:cpu_dedicated_mask leaves no vCPU unpinned.'),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-7'}, {},
         'hw:cpu_dedicated_mask 0-7,^0-7 names none of 8 vCPUs, or more than these.'),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '7-8'}, {},
         'hw:cpu_dedicated_mask 7-8 names none of 8 vCPUs, or more than these.'),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '3-1'}, {},
         'hw:cpu_dedicated_mask: 3-1 is no range of CPUs.'),
        ({'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes'}, {},
         'hw:cpu_realtime_mask leaves no vCPU for emulator threads.'),
    ],
)  # fmt: skip
def test_what_cannot_be(specs, image, why):
    """A flavor and an image that do not go together, or nonsense, are refused."""
    with pytest.raises(NoValidHost) as caught:
        _ = Requirements(a_flavor(specs, vcpus=8), image).cpu_pinning
    assert caught.value.reason == why


@pytest.mark.parametrize(
    ('flavor', 'image'), [('require', 'isolate'), ('nonsense', None), (None, 'nonsense')]
)
def test_smt_that_cannot_be(flavor, image):
    """So are thread policies that contradict each other or do not exist."""
    with pytest.raises(NoValidHost, match=r'hw.cpu_thread_policy'):
        _ = Requirements(
            a_flavor({'hw:cpu_thread_policy': flavor} if flavor else {}),
            {'hw_cpu_thread_policy': image},
        ).hyperthreading


@pytest.mark.parametrize(
    ('flavor', 'image', 'trait'),
    [
        (None, None, None),
        ('prefer', None, None),
        ('isolate', None, 'forbidden'),
        ('require', None, 'required'),
        (None, 'require', 'required'),
        ('prefer', 'require', None),
    ],
)
def test_smt(flavor, image, trait):
    """Isolated threads want hosts without SMT, required ones want it."""
    specs = {'hw:cpu_thread_policy': flavor} if flavor else {}
    properties = {'hw_cpu_thread_policy': image} if image else {}
    assert Requirements(a_flavor(specs), properties).hyperthreading == trait
