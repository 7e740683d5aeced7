# SPDX-License-Identifier: Apache-2.0
"""A cloud's computes, API and conductor, as far as a scheduler notices them: a child
process in the virtualenv of any nova from Ocata on.

What they write goes through that nova's own objects, what they ask through its own
client. Lines come and go as in tests/lab/nova_child.py.
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
from oslo_utils import timeutils

USER = 'functional-user'
PROJECT = 'functional-project'
BROUGHT = {'return_objects': '4.5', 'instance_uuids': '4.4'}
ANSWERS = ('Selection', 'SchedulerLimits')
ARCHITECTURE = ('x86_64', 'kvm', 'hvm')


class Nova:
    """The commands; each takes JSON values and returns one."""

    def __init__(self):
        self.context = context.RequestContext(USER, PROJECT, is_admin=True)
        self.clients = {}

    def newest(self):
        """The newest form in which this release asks."""
        takes = inspect.signature(
            query.SchedulerQueryClient.select_destinations
        ).parameters
        return next(
            (version for name, version in BROUGHT.items() if name in takes), '4.3'
        )

    def add_host(self, cell, host):
        """A compute that starts, reports what it has, and is discovered."""
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
        """The API puts servers into a group before it has them scheduled."""
        objects.InstanceGroup.add_members(self.context, group, servers)

    def boot(self, cell, host, server):
        """A server that was placed now runs there."""
        mapping = self.mapping(cell)
        flavor = a_flavor()
        sizes = {
            name: getattr(flavor, name)
            for name in ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb')
        }
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
                **sizes,
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
        """Servers that a user asks for: what the API keeps of them, then the
        conductor's call."""
        spec = self.new_spec(servers[0], a_flavor(extra_specs, vcpus), zone)
        spec.num_instances = len(servers)
        spec.create()
        if group:
            spec.scheduler_hints = {'group': [group]}
            spec.instance_group = objects.InstanceGroup.get_by_uuid(self.context, group)
        return self.select(spec, servers, version, alternates)

    def move(self, server, host, cell=None, to=None, version=None, alternates=False):
        """A server of :meth:`build` that leaves its host: within a cell (live
        migration), or to a host that was named."""
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
        """A server of :meth:`build` that is rebuilt where it is, from another image."""
        spec = self.kept_spec(server)
        spec.image = image_meta()
        del spec.id
        spec.scheduler_hints = dict(
            spec.scheduler_hints or {}, _nova_check_type=['rebuild']
        )
        spec.force_hosts = [host]
        spec.force_nodes = [host]
        return self.select(spec, [server], version, False)

    def fall_back(self, server, allocation_request, allocation_request_version):
        """The conductor of a cell, when a build has failed: claims an alternate."""
        return scheduler_utils.claim_resources(
            self.context,
            report.SchedulerReportClient(),
            self.kept_spec(server),
            server,
            json.loads(allocation_request),
            allocation_request_version=allocation_request_version,
        )

    def cast_aggregates(self, uuids):
        every = objects.AggregateList.get_all(self.context)
        chosen = [aggregate for aggregate in every if aggregate.uuid in uuids]
        self.client().update_aggregates(
            self.context, objects.AggregateList(objects=chosen)
        )

    def cast_aggregate_gone(self, uuid):
        self.client().delete_aggregate(
            self.context, objects.Aggregate.get_by_uuid(self.context, uuid)
        )

    def cast_servers(self, cell, host):
        """A compute says in full which servers it has, as it does when it starts."""
        with context.target_cell(self.context, self.mapping(cell)) as there:
            found = objects.InstanceList.get_by_host(there, host, expected_attrs=[])
        self.client().update_instance_info(self.context, host, found)
        return [instance.uuid for instance in found]

    def cast(self, method, arguments):
        getattr(self.client(), method)(self.context, *arguments)

    def schedulers(self):
        """The hosts of the schedulers that nova's own service group takes for up."""
        up = servicegroup.API().service_is_up
        every = objects.ServiceList.get_by_binary(self.context, 'nova-scheduler')
        return [service.host for service in every if up(service)]

    def mapping(self, cell):
        every = objects.CellMappingList.get_all(self.context)
        return next(mapping for mapping in every if mapping.name == cell)

    def new_spec(self, server, flavor, zone=None):
        image = image_meta()
        cells = hardware.numa_get_constraints(flavor, image)
        devices = pci_request.get_pci_requests_from_flavor(flavor)
        groups = objects.SecurityGroupList(objects=[])
        return objects.RequestSpec.from_components(
            self.context, server, image, flavor, cells, devices, {}, None, zone,
            security_groups=groups,
        )  # fmt: skip

    def kept_spec(self, server):
        """The request as it is read back, which leaves out what is not kept."""
        return objects.RequestSpec.get_by_instance_uuid(self.context, server)

    def select(self, spec, servers, version, alternates):
        """The conductor's call, in the form of a version, or of the newest that it
        knows."""
        newest = self.newest()
        if newest == '4.5':
            scheduler_utils.setup_instance_group(self.context, spec)
        elif spec.instance_group:
            spec.instance_group.hosts = spec.instance_group.get_hosts()
        asked = {'instance_uuids': servers} if newest >= '4.4' else {}
        if (version or newest) == '4.5':
            asked.update(return_objects=True, return_alternates=alternates)
        return plain(
            self.client(version).select_destinations(self.context, spec, **asked)
        )

    def client(self, version=None):
        """The client of a deployment that pins [upgrade_levels] scheduler to a
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
    pools = [device_pool(host['devices'])] if host['devices'] else []
    cells = [numa_cell(number, *each) for number, each in enumerate(host['cells'])]
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
            'numa_topology': objects.NUMATopology(cells=cells)._to_json()
            if cells
            else None,
        }
    )
    node.create()


def numa_cell(number, count, memory):
    """A cell of so many cores with one thread, which can be pinned, and so much memory
    (MiB)."""
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
    known = objects.NUMACell.fields
    return objects.NUMACell(
        **{name: value for name, value in values.items() if name in known}
    )


def device_pool(count):
    """So many free devices of one kind, near the first cell."""
    return objects.PciDevicePool(
        vendor_id='8086', product_id='10fb', numa_node=0, count=count,
        tags={'dev_type': fields.PciDeviceType.STANDARD},
    )  # fmt: skip


def image_meta():
    """An image without properties."""
    return objects.ImageMeta.from_dict(
        {
            'id': '5b1c9b5f-6e0e-4f5a-9d0a-3c3f2b1a0e11',
            'name': 'releases',
            'status': 'active',
            'disk_format': 'qcow2',
            'container_format': 'bare',
            'min_ram': 0,
            'min_disk': 0,
            'size': 1,
            'properties': {},
        }
    )


def plain(found):
    """Selections as dicts of their fields, each decoded by this release's own class; an
    object within the dicts of older versions by its name."""
    if isinstance(found, objects_base.NovaObject) and found.obj_name() in ANSWERS:
        return {
            name: plain(getattr(found, name)) for name in found.fields if name in found
        }
    if isinstance(found, objects_base.NovaObject):
        return found.obj_name()
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [plain(each) for each in found]
    return found


if __name__ == '__main__':
    from nova_child import (
        serve,
    )  # of tests/lab, where the parent process lets it be found

    serve(Nova)
