# SPDX-License-Identifier: Apache-2.0
"""A simulation: the scheduler of nova.conf on hosts and a Placement in memory, and new
requests for it."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from oslo_config import cfg

from novasched.cells.flavors import find_flavor
from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.options import OPTIONS, field_of
from novasched.conf.settings import Settings
from novasched.observe.records.diagnosis import Diagnoser
from novasched.plugins import loading as plugins
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.image_properties import typed
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.model.usual_guests import UsualGuests
from novasched.scheduler.prefilters import Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.scheduler.requirements import numa
from novasched.scheduler.requirements.pci_aliases import pci_requests, request_groups
from novasched.service.build import Application, http_adapter
from novasched.tools.shadow.comparison import composed
from novasched.tools.simulate import sources
from novasched.tools.simulate.described_cloud import COMPUTE_VERSION, DescribedCloud
from novasched.tools.simulate.evacuations import CYBORG_SPEC, EvacuationReader
from novasched.tools.simulate.simulated_placement import SimulatedPlacement
from novasched.tools.simulate.simulator import Simulator
from novasched.tools.simulate.whole_answers import WholeAnswers

_FIELDS = {field.name for field in dataclasses.fields(Settings)}
CHANGEABLE = {
    f'{group}.{option.dest}': (group, option)
    for group, option in OPTIONS
    if field_of(group, option.dest) in _FIELDS
}
"""The options that decisions depend on, by ``GROUP.NAME``."""


def change_options(conf: cfg.ConfigOpts, texts: Sequence[str]) -> None:
    """Override options in memory, each given as ``GROUP.NAME=VALUE``.

    :raises ConfigError: the option does not exist, no decision depends on it, or the
        value is invalid.
    """
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition('='))
        if not equals:
            raise ConfigError('--set', text, 'GROUP.NAME=VALUE is needed')
        if name not in CHANGEABLE:
            why = 'no decision depends on an option of that name'
            raise ConfigError(f'--set {name}', value, why)

        group, option = CHANGEABLE[name]
        is_list = isinstance(option, cfg.MultiOpt)
        override = value.split(',') if is_list else value
        # oslo.config knows the options of DEFAULT without a group.
        oslo_group = None if group == 'DEFAULT' else group
        try:
            conf.set_override(option.dest, override, oslo_group)
        except ValueError as error:
            raise ConfigError(f'--set {name}', value, str(error)) from None


def pci_aliases(conf: cfg.ConfigOpts) -> Sequence[str]:
    """The values of ``[pci] alias``, an option of nova-api."""
    deprecated = [cfg.DeprecatedOpt('pci_alias', group='DEFAULT')]
    alias = cfg.MultiStrOpt('alias', default=[], deprecated_opts=deprecated)
    conf.register_opt(alias, group='pci')
    return list(conf.pci.alias)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The properties of a new request beside its flavor.

    :ivar count: the number of instances.
    :ivar group_policy: the policy of a new server group of all instances; None for no
        group.
    :ivar hints: names and values of scheduler hints; a name may be repeated.
    :ivar extra_specs: extra specs that are added to the flavor, or replace its own.
    """

    count: int = 1
    project: str | None = None
    zone: str | None = None
    group_policy: str | None = None
    hints: Sequence[tuple[str, str]] = ()
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    image_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulator with its configuration.

    :ivar find_flavor: returns the flavor of an id or name, or None.
    """

    conf: cfg.ConfigOpts
    simulator: Simulator
    find_flavor: Callable[[str], Flavor | None]

    def flavor(self, name: str) -> Flavor:
        """The flavor of an id or name.

        :raises Unusable: the cloud has no such flavor.
        """
        flavor = self.find_flavor(name)
        if flavor is None:
            raise sources.Unusable(f'there is no flavor of the id or name {name}')
        return flavor

    def remembered(self, decision: str, path: str | None) -> Request:
        """The request of a recorded decision.

        :param decision: the UUID of a server, or the id of a request or a decision.
        :param path: the file of decisions; None for the file of nova.conf.
        :raises ConfigError: nova.conf names no file.
        :raises Unusable: there is no such decision, or it is not known in full.
        :raises UnreadableRecords: the file cannot be read.
        """
        if path is None:
            path = loading.service_settings(self.conf).decisions_file
        if path is None:
            why = '--decision needs it, or --file'
            raise ConfigError('[novasched] decisions_file', '', why)
        return sources.remembered(path, decision, self.simulator.settings)

    def new_request(self, flavor: Flavor, options: RequestOptions) -> Request:
        """A request for new instances, with the NUMA topology, the PCI requests and the
        request groups that nova-api derives from the flavor and the image.

        :raises NovaschedError: nova-api would refuse the request, or would ask a
            service that a simulation does not ask.
        """
        extra_specs = {**flavor.extra_specs, **options.extra_specs}
        if extra_specs.get(CYBORG_SPEC):
            why = 'only Cyborg knows the device profile; record a request instead'
            raise BadRequest(f'{CYBORG_SPEC}: {why}')
        flavor = replace(flavor, extra_specs=extra_specs)
        image = Image(properties=typed(options.image_properties))
        pci = pci_requests(flavor, image.properties, pci_aliases(self.conf))
        groups: tuple[RequestGroup, ...] = ()
        if self.simulator.settings.pci_in_placement:
            groups = request_groups(pci)

        uuids = self.simulator.new_uuids(options.count)
        hints: dict[str, tuple[str, ...]] = {}
        for name, value in options.hints:
            hints[name] = (*hints.get(name, ()), value)

        group = None
        if options.group_policy:
            group_uuid = f'simulated-{uuids[0]}'
            group = ServerGroup(
                uuid=group_uuid,
                name=group_uuid,
                policy=options.group_policy,
                members=frozenset(uuids),
            )
            hints['group'] = (group_uuid,)

        return Request(
            flavor=flavor,
            instance_uuids=uuids,
            instance_uuid=uuids[0],
            num_instances=len(uuids),
            project_id=options.project,
            availability_zone=options.zone,
            image=image,
            scheduler_hints=hints,
            instance_group=group,
            numa_topology=numa.topology(flavor, image.properties),
            pci_requests=pci,
            requested_resources=groups,
        )


@dataclass(frozen=True, slots=True)
class LiveSimulation(Simulation):
    """A simulation on the live cloud."""

    application: Application

    def evacuations(self) -> EvacuationReader:
        cells = self.application.cells
        return EvacuationReader(cells.api, cells.all(), self.simulator.settings)


@contextmanager
def open_simulation(
    conf: cfg.ConfigOpts, seed: int, with_full_hosts: bool = False
) -> Iterator[LiveSimulation]:
    """A simulation of the scheduler of a configuration on the live cloud; closed at the
    end.

    :param with_full_hosts: read the providers of hosts that are full, too, since their
        servers may leave. Then Placement is asked base queries only.
    """
    with composed(conf) as (application, driver):
        settings = driver.pipeline.settings
        client = application.placement
        placement = SimulatedPlacement(client.offer, settings, client.base_answer)
        if with_full_hosts:
            whole = WholeAnswers(client, lambda: hosts.all())
            placement = SimulatedPlacement(None, settings, whole.base_answer)
        simulator = Simulator(driver, placement, seed, time.monotonic())

        http = http_adapter(conf, 'placement', loading.service_settings(conf))
        aggregates = application.hosts.aggregates
        hosts = simulator.simulated_hosts
        simulator.diagnose = Diagnoser(
            settings, http, aggregates, lambda _: hosts.all()
        )
        find = functools.partial(find_flavor, application.cells.api)
        yield LiveSimulation(conf, simulator, find, application)


def described_simulation(
    conf: cfg.ConfigOpts, cloud: DescribedCloud, usual: UsualGuests, seed: int
) -> Simulation:
    """A simulation of the scheduler of a configuration on the cloud of a file.

    :param usual: the usual guests of the cloud.
    :raises ConfigError: the value of an option cannot be used.
    :raises BadPlugin: a filter or weigher cannot be loaded.
    """
    settings = loading.settings(conf)
    prepare = functools.partial(share_options, conf)
    placement = SimulatedPlacement(None, settings, cloud.base_answer)
    hosts = MemoryHosts(cloud.hosts, settings)
    hosts.compute_version = COMPUTE_VERSION
    hosts.usual = usual
    deps = SchedulerDeps(
        settings,
        enabled_prefilters(settings, Sources(cloud)),
        placement,
        hosts,
        plugins.filters(settings, prepare),
        plugins.weighers(settings, prepare),
    )
    simulator = Simulator(FilterScheduler(deps), placement, seed, time.monotonic())
    return Simulation(conf, simulator, cloud.flavors.get)
