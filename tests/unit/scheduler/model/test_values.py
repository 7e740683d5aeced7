# SPDX-License-Identifier: Apache-2.0
"""Conversion of texts of users and of Glance."""

import pytest

from novasched.scheduler.model.image_properties import from_system_metadata, typed
from novasched.scheduler.model.values import MAX_CPU_RANGES, cpu_set, is_true
from tests.lab.builders import a_request


def test_true_values_are_the_true_values_of_oslo_utils():
    """The true values are the true values of oslo.utils; all further values are
    false."""
    assert all(map(is_true, ['true', 'True', '1', 'YES', ' on ', 't', 'y', True, 1]))
    assert not any(map(is_true, ['false', '0', '', 'maybe', None, False, '2']))


@pytest.mark.parametrize(
    ('text', 'cpus'),
    [
        ('0', {0}),
        ('0-3', {0, 1, 2, 3}),
        ('0-3,^1', {0, 2, 3}),
        ('^1,0-3', {0, 2, 3}),
        ('8, 10-11', {8, 10, 11}),
        (' 1,,2,', {1, 2}),
        ('', set()),
    ],
)
def test_a_cpu_list_takes_ranges_and_exclusions_in_any_order(text, cpus):
    """A list of CPUs has ranges and exclusions in any order."""
    assert cpu_set(text) == cpus


@pytest.mark.parametrize(
    'text',
    [
        'x',
        '3-1',
        '1-',
        '-1',
        '^',
        '0-99999999999',
        '1 2',
        ',' * MAX_CPU_RANGES,
    ],
)
def test_an_invalid_cpu_list_is_an_error(text):
    """An invalid list is an error; a huge range does not exhaust the memory, and a long
    list not the processor."""
    with pytest.raises(ValueError, match=r'invalid literal|is no range|more than'):
        cpu_set(text)


@pytest.mark.parametrize(
    ('texts', 'values'),
    [
        ({}, {}),
        (
            {'hw_disk_bus': 'virtio', 'min_ram': '4', 'base_image_ref': 'x'},
            {'hw_disk_bus': 'virtio'},
        ),
        (
            {'hw_pmu': 'yes', 'hw_boot_menu': 'nope'},
            {'hw_pmu': True, 'hw_boot_menu': False},
        ),
        (
            {'hw_cpu_cores': '4', 'hw_video_ram': 'big'},
            {'hw_cpu_cores': 4, 'hw_video_ram': 'big'},
        ),
        ({'hw_architecture': 'AMD64'}, {'hw_architecture': 'x86_64'}),
        (
            {'os_type': 'Linux', 'os_distro': 'Ubuntu'},
            {'os_type': 'linux', 'os_distro': 'Ubuntu'},
        ),
        ({'hw_vif_model': 'VirtualVmxnet3'}, {'hw_vif_model': 'vmxnet3'}),
        (
            {'architecture': 'i386', 'vm_mode': 'pv'},
            {'hw_architecture': 'i686', 'hw_vm_mode': 'xen'},
        ),
        (
            {'architecture': 'i686', 'hw_architecture': 'arm64'},
            {'hw_architecture': 'arm64'},
        ),
        ({'vmware_adaptertype': 'ide'}, {'hw_disk_bus': 'ide'}),
        (
            {'vmware_adaptertype': 'paraVirtual'},
            {'hw_disk_bus': 'scsi', 'hw_scsi_model': 'vmpvscsi'},
        ),
        ({'vmware_adaptertype': 'ide', 'hw_disk_bus': 'sata'}, {'hw_disk_bus': 'sata'}),
        ({'trait:HW_A': 'required', 'trait:HW_B': 'no'}, {'traits_required': ['HW_A']}),
        (
            {'hw_numa_mem.0': '512', 'hw_numa_mem.1': '1024'},
            {'hw_numa_mem': [512, 1024]},
        ),
        ({'hw_numa_mem.1': '512'}, {}),
        (
            {'hw_numa_cpus.0': '0-2,^1', 'hw_numa_cpus.1': '1'},
            {'hw_numa_cpus': [[0, 2], [1]]},
        ),
        ({'hw_numa_cpus.0': '0', 'hw_numa_cpus.1': 'x'}, {'hw_numa_cpus': [[0]]}),
    ],
)
def test_texts_of_glance_become_values_of_a_request(texts, values):
    """Texts of Glance become the values of a request."""
    assert typed(texts) == values


def test_only_system_metadata_with_the_image_prefix_counts():
    """Only metadata with the prefix ``image_`` counts, and null is no value."""
    metadata = {
        'image_hw_pmu': 'true',
        'hw_pmu': 'false',
        'image_os_type': None,
        'boot_roles': 'x',
    }
    assert from_system_metadata(metadata) == {'hw_pmu': True}


@pytest.mark.parametrize(
    ('values', 'given', 'value'),
    [
        (None, False, 'here'),
        ([], False, 'here'),
        ([''], False, ''),
        (['a'], True, 'a'),
        (['a', 'b'], True, None),
        (['', ''], True, None),
    ],
)
def test_a_hint_takes_a_single_value_or_the_default(values, given, value):
    """A missing hint has the default value. Several values of a single hint are an
    error with the name of the hint."""
    hints = {}
    if values is not None:
        hints['near'] = values
    request = a_request(hints=hints)

    assert request.has_hint('near') is given
    if value is None:
        with pytest.raises(ValueError, match='near takes one value, not 2'):
            request.single_hint('near')
    else:
        assert request.single_hint('near', 'here') == value
