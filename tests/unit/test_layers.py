# SPDX-License-Identifier: Apache-2.0
"""The layers of the packages: allowed imports, and modules without I/O."""

import ast
from functools import cache
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
"""(Importing package, imported package) of the same storey."""

PURE = {
    'conf.settings', 'conf.errors', 'conf.redaction', 'scheduler',
    'placement.query', 'placement.candidates', 'placement.claim_protocol',
    'placement.cleanup_task',
    'placement.wire',
    'observe.records', 'rpc.notifications',
    'observe.page.query', 'observe.page.hosts',
}  # fmt: skip
IMPURE = {
    'scheduler.claims.decision_lock',
    'scheduler.claims.shared_ledger',
    'scheduler.drivers',
    'scheduler.memory',
    'scheduler.patience',
    'rpc.notifications.sender',
    'observe.records.diagnosis',
    'observe.records.questions',
    'observe.records.recorder',
    'observe.records.store',
}
"""Modules of pure packages that have threads and clocks."""
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
    'scheduler.scheduling_state',
    'scheduler.cycle',
    'scheduler.host_table',
    'scheduler.claims.hosts_left',
    'scheduler.claims.rivals',
    'scheduler.pipeline',
    'scheduler.prefilters',
    'scheduler.requested_hosts',
}
"""Modules that log decisions with nova's loggers."""
MAY_HOLD_LOCKS = {
    'scheduler.claims.decision_lock',
    'scheduler.claims.pending_claims',
    'scheduler.claims.rivals',
    'scheduler.claims.shared_ledger',
    'scheduler.cycle',
    'scheduler.drivers',
    'scheduler.memory',
}
"""Modules of ``scheduler`` with objects that several threads use at the same time, or
that hold such an object. The objects of all other modules are values, or belong to one
thread."""


@cache
def imports_of(path):
    """The dotted names of the imports of a file."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f'{node.module}.{alias.name}' for alias in node.names]
    return names


def name_of(path):
    """A file's dotted name below ``novasched``."""
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix(
        '.__init__'
    )


def longest_prefix(name, prefixes):
    """The longest prefix of a dotted name, the name itself included; None without a
    prefix."""
    parts = name.split('.')
    for length in range(len(parts), 0, -1):
        prefix = '.'.join(parts[:length])
        if prefix in prefixes:
            return prefix
    return None


MODULES = {}
for path in sorted(ROOT.rglob('*.py')):
    if path.parent != ROOT:
        MODULES[name_of(path)] = path
MODULES['neutron'] = ROOT / 'neutron.py'
DEPTH = {}
for depth, storey in enumerate(STOREYS):
    DEPTH |= dict.fromkeys(storey, depth)
PURE_MODULES = [name for name in MODULES if longest_prefix(name, PURE | IMPURE) in PURE]


@cache
def imported_modules(name):
    """The modules of novasched that a module imports."""
    modules = set()
    for imported in imports_of(MODULES[name]):
        if imported.startswith('novasched.'):
            dotted = imported.removeprefix('novasched.')
            modules.add(longest_prefix(dotted, set(MODULES)))
    return modules - {None, name}


def definitions(name, tree):
    """The full name of each name that a module imports, or defines as a class."""
    by_name = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            package = node.module.removeprefix('novasched.')
            for alias in node.names:
                by_name[alias.asname or alias.name] = f'{package}.{alias.name}'
        elif isinstance(node, ast.Import):
            by_name |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            by_name[node.name] = f'{name}.{node.name}'
    return by_name


def held_by(class_):
    """The expressions for all that an object of a class may hold: the classes that it
    inherits from, the types of fields and arguments of its constructor, and the calls
    of its methods."""
    yield from class_.bases
    for node in class_.body:
        if isinstance(node, ast.AnnAssign):
            yield from ast.walk(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            if node.name == '__init__':
                yield from ast.walk(node.args)
            calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
            yield from (call.func for call in calls)


def holders_of_locks():
    """The full names of the classes whose objects hold a lock, an event or a thread, or
    hold such an object."""
    held = {}
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        by_name = definitions(name, tree)
        for class_ in tree.body:
            if isinstance(class_, ast.ClassDef):
                texts = map(ast.unparse, held_by(class_))
                parts = [text.partition('.') for text in texts]
                held[f'{name}.{class_.name}'] = {
                    by_name.get(first, first) + dot + rest for first, dot, rest in parts
                }

    holders = set()
    while True:
        more = set()
        for class_, names in held.items():
            if names & holders or any(name.startswith('threading.') for name in names):
                more.add(class_)
        if more <= holders:
            return holders
        holders |= more


@pytest.mark.parametrize('name', MODULES)
def test_imports_point_down(name):
    """A module imports from lower storeys, from its own package, and from listed
    neighbours."""
    package = longest_prefix(name, set(DEPTH))
    assert package is not None, 'a module that lies on no storey'
    for imported in imported_modules(name):
        imported_package = longest_prefix(imported, set(DEPTH))
        assert imported_package is not None
        tops = name.split('.')[0], imported.split('.')[0]
        if tops[0] == tops[1] or tops in NEIGHBOURS:
            assert DEPTH[package] <= DEPTH[imported_package], imported
        else:
            assert DEPTH[package] < DEPTH[imported_package], imported


def test_imports_have_no_cycle():
    """Imports have no cycle."""
    graph = {name: imported_modules(name) for name in MODULES}
    assert len([*TopologicalSorter(graph).static_order()]) == len(graph)


@pytest.mark.parametrize('name', PURE_MODULES)
def test_pure_modules_import_no_impure_module(name):
    """No I/O, clock, thread, OpenStack library or module-level chance in a pure
    module."""
    for imported in imports_of(MODULES[name]):
        top = imported.split('.')[0]
        assert top not in IMPURE_MODULES
        assert not top.startswith('oslo_')
        assert top != 'logging' or longest_prefix(name, MAY_LOG)
        assert top != 'random' or imported == 'random.Random', 'take a Random'


def test_the_scheduler_holds_locks_in_few_places():
    """The classes of ``scheduler`` whose objects hold a lock are in the listed
    modules."""
    modules = set()
    for class_ in holders_of_locks():
        if class_.startswith('scheduler.'):
            name = class_.rpartition('.')[0]
            modules.add(longest_prefix(name, MAY_HOLD_LOCKS) or name)
    assert modules == MAY_HOLD_LOCKS


def test_the_documentation_shows_the_storeys():
    """The drawing of the imports in architecture.rst has a line for each storey."""
    text = (ROOT.parent / 'doc' / 'source' / 'architecture.rst').read_text()
    drawing = text.split('Imports point down::\n\n')[1].split('\n\n')[0]
    storeys = [set(line.split()) for line in drawing.splitlines()]
    assert storeys == STOREYS


def test_every_listed_package_exists():
    """The tables of the test name packages and modules that exist."""
    for table in (set(DEPTH), PURE, IMPURE, MAY_LOG, MAY_HOLD_LOCKS):
        assert not table - {longest_prefix(name, table) for name in MODULES}


@pytest.mark.parametrize('path', sorted(TESTS.rglob('*.py')), ids=str)
def test_a_suite_imports_the_lab_and_no_other_suite(path):
    """A suite of tests imports nothing of another suite, and the lab imports no
    suite."""
    suite = path.relative_to(TESTS).parts[0]
    for imported in imports_of(path):
        if imported.startswith('tests.'):
            assert imported.split('.')[1] in (suite, 'lab')
