# SPDX-License-Identifier: Apache-2.0
"""The rooms of the house: who may import whom, and what the pure rooms may not touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import novasched

ROOT = Path(novasched.__file__).parent

LAYERS = [
    {'cmd'},
    {'simulating'},
    {'sandbox', 'checking', 'shadow', 'explaining'},
    {'service'},
    {'viewing'},
    {'monitoring'},
    {'measuring'},
    {'notify.sender'},
    {'web', 'page'},
    {'page.heat', 'page.machine'},
    {'page.guard', 'page.resources', 'page.sight', 'page.told', 'page.wanted'},
    {'rpc', 'cells', 'network', 'placement.client', 'plugins', 'conf', 'recorder', 'metrics'},
    {'placement.claims'},
    {'placement.api', 'placement.undoing'},
    {'connections', 'turns', 'breaker', 'supervisor', 'meditation', 'backlog', 'tracing'},
    {'notify'},
    {'objects', 'processes', 'compat', 'tls'},
    {'drivers'},
    {'cycle'},
    {'ports'},
    {'inflight'},
    {'pipeline'},
    {'narrowing', 'weighing'},
    {'filters', 'weighers', 'prefilters'},
    {'fitting'},
    {'numa', 'pci'},
    {'placement.query', 'placement.candidates', 'placement.relaxing'},
    {'placement.pinning', 'placement.features'},
    {'records'},
    {'model'},
    {'errors', 'logs'},
    {'secrets'},
]
"""From the top down. A room imports from lower layers, and from itself, alone."""

PURE = {
    'model', 'cycle', 'pipeline', 'narrowing', 'weighing', 'filters', 'weighers', 'prefilters',
    'placement.query', 'placement.candidates', 'placement.relaxing', 'placement.pinning',
    'placement.features', 'records', 'notify', 'errors', 'secrets', 'fitting', 'numa', 'pci',
    'page.guard', 'page.heat', 'page.machine', 'page.resources', 'page.sight', 'page.told',
    'page.wanted',
}  # fmt: skip
IMPURE_MODULES = {
    'keystoneauth1', 'requests', 'socket', 'sqlalchemy', 'subprocess', 'threading', 'time',
}  # fmt: skip
MAY_LOG = {'cycle', 'pipeline', 'narrowing', 'weighing', 'prefilters'}
"""The rooms that tell the log what was decided."""

DEPTH = {room: depth for depth, layer in enumerate(LAYERS) for room in layer}
MODULES = sorted(ROOT.rglob('*.py'))


def room_of(module: str) -> str | None:
    """The room that a dotted name below ``novasched`` lies in."""
    parts = module.split('.')
    for length in (2, 1):
        room = '.'.join(parts[:length])
        if room in DEPTH:
            return room
    return None


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, dotted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def name_of(path: Path) -> str:
    """A file's dotted name below ``novasched``."""
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    """A module imports from lower layers and from its own room."""
    own = room_of(name_of(path))
    if own is None:
        assert name_of(path) in ('__init__', 'placement'), 'a module that lies in no room'
        return
    upward = []
    for imported in imports_of(path):
        if not imported.startswith('novasched.'):
            continue
        other = room_of(imported.removeprefix('novasched.'))
        if other is not None and other != own and DEPTH[other] <= DEPTH[own]:
            upward.append(f'{own} -> {imported}')
    assert not upward


@pytest.mark.parametrize(
    'path', [path for path in MODULES if room_of(name_of(path)) in PURE], ids=name_of
)
def test_pure_rooms_touch_nothing(path: Path) -> None:
    """No I/O, clock, thread, OpenStack library or module-level chance in a pure room."""
    allowed = {'logging'} if room_of(name_of(path)) in MAY_LOG else set()
    for imported in imports_of(path):
        top = imported.split('.')[0]
        assert top not in IMPURE_MODULES
        assert not top.startswith('oslo_')
        assert top != 'logging' or top in allowed
        assert top != 'random' or imported == 'random.Random', 'take a Random'


def test_every_room_is_inhabited() -> None:
    """The table above names no room that is gone."""
    inhabited = {room_of(name_of(path)) for path in MODULES}
    assert not DEPTH.keys() - inhabited
