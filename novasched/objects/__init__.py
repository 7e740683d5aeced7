# SPDX-License-Identifier: Apache-2.0
"""nova's versioned objects as they travel: the wire format, nothing else.

Importing this package makes every class below decodable, at any depth of any other.
Versions are those of nova 34.0.0.
"""

from novasched.objects.aggregate import Aggregate, AggregateList
from novasched.objects.base import BadObject, NovaObject, decode, loads
from novasched.objects.cell import CellMapping
from novasched.objects.compute_node import ComputeNode, ComputeNodeList
from novasched.objects.flavor import Flavor
from novasched.objects.group import InstanceGroup
from novasched.objects.image import ImageMeta, ImageMetaProps
from novasched.objects.instance import Instance, InstanceList
from novasched.objects.network import (
    NetworkRequest,
    NetworkRequestList,
    SecurityGroup,
    SecurityGroupList,
)
from novasched.objects.numa import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NetworkMetadata,
    NUMACell,
    NUMAPagesTopology,
    NUMATopology,
    NUMATopologyLimits,
)
from novasched.objects.pci import (
    InstancePCIRequest,
    InstancePCIRequests,
    PciDevicePool,
    PciDevicePoolList,
)
from novasched.objects.request_spec import (
    Destination,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
    SchedulerRetries,
)
from novasched.objects.selection import SchedulerLimits, Selection

__all__ = [
    'Aggregate',
    'AggregateList',
    'BadObject',
    'CellMapping',
    'ComputeNode',
    'ComputeNodeList',
    'Destination',
    'Flavor',
    'ImageMeta',
    'ImageMetaProps',
    'Instance',
    'InstanceGroup',
    'InstanceList',
    'InstanceNUMACell',
    'InstanceNUMATopology',
    'InstancePCIRequest',
    'InstancePCIRequests',
    'NUMACell',
    'NUMAPagesTopology',
    'NUMATopology',
    'NUMATopologyLimits',
    'NetworkMetadata',
    'NetworkRequest',
    'NetworkRequestList',
    'NovaObject',
    'PciDevicePool',
    'PciDevicePoolList',
    'RequestGroup',
    'RequestLevelParams',
    'RequestSpec',
    'SchedulerLimits',
    'SchedulerRetries',
    'SecurityGroup',
    'SecurityGroupList',
    'Selection',
    'decode',
    'loads',
]
