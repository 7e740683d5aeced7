# SPDX-License-Identifier: Apache-2.0
"""The computes, API and conductor of a cloud from the view of a scheduler: a child
process in the virtualenv of a nova since Ocata.

The process writes through the objects of its nova, and asks through the client of its
nova. Commands and results are lines as in tests/lab/nova_child.py. The parent process
puts tests/lab on the search path.
"""

import inspect
import json

from nova import context, objects, servicegroup
from nova.objects import base as objects_base
from nova.objects import fields, host_mapping
from nova.pci import request as pci_request
from nova.scheduler import rpcapi
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import query, report
from nova.virt import hardware
from nova_child import serve
from nova_values import PROJECT, USER, image_meta
from oslo_utils import timeutils

BROUGHT = {'return_objects': '4.5', 'instance_uuids': '4.4'}
ANSWERS = ('Selection', 'SchedulerLimits')
ARCHITECTURE = ('x86_64', 'kvm', 'hvm')
IMAGE = {'id': '5b1c9b5f-6e0e-4f5a-9d0a-3c3f2b1a0e11', 'name': 'releases'}


class Nova:
    """The commands. Arguments and results are JSON values."""

    def __init__(self):
        self.context = context.RequestContext(USER, PROJECT, is_admin=True)
        self.clients = {}

    def newest(self):
        """The newest version of the RPC API that this release sends."""
        select = query.SchedulerQueryClient.select_destinations
        parameters = inspect.signature(select).parameters
        for name, version in BROUGHT.items():
            if name in parameters:
                return version
        return '4.3'

    def add_host(self, cell, host):
        """Write the rows of a compute that starts, and discover the host."""
        with context.target_cell(self.context, self.mapping(cell)) as there:
            objects.Service(
                there,
                host=host['name'],
                binary='nova-compute',
                topic='compute',
                report_count=1,
                last_seen_up=timeutils.utcnow(),
                disabled=False,
                forced_down=False,
            ).create()
            add_compute_node(there, host)

        return len(host_mapping.discover_hosts(self.context))

    def add_aggregate(self, name, hosts, metadata):
        aggregate = objects.Aggregate(self.context, name=name, metadata=metadata)
        aggregate.create()
        for host in hosts:
            aggregate.add_host(host)
        return aggregate.uuid

    def add_group(self, policy):
        group = objects.InstanceGroup(
            self.context, name=policy, user_id=USER, project_id=PROJECT, members=[]
        )
        if 'policy' in group.fields:
            group.policy = policy
        else:
            group.policies = [policy]
        group.create()
        return group.uuid

    def join_group(self, group, servers):
        """Add servers to a group, as the API does before the servers are scheduled."""
        objects.InstanceGroup.add_members(self.context, group, servers)

    def boot(self, cell, host, server):
        """Run a placed server on its host."""
        mapping = self.mapping(cell)
        flavor = a_flavor()
        with context.target_cell(self.context, mapping) as there:
            instance = objects.Instance(
                there,
                uuid=server,
                host=host,
                node=host,
                launched_on=host,
                user_id=USER,
                project_id=PROJECT,
                flavor=flavor,
                vm_state='active',
                system_metadata={},
                vcpus=flavor.vcpus,
                memory_mb=flavor.memory_mb,
                root_gb=flavor.root_gb,
                ephemeral_gb=flavor.ephemeral_gb,
            )
            if 'compute_id' in instance.fields:
                node = objects.ComputeNode.get_by_host_and_nodename(there, host, host)
                instance.compute_id = node.id
            instance.create()

        objects.InstanceMapping(
            self.context, instance_uuid=server, project_id=PROJECT, cell_mapping=mapping
        ).create()

    def build(
        self, servers, extra_specs=None, vcpus=2, zone=None, group=None, version=None, alternates=False
    ):  # fmt: skip
        """Request new servers: write the request spec as the API does, and call the
        scheduler as the conductor does."""
        spec = self.new_spec(servers[0], a_flavor(extra_specs, vcpus), zone)
        spec.num_instances = len(servers)
        spec.create()

        if group:
            spec.scheduler_hints = {'group': [group]}
            spec.instance_group = objects.InstanceGroup.get_by_uuid(self.context, group)
        return self.select(spec, servers, version, alternates)

    def move(self, server, host, cell=None, to=None, version=None, alternates=False):
        """Move a server of :meth:`build` off its host.

        :param cell: the cell of the destination, as for a live migration.
        :param to: the destination, if an operator names the host.
        """
        spec = self.kept_spec(server)
        spec.ignore_hosts = [host]
        spec.requested_destination = objects.Destination()
        if cell:
            spec.requested_destination.cell = self.mapping(cell)
        if to:
            spec.requested_destination.host = to
            spec.requested_destination.node = to
        return self.select(spec, [server], version, alternates)

    def rebuild(self, server, host, version=None):
        """Rebuild a server of :meth:`build` on its host from another image."""
        spec = self.kept_spec(server)
        spec.image = image_meta({}, **IMAGE)
        del spec.id
        spec.scheduler_hints = dict(
            spec.scheduler_hints or {}, _nova_check_type=['rebuild']
        )
        spec.force_hosts = [host]
        spec.force_nodes = [host]
        return self.select(spec, [server], version, False)

    def fall_back(self, server, allocation_request, allocation_request_version):
        """Claim an alternate, as the conductor of a cell does after a failed build."""
        return scheduler_utils.claim_resources(
            self.context,
            report.SchedulerReportClient(),
            self.kept_spec(server),
            server,
            json.loads(allocation_request),
            allocation_request_version=allocation_request_version,
        )

    def cast_aggregates(self, uuids):
        aggregates = objects.AggregateList.get_all(self.context)
        chosen = [aggregate for aggregate in aggregates if aggregate.uuid in uuids]
        self.client().update_aggregates(
            self.context, objects.AggregateList(objects=chosen)
        )

    def cast_aggregate_gone(self, uuid):
        self.client().delete_aggregate(
            self.context, objects.Aggregate.get_by_uuid(self.context, uuid)
        )

    def cast_servers(self, cell, host):
        """Announce all servers of a compute, as the compute does when it starts."""
        with context.target_cell(self.context, self.mapping(cell)) as there:
            instances = objects.InstanceList.get_by_host(there, host, expected_attrs=[])
        self.client().update_instance_info(self.context, host, instances)
        return [instance.uuid for instance in instances]

    def cast(self, method, arguments):
        getattr(self.client(), method)(self.context, *arguments)

    def schedulers(self):
        """The hosts of the schedulers that nova's own service group considers up."""
        is_up = servicegroup.API().service_is_up
        services = objects.ServiceList.get_by_binary(self.context, 'nova-scheduler')
        return [service.host for service in services if is_up(service)]

    def mapping(self, cell):
        for mapping in objects.CellMappingList.get_all(self.context):
            if mapping.name == cell:
                return mapping
        raise LookupError(cell)

    def new_spec(self, server, flavor, zone=None):
        image = image_meta({}, **IMAGE)
        cells = hardware.numa_get_constraints(flavor, image)
        devices = pci_request.get_pci_requests_from_flavor(flavor)
        groups = objects.SecurityGroupList(objects=[])
        return objects.RequestSpec.from_components(
            self.context, server, image, flavor, cells, devices, {}, None, zone,
            security_groups=groups,
        )  # fmt: skip

    def kept_spec(self, server):
        """The request spec as read back, without the fields that nova does not keep."""
        return objects.RequestSpec.get_by_instance_uuid(self.context, server)

    def select(self, spec, servers, version, alternates):
        """Call the scheduler as the conductor does, in the form of a version, or of the
        newest version of this release."""
        newest = self.newest()
        if newest == '4.5':
            scheduler_utils.setup_instance_group(self.context, spec)
        elif spec.instance_group:
            spec.instance_group.hosts = spec.instance_group.get_hosts()

        arguments = {}
        if newest >= '4.4':
            arguments['instance_uuids'] = servers
        if (version or newest) == '4.5':
            arguments.update(return_objects=True, return_alternates=alternates)

        client = self.client(version)
        return plain(client.select_destinations(self.context, spec, **arguments))

    def client(self, version=None):
        """The client of a deployment whose [upgrade_levels] scheduler is the
        version."""
        version = version or self.newest()
        if version not in self.clients:
            rpcapi.CONF.set_override('scheduler', version, group='upgrade_levels')
            self.clients[version] = query.SchedulerQueryClient()
        return self.clients[version]


