# SPDX-License-Identifier: Apache-2.0
"""The prediction of ``novaschedctl simulate`` for 5,000 hosts, compared with real
placements: ``python -m tests.perf.simulate``.

The sandbox has 5,000 hosts in two cells, and nearly all hosts are full. ``simulate boot
--until-full`` runs first. Then the daemon's own service places real servers, one by
one, until it refuses a server. Then ``explain`` runs for the last placed server and for
the refusal. The exit status is 0 if the numbers of servers are the same on each host,
and they differ if a simulation claims anything.
"""

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import closing, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from novasched.cmd import novaschedctl
from novasched.observe.records.store import RecordReader
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import CELLS, SandboxHost
from tests.lab.compute_rows import Compute
from tests.lab.large_cloud import Providers
from tests.lab.processes import wait_until
from tests.lab.sandboxed import disable, offer

LARGE = Flavor('m1.large', 'm1.large', 1, 4, 8192, 80)
TINY = Flavor('m1.tiny', 'm1.tiny', 2, 1, 128, 1)
ROOM = 3
EVERY = 25
DISABLED = 60
"""Every host whose number is a multiple of EVERY has room for up to ROOM servers; every
host whose number is a multiple of DISABLED is disabled."""
LONG = 86_400  # seconds


class LargeSandbox(Sandbox):
    """A sandbox that registers all hosts at once: Placement's API takes about 70 ms for
    a host."""

    def _register(self):
        computes = [
            Compute(
                each.name,
                each.cell,
                each.vcpus,
                each.memory_mb - each.reserved_memory_mb,
                each.disk_gb,
                uuid=each.uuid,
            )
            for each in self.machines
        ]
        Providers(self.databases.url('placement')).add(computes, [()] * len(computes))


def machine(number):
    """A host with too little free memory for a large server, or with enough for a
    few."""
    free = 512 + number * 37 % (LARGE.memory_mb - 1024)
    if number % EVERY == 0:
        free += LARGE.memory_mb * (1 + number // EVERY % ROOM)
    host = SandboxHost(f'host-{number:05}', disk_gb=1200, cell=CELLS[number % 2])
    return replace(host, reserved_memory_mb=host.memory_mb - free)


def printed(cloud, command, *arguments):
    """The output of a command. The output is printed too, with the seconds."""
    out = StringIO()
    began = time.perf_counter()
    with redirect_stdout(out):
        status = novaschedctl.main([command, *arguments, *cloud.configuration])
    print(f'$ novaschedctl {command} {" ".join(arguments)}\n{out.getvalue()}')
    print(f'({time.perf_counter() - began:.1f} s)')
    if status:
        sys.exit(status)
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(
        'python -m tests.perf.simulate', description=__doc__
    )
    parser.add_argument('--hosts', type=int, default=5_000)
    count = parser.parse_args().hosts
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        records = Path(folder, 'decisions.sqlite')
        options = {
            'DEFAULT': {'report_interval': LONG, 'service_down_time': 2 * LONG},
            'novasched': {'decisions_file': records},
        }
        with LargeSandbox(
            [machine(number) for number in range(count)], options
        ) as cloud:
            for flavor in (LARGE, TINY):
                offer(cloud, flavor)
            for number in range(0, count, DISABLED):
                disable(cloud, f'host-{number:05}', synced=False)
            print(
                f'{count:,} hosts are there after {time.perf_counter() - began:.1f} s'
            )
            wanted = ('boot', '--flavor', LARGE.name, '--until-full')
            printed(cloud, 'simulate', *wanted)
            said = json.loads(printed(cloud, 'simulate', *wanted, '--format', 'json'))
            printed(
                cloud,
                'simulate',
                'boot',
                '--flavor',
                TINY.name,
                '--until-full',
                '--at-most',
                '2000',
            )
            began = time.perf_counter()
            hosts = Counter[str]()
            servers = []
            while (boot := cloud.boot(LARGE)).servers:
                hosts.update(server.host for server in boot.servers)
                servers += boot.uuids
            seconds = time.perf_counter() - began
            print(
                f'placed for real: {hosts.total():,} on {len(hosts):,} hosts ({seconds:.1f} s)'
            )
            # Placement is asked about the refusal once it has been answered.
            with closing(RecordReader(str(records))) as reader:
                wait_until(
                    lambda: reader.newest(1)[0].diagnosis, LONG, 'answer of Placement'
                )
            for words in (
                [servers[-1]],
                [servers[-1], '--host', 'host-00000'],
                ['--last'],
            ):
                printed(cloud, 'explain', *words)
    same = hosts == said['placed']
    print('the same, host by host' if same else 'NOT the same')
    return int(not same)


if __name__ == '__main__':
    sys.exit(main())
