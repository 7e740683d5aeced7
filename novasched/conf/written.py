# SPDX-License-Identifier: Apache-2.0
"""Options as the files of a configuration have them, before anything is understood."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from novasched.secrets import is_telling

Written = Mapping[str, Mapping[str, Sequence[str]]]
"""Group to option to its values; names have no hyphens."""

_Place = tuple[str, str]
"""The group and the name of an option."""
_REFERENCE = re.compile(r'(?<![$\\])\$\{?([\w.]+)')
"""An option's name in the value of another, as oslo.config fills it in."""
_VARIABLE = re.compile(r'OS_\w+?__(\w+)\Z')
"""A variable of the environment that oslo.config takes for an option."""


def within(folders: Sequence[str]) -> Iterator[str]:
    """The files that oslo.config takes from ``--config-dir``, in its order."""
    for folder in folders:
        yield from (str(path) for path in sorted(Path(folder).glob('*.conf')))


def parsed(path: str) -> Written:
    """What one file says.

    :raises ParseError: oslo.config's; its text quotes a line, which may hold anything.
    :raises OSError: the file cannot be read.
    :raises UnicodeDecodeError: it is no text.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(os.path.expanduser(path), sections).parse()
    return sections


def merged(files: Iterable[Written]) -> Written:
    """What several say, the values of later ones behind those of earlier ones."""
    groups: dict[str, dict[str, list[str]]] = {}
    for sections in files:
        for section, options in sections.items():
            group = groups.setdefault(section, {})
            for name, values in options.items():
                group.setdefault(name.replace('-', '_'), []).extend(values)
    return groups


def secret_values(written: Written) -> Iterator[str]:
    """The values of all options that by their name or look hold a secret."""
    for options in written.values():
        for name, values in options.items():
            for value in values:
                if is_telling(name, value):
                    yield from (value, value.replace('$$', '$').replace(r'\$', '$'))


def environment() -> Written:
    """What variables of the environment say, of whatever group, in one group ``environment``."""
    named = ((_VARIABLE.match(name), value) for name, value in os.environ.items())
    return {'environment': {found[1].lower(): [value] for found, value in named if found}}


def referring(written: Written, words: Collection[str]) -> list[str]:
    """The options, as ``[group] name``, that by a ``$`` refer to another, if those words name
    either of them."""
    return [
        f'[{group}] {name}'
        for group, options in written.items()
        for name, values in options.items()
        if any(_concerned(name, value) & set(words) for value in values)
    ]


def _concerned(name: str, value: str) -> set[str]:
    found = _REFERENCE.findall(value)
    return {name, *(part for each in found for part in each.split('.'))} if found else set()


def leading_back(written: Written) -> list[str]:
    """The options, as ``[group] name``, that by their ``$`` may lead to themselves."""
    leads = {
        (group, name): {
            place
            for reference in _REFERENCE.findall(values[-1])
            for place in _places(group, reference)
        }
        for group, options in written.items()
        for name, values in options.items()
    }
    return [
        f'[{group}] {name}'
        for group, name in leads
        if (group, name) in _reached(leads, (group, name))
    ]


def _places(group: str, reference: str) -> Iterator[tuple[str, str]]:
    """Where the option may stand that a reference in a group names."""
    other, dot, name = reference.partition('.')
    yield from [(other, name)] if dot else [(group, reference), ('DEFAULT', reference)]


def _reached(leads: Mapping[_Place, Collection[_Place]], start: _Place) -> set[_Place]:
    """All that can be come to from one option."""
    reached: set[_Place] = set()
    waiting = [start]
    while waiting:
        new = set(leads.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    return reached
