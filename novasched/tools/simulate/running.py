# SPDX-License-Identifier: Apache-2.0
"""The subcommands of ``novaschedctl simulate``: each reads nova.conf, simulates, and
prints a report."""

import argparse
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from novasched.conf import loading
from novasched.conf.logs import without_secrets
from novasched.conf.redaction import printable_lines, redact
from novasched.observe.records.from_decision import rejections_of
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import capacity_of
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import UsualGuests
from novasched.tools import config_files, explain, imported
from novasched.tools.plan.rescue import Rescuer
from novasched.tools.simulate import (
    advice,
    headroom,
    losses,
    runs,
    sources,
    trace_reports,
)
from novasched.tools.simulate.described_cloud import read_cloud
from novasched.tools.simulate.history import (
    emptied_cloud,
    flavors_in,
    history_of,
    past_instances,
)
from novasched.tools.simulate.simulation import (
    RequestOptions,
    Simulation,
    change_options,
    described_simulation,
    open_simulation,
)
from novasched.tools.simulate.trace import (
    TraceEntry,
    TracePlayer,
    read_trace,
    usual_guests_of,
)

BEFORE = 'before'
DrawFunction = Callable[[str, Mapping[str, Any]], None]
"""Draws a picture with a title: of hosts in several states by name, or of loads by
resource."""


def run(arguments: argparse.Namespace) -> int:
    """Run a subcommand and return the exit status."""
    with warnings_on_stderr():
        return SUBCOMMANDS[arguments.command](arguments)


def run_boot(arguments: argparse.Namespace) -> int:
    """Decide one request, or repeat it until it is refused."""
    draw = drawing(arguments.plot)
    conf = configuration(arguments)
    with open_simulation(conf, arguments.seed) as simulation:
        request = _request(simulation, arguments)
        if arguments.until_full:
            _fill(simulation, request, arguments, draw)
            return 0

        outcome = simulation.simulator.decide(request)
        record = outcome.record(0)
        rejections = None
        if arguments.host:
            rejections = rejections_of(outcome.decision)

    if arguments.format == 'json':
        print(explain.as_json(record, 0, arguments.host, rejections))
    else:
        text = runs.decided_as_text(record, arguments.host, rejections)
        print(printable_lines(text))
    return 0


def _fill(
    simulation: Simulation,
    request: Request,
    arguments: argparse.Namespace,
    draw: DrawFunction | None,
) -> None:
    """Place instances until the request is refused, and print the number."""
    filled = runs.until_full(simulation.simulator, request, arguments.at_most)
    name = request.flavor.name or 'servers'
    if arguments.format == 'json':
        print(runs.filled_as_json(filled, name))
    else:
        print(runs.filled_as_text(filled, name))

    if draw:
        states = {BEFORE: filled.before, 'after': filled.after}
        draw(f'{filled.fit:,} more {name}', states)


def _request(simulation: Simulation, arguments: argparse.Namespace) -> Request:
    """The request that the arguments of ``boot`` name.

    :raises NovaschedError: there is no such flavor, file or decision, or nova-api would
        refuse the request.
    """
    simulator = simulation.simulator
    if arguments.request:
        return simulator.anew(sources.numbered(arguments.request))

    if arguments.decision:
        recorded = simulation.remembered(arguments.decision, arguments.file)
        return simulator.anew(recorded)

    if arguments.flavor is not None:
        flavor = simulation.flavor(arguments.flavor)
    else:
        flavor = Flavor(
            vcpus=arguments.vcpus, memory_mb=arguments.ram, root_gb=arguments.disk
        )
    options = RequestOptions(
        count=arguments.count or 1,
        project=arguments.project,
        zone=arguments.zone,
        group_policy=arguments.group_policy,
        hints=arguments.hint,
        extra_specs=dict(arguments.extra_spec),
        image_properties=dict(arguments.image_property),
    )
    return simulation.new_request(flavor, options)


