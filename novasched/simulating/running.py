# SPDX-License-Identifier: Apache-2.0
"""Puts a simulation together from nova.conf and the arguments, and shows what comes of it."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from oslo_config import cfg

# First: it chooses the threads with which the libraries below are imported.
import novasched.processes  # noqa: F401
from novasched import conf as configuration
from novasched.cells.flavors import flavor as find_flavor
from novasched.errors import ConfigError
from novasched.model.request import Flavor, Request
from novasched.recorder.inquiry import Inquirer
from novasched.secrets import hide
from novasched.service import Application, http_adapter
from novasched.shadow.replay import composed, configured
from novasched.simulating import asking, options, report, sources
from novasched.simulating.filling import Filled, until_full
from novasched.simulating.rehearsal import Rehearsal
from novasched.simulating.replaying import Run, replay
from novasched.simulating.simulator import Simulator

PRESENT, CHANGED = 'as it is', 'changed'
BEFORE, AFTER = 'before', 'after'
OK, PARTLY = 0, 1


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulator, and what requests for it are made of."""

    conf: cfg.ConfigOpts
    application: Application
    simulator: Simulator


def run(arguments: argparse.Namespace) -> int:
    """Do it, and print what comes of it.

    :raises NovaschedError: it cannot be done.
    """
    with warning():
        draw = _plotter(arguments.plot) if arguments.plot else None
        return _replay(arguments, draw) if arguments.replay else _once(arguments, draw)


def _once(arguments: argparse.Namespace, draw: Draw | None) -> int:
    conf = configured(arguments.config_file, arguments.config_dir)
    options.change(conf, arguments.set)
    with _scene(conf, arguments) as scene:
        request = _request(scene, arguments)
        if arguments.until_full:
            _show_filled(
                until_full(scene.simulator, request, arguments.at_most), request, arguments, draw
            )
            return OK
        outcome = scene.simulator.decide(request, named=bool(arguments.host))
        record = outcome.record(0)
        causes = outcome.causes() if arguments.host else None
    shape = report.decided_as_json if _is_json(arguments) else report.decided_as_text
    print(shape(record, arguments.host, causes))
    return OK


def _show_filled(
    filled: Filled, request: Request, arguments: argparse.Namespace, draw: Draw | None
) -> None:
    name = request.flavor.name or 'servers'
    shape = report.filled_as_json if _is_json(arguments) else report.filled_as_text
    print(shape(filled, name))
    if draw:
        draw(f'{filled.fit:,} more {name}', {BEFORE: filled.before, AFTER: filled.after})


def _replay(arguments: argparse.Namespace, draw: Draw | None) -> int:
    """Every configuration on hosts of its own."""
    found: sources.Entries | None = None
    runs: list[Run] = []
    for name, conf in _configurations(arguments):
        with _scene(conf, arguments) as scene:
            if found is None:
                found = sources.entries(arguments.replay, scene.simulator.settings)
            probe = None
            if arguments.probe:
                flavor = _known_flavor(scene.application, arguments.probe)
                probe = _made(scene, asking.Wanted(flavor))
            runs.append(replay(name, scene.simulator, found.found, probe, arguments.at_most))
    assert found is not None
    shape = report.replayed_as_json if _is_json(arguments) else report.replayed_as_text
    print(shape(runs, found, arguments.probe))
    if draw:
        curves = {BEFORE: runs[0].before, **{each.name: each.after for each in runs}}
        draw(f'{len(found.found):,} requests replayed', curves)
    return PARTLY if found.unread else OK


def _configurations(arguments: argparse.Namespace) -> list[tuple[str, cfg.ConfigOpts]]:
    """Both are read before anything is done, so that what is wrong with one is told soon."""
    found = [(PRESENT, configured(arguments.config_file, arguments.config_dir))]
    if arguments.compare or arguments.set:
        files = [arguments.compare] if arguments.compare else arguments.config_file
        other = configured(files, [] if arguments.compare else arguments.config_dir)
        options.change(other, arguments.set)
        found.append((CHANGED, other))
    return found


@contextmanager
def _scene(conf: cfg.ConfigOpts, arguments: argparse.Namespace) -> Iterator[Scene]:
    with composed(conf) as (application, driver):
        settings = driver.pipeline.settings
        placement = Rehearsal(application.placement.offer, settings)
        inquire = Inquirer(settings, http_adapter(conf, 'placement'), application.hosts.aggregates)
        simulator = Simulator(driver, placement, arguments.seed, time.monotonic(), inquire)
        yield Scene(conf, application, simulator)


def _request(scene: Scene, arguments: argparse.Namespace) -> Request:
    """What is asked for.

    :raises NovaschedError: there is no such thing.
    """
    if arguments.request:
        return scene.simulator.anew(sources.numbered(arguments.request))
    if arguments.decision:
        path = arguments.file or configuration.decisions_file(scene.conf)
        if path is None:
            why = '--decision needs it, or --file'
            raise ConfigError('[novasched] decisions_file', '', why)
        settings = scene.simulator.settings
        return scene.simulator.anew(sources.remembered(path, arguments.decision, settings))
    if arguments.flavor is not None:
        flavor = _known_flavor(scene.application, arguments.flavor)
    else:
        flavor = Flavor(vcpus=arguments.vcpus, memory_mb=arguments.ram, root_gb=arguments.disk)
    specs = {**flavor.extra_specs, **dict(arguments.extra_spec)}
    wanted = asking.Wanted(
        replace(flavor, extra_specs=specs),
        arguments.count,
        arguments.project,
        arguments.zone,
        dict(arguments.image_property),
        arguments.hint,
        arguments.group_policy,
    )
    return _made(scene, wanted)


def _made(scene: Scene, wanted: asking.Wanted) -> Request:
    return asking.request(
        wanted,
        scene.simulator.servers(wanted.count),
        options.pci_aliases(scene.conf),
        scene.simulator.settings.pci_in_placement,
    )


def _known_flavor(application: Application, name: str) -> Flavor:
    flavor = find_flavor(application.cells.api, name)
    if flavor is None:
        raise sources.Unusable(f'there is no flavor of the id or name {name}')
    return flavor


def _is_json(arguments: argparse.Namespace) -> bool:
    return bool(arguments.format == 'json')


Draw = Callable[[str, dict[str, Any]], None]


def _plotter(path: str) -> Draw:
    """What draws into a file.

    :raises Unusable: it does not go by a name, or what draws is not installed.
    """
    try:
        plot = import_module('novasched.simulating.plot')
    except ImportError as error:
        why = f'{error.name} is not installed: pip install novasched[simulate]'
        raise sources.Unusable(f'--plot: {why}') from None
    plot.check(path)

    def draw(title: str, curves: dict[str, Any]) -> None:
        plot.draw(path, title, curves)

    return draw


@contextmanager
def warning() -> Iterator[None]:
    """While it lasts, warnings are told."""
    handler = Warnings()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class Warnings(logging.Handler):
    """Tells on standard error, once each, what would be in the daemon's log: a cell that does
    not answer, for instance, whose hosts are missing then."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell, unless it is told."""
        text = hide(record.getMessage())
        if text not in self._told:
            self._told.add(text)
            print(f'novaschedctl simulate: warning: {text}', file=sys.stderr)
