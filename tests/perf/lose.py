# SPDX-License-Identifier: Apache-2.0
"""Simulate the loss of a host among 5,000 hosts with 100,000 servers: ``python -m
tests.perf.lose``.

The script creates a sandbox of hosts in two cells, with servers of four flavors. It
runs ``simulate lose --any host``, and ``simulate lose`` for the worst host and for a
host whose servers all find places. The exit status is 0 if both commands agree.
"""

import argparse
import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import sqlalchemy as sa

from novasched.cmd import novaschedctl
from novasched.rpc.wire import base
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import request_spec
from novasched.tools.sandbox.computes import CELLS, SandboxHost, stable_uuid

from .simulate import LONG, LargeSandbox

FLAVORS = [
    Flavor(f'm1.{name}', name, number, vcpus, memory_mb, 20)
    for number, (name, vcpus, memory_mb) in enumerate(
        (
            ('small', 1, 1024),
            ('medium', 2, 2048),
            ('large', 4, 4096),
            ('xlarge', 8, 8192),
        ),
        1,
    )
]
COUNTS = 'servers', 'placed', 'unplaced'
EXCEPTION = 997
"""Every host whose number is a multiple has a server without room on another host."""


def machine(number):
    """A host with between 4 and 16 GiB free beside its servers."""
    host = SandboxHost(
        f'host-{number:05}',
        vcpus=64,
        memory_mb=131072,
        disk_gb=4000,
        cell=CELLS[number % 2],
    )
    return replace(host, reserved_memory_mb=host.memory_mb - 4096 - number * 37 % 12288)


def fill(cloud, count):
    """Write servers on every host, with their request specs; the resources of the
    servers are reserved.

    :param count: the number of servers of a host.
    """
    began = time.perf_counter()
    number = 0
    huge = Flavor('m1.huge', 'huge', 9, 16, 65536, 20)
    specs = {}
    for flavor in (*FLAVORS, huge):
        specs[flavor.name] = request_spec(['UUID'], flavor).obj_to_primitive()

    with cloud.databases.api.begin() as api:
        for cell, engine in cloud.databases.cells.items():
            hosts = [host for host in cloud.machines if host.cell == cell]
            with engine.begin() as connection:
                for host in hosts:
                    instances = []
                    requests = []
                    for place in range(count):
                        number += 1
                        uuid = stable_uuid('server', str(number))
                        flavor = FLAVORS[number * 7 % len(FLAVORS)]
                        if not place and int(host.name[-5:]) % EXCEPTION == 0:
                            flavor = huge
                        instances.append(instance_row(uuid, host, flavor))
                        requests.append(request_row(uuid, specs[flavor.name]))
                    connection.execute(sa.insert(tables.instances), instances)
                    api.execute(sa.insert(tables.request_specs), requests)
    print(f'{number:,} servers are there after {time.perf_counter() - began:.1f} s')


def instance_row(uuid, host, flavor):
    return {
        'uuid': uuid,
        'host': host.name,
        'node': host.name,
        'instance_type_id': flavor.id,
        'vm_state': 'active',
        'project_id': 'project',
        'vcpus': flavor.vcpus,
        'memory_mb': flavor.memory_mb,
        'root_gb': 20,
        'ephemeral_gb': 0,
    }


def request_row(uuid, spec):
    data = {**spec[base.DATA], 'instance_uuid': uuid}
    return {
        'instance_uuid': uuid,
        'spec': json.dumps({**spec, base.DATA: data}),
    }


def main():
    parser = argparse.ArgumentParser('python -m tests.perf.lose', description=__doc__)
    parser.add_argument('--hosts', type=int, default=5_000)
    parser.add_argument('--servers', type=int, default=20, help='on each host')
    arguments = parser.parse_args()
    began = time.perf_counter()
    options = {'DEFAULT': {'report_interval': LONG, 'service_down_time': 2 * LONG}}
    machines = [machine(number) for number in range(arguments.hosts)]
    with LargeSandbox(machines, options) as cloud:
        print(
            f'{arguments.hosts:,} hosts are there after {time.perf_counter() - began:.1f} s'
        )
        fill(cloud, arguments.servers)
        report = json.loads(timed(cloud, 'lose', '--any', 'host', '--format', 'json'))
        worst = report['losses'][0]
        best = report['losses'][-1]
        same = True
        for loss in (worst, best):
            name = loss['name']
            alone = json.loads(timed(cloud, 'lose', f'host={name}', '--format', 'json'))
            same = same and all(alone[count] == loss[count] for count in COUNTS)
    print('the same, alone and among others' if same else 'NOT the same')
    return int(not same)


def timed(cloud, *arguments):
    """The output of simulate. Its first lines are printed, with the duration."""
    out = StringIO()
    began = time.perf_counter()
    worked = time.process_time()
    with redirect_stdout(out):
        status = novaschedctl.main(['simulate', *arguments, *cloud.configuration])
    if status:
        sys.exit(status)
    print('$ novaschedctl simulate', *arguments)
    print(*out.getvalue().splitlines()[:15], sep='\n')
    seconds = time.perf_counter() - began
    processor = time.process_time() - worked
    print(
        f'({seconds:.1f} s, of which {processor:.1f} s of processor time)', flush=True
    )
    return out.getvalue()


if __name__ == '__main__':
    sys.exit(main())
