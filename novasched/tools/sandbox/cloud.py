# SPDX-License-Identifier: Apache-2.0
"""A whole small cloud in one process: databases, Placement, scheduler.

    with Sandbox([SandboxHost('one'), SandboxHost('two', zone='az01')]) as cloud:
        boot = cloud.boot(Flavor(vcpus=2, memory_mb=4096, root_gb=20), zone='az01')
        assert boot.servers[0].host == 'two'
        assert not cloud.problems()

The scheduler and Placement are the real services, and the scheduler reads a nova.conf.
The sandbox plays nova-conductor and nova-compute. A process can run one sandbox at a
time, since it can run one Placement at a time.
"""

import logging
import secrets
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import oslo_messaging
from oslo_context.context import RequestContext

from novasched.conf import loading
from novasched.conf.errors import NovaschedError
from novasched.rpc import versions, wire
from novasched.rpc.faults import NoValidHostFault
from novasched.rpc.server import TOPIC, Serializer, make_transport
from novasched.scheduler.memory import flavor_resources
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import ServerGroup
from novasched.service.build import preflight
from novasched.service.daemon import SchedulerService
from novasched.tools.sandbox.computes import (
    Providers,
    SandboxComputes,
    SandboxHost,
    flavor_columns,
)
from novasched.tools.sandbox.databases import Databases
from novasched.tools.sandbox.placement import serving

SANDBOX_NAME = 'novasched-sandbox'
USER = 'sandbox-user'
PROJECT = 'sandbox-project'


class NoAnswer(NovaschedError):
    """For the user of the sandbox: the scheduler returned neither hosts nor a
    refusal."""


@dataclass(frozen=True, slots=True)
class Server:
    """A placed instance, with its host and its alternates."""

    uuid: str
    flavor: Flavor
    selection: wire.Selection
    alternates: tuple[wire.Selection, ...] = ()

    @property
    def host(self) -> str:
        return str(self.selection.value('service_host'))


@dataclass(frozen=True, slots=True)
class Boot:
    """A request for instances: all instances are placed, or none.

    :ivar seconds: time of the call, as measured by the conductor.
    :ivar fault: why no instance is placed.
    """

    uuids: tuple[str, ...]
    seconds: float
    servers: tuple[Server, ...] = ()
    fault: str | None = None
    group_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class _Conductor:
    """Calls the scheduler like nova-conductor, and lets the nova-computes report in
    time.

    :ivar report_interval: seconds between reports (``[DEFAULT] report_interval``).
    """

    client: oslo_messaging.RPCClient
    computes: SandboxComputes
    report_interval: float

    def select_destinations(
        self, spec: wire.RequestSpec, uuids: Sequence[str]
    ) -> list[list[wire.Selection]]:
        """See :meth:`Sandbox.request`."""
        self.computes.report_if_due(self.report_interval)
        context = RequestContext(user_id=USER, project_id=PROJECT)
        try:
            selections: list[list[wire.Selection]] = self.client.call(
                context,
                'select_destinations',
                spec_obj=spec,
                instance_uuids=list(uuids),
                return_objects=True,
                return_alternates=True,
            )
        except oslo_messaging.MessagingException as error:
            raise NoAnswer(f'The scheduler does not answer: {error}') from error
        return selections


