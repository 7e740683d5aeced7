# SPDX-License-Identifier: Apache-2.0
"""The requests and filters of measurements of both schedulers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from novasched.conf.settings import DEFAULT_FILTERS
from tests.lab.descriptions import Case, wire
from tests.lab.large_cloud_hosts import FAST, instances_of

FILTERS = (
    *DEFAULT_FILTERS,
    'AggregateInstanceExtraSpecsFilter',
    'IoOpsFilter',
    'NumInstancesFilter',
    'NUMATopologyFilter',
    'PciPassthroughFilter',
)
UNLIMITED = 1_000_000
"""A value of ``max_placement_results`` above the number of all hosts."""

SMALL: Case = {'vcpus': 2, 'memory_mb': 4096, 'root_gb': 20}
GROUP_HOSTS = [f'host-{number:05}' for number in range(0, 100, 10)]
GROUP: Case = {
    'policy': 'anti-affinity', 'policies': ['anti-affinity'], '_rules': {},
    'members': [instances_of(name, 1)[0] for name in GROUP_HOSTS],
    'hosts': GROUP_HOSTS,
}  # fmt: skip
"""A group of ten running instances on ten hosts."""


@dataclass(frozen=True)
class Kind:
    """A request for servers of a flavor with alternates, as fields of descriptions.py.

    :ivar properties: the properties of the image.
    :ivar guest: the cells of the guest.
    :ivar count: number of servers.
    :ivar more: other fields of the request.
    """

    flavor: Case
    properties: Case = field(default_factory=dict)
    guest: Sequence[Case] = ()
    group: Case | None = None
    count: int = 1
    more: Case = field(default_factory=dict)

    @property
    def resources(self):
        """The amounts of a server by resource class."""
        cpus = 'VCPU'
        if any(cell.get('pcpuset') for cell in self.guest):
            cpus = 'PCPU'
        return {
            cpus: self.flavor['vcpus'],
            'MEMORY_MB': self.flavor['memory_mb'],
            'DISK_GB': self.flavor['root_gb'],
        }

    def arguments(self, uuids):
        """The arguments of a call of select_destinations."""
        numa_topology = None
        if self.guest:
            numa_topology = {'cells': self.guest}
        group = None
        if self.group:
            group = {**self.group, 'members': [*self.group['members'], *uuids]}

        request = {
            'flavor': self.flavor,
            'image': {'disk_format': 'qcow2', 'properties': self.properties},
            'numa_topology': numa_topology,
            'instance_group': group,
            'num_instances': len(uuids),
            'instance_uuid': uuids[0],
            **self.more,
        }
        return {
            'spec_obj': wire('RequestSpec', request),
            'instance_uuids': list(uuids),
            'return_objects': True,
            'return_alternates': True,
        }


KINDS = {
    'plain': Kind(SMALL),
    'filters': Kind(
        {
            **SMALL,
            'extra_specs': {
                'capabilities:hypervisor_type': 'QEMU',
                'capabilities:cpu_info:vendor': 'Intel',
                f'aggregate_instance_extra_specs:{FAST}': 'true',
            },
        },
        {'hw_architecture': 'x86_64', 'img_hv_type': 'kvm', 'hw_vm_mode': 'hvm'},
    ),
    'pinned': Kind(
        {
            **SMALL,
            'vcpus': 4,
            'extra_specs': {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2'},
        },
        guest=[
            {
                'id': i,
                'pcpuset': [2 * i, 2 * i + 1],
                'memory': 2048,
                'cpu_policy': 'dedicated',
            }
            for i in range(2)
        ],
    ),
    'pages': Kind(
        {**SMALL, 'extra_specs': {'hw:mem_page_size': 'large'}},
        guest=[{'id': 0, 'cpuset': [0, 1], 'memory': 4096, 'pagesize': -2}],
    ),
    'group': Kind(SMALL, group=GROUP),
    'ten': Kind(SMALL, count=10),
}
HUNDRED = Kind(SMALL, count=100)
"""A long request, which is measured beside short requests."""
DEVICES = (1, 2, 4, 8)
"""Numbers of devices of the requests for devices."""


def with_devices(number):
    """A request for a server with devices, each in a request group of its own.

    The groups have different providers, as operators configure them: each device is a
    provider of one VGPU.
    """
    extra_specs = {'group_policy': 'isolate'}
    for index in range(1, number + 1):
        extra_specs[f'resources{index}:VGPU'] = '1'
    return Kind({**SMALL, 'extra_specs': extra_specs})


def devices_title(number):
    """The name of a request for devices."""
    if number == 1:
        return '1 device'
    return f'{number} devices'


DEVICE_KINDS = {devices_title(number): with_devices(number) for number in DEVICES}
"""Requests for devices, for hosts with devices."""
STREAMED = []
for size in (1, 2, 4, 8):
    flavor = {'vcpus': size, 'memory_mb': 2048 * size, 'root_gb': 10 * size}
    STREAMED.append(Kind(flavor))
"""Four flavors of the same resource classes."""
REFUSALS = {
    'capability': Kind(
        {**SMALL, 'extra_specs': {'capabilities:hypervisor_type': 'none'}}
    ),
    'huge pages': Kind(
        {**SMALL, 'memory_mb': 65536, 'extra_specs': {'hw:mem_page_size': '1GB'}},
        guest=[{'id': 0, 'cpuset': [0, 1], 'memory': 65536, 'pagesize': 1048576}],
    ),
    'pinned': Kind(
        {**SMALL, 'vcpus': 20, 'extra_specs': {'hw:cpu_policy': 'dedicated'}},
        guest=[
            {
                'id': 0,
                'pcpuset': list(range(20)),
                'memory': 4096,
                'cpu_policy': 'dedicated',
            }
        ],
    ),
}
"""Requests for which Placement has room, but no host."""
