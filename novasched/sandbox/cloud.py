# SPDX-License-Identifier: Apache-2.0
"""A whole small cloud in one process: databases, Placement, scheduler, conductor.

    with Sandbox([Machine('one'), Machine('two', zone='az01')]) as cloud:
        boot = cloud.boot(Flavor(vcpus=2, memory_mb=4096, root_gb=20), zone='az01')
        assert boot.servers[0].host == 'two'
        assert not cloud.problems()

The scheduler is the real service, reading a nova.conf, and so is Placement. The sandbox
plays conductor and nova-compute. There can be one at a time in a process, as there can
be of Placement.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from oslo_utils import timeutils

from novasched import conf as configuration
from novasched import objects, service
from novasched.model.request import Flavor, InstanceGroup
from novasched.rpc.faults import NoValidHost
from novasched.sandbox import confirmation
from novasched.sandbox.computes import Computes
from novasched.sandbox.conductor import PROJECT, USER, Conductor, request_spec
from novasched.sandbox.databases import Databases
from novasched.sandbox.machines import Machine
from novasched.sandbox.placement import PlacementServer
from novasched.sandbox.providers import Providers
from novasched.sandbox.records import Boot, Server

NAME = 'novasched-sandbox'

Options = Mapping[str, Mapping[str, object]]
"""nova.conf: group to option to value."""


class Sandbox:
    """A cloud of these machines, from ``with`` to its end.

    :param options: what nova.conf is to say besides where things are
    :param random: where the UUIDs of servers are drawn from
    :ivar configuration: the arguments with which a command reads its nova.conf
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        options: Options | None = None,
        random: Random | None = None,
    ) -> None:
        self.machines = tuple(machines)
        self.boots: list[Boot] = []
        self._options = options or {}
        self._random = random or Random(secrets.randbits(32))
        self._recording = threading.Lock()

    def __enter__(self) -> Sandbox:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def group(self, policy: str, **rules: str) -> InstanceGroup:
        """A new server group; its members and their hosts are looked up when it is used."""
        new = self._new_uuid()
        return InstanceGroup(uuid=new, name=new, policy=policy, rules=rules)

    def boot(
        self,
        flavor: Flavor,
        count: int = 1,
        *,
        zone: str | None = None,
        group: InstanceGroup | None = None,
        image_properties: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Boot:
        """Ask for servers as conductor does, and run those that get a host.

        :param fields: fields of the RequestSpec that are to have other values
        :raises NoAnswer: the scheduler does not answer
        """
        uuids = tuple(self._new_uuid() for _ in range(count))
        group_now = group and self._now(group, uuids)
        spec = request_spec(uuids, flavor, zone, group_now, image_properties, **fields)
        fault = None
        chosen: list[list[objects.Selection]] = []
        started = time.perf_counter()
        try:
            chosen = self.request(spec, uuids)
        except NoValidHost as error:
            fault = str(error)
        boot = Boot(
            uuids=uuids,
            flavor=flavor,
            seconds=time.perf_counter() - started,
            servers=tuple(
                Server(each, flavor, first, tuple(others))
                for each, (first, *others) in zip(uuids, chosen, strict=False)
            ),
            fault=fault,
            group_uuid=group.uuid if group else None,
        )
        self._run(boot, image_properties or {})
        return boot

    def request(
        self, spec: objects.RequestSpec, uuids: Sequence[str], alternates: bool = True
    ) -> list[list[objects.Selection]]:
        """Call the scheduler alone, for requests of any kind; nothing is written down.

        :raises NoValidHost: not every server gets a host
        """
        self._report()
        return self._conductor.select_destinations(spec, uuids, alternates)

    def problems(self) -> list[str]:
        """Where Placement's books differ from what was placed and refused so far, and
        what the services had to log as errors."""
        found = confirmation.problems(self.placement, self.machines, self.boots)
        return found + self._errors.texts

    def disable(self, name: str, reason: str = 'maintenance', synced: bool = True) -> None:
        """Disable a machine's nova-compute.

        :param synced: whether nova-compute has told Placement yet
        """
        self.computes.disable(name, reason)
        if synced:
            self.placement.disable(self._machine(name).uuid)

    def silence(self, name: str) -> None:
        """Let a machine's nova-compute be dead for longer than it may be silent."""
        self.computes.silence(name, since=2 * timedelta(seconds=self._settings.service_down_time))

    def _start(self, stack: ExitStack) -> None:
        self._errors = _Errors()
        logging.getLogger().addHandler(self._errors)
        stack.callback(logging.getLogger().removeHandler, self._errors)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=f'{NAME}-')))

        databases = self.databases = Databases(folder, sorted({x.cell for x in self.machines}))
        stack.callback(databases.close)
        databases.create()
        self.computes = Computes(databases, self.machines, timeutils.utcnow)
        self.computes.deploy()

        # Placement without keystone takes what precedes the colon for the user's name.
        token = f'admin:{secrets.token_hex()}'
        server = PlacementServer(databases.url('placement'), token=token)
        server.start()
        stack.callback(server.stop)
        self.placement = Providers(server.url, token)
        stack.callback(self.placement.close)
        self._register()

        conf = self._configured(folder, databases, server.url, token)
        self._settings = configuration.settings(conf)
        self._report = _Due(self.computes.report, self._settings.report_interval)
        service.preflight(conf)
        scheduler = service.SchedulerService(conf)
        scheduler.start()
        stack.callback(scheduler.stop)
        self._conductor = Conductor(conf)
        stack.callback(self._conductor.close)

    def _register(self) -> None:
        """What nova-computes tell Placement when they start."""
        for machine in self.machines:
            self.placement.register(machine)

    def _configured(self, folder: Path, databases: Databases, url: str, token: str) -> Any:
        """Write nova.conf and read it as the daemon does. Naming a folder for further
        files, an empty one, keeps those of an installed nova out."""
        further = folder / 'nova.conf.d'
        further.mkdir()
        path = folder / 'nova.conf'
        groups: dict[str, dict[str, object]] = {
            'DEFAULT': {'transport_url': 'fake://', 'host': NAME},
            'database': {'connection': databases.url('main')},
            'api_database': {'connection': databases.url('api')},
            'placement': {'auth_type': 'admin_token', 'endpoint': url, 'token': token},
        }
        for group, options in self._options.items():
            groups.setdefault(group, {}).update(options)
        path.write_text(_ini(groups))
        self.configuration = ('--config-file', str(path), '--config-dir', str(further))
        return configuration.load(self.configuration, NAME)

    def _run(self, boot: Boot, image_properties: Mapping[str, str]) -> None:
        """Play the nova-computes that are told to build the servers."""
        with self._recording:
            for server in boot.servers:
                if server.host in self.computes.machines:
                    self.computes.spawn(
                        server.host,
                        server.uuid,
                        boot.flavor,
                        image_properties,
                        project_id=PROJECT,
                        user_id=USER,
                        availability_zone=server.selection.value('availability_zone'),
                    )
            self.boots.append(boot)

    def _now(self, group: InstanceGroup, uuids: Sequence[str]) -> InstanceGroup:
        """The group with all servers that were ever asked for in it, and their hosts."""
        boots = [each for each in self.boots if each.group_uuid == group.uuid]
        return replace(
            group,
            members=frozenset(uuids).union(*(each.uuids for each in boots)),
            hosts=frozenset(server.host for each in boots for server in each.servers),
        )

    def _machine(self, name: str) -> Machine:
        return self.computes.machines[name]

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class _Due:
    """Calls something at most once per interval, when it is called itself."""

    def __init__(self, call: Callable[[], None], interval: float) -> None:
        self._call = call
        self._interval = interval
        self._last = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            self._call()


class _Errors(logging.Handler):
    """Remembers what is logged as an error: a service may hide it from its caller."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f'{record.name}: {record.getMessage()}')


def _ini(groups: Options) -> str:
    """The text of a configuration file; oslo.config takes a plain $ for a reference."""
    lines = []
    for group, options in groups.items():
        lines.append(f'[{group}]')
        lines += [f'{name} = {str(value).replace("$", "$$")}' for name, value in options.items()]
    return '\n'.join([*lines, ''])
