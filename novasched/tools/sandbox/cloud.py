# SPDX-License-Identifier: Apache-2.0
"""A whole small cloud in one process: databases, Placement, scheduler.

    with Sandbox([SandboxHost('one'), SandboxHost('two', zone='az01')]) as cloud:
        boot = cloud.boot(Flavor(vcpus=2, memory_mb=4096, root_gb=20), zone='az01')
        assert boot.servers[0].host == 'two'
        assert not cloud.problems()

The scheduler is the real service, reading a nova.conf, and so is Placement. The sandbox
plays conductor and nova-compute. There can be one at a time in a process, as there can
be of Placement.
"""

import logging
import secrets
import threading
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
from novasched.scheduler.model.request import InstanceGroup
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
    """For whoever runs the sandbox: neither hosts nor a refusal came back."""


@dataclass(frozen=True, slots=True)
class Server:
    """An instance that got a host, with its alternates."""

    uuid: str
    flavor: Flavor
    selection: wire.Selection
    alternates: tuple[wire.Selection, ...] = ()

    @property
    def host(self) -> str:
        return str(self.selection.value('service_host'))


@dataclass(frozen=True, slots=True)
class Boot:
    """One request for instances: either all are placed, or ``fault`` says why none
    is."""

    uuids: tuple[str, ...]
    seconds: float
    servers: tuple[Server, ...] = ()
    fault: str | None = None
    group_uuid: str | None = None


