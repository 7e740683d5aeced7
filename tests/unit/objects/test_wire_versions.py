# SPDX-License-Identifier: Apache-2.0
"""The versions that nova 34.0.0 has."""

from __future__ import annotations

import pytest

from novasched import objects

VERSIONS = {
    'Aggregate': '1.3',
    'AggregateList': '1.3',
    'CellMapping': '1.1',
    'ComputeNode': '1.19',
    'ComputeNodeList': '1.17',
    'Destination': '1.4',
    'Flavor': '1.2',
    'ImageMeta': '1.8',
    'ImageMetaProps': '1.44',
    'Instance': '2.8',
    'InstanceGroup': '1.11',
    'InstanceList': '2.6',
    'InstanceNUMACell': '1.6',
    'InstanceNUMATopology': '1.3',
    'InstancePCIRequest': '1.4',
    'InstancePCIRequests': '1.1',
    'NUMACell': '1.5',
    'NUMAPagesTopology': '1.1',
    'NUMATopology': '1.2',
    'NUMATopologyLimits': '1.1',
    'NetworkMetadata': '1.0',
    'NetworkRequest': '1.3',
    'NetworkRequestList': '1.1',
    'PciDevicePool': '1.1',
    'PciDevicePoolList': '1.1',
    'RequestGroup': '1.3',
    'RequestLevelParams': '1.1',
    'RequestSpec': '1.15',
    'SchedulerLimits': '1.0',
    'SchedulerRetries': '1.1',
    'SecurityGroup': '1.2',
    'SecurityGroupList': '1.1',
    'Selection': '1.1',
}


@pytest.mark.parametrize(('name', 'version'), VERSIONS.items())
def test_version(name: str, version: str) -> None:
    """An object that is made here says the version of nova's."""
    made = getattr(objects, name)()
    assert made.obj_to_primitive()['nova_object.version'] == version


def test_every_object_is_in_the_table() -> None:
    """No object goes without a version above."""
    every = {name for name in objects.__all__ if hasattr(getattr(objects, name), 'VERSION')}
    assert every - {'NovaObject'} == VERSIONS.keys()
