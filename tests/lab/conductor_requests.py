# SPDX-License-Identifier: Apache-2.0
"""Recorded requests of nova's conductor, and variations."""

import copy

from tests.lab.compute_rows import Flavor
from tests.lab.descriptions import wire
from tests.lab.known_secrets import a_secret
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.wire import CALLS, MADE, primitive

DATA = 'nova_object.data'
HOSTS = ('e2e-cmp1', 'e2e-cmp2', 'e2e-cmp3', 'e2e-cmp4')
"""The names of hosts in the recorded requests."""
FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'NUMATopologyFilter',
    'PciPassthroughFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
)
TOKEN = a_secret()


def furnish(cloud):
    """Put four hosts of different memory into one cell."""
    cloud.reset()
    columns = {
        'hypervisor_type': 'fake',
        'numa_topology': a_numa_topology(
            a_numa_cell(0, cpuset=[16, 17]), a_numa_cell(1, cpuset=[18, 19])
        ),
        'pci_stats': some_devices(4, 1),
    }
    for number, name in enumerate(HOSTS, 1):
        traits = []
        if number < 3:
            traits.append('CUSTOM_E2E')
        cloud.add_host(
            name,
            ram_mb=65536 * number,
            pcpus=16,
            columns=columns,
            traits=tuple(traits),
        )
    cloud.add_aggregate('e2e-az', HOSTS[:2], zone='e2e-az')
    cloud.add_aggregate('e2e-ssd', HOSTS[2:], metadata={'e2e_ssd': 'true'})

    # The server of the rebuild is on the host that nova names.
    rebuild = CALLS['rebuild']['args']['spec_obj'][DATA]
    cloud.boot(rebuild['instance_uuid'], rebuild['force_hosts'][0], Flavor())


def cases(uuid, connection):
    """The arguments of calls of select_destinations by the name of the case.

    :param uuid: the UUID of the cell that moves stay in.
    :param connection: the database URL of this cell, which nova connects to.
    """
    recorded = {name: copy.deepcopy(body['args']) for name, body in CALLS.items()}
    for arguments in recorded.values():
        destination = arguments['spec_obj'][DATA].get('requested_destination')
        if destination and destination[DATA].get('cell'):
            cell = destination[DATA]['cell'][DATA]
            cell.update(uuid=uuid, database_connection=connection)
    return {**recorded, **_variations()}


def changed(base, fields, **arguments):
    """The arguments of a recorded request with changes.

    :param base: the name of the recorded request.
    :param fields: fields of the request spec that differ.
    :param arguments: arguments that differ.
    """
    whole = copy.deepcopy(CALLS[base]['args'])
    whole['spec_obj'][DATA].update(copy.deepcopy(dict(fields)))
    return {**whole, **arguments}


def _variations():
    every = MADE['everything']['spec_obj'][DATA]
    host = HOSTS[2]
    other = HOSTS[1]
    group = CALLS['anti-affinity group']['args']['spec_obj'][DATA]['instance_group']
    return {
        'image properties': changed(
            'boot',
            {
                'image': _image(
                    hw_architecture='x86_64',
                    hw_vif_multiqueue_enabled=True,
                    img_hv_type='kvm',
                    traits_required=['CUSTOM_E2E'],
                    hw_numa_mem=[512, 512],
                    os_distro='debian',
                    hw_ephemeral_encryption_secret_uuid=every['instance_uuid'],
                )
            },
        ),
        'volume': changed('boot', {'image': _volume(), 'is_bfv': True}),
        'pinned': changed('boot', pinned(None)),
        'pinned, three at once': changed('boot of three', pinned(None)),
        'pinned beside emulator threads': changed('boot', pinned('isolate')),
        'shared cells with huge pages': changed('boot', _shared()),
        'one cell': changed('boot of three', _shared(1)),
        'devices': changed('boot', {'pci_requests': _devices()}),
        'devices, three at once': changed(
            'boot of three', {'pci_requests': _devices()}
        ),
        'devices and cells': changed(
            'boot', {'pci_requests': _devices(), **pinned(None)}
        ),
        'requested node': changed(
            'boot', {'requested_destination': _destination(node=host)}
        ),
        'requested host and node': changed(
            'boot', {'requested_destination': _destination(host=host, node=host)}
        ),
        'requested host in a zone': changed(
            'zone', {'requested_destination': _destination(host=other, node=None)}
        ),
        'forbidden aggregates': changed(
            'boot',
            {
                'requested_destination': _destination(
                    forbidden_aggregates=[every['instance_uuid']]
                )
            },
        ),
        'forced hosts': changed('boot', {'force_hosts': [host, other]}),
        'forced nodes': changed('boot', {'force_nodes': [other]}),
        'ignored hosts': changed('boot', {'ignore_hosts': [HOSTS[3], 'unknown']}),
        'no hosts ignored': changed('boot', {'ignore_hosts': [], 'force_hosts': []}),
        'tried before': changed('boot', {'retry': _retry()}),
        'hints': changed(
            'boot',
            {'scheduler_hints': {'query': ['["=","$host","x"]'], 'a': ['1', '2']}},
        ),
        'security groups': changed(
            'boot', {'security_groups': every['security_groups']}
        ),
        'a flavor of projects': changed(
            'boot',
            {
                'flavor': a_flavor(
                    projects=['p1', 'p2'],
                    description='a size',
                    extra_specs={'hw_rng:allowed': 'true'},
                )
            },
        ),
        'nothing claimed': changed('boot of three', {}, instance_uuids=None),
        'dicts for an answer': changed('boot of three', {}, return_objects=False),
        'a server of three': changed(
            'boot of three', {}, instance_uuids=[every['instance_uuid']]
        ),
        'too much': changed('boot', {'flavor': a_flavor(memory_mb=2**30)}),
        'all are filtered': changed(
            'boot',
            {'flavor': a_flavor(extra_specs={'capabilities:hypervisor_type': 'none'})},
        ),
        'some of five are filtered': anti_affine(5),
        '4.0': _dicts({}),
        '4.0 with all': _dicts(
            {
                'ignore_hosts': [HOSTS[3]],
                'retry': {'num_attempts': 2, 'hosts': [['h7', 'n7'], ['h8', 'n8']]},
                'scheduler_hints': {'same': 'a', 'others': ['b', 'c']},
            }
        ),
        '4.0 in a group': _dicts({'instance_group': group}),
    }


