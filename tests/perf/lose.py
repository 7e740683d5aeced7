# SPDX-License-Identifier: Apache-2.0
"""What becomes of 100,000 servers if any of 5,000 hosts is lost: ``python -m
tests.perf.lose``.

A sandbox of so many hosts in two cells, with so many servers on each, of four flavors.
``simulate lose --any host`` is asked, and for the worst host and for one that leaves no
server without a place ``simulate lose``, which must say the same. The exit status is
0 if it does.
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
"""Every so manieth host has a server for which no other host has room."""


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
    """Write so many servers on each host, with their requests; what they take is
    reserved."""
    began = time.perf_counter()
    number = 0
    huge = Flavor('m1.huge', 'huge', 9, 16, 65536, 20)
    specs = {}
    for flavor in (*FLAVORS, huge):
        spec = request_spec(['UUID'], flavor).obj_to_primitive()
        specs[flavor.name] = spec
    with cloud.databases.api.begin() as api:
        for cell, engine in cloud.databases.cells.items():
            hosts = [each for each in cloud.machines if each.cell == cell]
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
                        instances.append(
                            {
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
                        )
                        kept = specs[flavor.name]
                        data = {**kept[base.DATA], 'instance_uuid': uuid}
                        requests.append(
                            {
                                'instance_uuid': uuid,
                                'spec': json.dumps({**kept, base.DATA: data}),
                            }
                        )
                    connection.execute(sa.insert(tables.instances), instances)
                    api.execute(sa.insert(tables.request_specs), requests)
    print(f'{number:,} servers are there after {time.perf_counter() - began:.1f} s')


def main():
    parser = argparse.ArgumentParser('python -m tests.perf.lose', description=__doc__)
    parser.add_argument('--hosts', type=int, default=5_000)
    parser.add_argument('--servers', type=int, default=20, help='on each host')
    arguments = parser.parse_args()
    began = time.perf_counter()
    options = {'DEFAULT': {'report_interval': LONG, 'service_down_time': 2 * LONG}}
    with LargeSandbox(
        [machine(number) for number in range(arguments.hosts)], options
    ) as cloud:
        print(
            f'{arguments.hosts:,} hosts are there after {time.perf_counter() - began:.1f} s'
        )
        fill(cloud, arguments.servers)
        said = json.loads(timed(cloud, 'lose', '--any', 'host', '--format', 'json'))
        worst = said['losses'][0]
        best = said['losses'][-1]
        same = True
        for one in (worst, best):
            alone = json.loads(
                timed(cloud, 'lose', f'host={one["name"]}', '--format', 'json')
            )
            same = same and [alone[x] for x in COUNTS] == [one[x] for x in COUNTS]
    print('the same, alone and among others' if same else 'NOT the same')
    return int(not same)


def timed(cloud, *arguments):
    """What simulate says, of which the first lines are printed, with the time that it
    takes."""
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
