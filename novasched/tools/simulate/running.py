# SPDX-License-Identifier: Apache-2.0
"""Puts a simulation together from nova.conf and the arguments, and shows the
results."""

import argparse
import dataclasses
import functools
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from oslo_config import cfg

from novasched.cells.instances import find_flavor
from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.logs import without_secrets
from novasched.conf.options import OPTIONS, field_of
from novasched.conf.redaction import printable_lines, redact
from novasched.conf.settings import Settings
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.from_decision import rejections_of
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.image_properties import typed
from novasched.scheduler.model.request import InstanceGroup, Request
from novasched.scheduler.requirements import numa
from novasched.scheduler.requirements.pci_aliases import pci_requests, request_groups
from novasched.service.build import Application, http_adapter
from novasched.tools import config_files, explain, imported
from novasched.tools.shadow.comparison import composed
from novasched.tools.simulate import headroom, losses, runs, sources
from novasched.tools.simulate.evacuations import CYBORG_SPEC, EvacuationReader
from novasched.tools.simulate.runs import until_full
from novasched.tools.simulate.simulator import SimulatedPlacement, Simulator

_FIELDS = {field.name for field in dataclasses.fields(Settings)}
CHANGEABLE = {
    f'{group}.{option.dest}': (group, option)
    for group, option in OPTIONS
    if field_of(group, option.dest) in _FIELDS
}
"""The options that a decision depends on, by the name that they go by here."""
BEFORE = 'before'
DrawFunction = Callable[[str, Mapping[str, Sequence[Host]]], None]


def change_options(conf: cfg.ConfigOpts, texts: Sequence[str]) -> None:
    """Let options have other values, in memory.

    :raises ConfigError: there is no such option, or a decision does not depend on it,
        or it cannot have the value.
    """
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition('='))
        if not equals:
            raise ConfigError('--set', text, 'GROUP.NAME=VALUE is needed')
        if name not in CHANGEABLE:
            why = 'no decision depends on an option of that name'
            raise ConfigError(f'--set {name}', value, why)
        group, option = CHANGEABLE[name]
        given = value.split(',') if isinstance(option, cfg.MultiOpt) else value
        try:
            conf.set_override(option.dest, given, None if group == 'DEFAULT' else group)
        except ValueError as error:
            raise ConfigError(f'--set {name}', value, str(error)) from None


