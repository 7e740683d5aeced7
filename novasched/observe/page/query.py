# SPDX-License-Identifier: Apache-2.0
"""Parses queries, which are text from anybody, within bounds, and checks access."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

CHOICES = {
    'show': ('ram', 'vcpus', 'disk', 'pinned'),
    'by': ('cell', 'zone', 'aggregate'),
    'state': ('all', 'up', 'down', 'disabled'),
    'order': ('name', 'fullest'),
    'form': ('map', 'table'),
}
MAX_QUERY_LENGTH, MAX_TEXT_LENGTH = 2000, 255
"""Characters of a query, and of each text in it."""
MAX_PAGE = 9999


class BadQuery(ValueError):
    """There is no such page. The text is fixed, and repeats nothing of the query."""

    def __init__(self, text: str, status: str = '400 Bad Request') -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class HostsQuery:
    """The page of hosts."""

    show: str = 'ram'
    by: str = 'cell'
    within: str = ''
    state: str = 'all'
    name: str = ''
    order: str = 'name'
    form: str = 'map'
    page: int = 1


@dataclass(frozen=True, slots=True)
class DecisionsQuery:
    """The newest decisions, or those on an instance or of a request."""

    q: str = ''
    page: int = 1


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """One decision, and the reasons against a host."""

    host: str = ''


@dataclass(frozen=True, slots=True)
class NoQuery:
    """A page that takes no query."""


Query = TypeVar('Query', HostsQuery, DecisionsQuery, DecisionQuery, NoQuery)


def parse(kind: type[Query], query: str) -> Query:
    """Parse a query.

    :raises BadQuery: it has a parameter or value that the page does not have.
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, text in _pairs(query):
        if name not in defaults or name in values:
            raise BadQuery('This page has no such parameter, or has it only once.')
        values[name] = _value(name, text, defaults[name])
    return kind(**values)


def link(wanted: Query, **changes: Any) -> str:
    """The query as part of a link, with changes, from its first page on."""
    if 'page' in asdict(wanted):
        changes = {'page': 1, **changes}
    values, defaults = asdict(replace(wanted, **changes)), asdict(type(wanted)())
    return '?' + urlencode({key: each for key, each in values.items() if each != defaults[key]})


def is_plain(text: str) -> bool:
    """True if a text can be a name: short, and without control characters."""
    return len(text) <= MAX_TEXT_LENGTH and text.isprintable()


def _pairs(query: str) -> list[tuple[str, str]]:
    if len(query) > MAX_QUERY_LENGTH:
        raise BadQuery('The query is too long.')
    try:
        return parse_qsl(query, keep_blank_values=True, errors='strict', max_num_fields=16)
    except ValueError:
        raise BadQuery('The query cannot be read.') from None


def _value(name: str, text: str, default: object) -> object:
    if isinstance(default, int):
        if not (
            text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_PAGE
        ):
            raise BadQuery('There is no page of that number.')
        return int(text)
    if name in CHOICES:
        if text and text not in CHOICES[name]:
            raise BadQuery('A parameter has a value that it cannot have.')
        return text or default
    text = text.strip()
    if not is_plain(text):
        raise BadQuery('A parameter is too long, or has characters that no name has.')
    return text


def is_local(peer: str, host: str) -> bool:
    """True if a request comes from this machine and names it. Without the name, a web site
    could resolve its own name to this machine and read the page by a local browser (DNS
    rebinding).

    :param peer: the address of the client.
    :param host: the Host header, or an empty text.
    """
    return is_loopback(peer) and (not host or _named(host))


def is_loopback(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _named(host: str) -> bool:
    try:
        name = urlsplit(f'//{host}').hostname or ''
    except ValueError:
        return False
    return name == 'localhost' or is_loopback(name)