class Sandbox:
    """A cloud of these machines, from ``with`` to its end.

    :param options: what nova.conf is to say besides where things are: group to option
        to value
    :param random: source of the UUIDs of instances
    :ivar configuration: the arguments with which a command reads its nova.conf
    """

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
        self._recording = threading.Lock()
        self._reported = 0.0

    def __enter__(self) -> 'Sandbox':
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def group(self, policy: str, **rules: str) -> InstanceGroup:
        """A new group; its members and their hosts are looked up when it is used."""
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
        """Request instances as conductor does, and run those that get a host.

        :param fields: fields of the RequestSpec that are to have other values
        :raises NoAnswer: the scheduler does not answer
        """
        uuids = tuple(self._new_uuid() for _ in range(count))
        group_now = group and self._now(group, uuids)
        spec = request_spec(uuids, flavor, zone, group_now, image_properties, **fields)
        fault = None
        chosen: list[list[wire.Selection]] = []
        started = time.perf_counter()
        try:
            chosen = self.request(spec, uuids)
        except NoValidHostFault as error:
            fault = str(error)
        boot = Boot(
            uuids=uuids,
            seconds=time.perf_counter() - started,
            servers=tuple(
                Server(each, flavor, first, tuple(others))
                for each, (first, *others) in zip(uuids, chosen, strict=False)
            ),
            fault=fault,
            group_uuid=group.uuid if group else None,
        )
        self._run(boot, image_properties or {})
        self.computes.save_requests(spec, [server.uuid for server in boot.servers])
        return boot

    def request(
        self, spec: wire.RequestSpec, uuids: Sequence[str]
    ) -> list[list[wire.Selection]]:
        """Call the scheduler alone, for requests of any kind; nothing is written down.
        The value has for each instance the host that was claimed for it, then its
        alternates.

        :raises NoValidHostFault: not every instance gets a host
        :raises NoAnswer: the scheduler does not answer
        """
        if time.monotonic() - self._reported >= self._settings.report_interval:
            self._reported = time.monotonic()
            self.computes.report()
        try:
            chosen: list[list[wire.Selection]] = self._client.call(
                RequestContext(user_id=USER, project_id=PROJECT),
                'select_destinations',
                spec_obj=spec,
                instance_uuids=list(uuids),
                return_objects=True,
                return_alternates=True,
            )
        except oslo_messaging.MessagingException as error:
            raise NoAnswer(f'The scheduler does not answer: {error}') from error
        return chosen

    def problems(self) -> list[str]:
        """Differences between Placement's allocations and the results so far, and the
        errors that the services logged."""
        return [*self._allocation_problems(), *self._errors.texts]

    def _allocation_problems(self) -> Iterator[str]:
        """Compare Placement's allocations with the results of all requests; one line
        per problem.

        Every placed instance has its flavor's amounts on its host's provider and
        nothing else, no refused one has anything, and each provider's usage is the sum.
        """
        taken: dict[str, Counter[str]] = defaultdict(Counter)
        for boot in self.boots:
            for server in boot.servers:
                machine = self.computes.machines.get(server.host)
                if machine is None:
                    yield f'server {server.uuid}: there is no host {server.host}'
                    continue
                if (
                    node := server.selection.value('compute_node_uuid')
                ) != machine.uuid:
                    yield f'server {server.uuid}: {machine.name} is not the node {node}'
                wanted = {machine.uuid: dict(flavor_resources(server.flavor))}
                taken[machine.uuid].update(wanted[machine.uuid])
                if (held := self.placement.allocations(server.uuid)) != wanted:
                    yield (
                        f'server {server.uuid} on {machine.name} has {held}, should'
                        f' have {wanted}'
                    )
            placed = {server.uuid for server in boot.servers}
            for consumer in (each for each in boot.uuids if each not in placed):
                if boot.fault is None:
                    yield f'server {consumer} was neither placed nor refused'
                if held := self.placement.allocations(consumer):
                    yield f'server {consumer} was refused and has {held}'
        for machine in self.machines:
            for name, used in self.placement.usages(machine.uuid).items():
                if used != (total := taken[machine.uuid][name]):
                    yield f'{machine.name}: {used} {name} in use, should be {total}'

    def _start(self, stack: ExitStack) -> None:
        self._errors = _Errors()
        logging.getLogger().addHandler(self._errors)
        stack.callback(logging.getLogger().removeHandler, self._errors)
        folder = Path(
            stack.enter_context(TemporaryDirectory(prefix=f'{SANDBOX_NAME}-'))
        )

        databases = self.databases = Databases(
            folder, sorted({x.cell for x in self.machines})
        )
        stack.callback(databases.close)
        self.computes = SandboxComputes(databases, self.machines)
        self.computes.deploy()

        # Placement without keystone takes what precedes the colon for the user's name.
        token = f'admin:{secrets.token_hex()}'
        url = stack.enter_context(serving(databases.url('placement'), token))
        self.placement = Providers(url, token)
        stack.callback(self.placement.close)
        self._register()

        conf = self._configured(folder, databases, url, token)
        self._settings = loading.settings(conf)
        service = loading.service_settings(conf)
        self._reported = time.monotonic()
        preflight(conf, self._settings, service)
        scheduler = SchedulerService(conf, self._settings, service)
        scheduler.start()
        stack.callback(scheduler.stop)
        transport = make_transport(conf)
        stack.callback(transport.cleanup)
        target = oslo_messaging.Target(topic=TOPIC, version=versions.LATEST)
        self._client = oslo_messaging.get_rpc_client(
            transport, target, timeout=60, serializer=Serializer()
        )

    def _register(self) -> None:
        """Register every machine, as a nova-compute does when it starts."""
        for machine in self.machines:
            self.placement.register(machine)

    def _configured(
        self, folder: Path, databases: Databases, url: str, token: str
    ) -> Any:
        """Write nova.conf and read it as the daemon does. Naming a folder for further
        files, an empty one, keeps those of an installed nova out."""
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
        ini.write(text := StringIO())
        # oslo.config takes a plain $ for a reference.
        path.write_text(text.getvalue().replace('$', '$$'))
        self.configuration = ('--config-file', str(path), '--config-dir', str(further))
        return loading.load(self.configuration, SANDBOX_NAME)

    def _run(self, boot: Boot, image_properties: Mapping[str, str]) -> None:
        """Play the nova-computes that build the instances."""
        with self._recording:
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

    def _now(self, group: InstanceGroup, uuids: Sequence[str]) -> InstanceGroup:
        """The group with all instances that were ever requested in it, and their
        hosts."""
        boots = [each for each in self.boots if each.group_uuid == group.uuid]
        return replace(
            group,
            members=frozenset(uuids).union(*(each.uuids for each in boots)),
            hosts=frozenset(server.host for each in boots for server in each.servers),
        )

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class _Errors(logging.Handler):
    """Remembers what is logged as an error: a service may hide it from its caller."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f'{record.name}: {record.getMessage()}')


def request_spec(
    uuids: Sequence[str],
    flavor: Flavor,
    zone: str | None = None,
    group: InstanceGroup | None = None,
    image_properties: Mapping[str, Any] | None = None,
    **fields: Any,
) -> wire.RequestSpec:
    """The RequestSpec of a build, with the fields of nova's that say something.

    :param fields: fields of the RequestSpec that are to have other values
    """
    properties = wire.ImageMetaProps.from_plain(image_properties or {})
    spec: dict[str, Any] = {
        'image': wire.ImageMeta(properties=properties),
        'project_id': PROJECT,
        'user_id': USER,
        'flavor': wire.Flavor(
            **flavor_columns(flavor), extra_specs=dict(flavor.extra_specs)
        ),
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
