# SPDX-License-Identifier: Apache-2.0
"""What a query asks for: text from anybody, to values within bounds, and back to a link."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

CHOICES = {
    'show': ('ram', 'vcpus', 'disk', 'pinned'),
    'by': ('cell', 'zone', 'aggregate'),
    'state': ('all', 'up', 'down', 'disabled'),
    'order': ('name', 'fullest'),
    'form': ('map', 'table'),
}
LONGEST, MOST = 2000, 255
"""So many characters a query has, and each text in it."""
PAGES = 9999


class Unwanted(ValueError):
    """For who asks: there is no such page. The text is fixed, and repeats nothing of what
    was asked."""

    def __init__(self, text: str, status: str = '400 Bad Request') -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts, and how they are shown."""

    show: str = 'ram'
    by: str = 'cell'
    within: str = ''
    state: str = 'all'
    name: str = ''
    order: str = 'name'
    form: str = 'map'
    page: int = 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """The newest decisions, or those on a server or of a request."""

    q: str = ''
    page: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, and why not a host."""

    host: str = ''


@dataclass(frozen=True, slots=True)
class Nothing:
    """A page that takes no query."""


Wanted = TypeVar('Wanted', Hosts, Decisions, Decision, Nothing)


def read(kind: type[Wanted], query: str) -> Wanted:
    """What a query asks for.

    :raises Unwanted: it is nothing that this page has.
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, text in _pairs(query):
        if name not in defaults or name in values:
            raise Unwanted('This page has no such parameter, or has it only once.')
        values[name] = _value(name, text, defaults[name])
    return kind(**values)


def link(wanted: Wanted, **changes: Any) -> str:
    """The query that asks for the same with changes, from its first page on."""
    if 'page' in asdict(wanted):
        changes = {'page': 1, **changes}
    values, defaults = asdict(replace(wanted, **changes)), asdict(type(wanted)())
    return '?' + urlencode({key: each for key, each in values.items() if each != defaults[key]})


def is_plain(text: str) -> bool:
    """Whether a text can be a name: of some length, without control characters."""
    return len(text) <= MOST and text.isprintable()


def _pairs(query: str) -> list[tuple[str, str]]:
    if len(query) > LONGEST:
        raise Unwanted('The query is too long.')
    try:
        return parse_qsl(query, keep_blank_values=True, errors='strict', max_num_fields=16)
    except ValueError:
        raise Unwanted('The query cannot be read.') from None


def _value(name: str, text: str, default: object) -> object:
    if isinstance(default, int):
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= PAGES):
            raise Unwanted('There is no page of that number.')
        return int(text)
    if name in CHOICES:
        if text and text not in CHOICES[name]:
            raise Unwanted('A parameter has a value that it cannot have.')
        return text or default
    text = text.strip()
    if not is_plain(text):
        raise Unwanted('A parameter is too long, or has characters that no name has.')
    return text
