# SPDX-License-Identifier: Apache-2.0
"""A simulation: the scheduler of nova.conf on hosts and a Placement in memory, and new
requests for it."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from oslo_config import cfg

from novasched.cells.instances import find_flavor
from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.options import OPTIONS, field_of
from novasched.conf.settings import Settings
from novasched.observe.records.diagnosis import Diagnoser
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.image_properties import typed
from novasched.scheduler.model.request import Request, ServerGroup
from novasched.scheduler.requirements import numa
from novasched.scheduler.requirements.pci_aliases import pci_requests, request_groups
from novasched.service.build import Application, http_adapter
from novasched.tools.shadow.comparison import composed
from novasched.tools.simulate import sources
from novasched.tools.simulate.evacuations import CYBORG_SPEC, EvacuationReader
from novasched.tools.simulate.simulator import SimulatedPlacement, Simulator

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
    """A simulator with the configuration and the databases behind it."""

    conf: cfg.ConfigOpts
    application: Application
    simulator: Simulator

    def flavor(self, name: str) -> Flavor:
        """The flavor of an id or name.

        :raises Unusable: the API database has no such flavor.
        """
        flavor = find_flavor(self.application.cells.api, name)
        if flavor is None:
            raise sources.Unusable(f'there is no flavor of the id or name {name}')
        return flavor

    def evacuations(self) -> EvacuationReader:
        cells = self.application.cells
        return EvacuationReader(cells.api, cells.all(), self.simulator.settings)

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


@contextmanager
def open_simulation(conf: cfg.ConfigOpts, seed: int) -> Iterator[Simulation]:
    """A simulation of the scheduler of a configuration; closed at the end."""
    with composed(conf) as (application, driver):
        settings = driver.pipeline.settings
        placement = SimulatedPlacement(
            application.placement.offer, settings, application.placement.base_answer
        )
        simulator = Simulator(driver, placement, seed, time.monotonic())

        http = http_adapter(conf, 'placement', loading.service_settings(conf))
        aggregates = application.hosts.aggregates
        hosts = simulator.simulated_hosts
        simulator.diagnose = Diagnoser(
            settings, http, aggregates, lambda _: hosts.all()
        )
        yield Simulation(conf, application, simulator)
