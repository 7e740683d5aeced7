# SPDX-License-Identifier: Apache-2.0
"""How many more fit on 5,000 hosts: what ``novaschedctl simulate`` says, and what comes of it.

    python -m tests.perf.simulate [--hosts N] [--picture FILE]

A sandbox of so many hosts in two cells, nearly all of them full. ``simulate --until-full`` is
asked first; then servers are placed for real, one by one, by the daemon's own service, until
one is refused. Then ``explain`` is asked about the last of them and about the refusal, and
``--picture`` takes one of the page, with Chromium. The exit status is 0 if the numbers are the
same, by host, and nothing was claimed before.

Hosts and what runs on them are written into the databases at once, Placement's among them:
through its API a host takes some 70 ms, and so many take six minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.cmd import novaschedctl
from novasched.conf.loading import load, service_settings, settings
from novasched.observe.web import wiring
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import CELLS, SandboxHost, _used, stable_uuid
from tests.lab.compute_rows import Compute
from tests.lab.large_cloud import Providers
from tests.lab.nova_cloud import Database

HOSTS, CROWD = 5000, 2000
LARGE = Flavor('m1.large', 'm1.large', 1, 4, 8192, 80)
TINY = Flavor('m1.tiny', 'm1.tiny', 2, 1, 128, 1)
ROOM, EVERY, DISABLED = 3, 25, 60
"""Every so manieth host has room for up to so many servers; every so manieth is disabled."""
LONG = 86_400  # seconds
OWNERS = (
    'resource_providers', 'resource_classes', 'projects', 'users', 'consumers', 'allocations',
)  # fmt: skip
"""Tables of Placement that allocations refer to."""


def options(decisions: Path) -> dict[str, dict[str, object]]:
    return {
        'DEFAULT': {'report_interval': LONG, 'service_down_time': 2 * LONG},
        'novasched': {
            'decisions_file': decisions, 'page': True, 'metrics_bind': '127.0.0.1:9101',
        },
    }  # fmt: skip


class FullSandbox(Sandbox):
    """A cloud in which something runs on every host."""

    def _register(self) -> None:
        self._tell_placement()
        for cell, engine in self.databases.cells.items():
            its = [(n, each) for n, each in enumerate(self.machines) if each.cell == cell]
            with engine.begin() as connection:
                connection.execute(sa.insert(tables.instances), [server_row(*x) for x in its])
                for number, machine in its:
                    nodes = tables.compute_nodes
                    used = _used(machine, 1, *in_use(number, machine))
                    statement = sa.update(nodes).where(nodes.c.uuid == machine.uuid)
                    connection.execute(statement.values(updated_at=timeutils.utcnow(), **used))

    def _tell_placement(self) -> None:
        url = self.databases.url('placement')
        computes = [
            Compute(each.name, each.cell, each.vcpus, each.memory_mb, each.disk_gb, uuid=each.uuid)
            for each in self.machines
        ]
        Providers(url).add(computes, [()] * len(computes))
        placement = Database(url, OWNERS)
        classes = {row['name']: row['id'] for row in placement.rows('resource_classes')}
        numbers = {row['uuid']: row['id'] for row in placement.rows('resource_providers')}
        for table in ('projects', 'users'):
            placement.insert(table, [{'external_id': 'tenants', 'id': 1}])
        who = {'project_id': 1, 'user_id': 1, 'generation': 1}
        placement.insert('consumers', [{'uuid': tenant(x), **who} for x in self.machines])
        placement.insert(
            'allocations',
            [
                {
                    'resource_provider_id': numbers[each.uuid], 'consumer_id': tenant(each),
                    'resource_class_id': classes[name], 'used': used,
                }
                for number, each in enumerate(self.machines)
                for name, used in zip(computes[0].inventories(), in_use(number, each), strict=True)
            ],
        )  # fmt: skip
        placement.engine.dispose()


def server_row(number: int, machine: SandboxHost) -> dict[str, Any]:
    vcpus, memory_mb, disk_gb = in_use(number, machine)
    return {
        'uuid': tenant(machine), 'host': machine.name, 'node': machine.name, 'vcpus': vcpus,
        'memory_mb': memory_mb, 'root_gb': disk_gb, 'ephemeral_gb': 0, 'vm_state': 'active',
        'created_at': timeutils.utcnow(),
    }  # fmt: skip


def in_use(number: int, machine: SandboxHost) -> tuple[int, int, int]:
    """vCPUs, memory (MiB) and disk (GiB) of what runs on a host of that number: all but less
    than one large server needs, or than a few do."""
    free = 512 + number * 37 % (LARGE.memory_mb - 1024)
    if number % EVERY == 0:
        free += LARGE.memory_mb * (1 + number // EVERY % ROOM)
    return 12, machine.memory_mb - free, 100


def tenant(machine: SandboxHost) -> str:
    """The server that is everything that runs on a host."""
    return stable_uuid('tenant', machine.name)


def machines(count: int) -> list[SandboxHost]:
    return [
        SandboxHost(f'host-{n:05}', cell=CELLS[n % 2], disk_gb=1200, reserved_memory_mb=0)
        for n in range(count)
    ]


def printed(cloud: Sandbox, command: str, *arguments: str) -> tuple[str, float]:
    out, began = StringIO(), time.perf_counter()
    with redirect_stdout(out):
        status = novaschedctl.main([command, *cloud.configuration, *arguments])
    if status:
        sys.exit(status)
    return out.getvalue(), time.perf_counter() - began


def picture(cloud: Sandbox, path: Path) -> None:
    # Only here: nobody else needs a browser.
    from tests.lab.browser import appear, browser, served

    conf = load(cloud.configuration, 'novasched')
    page = wiring.page_factory(conf, settings(conf), service_settings(conf))
    assert page is not None
    with served(page()) as url, browser() as driver:
        appear(driver, 'light', 1280)
        driver.get(url)
        path.write_bytes(driver.get_screenshot_as_png())


def consumers(cloud: Sandbox) -> int:
    engine = sa.create_engine(cloud.databases.url('placement'))
    with engine.connect() as connection:
        count = connection.execute(sa.text('select count(*) from allocations')).scalar_one()
    engine.dispose()
    return int(count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--hosts', type=int, default=HOSTS)
    parser.add_argument('--picture', type=Path, help='where to write one of the page')
    chosen = parser.parse_args()
    count, began = chosen.hosts, time.perf_counter()
    with (
        TemporaryDirectory() as folder,
        FullSandbox(machines(count), options(Path(folder, 'decisions.sqlite'))) as cloud,
    ):
        for flavor in (LARGE, TINY):
            cloud.computes.offer(flavor)
        for number in range(0, count, DISABLED):
            cloud.computes.disable(f'host-{number:05}')
        print(f'{count:,} hosts are there after {time.perf_counter() - began:.1f} s')
        held = consumers(cloud)
        wanted = ('--flavor', LARGE.name, '--until-full')
        text, seconds = printed(cloud, 'simulate', *wanted)
        print(f'$ novaschedctl simulate {" ".join(wanted)}\n{text}({seconds:.1f} s)')
        said = json.loads(printed(cloud, 'simulate', *wanted, '--format', 'json')[0])
        crowd = ('--flavor', TINY.name, '--until-full', '--at-most', str(CROWD))
        text, seconds = printed(cloud, 'simulate', *crowd)
        print(
            f'$ novaschedctl simulate {" ".join(crowd)}\n{text.splitlines()[0]} ({seconds:.1f} s)'
        )
        claimed = consumers(cloud) - held
        began, hosts, servers = time.perf_counter(), Counter[str](), []
        while (boot := cloud.boot(LARGE)).servers:
            hosts.update(server.host for server in boot.servers)
            servers += boot.uuids
        seconds = time.perf_counter() - began
        print(f'placed for real: {hosts.total():,} on {len(hosts):,} hosts ({seconds:.1f} s)')
        print(f'claimed by the simulations: {claimed}')
        same = hosts == said['placed'] and not claimed
        for words in ([servers[-1]], [servers[-1], '--host', 'host-00000'], ['--last']):
            text, _ = printed(cloud, 'explain', *words)
            print(f'$ novaschedctl explain {" ".join(words)}\n{text}')
        if chosen.picture:
            picture(cloud, chosen.picture)
    print('the same, host by host' if same else 'NOT the same')
    return int(not same)


if __name__ == '__main__':
    sys.exit(main())
