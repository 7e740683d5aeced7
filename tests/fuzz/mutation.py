# SPDX-License-Identifier: Apache-2.0
"""Mutations of JSON, the number of inputs, and the limits of time and memory.

A mutation drops, doubles, wraps or replaces a value of a document. Without
``NOVASCHED_FUZZ_SECONDS`` the inputs are few and always the same, so that a test fails
because of a change and not because of a draw. With the variable, every property is
tried with new inputs for its share of the seconds.
"""

import copy
import functools
import json
import os
import resource
import signal
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get('NOVASCHED_FUZZ_SECONDS') or 0)
EFFORT = settings(
    max_examples=200 if SECONDS else 15,
    derandomize=not SECONDS,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
"""Settings for a single run of a property. With NOVASCHED_FUZZ_SECONDS, the runs are
repeated."""

MAX_INPUT_S = 10
"""Limit of processor time for an input. Inputs are small, so that a longer run shows at
least quadratic time."""

MAX_MEMORY_BYTES = 2 << 30
"""Limit for all inputs together. An expanded list of CPUs exceeds the limit."""

TRIED: Counter[str] = Counter()
"""Inputs by target."""


class TooLong(Exception):
    """An input has exceeded MAX_INPUT_S."""


@contextmanager
def one_input(target):
    """Count an input of a target, and limit its time.

    :raises TooLong: after MAX_INPUT_S of processor time.
    """
    TRIED[target] += 1
    before = signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_INPUT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def bounded_memory():
    """Raise MemoryError beyond :data:`MAX_MEMORY_BYTES`, before the machine runs out of
    memory."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + MAX_MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _interrupt(number, frame):
    raise TooLong(f'more than {MAX_INPUT_S} s')


NAME = 'nova_object.name'
VERSION = 'nova_object.version'


@dataclass(frozen=True)
class Wrapped:
    """A value inside ``depth`` nested lists. The lists are made after all mutations, so
    that no mutation goes into the lists."""

    depth: int
    inner: Any = None

    def made(self):
        return functools.reduce(lambda inner, _: [inner], range(self.depth), self.inner)


@dataclass(frozen=True)
class Many:
    """A large dict or list, which is inserted after all mutations, so that no mutation
    changes the values for later inputs."""

    values: Any

    def made(self):
        return copy.deepcopy(self.values)


WORDS = (
    '',
    ' ',
    '0',
    '4',
    '-1',
    '1e999',
    'nan',
    'inf',
    '1_0',
    '9' * 5000,
    '0x10',
    '1.5',
    'true',
    'null',
    '\n',
    '\x00',
    '\ud800',
    '\u202e',
    '\u0663',
    '\U0001f600',
    '\U0001f600' * 36,
    'é' * 300,
    'x' * 70000,
    '%s %d {}',
    '$',
    '$$',
    '../..',
    "'; --",
    '*',
    '<in>',
    '<or>',
    '<or> 1 <or> 2',
    '<all-in> a b',
    '>=',
    '>= x',
    '== nan',
    's== kvm',
    '!=',
    '<= 1e999',
    'required',
    'forbidden',
    'preferred',
    'avoided',
    'dedicated',
    'mixed',
    'shared',
    'isolate',
    'require',
    'share',
    'none',
    'socket',
    '^0',
    '0-999999999',
    '0-65535',
    '9-0',
    '0-3,^1',
    ',' * 5000,
    '-',
    '--',
    '^',
    '0-',
    '1,' * 3000,
    '[]',
    '{}',
    '[' * 5000,
    '[["="]]',
    '["=", "$free_ram_mb", 4]',
    '["<"]',
    '["not", ["and"]]',
    '["=", "$a.b.c", 1]',
    '1.x',
    '1.',
    '.',
    '1',
    '1.2.3',
    '1.9999',
    '2.0',
    '-1.-1',
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    -2,
    -3,
    65536,
    2**31,
    -(2**31),
    2**53 + 1,
    2**63,
    2**64,
    10**40,
    -(10**40),
    10**4000,
    0.0,
    -0.0,
    0.5,
    1e308,
    1e-308,
    float('inf'),
    float('-inf'),
    float('nan'),
)
MANY = (
    Many({str(number): '' for number in range(5000)}),
    Many([{}] * 5000),
    Many([0] * 5000),
)
"""Many small values, which take far more memory as objects than in a message."""
DEPTHS = (1, 2, 60, 250, 700)
"""A JSON decoder accepts the last depth, but most recursive code does not."""

text = st.sampled_from(WORDS) | st.text(st.characters(), max_size=12)
number = st.sampled_from(NUMBERS) | st.integers() | st.floats()
scalar = st.none() | st.booleans() | number | text
value = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
    ),
    max_leaves=6,
)
value |= st.sampled_from(DEPTHS).map(Wrapped)
value |= st.sampled_from(MANY)
WAYS = (
    'alike',
    'alike',
    'alike',
    'replace',
    'drop',
    'double',
    'retype',
    'wrap',
    'move',
)
"""Ways to change a value. A new value of the same type is drawn most often, since such
a value passes the first checks."""

Path = tuple[Any, ...]


@contextmanager
def deep_recursion():
    """Allow the recursion that deep documents need, at any depth of the stack.

    A RecursionError that depends on the depth of the stack would make Hypothesis see
    other data when it repeats a test.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100 * limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def dumped(document):
    """The JSON of a document, which may be deeper than a decoder allows."""
    with deep_recursion():
        return json.dumps(document)


def places(document, path=()):
    """The path to each value in a document."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def mutated(draw, document, most=3):
    """The document with a few changed values."""
    with deep_recursion():
        document = copy.deepcopy(document)
        for _ in range(draw(st.integers(1, most))):
            paths = list(places(document))
            if not paths:
                return unwrapped(draw(value))
            _change(draw, document, draw(st.sampled_from(paths)), paths)
        return unwrapped(document)


def unwrapped(document):
    """The document with lists and dicts in place of every :class:`Wrapped` and
    :class:`Many`."""
    if isinstance(document, dict):
        return {key: unwrapped(inner) for key, inner in document.items()}
    if isinstance(document, list):
        return [unwrapped(inner) for inner in document]
    if isinstance(document, Many):
        return document.made()
    if isinstance(document, Wrapped):
        return Wrapped(document.depth, unwrapped(document.inner)).made()
    return document


def _change(draw, document, path, paths):
    holder = _at(document, path[:-1])
    key = path[-1]
    old = holder[key]
    match draw(st.sampled_from(WAYS)):
        case 'alike' if isinstance(old, str):
            holder[key] = draw(text)
        case 'alike' if isinstance(old, int | float):
            holder[key] = draw(number)
        case 'alike' if isinstance(old, dict):
            old[draw(text | st.sampled_from(sorted(old) or ['']))] = draw(text)
        case 'alike' if isinstance(old, list):
            old.append(draw(scalar))
        case 'replace' if key == VERSION:
            holder[key] = draw(st.sampled_from(WORDS[-8:]) | value)
        case 'replace' | 'alike':
            holder[key] = draw(value)
        case 'drop':
            del holder[key]
        case 'double' if isinstance(holder, list):
            holder[key:key] = [copy.deepcopy(old)] * draw(st.integers(1, 3))
        case 'double':
            holder[draw(text)] = copy.deepcopy(old)
        case 'retype':
            holder[key] = draw(st.sampled_from((str(old), [old], {'': old}, not old)))
        case 'wrap':
            holder[key] = Wrapped(draw(st.sampled_from(DEPTHS)), old)
        case 'move':
            holder[key] = copy.deepcopy(_at(document, draw(st.sampled_from(paths))))


def _at(document, path):
    for key in path:
        document = document[key]
    return document