def run_replay(arguments: argparse.Namespace) -> int:
    """Decide all requests of a file under each configuration, on hosts of its own. The
    exit status is 1 if a line of the file cannot be read."""
    draw = drawing(arguments.plot)
    # All configurations are read first, so that their errors are shown early.
    configurations = [('as it is', _read_configuration(arguments))]
    if arguments.compare or arguments.set:
        configurations.append(('changed', _changed_configuration(arguments)))
    settings = loading.settings(configurations[0][1])
    entries = sources.entries(arguments.file, settings)

    results = []
    for name, conf in configurations:
        with open_simulation(conf, arguments.seed) as simulation:
            probe = None
            if arguments.probe:
                flavor = simulation.flavor(arguments.probe)
                probe = simulation.new_request(flavor, RequestOptions())
            result = runs.replay(
                name, simulation.simulator, entries.requests, probe, arguments.at_most
            )
            results.append(result)

    if arguments.format == 'json':
        print(runs.replayed_as_json(results, entries, arguments.probe))
    else:
        print(runs.replayed_as_text(results, entries, arguments.probe))

    if draw:
        states = {BEFORE: results[0].before}
        for result in results:
            states[result.name] = result.after
        draw(f'{len(entries.requests):,} requests replayed', states)
    return 1 if entries.unread else 0


def run_lose(arguments: argparse.Namespace) -> int:
    """Evacuate the servers of lost hosts, or of each host, aggregate or zone in
    turn."""
    is_json = arguments.format == 'json'
    conf = configuration(arguments)
    with open_simulation(conf, arguments.seed) as simulation:
        simulator = simulation.simulator
        reader = simulation.evacuations()
        whereabouts = simulator.read_all()
        hosts = simulator.hosts
        zone = simulator.settings.default_availability_zone

        if arguments.any:
            lost = losses.members(arguments.any, hosts, zone)
            found = losses.lose_each(simulator, lost, reader.on(None), whereabouts)
            shape = losses.worst_as_json if is_json else losses.worst_as_text
            print(shape(arguments.any, found))
            return 0

        names = losses.named(arguments.lost, hosts, zone)
        title = ' and '.join(arguments.lost)
        loss = losses.lose(simulator, title, names, reader.on(names), whereabouts)
        if is_json:
            print(losses.lost_as_json(loss))
        else:
            print(losses.lost_as_text(loss, hosts))
    return 0


def run_headroom(arguments: argparse.Namespace) -> int:
    """Lose the fullest host of each aggregate or zone, and count the servers of a
    flavor that fit there afterwards."""
    conf = configuration(arguments)
    with open_simulation(conf, arguments.seed) as simulation:
        simulator = simulation.simulator
        options = RequestOptions(
            project=arguments.project,
            hints=arguments.hint,
            extra_specs=dict(arguments.extra_spec),
            image_properties=dict(arguments.image_property),
        )
        flavor = simulation.flavor(arguments.flavor)
        probe = simulation.new_request(flavor, options)

        whereabouts = simulator.read_all()
        hosts = simulator.hosts
        zone = simulator.settings.default_availability_zone
        sets = losses.members(arguments.kind, hosts, zone)
        fullest = headroom.fullest_hosts(sets, hosts)
        evacuees = simulation.evacuations().on({*fullest.values()})
        found = headroom.headroom(
            simulator, sets, evacuees, whereabouts, probe, arguments.at_most
        )
    print(headroom.SHAPES[arguments.format](arguments.kind, arguments.flavor, found))
    return 0


def run_trace(arguments: argparse.Namespace) -> int:
    """Play a trace under each configuration, on hosts of its own."""
    draw = drawing(arguments.plot, 'draw_loads')
    # All configurations are read first, so that their errors are shown early.
    configurations = [('as it is', configuration(arguments))]
    for text in arguments.beside:
        conf = configuration(arguments)
        change_options(conf, text.split(';'))
        configurations.append((text, conf))
    entries = read_trace(arguments.file)

    played = []
    for name, conf in configurations:
        with _opened(conf, arguments, entries) as (simulation, usual):
            rescuer = None
            if arguments.make_room is not None:
                rescuer = Rescuer(simulation.simulator, arguments.make_room)
            player = TracePlayer(simulation, usual, rescuer)
            played.append(player.play(name, entries, arguments.moments))

    if arguments.format == 'json':
        print(trace_reports.as_json(played))
    else:
        print(printable_lines(trace_reports.as_text(played)))
    if draw:
        draw(f'{len(entries):,} requests of a trace', trace_reports.curves(played))
    return 0


