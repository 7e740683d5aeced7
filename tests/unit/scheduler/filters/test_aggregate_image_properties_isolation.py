# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.aggregate_image_properties_isolation import (
    AggregateImagePropertiesIsolation,
)
from tests.lab.builders import a_host, a_request

HOST = a_host(
    metadata=[
        {'hw_firmware_type': 'uefi, bios', 'hw_boot_menu': 'True', 'os_distro': ''},
        {'hw_numa_nodes': '2', 'ssd': 'true'},
    ]
)


@pytest.mark.parametrize(
    ('image', 'namespace', 'verdict'),
    [
        ({}, None, None),
        ({'hw_firmware_type': 'uefi'}, None, None),
        ({'hw_firmware_type': 'bios', 'hw_vif_model': 'e1000'}, None, None),
        ({'hw_firmware_type': 'none'}, None, "'hw_firmware_type' is 'none' in the image, not bios, uefi"),
        ({'hw_boot_menu': True, 'hw_numa_nodes': 2}, None, None),
        ({'hw_boot_menu': False, 'hw_numa_nodes': 0}, None, None),
        ({'hw_numa_nodes': 1}, None, "'hw_numa_nodes' is '1' in the image, not 2"),
        ({'os_distro': 'arch'}, None, "'os_distro' is 'arch' in the image, not "),
        ({'hw_numa_nodes': 1}, 'os', None),
        ({'hw_numa_nodes': 1}, 'h', None),
        ({'hw_numa_nodes': 1}, 'hw', "'hw_numa_nodes' is '1' in the image, not 2"),
    ],
)  # fmt: skip
def test_metadata_names_the_property(image, namespace, verdict):
    """A host fails whose aggregates name a property of the image with other values."""
    settings = Settings(
        aggregate_image_properties_isolation_namespace=namespace,
        aggregate_image_properties_isolation_separator='_',
    )
    each, request = AggregateImagePropertiesIsolation(settings), a_request(image=image)
    assert each.reject(HOST, request) == verdict
    assert each.reject(a_host(), request) is None


@pytest.mark.parametrize(
    ('image', 'applies'),
    [(None, False), ({}, False), ({'hw_boot_menu': False}, False), ({'os_distro': 'arch'}, True)],
)
def test_applies_to_images_with_properties(image, applies):
    """A property that is false or empty counts as not there."""
    each = AggregateImagePropertiesIsolation(Settings())
    assert each.applies(a_request(image=image)) is applies