def a_flavor(**fields):
    flavor = copy.deepcopy(CALLS['boot']['args']['spec_obj'][DATA]['flavor'])
    flavor[DATA].update(fields)
    return flavor


def _image(**properties):
    image = copy.deepcopy(MADE['everything']['spec_obj'][DATA]['image'])
    image[DATA]['properties'][DATA] = properties
    return image


def _volume():
    image = _image()
    for name in ('id', 'name', 'status', 'protected', 'checksum', 'owner'):
        del image[DATA][name]
    return image


def _guest(cells, threads=None):
    """A guest with cells of 512 MB.

    :param cells: the other fields of each cell.
    :param threads: the policy of emulator threads.
    """
    unset = (
        'pagesize',
        'cpuset_reserved',
        'cpu_pinning_raw',
        'cpu_policy',
        'cpu_thread_policy',
    )
    guest_cells = []
    for number, fields in enumerate(cells):
        cell = {
            'memory': 512,
            'cpuset': [],
            'pcpuset': [],
            **dict.fromkeys(unset),
            'id': number,
            **fields,
        }
        guest_cells.append(primitive('InstanceNUMACell', '1.6', **cell))
    return primitive(
        'InstanceNUMATopology',
        '1.3',
        cells=guest_cells,
        emulator_threads_policy=threads,
    )


def pinned(threads):
    """The fields of a guest with two cells of two dedicated CPUs.

    :param threads: the policy of emulator threads.
    """
    specs = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2'}
    if threads:
        specs['hw:emulator_threads_policy'] = threads
    policies = {'cpu_policy': 'dedicated', 'cpu_thread_policy': 'prefer'}
    # A guest that moves brings the topology that its source has given to a cell.
    topology = primitive('VirtCPUTopology', '1.0', sockets=1, cores=1, threads=2)
    topology['nova_object.changes'] = ['cores']
    cells = [
        {'pcpuset': [0, 1], 'cpu_topology': topology, **policies},
        {'pcpuset': [2, 3], 'cpu_topology': None, **policies},
    ]
    guest = _guest(cells, threads)
    return {'numa_topology': guest, 'flavor': a_flavor(vcpus=4, extra_specs=specs)}


def _shared(count=2):
    guest = _guest([{'cpuset': [number], 'pagesize': -1} for number in range(count)])
    specs = {'hw:numa_nodes': str(count), 'hw:mem_page_size': 'small'}
    return {'numa_topology': guest, 'flavor': a_flavor(vcpus=count, extra_specs=specs)}


def _devices():
    requests = copy.deepcopy(MADE['everything']['spec_obj'][DATA]['pci_requests'])
    spec = [{'vendor_id': '8086', 'product_id': '10fb'}]
    requests[DATA]['requests'][0][DATA].update(
        count=1, spec=spec, numa_policy='preferred'
    )
    del requests[DATA]['instance_uuid']
    requests['nova_object.changes'] = ['requests']
    return requests


def _destination(**fields):
    return primitive('Destination', '1.4', **fields)


def anti_affine(count):
    """The arguments of a request for servers in an anti-affinity group.

    :param count: number of servers.
    """
    uuids = [f'{number}7b1d2ba-8d2b-4b1c-9f43-7e1d9a64d1c1' for number in range(count)]
    group = copy.deepcopy(
        CALLS['anti-affinity group']['args']['spec_obj'][DATA]['instance_group']
    )
    group[DATA].update(members=uuids, hosts=[])
    fields = {
        'instance_group': group,
        'num_instances': count,
        'instance_uuid': uuids[0],
    }
    return changed('anti-affinity group', fields, instance_uuids=uuids)


def _retry():
    nodes = [{'host': f'h{n}', 'hypervisor_hostname': f'n{n}'} for n in (7, 8)]
    return wire('SchedulerRetries', {'hosts': {'objects': nodes}})


def _dicts(filters):
    """The arguments of a call of version 4.0: two dicts, with objects where later
    releases put objects.

    :param filters: the filter properties.
    """
    dicts = copy.deepcopy(MADE['held back to 4.0'])
    spec = dicts['request_spec']
    spec['image']['properties'] = {'hw_architecture': 'x86_64'}
    spec['instance_type'] = a_flavor()
    spec['instance_properties'] |= {
        'numa_topology': None,
        'pci_requests': None,
        'availability_zone': 'e2e-az',
    }
    return {'request_spec': spec, 'filter_properties': dict(filters)}
