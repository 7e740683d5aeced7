# SPDX-License-Identifier: Apache-2.0
"""Nothing that comes from outside is run, unpickled or used as a format."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import novasched

ROOT = Path(novasched.__file__).parent
MODULES = sorted(ROOT.rglob('*.py'))

RUNS_CODE = {'eval', 'exec', 'compile', '__import__'}
UNPICKLES = {'pickle', 'cPickle', '_pickle', 'marshal', 'shelve', 'dill', 'jsonpickle'}
RUNS_A_SHELL = {
    'os.system', 'os.popen', 'subprocess.getoutput', 'subprocess.getstatusoutput',
    'asyncio.create_subprocess_shell',
}  # fmt: skip
SAFE_YAML = {'safe_load', 'safe_load_all', 'safe_dump', 'safe_dump_all', 'YAMLError', 'SafeLoader'}
IMPORTS = {'import_module', 'importlib.import_module'}

LOGS = {'debug', 'info', 'warning', 'error', 'critical', 'exception', 'log'}
RUN, UNPICKLE, IMPORT = 'runs code', 'unpickles', 'imports by name'
FORMAT = 'a format that is no literal'

ALLOWED = {
    ('cells/engines.py', FORMAT):
        'templates of connection URLs, as nova has them; names alone may stand in them',
    ('cells/memcached.py', UNPICKLE):
        "nova's keys in memcached; nothing but what is in them is made of a pickle",
    ('plugins/nova_compat/import_stubs.py', IMPORT): "a table of nova's modules, for plugins",
    ('rpc/faults.py', FORMAT): 'a table of lines, in the same file',
    ('rpc/oslo_messaging_internals.py', IMPORT): "a table of oslo.messaging's modules",
}  # fmt: skip
"""What may be where, and why."""


def faults(tree: ast.AST) -> Iterator[str]:
    """What source does of that which data must not decide."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(root(each.name) in UNPICKLES for each in names):
                yield UNPICKLE
            case ast.ImportFrom(module=str(module)) if root(module) in UNPICKLES:
                yield UNPICKLE
            case ast.Attribute(value=ast.Name('yaml'), attr=attr) if attr not in SAFE_YAML:
                yield 'unsafe YAML'
            case ast.BinOp(left=left, op=ast.Mod(), right=right) if not is_literal(left) and (
                is_literal(right) or isinstance(right, ast.Tuple | ast.Dict)
            ):
                yield FORMAT
            case ast.Call():
                yield from of_call(node)


def of_call(call: ast.Call) -> Iterator[str]:
    """What a call does of that."""
    name = ast.unparse(call.func)
    first = call.args[0] if call.args else None
    if name in RUNS_CODE:
        yield RUN
    if name in RUNS_A_SHELL or any(
        each.arg == 'shell' and ast.unparse(each.value) != 'False' for each in call.keywords
    ):
        yield 'runs a shell'
    if name in IMPORTS and not is_literal(first):
        yield IMPORT
    match call.func:
        case ast.Attribute(value=value, attr='format' | 'format_map') if not is_literal(value):
            # A formatter of log lines has a method of that name.
            if [ast.unparse(each) for each in call.args] != ['record']:
                yield FORMAT
        case ast.Attribute(value=ast.Name(logger), attr=attr) if logger.isupper():
            wanted = call.args[1:] if attr == 'log' else call.args
            if attr in LOGS and len(wanted) > 1 and not is_literal(wanted[0]):
                yield FORMAT


def root(module: str) -> str:
    """The package of a dotted name."""
    return module.partition('.')[0]


def is_literal(node: ast.AST | None) -> bool:
    """Whether it is a text that stands in the source."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_no_data_is_run(path: Path) -> None:
    """But for what is allowed, and why; what is no longer there is no longer allowed."""
    allowed = {fault for name, fault in ALLOWED if name == name_of(path)}
    assert set(faults(ast.parse(path.read_text()))) == allowed


@pytest.mark.parametrize(
    ('source', 'found'),
    [
        ('eval(text)', RUN),
        ('exec(text, {})', RUN),
        ('__import__(name)', RUN),
        ('import pickle', UNPICKLE),
        ('from pickle import loads', UNPICKLE),
        ('import marshal as m', UNPICKLE),
        ('yaml.load(text)', 'unsafe YAML'),
        ('yaml.full_load(text)', 'unsafe YAML'),
        ('yaml.safe_load(text)', None),
        ('subprocess.run(text, shell=True)', 'runs a shell'),
        ('subprocess.run(text, shell=wanted)', 'runs a shell'),
        ('subprocess.run([text], shell=False)', None),
        ('os.system(text)', 'runs a shell'),
        ('text.format(a=1)', FORMAT),
        ('row.text.format_map(values)', FORMAT),
        ("'{}'.format(a)", None),
        ('text % (a, b)', FORMAT),
        ("text % {'a': 1}", FORMAT),
        ("text % 'a'", FORMAT),
        ("'%s' % text", None),
        ('number % 7', None),
        ('LOG.warning(text, a)', FORMAT),
        ('LOG.warning(text)', None),
        ("LOG.warning('%s', text)", None),
        ('importlib.import_module(name)', IMPORT),
        ("importlib.import_module('json')", None),
    ],
)  # fmt: skip
def test_what_is_seen(source: str, found: str | None) -> None:
    """The reader of sources sees what it is there for."""
    assert list(faults(ast.parse(source))) == ([found] if found else [])
