# SPDX-License-Identifier: Apache-2.0
"""No data from outside is a format, or the name of a module.

Ruff checks that data is neither executed nor unpickled: ``select`` in pyproject.toml.
"""

import ast
from pathlib import Path

import novasched

ROOT = Path(novasched.__file__).parent
LOGS = {'debug', 'info', 'warning', 'error', 'critical', 'exception', 'log'}
IMPORTS = {'import_module', '__import__'}
UNPICKLE = 'imports pickle'
SHELL = 'may run a shell'
IMPORT = 'imports by name'
FORMAT = 'a format that is no literal'

ALLOWED = {
    (
        'cells/engines.py',
        FORMAT,
    ): 'templates of connection URLs, as nova has them; names alone may stand in them',
    (
        'cells/memcached.py',
        UNPICKLE,
    ): "nova's keys in memcached; nothing but what is in them is made of a pickle",
    ('cmd/novaschedctl.py', IMPORT): 'the commands, named in the code',
    (
        'plugins/nova_compat/import_stubs.py',
        IMPORT,
    ): "a table of nova's modules, for plugins",
    ('rpc/faults.py', FORMAT): 'a table of lines, in the same file',
    ('rpc/oslo_messaging_internals.py', IMPORT): "a table of oslo.messaging's modules",
    (
        'tools/__init__.py',
        IMPORT,
    ): 'parts of tools that need optional packages, named in the code',
}
"""(File, construct) to the reason why the construct is allowed."""


def faults(tree):
    """The constructs in a source that data could control."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Import(names=[ast.alias(name='pickle')])
                | ast.ImportFrom(module='pickle')
            ):
                yield UNPICKLE
            case ast.BinOp(left=left, op=ast.Mod(), right=right) if not is_literal(
                left
            ) and (is_literal(right) or isinstance(right, ast.Tuple | ast.Dict)):
                yield FORMAT
            case ast.keyword(arg='shell', value=value) if ast.unparse(value) != 'False':
                yield SHELL
            case ast.Call(
                func=ast.Attribute(value=value, attr='format' | 'format_map')
            ):
                # A formatter of log lines has a method of that name.
                names = list(map(ast.unparse, node.args))
                if not is_literal(value) and names not in (['record'], ['safe_record']):
                    yield FORMAT
            case ast.Call(
                func=ast.Attribute(value=ast.Name(logger), attr=attr), args=args
            ) if logger.isupper() and attr in LOGS:
                message, *values = args[1:] if attr == 'log' else args
                if values and not is_literal(message):
                    yield FORMAT
            case ast.Call(func=function, args=[first, *_]):
                name = ast.unparse(function).split('.')[-1]
                if name in IMPORTS and not is_literal(first):
                    yield IMPORT


def is_literal(node):
    """True for a literal text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_no_data_is_a_format_or_a_module():
    """The constructs in novasched are the allowed constructs, without exceptions that
    are obsolete."""
    constructs = set()
    for path in ROOT.rglob('*.py'):
        name = path.relative_to(ROOT).as_posix()
        for fault in faults(ast.parse(path.read_text())):
            constructs.add((name, fault))

    assert constructs == set(ALLOWED)


SOURCES = {
    UNPICKLE: ['import pickle', 'from pickle import loads'],
    SHELL: ['subprocess.run(text, shell=wanted)'],
    FORMAT: [
        'text.format(a=1)',
        'row.text.format_map(values)',
        'text % (a, b)',
        "text % {'a': 1}",
        "text % 'a'",
        'LOG.warning(text, a)',
        'FILTERS.log(level, text, a)',
    ],
    IMPORT: ['importlib.import_module(name)'],
    None: [
        'subprocess.run([text], shell=False)',
        "'{}'.format(a)",
        "'%s' % text",
        'number % 7',
        'LOG.warning(text)',
        "LOG.warning('%s', text)",
        "importlib.import_module('json')",
    ],
}


def test_the_source_check_finds_every_forbidden_construct():
    """The check of sources finds every construct, and no harmless code."""
    for fault, sources in SOURCES.items():
        for source in sources:
            assert list(faults(ast.parse(source))) == ([fault] if fault else []), source