def pci_aliases(conf: cfg.ConfigOpts) -> Sequence[str]:
    """``[pci] alias``, which nova-api reads."""
    old = [cfg.DeprecatedOpt('pci_alias', group='DEFAULT')]
    conf.register_opt(
        cfg.MultiStrOpt('alias', default=[], deprecated_opts=old), group='pci'
    )
    return list(conf.pci.alias)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulator, and the configuration that requests for it are made of."""

    conf: cfg.ConfigOpts
    application: Application
    simulator: Simulator

    def flavor(self, name: str) -> Flavor:
        """The flavor of an id or name."""
        flavor = find_flavor(self.application.cells.api, name)
        if flavor is None:
            raise sources.Unusable(f'there is no flavor of the id or name {name}')
        return flavor

    def request(self, arguments: argparse.Namespace) -> Request:
        """Make the request that is asked for."""
        simulator = self.simulator
        if arguments.request:
            return simulator.anew(sources.numbered(arguments.request))
        if arguments.decision:
            path = arguments.file or loading.service_settings(self.conf).decisions_file
            if path is None:
                why = '--decision needs it, or --file'
                raise ConfigError('[novasched] decisions_file', '', why)
            found = sources.remembered(path, arguments.decision, simulator.settings)
            return simulator.anew(found)
        if arguments.flavor is not None:
            flavor = self.flavor(arguments.flavor)
        else:
            flavor = Flavor(
                vcpus=arguments.vcpus, memory_mb=arguments.ram, root_gb=arguments.disk
            )
        return self.new_request(flavor, arguments)

    def new_request(self, flavor: Flavor, arguments: argparse.Namespace) -> Request:
        """A request for new instances, with the parts that nova-api works out.

        :raises NovaschedError: nova-api would refuse it, or know more of it than is
            here.
        """
        specs = {**flavor.extra_specs, **dict(arguments.extra_spec)}
        if specs.get(CYBORG_SPEC):
            why = 'only Cyborg knows what that is; record a request instead'
            raise BadRequest(f'{CYBORG_SPEC}: {why}')
        flavor = replace(flavor, extra_specs=specs)
        uuids = self.simulator.new_uuids(arguments.count)
        image = Image(properties=typed(dict(arguments.image_property)))
        pci = pci_requests(flavor, image.properties, pci_aliases(self.conf))
        hints: dict[str, tuple[str, ...]] = {}
        for name, value in arguments.hint:
            hints[name] = (*hints.get(name, ()), value)
        group = None
        if policy := arguments.group_policy:
            name = f'simulated-{uuids[0]}'
            group = InstanceGroup(
                uuid=name, name=name, policy=policy, members=frozenset(uuids)
            )
            hints['group'] = (name,)
        in_placement = self.simulator.settings.pci_in_placement
        return Request(
            flavor=flavor,
            instance_uuids=uuids,
            instance_uuid=uuids[0],
            num_instances=len(uuids),
            project_id=arguments.project,
            availability_zone=arguments.zone,
            image=image,
            scheduler_hints=hints,
            instance_group=group,
            numa_topology=numa.topology(flavor, image.properties),
            pci_requests=pci,
            requested_resources=request_groups(pci) if in_placement else (),
        )


@contextmanager
def _simulation(conf: cfg.ConfigOpts, seed: int) -> Iterator[Simulation]:
    with composed(conf) as (application, driver):
        settings = driver.pipeline.settings
        placement = SimulatedPlacement(application.placement.offer, settings)
        http = http_adapter(conf, 'placement', loading.service_settings(conf))
        simulator = Simulator(driver, placement, seed, time.monotonic())
        aggregates = application.hosts.aggregates
        hosts = simulator.simulated_hosts
        simulator.diagnose = Diagnoser(
            settings, http, aggregates, lambda _: hosts.all()
        )
        yield Simulation(conf, application, simulator)


def run(arguments: argparse.Namespace) -> int:
    """Do it, and print what comes of it; 1 if a request of a file could not be read."""
    handler = WarningPrinter()
    logging.getLogger().addHandler(handler)
    draw: DrawFunction | None = None
    try:
        if path := arguments.plot:
            plot = imported('novasched.tools.simulate.plot', 'simulate')
            plot.check(path)
            draw = functools.partial(plot.draw, path)
        if arguments.lose or arguments.lose_any or arguments.headroom:
            return _lose(arguments)
        return (_replay if arguments.replay else _once)(arguments, draw)
    finally:
        logging.getLogger().removeHandler(handler)


def _once(arguments: argparse.Namespace, draw: DrawFunction | None) -> int:
    is_json = arguments.format == 'json'
    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    change_options(conf, arguments.set)
    with _simulation(conf, arguments.seed) as simulation:
        simulator = simulation.simulator
        request = simulation.request(arguments)
        if arguments.until_full:
            filled = until_full(simulator, request, arguments.at_most)
            name = request.flavor.name or 'servers'
            print(
                (runs.filled_as_json if is_json else runs.filled_as_text)(filled, name)
            )
            if draw:
                curves = {BEFORE: filled.before, 'after': filled.after}
                draw(f'{filled.fit:,} more {name}', curves)
            return 0
        outcome = simulator.decide(request)
        record = outcome.record(0)
        rejections = rejections_of(outcome.decision) if arguments.host else None
    if is_json:
        print(explain.as_json(record, 0, arguments.host, rejections))
    else:
        print(printable_lines(runs.decided_as_text(record, arguments.host, rejections)))
    return 0


def _lose(arguments: argparse.Namespace) -> int:
    """Lose some hosts, or each host, aggregate or zone alone, or the fullest host of
    each."""
    is_json = arguments.format == 'json'
    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    change_options(conf, arguments.set)
    with _simulation(conf, arguments.seed) as simulation:
        simulator = simulation.simulator
        cells = simulation.application.cells
        reader = EvacuationReader(cells.api, cells.all(), simulator.settings)
        whereabouts = simulator.read_all()
        hosts = simulator.hosts
        zone = simulator.settings.default_availability_zone
        if kind := arguments.headroom:
            sets = losses.members(kind, hosts, zone)
            probe = simulation.new_request(
                simulation.flavor(arguments.probe), arguments
            )
            evacuees = reader.on({*headroom.fullest_hosts(sets, hosts).values()})
            most = arguments.at_most
            name = arguments.probe
            rooms = headroom.headroom(
                simulator, sets, evacuees, whereabouts, probe, most
            )
            print(headroom.SHAPES[arguments.format](kind, name, rooms))
        elif kind := arguments.lose_any:
            lost = losses.members(kind, hosts, zone)
            found = losses.lose_each(simulator, lost, reader.on(None), whereabouts)
            print(
                (losses.worst_as_json if is_json else losses.worst_as_text)(kind, found)
            )
        else:
            names = losses.named(arguments.lose, hosts, zone)
            evacuees = reader.on(names)
            name = ' and '.join(arguments.lose)
            loss = losses.lose(simulator, name, names, evacuees, whereabouts)
            print(
                losses.lost_as_json(loss)
                if is_json
                else losses.lost_as_text(loss, hosts)
            )
    return 0


def _replay(arguments: argparse.Namespace, draw: DrawFunction | None) -> int:
    """Replay under each configuration, on hosts of its own."""
    configurations = _configurations(arguments)
    results = []
    found = sources.entries(arguments.replay, loading.settings(configurations[0][1]))
    for name, conf in configurations:
        with _simulation(conf, arguments.seed) as simulation:
            simulator = simulation.simulator
            probe = None
            if arguments.probe:
                probe = simulation.new_request(
                    simulation.flavor(arguments.probe), arguments
                )
            results.append(
                runs.replay(name, simulator, found.requests, probe, arguments.at_most)
            )
    is_json = arguments.format == 'json'
    shape = runs.replayed_as_json if is_json else runs.replayed_as_text
    print(shape(results, found, arguments.probe))
    if draw:
        curves = {
            BEFORE: results[0].before,
            **{each.name: each.after for each in results},
        }
        draw(f'{len(found.requests):,} requests replayed', curves)
    return int(bool(found.unread))


def _configurations(arguments: argparse.Namespace) -> list[tuple[str, cfg.ConfigOpts]]:
    """Read both before anything is done, so that errors are shown soon."""
    files = config_files(arguments.config_file, arguments.config_dir)
    found = [('as it is', loading.load(files, 'novasched'))]
    if arguments.compare or arguments.set:
        others = [f'--config-file={arguments.compare}'] if arguments.compare else files
        other = loading.load(others, 'novasched')
        change_options(other, arguments.set)
        found.append(('changed', other))
    return found


class WarningPrinter(logging.Handler):
    """Prints to standard error, once each, the warnings that a daemon would log: a cell
    that does not answer, for instance, whose hosts are missing then."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = redact(without_secrets(record).getMessage())
        if text not in self._printed:
            self._printed.add(text)
            print(f'novaschedctl simulate: warning: {text}', file=sys.stderr)