def a_flavor(extra_specs=None, vcpus=2):
    """A flavor of 512 MiB and 1 GiB."""
    return objects.Flavor(
        id=1,
        flavorid='small',
        name='small',
        vcpus=vcpus,
        memory_mb=512,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        rxtx_factor=1.0,
        vcpu_weight=0,
        disabled=False,
        is_public=True,
        extra_specs=extra_specs or {},
    )


def add_compute_node(there, host):
    name = host['name']
    ram_mb = host['ram_mb']
    disk_gb = host['disk_gb']

    pools = []
    if host['devices']:
        pools.append(device_pool(host['devices']))

    topology = None
    if host['cells']:
        cells = [numa_cell(i, *size) for i, size in enumerate(host['cells'])]
        topology = objects.NUMATopology(cells=cells)._to_json()
    node = objects.ComputeNode(
        there,
        host=name,
        uuid=host['uuid'],
        free_ram_mb=ram_mb,
        free_disk_gb=disk_gb,
        current_workload=0,
        running_vms=0,
        stats={'failed_builds': '0'},
        metrics='[]',
        cpu_allocation_ratio=host['cpu_ratio'],
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        pci_device_pools=objects.PciDevicePoolList(objects=pools),
    )
    node.update_from_virt_driver(
        {
            'vcpus': host['vcpus'],
            'vcpus_used': 0,
            'memory_mb': ram_mb,
            'memory_mb_used': 0,
            'local_gb': disk_gb,
            'local_gb_used': 0,
            'disk_available_least': disk_gb,
            'hypervisor_type': 'QEMU',
            'hypervisor_version': 8002000,
            'hypervisor_hostname': name,
            'host_ip': '127.0.0.1',
            'supported_instances': [ARCHITECTURE],
            'cpu_info': json.dumps({'arch': 'x86_64', 'features': ['avx']}),
            'numa_topology': topology,
        }
    )
    node.create()