class Sandbox:
    """A cloud of machines, from ``with`` to its end.

    :param options: options of nova.conf by group and name, added to the sandbox's own.
    :param random: source of the UUIDs of instances.
    :ivar boots: all requests so far.
    :ivar configuration: arguments with which a command reads the nova.conf.
    """

    computes: SandboxComputes
    placement: Providers
    configuration: tuple[str, ...]

    def __init__(
        self,
        machines: Sequence[SandboxHost],
        options: Mapping[str, Mapping[str, object]] | None = None,
        random: Random | None = None,
    ) -> None:
        self.machines = tuple(machines)
        self.boots: list[Boot] = []
        self._options = options or {}
        self._random = random or Random(secrets.randbits(32))

    def __enter__(self) -> 'Sandbox':
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def databases(self) -> Databases:
        return self.computes.databases

    def group(self, policy: str, **rules: str) -> ServerGroup:
        """A new server group. Its members and their hosts are added to each request."""
        new = self.new_uuid()
        return ServerGroup(uuid=new, name=new, policy=policy, rules=rules)

    def boot(
        self,
        flavor: Flavor,
        count: int = 1,
        *,
        zone: str | None = None,
        group: ServerGroup | None = None,
        image_properties: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Boot:
        """Request instances like nova-conductor, and run the placed instances.

        :param fields: fields of the RequestSpec with other values.
        :raises NoAnswer: the scheduler does not answer.
        """
        uuids = tuple(self.new_uuid() for _ in range(count))
        present_group = group and self.with_members(group, uuids)
        spec = request_spec(
            uuids, flavor, zone, present_group, image_properties, **fields
        )
        fault = None
        selections: list[list[wire.Selection]] = []
        started = time.perf_counter()
        try:
            selections = self.request(spec, uuids)
        except NoValidHostFault as error:
            fault = str(error)
        seconds = time.perf_counter() - started

        servers = []
        # Without selections after a refusal.
        for uuid_, (first, *alternates) in zip(uuids, selections, strict=False):
            servers.append(Server(uuid_, flavor, first, tuple(alternates)))
        boot = Boot(
            uuids=uuids,
            seconds=seconds,
            servers=tuple(servers),
            fault=fault,
            group_uuid=group.uuid if group else None,
        )
        self._run(boot, image_properties or {})
        self.computes.save_requests(spec, [server.uuid for server in servers])
        return boot

    def request(
        self, spec: wire.RequestSpec, uuids: Sequence[str]
    ) -> list[list[wire.Selection]]:
        """Call the scheduler with a request of any kind, without running instances.

        :returns: for each instance the claimed host, followed by its alternates.
        :raises NoValidHostFault: an instance gets no host.
        :raises NoAnswer: the scheduler does not answer.
        """
        return self._conductor.select_destinations(spec, uuids)

    def problems(self) -> list[str]:
        """Differences between Placement's allocations and the results so far, and
        errors logged by the services."""
        return [*self._allocation_problems(), *self._errors.texts]

    def _allocation_problems(self) -> Iterator[str]:
        """Compare Placement's allocations with the results of all requests.

        A placed instance has the resources of its flavor on the provider of its host,
        and no further allocation. A refused instance has no allocation. The usage of
        each provider is the sum of the flavors of its instances.
        """
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for boot in self.boots:
            for server in boot.servers:
                machine = self.computes.machines.get(server.host)
                if machine is None:
                    yield f'server {server.uuid}: there is no host {server.host}'
                    continue
                sums[machine.uuid].update(flavor_resources(server.flavor))
                yield from self._server_problems(server, machine)

            placed = {server.uuid for server in boot.servers}
            for consumer in boot.uuids:
                if consumer in placed:
                    continue
                if boot.fault is None:
                    yield f'server {consumer} was neither placed nor refused'
                held = self.placement.allocations(consumer)
                if held:
                    yield f'server {consumer} was refused and has {held}'

        for machine in self.machines:
            for name, used in self.placement.usages(machine.uuid).items():
                total = sums[machine.uuid][name]
                if used != total:
                    yield f'{machine.name}: {used} {name} in use, should be {total}'

    def _server_problems(self, server: Server, machine: SandboxHost) -> Iterator[str]:
        node = server.selection.value('compute_node_uuid')
        if node != machine.uuid:
            yield f'server {server.uuid}: {machine.name} is not the node {node}'

        expected = {machine.uuid: dict(flavor_resources(server.flavor))}
        held = self.placement.allocations(server.uuid)
        if held != expected:
            yield (
                f'server {server.uuid} on {machine.name} has {held}, should have'
                f' {expected}'
            )

    def _start(self, stack: ExitStack) -> None:
        """Start all services; the stack stops them in reverse order."""
        self._errors = _Errors()
        logging.getLogger().addHandler(self._errors)
        stack.callback(logging.getLogger().removeHandler, self._errors)
        prefix = f'{SANDBOX_NAME}-'
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=prefix)))

        cells = {machine.cell for machine in self.machines}
        databases = Databases(folder, sorted(cells))
        stack.callback(databases.close)
        self.computes = SandboxComputes(databases, self.machines)
        self.computes.deploy()

        # Without keystone, Placement reads the user's name before the colon of a token.
        token = f'admin:{secrets.token_hex()}'
        url = stack.enter_context(serving(databases.url('placement'), token))
        self.placement = Providers(url, token)
        stack.callback(self.placement.close)
        self._register()

        conf = self._configured(folder, databases, url, token)
        settings = loading.settings(conf)
        service = loading.service_settings(conf)
        preflight(conf, settings, service)
        scheduler = SchedulerService(conf, settings, service)
        scheduler.start()
        stack.callback(scheduler.stop)

        transport = make_transport(conf)
        stack.callback(transport.cleanup)
        target = oslo_messaging.Target(topic=TOPIC, version=versions.LATEST)
        client = oslo_messaging.get_rpc_client(
            transport, target, timeout=60, serializer=Serializer()
        )
        self._conductor = _Conductor(client, self.computes, settings.report_interval)

    def _register(self) -> None:
        """Register every machine, like a nova-compute at its start."""
        for machine in self.machines:
            self.placement.register(machine)

    def _configured(
        self, folder: Path, databases: Databases, url: str, token: str
    ) -> Any:
        """Write a nova.conf, and load it like the daemon."""
        # An empty folder for further files keeps out the files of an installed nova.
        further = folder / 'nova.conf.d'
        further.mkdir()
        path = folder / 'nova.conf'
        groups: dict[str, dict[str, object]] = {
            'DEFAULT': {
                'transport_url': 'fake://',
                'host': SANDBOX_NAME,
                'state_path': str(folder),
            },
            'database': {'connection': databases.url('main')},
            'api_database': {'connection': databases.url('api')},
            'placement': {'auth_type': 'admin_token', 'endpoint': url, 'token': token},
        }
        for group, options in self._options.items():
            groups.setdefault(group, {}).update(options)

        ini = ConfigParser(interpolation=None)
        ini.read_dict(groups)
        text = StringIO()
        ini.write(text)
        # oslo.config reads a single $ as a reference to an option.
        path.write_text(text.getvalue().replace('$', '$$'))
        self.configuration = ('--config-file', str(path), '--config-dir', str(further))
        return loading.load(self.configuration, SANDBOX_NAME)

    def _run(self, boot: Boot, image_properties: Mapping[str, str]) -> None:
        """Let the nova-computes build the placed instances."""
        for server in boot.servers:
            if server.host in self.computes.machines:
                self.computes.spawn(
                    server.host,
                    server.uuid,
                    server.flavor,
                    image_properties,
                    project_id=PROJECT,
                    user_id=USER,
                    availability_zone=server.selection.value('availability_zone'),
                )
        self.boots.append(boot)

    def with_members(self, group: ServerGroup, uuids: Sequence[str]) -> ServerGroup:
        """The group with all instances requested so far, their hosts, and further
        members."""
        members = set(uuids)
        hosts: set[str] = set()
        for boot in self.boots:
            if boot.group_uuid == group.uuid:
                members.update(boot.uuids)
                hosts.update(server.host for server in boot.servers)
        return replace(group, members=frozenset(members), hosts=frozenset(hosts))

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class _Errors(logging.Handler):
    """Collects logged errors, since a service may hide an error from its caller."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f'{record.name}: {record.getMessage()}')


def request_spec(
    uuids: Sequence[str],
    flavor: Flavor,
    zone: str | None = None,
    group: ServerGroup | None = None,
    image_properties: Mapping[str, Any] | None = None,
    **fields: Any,
) -> wire.RequestSpec:
    """The RequestSpec of a build, with the fields that matter to a scheduler.

    :param fields: fields of the RequestSpec with other values.
    """
    properties = wire.ImageMetaProps.from_plain(image_properties or {})
    extra_specs = dict(flavor.extra_specs)
    spec: dict[str, Any] = {
        'image': wire.ImageMeta(properties=properties),
        'project_id': PROJECT,
        'user_id': USER,
        'flavor': wire.Flavor(**flavor_columns(flavor), extra_specs=extra_specs),
        'num_instances': len(uuids),
        'instance_uuid': uuids[0],
    }
    if zone is not None:
        spec['availability_zone'] = zone
    if group is not None:
        spec['instance_group'] = wire.InstanceGroup(
            uuid=group.uuid,
            name=group.name,
            policy=group.policy,
            members=sorted(group.members),
            hosts=sorted(group.hosts),
            _rules=dict(group.rules),
        )
        spec['scheduler_hints'] = {'group': [group.uuid]}
    return wire.RequestSpec(**{**spec, **fields})
