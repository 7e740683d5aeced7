# SPDX-License-Identifier: Apache-2.0
"""The storeys of the house: who may import whom, and what the pure packages may not
touch."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import novasched

ROOT = Path(novasched.__file__).parent
TESTS = Path(__file__).parents[1]

STOREYS = [
    {'cmd'},
    {'service', 'tools'},
    {'rpc', 'cells', 'placement', 'observe', 'plugins', 'neutron'},
    {'conf', 'concurrency'},
    {'scheduler.drivers'},
    {'scheduler'},
    {'scheduler.filters', 'scheduler.weighers', 'scheduler.prefilters'},
    {'scheduler.fitting', 'scheduler.numa', 'scheduler.pci', 'scheduler.plugin'},
    {'scheduler.model', 'scheduler.requirements', 'scheduler.errors'},
    {'conf.settings', 'conf.errors', 'conf.redaction'},
]
"""From the top down. A module imports from lower storeys, and from its own package."""
NEIGHBOURS = {
    ('observe', 'cells'),
    ('observe', 'placement'),
    ('observe', 'rpc'),
    ('tools', 'service'),
}
"""Packages of one storey of which the first may import the second."""

PURE = {
    'conf.settings', 'conf.errors', 'conf.redaction', 'scheduler',
    'placement.query', 'placement.candidates', 'placement.wire',
    'observe.records', 'rpc.notifications',
    'observe.page.query', 'observe.page.hosts',
}  # fmt: skip
IMPURE = {
    'scheduler.decision_lock',
    'scheduler.drivers',
    'scheduler.memory',
    'scheduler.shared_ledger',
    'rpc.notifications.sender',
    'observe.records.diagnosis',
    'observe.records.questions',
    'observe.records.recorder',
    'observe.records.store',
}
"""Exceptions from the above: they have threads and clocks."""
IMPURE_MODULES = {
    'keystoneauth1',
    'requests',
    'socket',
    'sqlalchemy',
    'subprocess',
    'threading',
    'time',
}
MAY_LOG = {
    'scheduler.assignments',
    'scheduler.cycle',
    'scheduler.pending_claims',
    'scheduler.pipeline',
    'scheduler.prefilters',
    'scheduler.requested_hosts',
    'scheduler.weights',
}
"""Modules that tell nova's loggers what was decided."""


def imports_of(path):
    """Every module that a file imports, dotted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def name_of(path):
    """A file's dotted name below ``novasched``."""
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix(
        '.__init__'
    )


def longest_prefix(name, prefixes):
    """The longest of some dotted names that a name is, or begins with."""
    parts = name.split('.')
    dotted = ('.'.join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((each for each in dotted if each in prefixes), None)


MODULES = {
    name_of(path): path for path in sorted(ROOT.rglob('*.py')) if path.parent != ROOT
}
MODULES['neutron'] = ROOT / 'neutron.py'
DEPTH = {room: depth for depth, storey in enumerate(STOREYS) for room in storey}
PURE_MODULES = [name for name in MODULES if longest_prefix(name, PURE | IMPURE) in PURE]


def imported_modules(name):
    """The modules of ours that one imports."""
    dotted = (
        each for each in imports_of(MODULES[name]) if each.startswith('novasched.')
    )
    found = {
        longest_prefix(each.removeprefix('novasched.'), set(MODULES)) for each in dotted
    }
    return {each for each in found if each is not None and each != name}


@pytest.mark.parametrize('name', MODULES)
def test_imports_point_down(name):
    """A module imports from lower storeys, from its own package, and from listed
    neighbours."""
    own = longest_prefix(name, set(DEPTH))
    assert own is not None, 'a module that lies on no storey'
    for other in imported_modules(name):
        room = longest_prefix(other, set(DEPTH))
        assert room is not None
        packages = name.split('.')[0], other.split('.')[0]
        same_storey = packages[0] == packages[1] or packages in NEIGHBOURS
        assert DEPTH[own] < DEPTH[room] or (
            DEPTH[own] == DEPTH[room] and same_storey
        ), other


def test_no_module_imports_itself_by_others():
    """Imports have no cycle."""
    graph = {name: imported_modules(name) for name in MODULES}
    assert len([*TopologicalSorter(graph).static_order()]) == len(graph)


@pytest.mark.parametrize('name', PURE_MODULES)
def test_pure_modules_touch_nothing(name):
    """No I/O, clock, thread, OpenStack library or module-level chance in a pure
    module."""
    for imported in imports_of(MODULES[name]):
        top = imported.split('.')[0]
        assert top not in IMPURE_MODULES
        assert not top.startswith('oslo_')
        assert top != 'logging' or longest_prefix(name, MAY_LOG)
        assert top != 'random' or imported == 'random.Random', 'take a Random'


def test_every_room_is_inhabited():
    """The tables above name nothing that is gone."""
    for named in (set(DEPTH), PURE, IMPURE, MAY_LOG):
        assert not named - {longest_prefix(name, named) for name in MODULES}


@pytest.mark.parametrize('path', sorted(TESTS.rglob('*.py')), ids=str)
def test_suites_import_the_lab_alone(path):
    """A suite of tests imports nothing of another suite, and the lab imports no
    suite."""
    own = path.relative_to(TESTS).parts[0]
    for imported in imports_of(path):
        if imported.startswith('tests.'):
            assert imported.split('.')[1] in (own, 'lab')
