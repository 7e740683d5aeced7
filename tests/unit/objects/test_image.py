# SPDX-License-Identifier: Apache-2.0
"""Image properties, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from novasched import objects
from tests.unit.rpc.wire import primitive


@pytest.mark.parametrize('version', ['1.0', '1.12', '1.44', '1.99'])
@pytest.mark.parametrize(
    'properties',
    [
        {},
        {'hw_architecture': 'x86_64', 'hw_numa_nodes': 2, 'hw_vif_multiqueue_enabled': True},
        {'hw_machine_type': 'a type that no release knows yet'},
        {'hw_numa_cpus': [[0, 1], [2, 3]], 'traits_required': ['HW_CPU_X86_AVX'], 'img_mappings': [{'a': 1}]},
        {'a property that no release knows': 'x', 'hw_cpu_policy': None},
    ],
)  # fmt: skip
def test_every_property_is_kept(version: str, properties: dict[str, Any]) -> None:
    """Properties stay as sent in every version, known or not."""
    sent = primitive('ImageMetaProps', version, **properties)
    decoded = objects.decode(primitive('ImageMeta', '1.8', properties=sent)).value('properties')
    assert decoded.values == properties
    assert decoded.obj_to_primitive() == sent


def test_properties_that_are_none() -> None:
    """Properties that are no dict are refused."""
    sent = {**primitive('ImageMetaProps', '1.44'), 'nova_object.data': 'x'}
    with pytest.raises(objects.BadObject):
        objects.decode(sent)
