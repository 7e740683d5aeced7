# SPDX-License-Identifier: Apache-2.0
"""The hosts of a large cloud in the databases of nova and Placement. A host has two
sockets of 16 cores of 2 threads, and half of the CPUs can be pinned.

The usage of all hosts differs, so that all rows and all NUMA topologies differ.
"""

import json
from itertools import chain
from random import Random

import os_traits

from tests.lab.builders import a_uuid, numbered_uuids
from tests.lab.compute_rows import Compute
from tests.lab.reports import a_numa_cell, a_numa_topology, an_object

CELLS = ('cell1', 'cell2')
SOCKETS = 2
CORES = 16
THREADS = 2
CPUS = CORES * THREADS  # of a socket
DEDICATED = CPUS // 2
GIB = 1024  # MiB
RAM = 192 * GIB  # of a socket

FAST = 'fast'
METADATA = {
    FAST: {FAST: 'true'},
    'az1': {'availability_zone': 'az1'},
    'az2': {'availability_zone': 'az2'},
}
"""The aggregates: an aggregate of every second host, and two zones."""

LIBVIRT_TRAITS = (
    *os_traits.get_traits('COMPUTE_NET_'),
    *os_traits.get_traits('COMPUTE_STORAGE_'),
    *os_traits.get_traits('COMPUTE_VOLUME_'),
)
"""About as many traits as a libvirt host has beyond the traits of every host."""

X86 = 'HW_CPU_X86_'
FEATURES = [trait.removeprefix(X86).lower() for trait in os_traits.get_traits(X86)]
MODELS = (
    'Skylake-Server-IBRS',
    'Cascadelake-Server',
    'Icelake-Server',
    'SapphireRapids',
)
GUESTS = (
    'alpha',
    'aarch64',
    'armv7l',
    'cris',
    'i686',
    'lm32',
    'm68k',
    'microblaze',
    'mips',
    'mipsel',
    'ppc',
    'ppc64',
    'ppc64le',
    's390x',
    'sh4',
    'sparc',
    'sparc64',
    'x86_64',
    'xtensa',
)
KINDS = dict.fromkeys(('i686', 'x86_64'), ('qemu', 'kvm'))


def large_cloud(count, traits=(), cells=CELLS):
    """Hosts in cells. The hosts are the same at every call.

    :param count: number of hosts.
    :param traits: additional traits of all hosts.
    """
    return [_host(number, traits, cells) for number in range(count)]


def aggregates_of(number):
    """The names of the aggregates of a host.

    :param number: the number of the host.
    """
    zone = ('az1', 'az2')[number // 2 % 2]
    if number % 2:
        return [zone]
    return [FAST, zone]


def instances_of(name, count):
    """The UUIDs of the instances on a host."""
    return numbered_uuids(f'{name}/', count)


def _host(number, traits, cells):
    random = Random(number)
    name = f'host-{number:05}'
    pinned = [random.randrange(0, DEDICATED // 4 + 1) * 2 for _ in range(SOCKETS)]
    used = [random.randrange(0, RAM // 2, 4) for _ in range(SOCKETS)]
    servers = random.randrange(0, 12)
    ram = RAM * SOCKETS
    disk = 7000
    disk_used = random.randrange(0, 3000)
    columns = {
        'vcpus': CPUS * SOCKETS,
        'vcpus_used': random.randrange(0, 60) + sum(pinned),
        'memory_mb_used': sum(used),
        'free_ram_mb': ram - sum(used),
        'local_gb_used': disk_used,
        'free_disk_gb': disk - disk_used,
        'disk_available_least': disk - disk_used,
        'running_vms': servers,
        'cpu_info': json.dumps(_cpu_info(MODELS[number % len(MODELS)])),
        'supported_instances': json.dumps(_supported_instances()),
        'stats': json.dumps(_stats(servers, random)),
        'numa_topology': a_numa_topology(*map(_cell, range(SOCKETS), pinned, used)),
        'pci_stats': json.dumps(an_object('PciDevicePoolList', objects=_pools(random))),
    }
    return Compute(
        name,
        cells[number % len(cells)],
        vcpus=(CPUS - DEDICATED) * SOCKETS,
        pcpus=DEDICATED * SOCKETS,
        ram_mb=ram,
        disk_gb=disk,
        traits=traits,
        uuid=a_uuid(name),
        columns=columns,
    )


def _supported_instances():
    triples = []
    for guest in GUESTS:
        for kind in KINDS.get(guest, ('qemu',)):
            triples.append([guest, kind, 'hvm'])
    return triples


def _cpu_info(model):
    topology = {'cells': SOCKETS, 'sockets': 1, 'cores': CORES, 'threads': THREADS}
    return {
        'arch': 'x86_64',
        'model': model,
        'vendor': 'Intel',
        'topology': topology,
        'features': FEATURES,
    }


def _stats(servers, random):
    projects = {}
    for _ in range(min(servers, 3)):
        projects[f'num_proj_{random.getrandbits(128):032x}'] = '1'
    return {
        'failed_builds': '0',
        'num_instances': str(servers),
        'num_vm_active': str(servers),
        'num_task_None': str(servers),
        'num_os_type_None': str(servers),
        **projects,
        'io_workload': str(random.randrange(0, 3)),
    }


def _pools(random):
    pools = []
    for socket in range(SOCKETS):
        pool = an_object(
            'PciDevicePool',
            product_id='1018',
            vendor_id='15b3',
            numa_node=socket,
            tags={
                'dev_type': 'type-VF',
                'physical_network': 'physnet0',
                'remote_managed': 'false',
            },
            count=random.randrange(4, 17),
        )
        pools.append(pool)
    return pools


def _cell(number, pinned, used):
    """A NUMA cell.

    :param pinned: number of pinned CPUs.
    :param used: used memory in MiB.
    """
    first = number * CORES
    second = (SOCKETS + number) * CORES
    cores = [[first + i, second + i] for i in range(CORES)]
    shared = sorted(chain.from_iterable(cores[: CORES // 2]))
    dedicated = sorted(chain.from_iterable(cores[CORES // 2 :]))
    pages = [
        _pages(4, RAM // 2 * 256, used * 128),
        _pages(2048, RAM // 4 // 2, 0),
        _pages(1048576, RAM // 4 // GIB, 0),
    ]
    return a_numa_cell(
        number,
        CORES,
        THREADS,
        RAM,
        dedicated[:pinned],
        cpuset=shared,
        pcpuset=dedicated,
        cpu_usage=pinned,
        memory_usage=used,
        siblings=cores,
        socket=number,
        mempages=pages,
        network_metadata=an_object(
            'NetworkMetadata', physnets=['physnet0'], tunneled=False
        ),
    )


def _pages(size_kb, total, used):
    return an_object(
        'NUMAPagesTopology', size_kb=size_kb, total=total, used=used, reserved=0
    )