def run_advise(arguments: argparse.Namespace) -> int:
    """Play the history of the cloud, without its present instances, by several
    settings, and propose the best."""
    since = timeutils.utcnow() - timedelta(days=arguments.days)
    conf = configuration(arguments)
    with open_simulation(conf, arguments.seed) as live:
        cells = live.application.cells
        instances = past_instances(cells.enabled(), since)
        history = history_of(instances, flavors_in(instances, cells.api), since)
        hosts = live.simulator.hosts
        aggregates = live.application.hosts.aggregates.all()
    if not history.entries:
        raise sources.Unusable('the databases have no instance to learn from')

    cloud = emptied_cloud(hosts, instances, history.flavors, aggregates)
    if not cloud.hosts:
        raise sources.Unusable('no host is up and enabled')
    capacity = capacity_of(cloud.hosts)
    usual = usual_guests_of(history.entries, cloud.flavors.get, capacity)
    results = []
    for setting, options in advice.SETTINGS.items():
        conf = configuration(arguments)
        change_options(conf, [f'{name}={value}' for name, value in options.items()])
        simulation = described_simulation(conf, cloud, usual, arguments.seed)
        results.append(
            advice.tried(setting, simulation, history.entries, usual, arguments.seed)
        )

    if arguments.format == 'json':
        print(advice.as_json(results, history.left_out))
    else:
        print(printable_lines(advice.as_text(results, history.left_out)))
    return 0


@contextmanager
def _opened(
    conf: cfg.ConfigOpts, arguments: argparse.Namespace, entries: Sequence[TraceEntry]
) -> Iterator[tuple[Simulation, UsualGuests]]:
    """The simulation for a trace, and the usual guests of the trace."""
    if arguments.cloud is None:
        with open_simulation(conf, arguments.seed) as live:
            capacity = capacity_of(live.simulator.hosts)
            yield live, usual_guests_of(entries, live.find_flavor, capacity)
        return

    cloud = read_cloud(arguments.cloud)
    capacity = capacity_of(cloud.hosts)
    usual = usual_guests_of(entries, cloud.flavors.get, capacity)
    yield described_simulation(conf, cloud, usual, arguments.seed), usual


SUBCOMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    'boot': run_boot,
    'replay': run_replay,
    'lose': run_lose,
    'headroom': run_headroom,
    'trace': run_trace,
    'advise': run_advise,
}


def configuration(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    """nova.conf with the options of ``--set``."""
    conf = _read_configuration(arguments)
    change_options(conf, arguments.set)
    return conf


def _read_configuration(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    files = config_files(arguments.config_file, arguments.config_dir)
    return loading.load(files, 'novasched')


def _changed_configuration(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    """The nova.conf of ``--compare``, or else the same one, with the options of
    ``--set``."""
    if not arguments.compare:
        return configuration(arguments)
    conf = loading.load([f'--config-file={arguments.compare}'], 'novasched')
    change_options(conf, arguments.set)
    return conf


def drawing(path: str | None, function: str = 'draw') -> DrawFunction | None:
    """A function of the module ``plot`` that draws to a file; None without a file.

    :raises NovaschedError: matplotlib is not installed, or the file cannot be written.
    """
    if not path:
        return None
    plot = imported('novasched.tools.simulate.plot', 'simulate')
    plot.check(path)
    return functools.partial(getattr(plot, function), path)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings of the scheduler on standard error."""
    handler = WarningPrinter()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class WarningPrinter(logging.Handler):
    """Prints to standard error, once each, the warnings that a daemon would log, such
    as a cell that does not answer, so that its hosts are missing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = redact(without_secrets(record).getMessage())
        if text not in self._printed:
            self._printed.add(text)
            print(f'novaschedctl simulate: warning: {text}', file=sys.stderr)