def numa_cell(number, count, memory):
    """A NUMA cell whose CPUs are cores with one thread and can be pinned.

    :param number: the ID of the cell.
    :param count: the number of CPUs.
    :param memory: in MiB.
    """
    cpus = set(range(number * count, (number + 1) * count))
    values = {
        'id': number,
        'cpuset': cpus,
        'pcpuset': cpus,
        'memory': memory,
        'cpu_usage': 0,
        'memory_usage': 0,
        'pinned_cpus': set(),
        'siblings': [{cpu} for cpu in sorted(cpus)],
        'mempages': [objects.NUMAPagesTopology(size_kb=4, total=memory * 256, used=0)],
        'socket': number,
    }
    # Older releases have fewer fields.
    supported = set(objects.NUMACell.fields) & set(values)
    return objects.NUMACell(**{name: values[name] for name in supported})


def device_pool(count):
    """A pool of free devices of one kind on NUMA node 0."""
    return objects.PciDevicePool(
        vendor_id='8086', product_id='10fb', numa_node=0, count=count,
        tags={'dev_type': fields.PciDeviceType.STANDARD},
    )  # fmt: skip


def plain(value):
    """Convert an answer to JSON values: Selections to dicts of their fields, and
    objects within the dicts of older versions to their names.

    The release's own classes have decoded the Selections.
    """
    if isinstance(value, objects_base.NovaObject):
        if value.obj_name() not in ANSWERS:
            return value.obj_name()
        names = [name for name in value.fields if name in value]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


if __name__ == '__main__':
    serve(Nova)
