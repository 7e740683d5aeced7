# SPDX-License-Identifier: Apache-2.0
"""Parses queries, which are text from anybody, within bounds, and checks access."""

from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

MAX_QUERY_LENGTH = 2000
MAX_TEXT_LENGTH = 255
"""Characters of a query, and of each text in it."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
PageNumber = Annotated[int, msgspec.Meta(ge=1, le=9999)]


class BadQuery(ValueError):
    """There is no such page. The text is fixed, and repeats nothing of the query."""

    def __init__(self, text: str, status: str = '400 Bad Request') -> None:
        super().__init__(text)
        self.status = status


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a page, all of which may be left out; of some pages there are
    none."""


class HostsQuery(PageQuery, frozen=True):
    """The page of hosts."""

    show: Literal['ram', 'vcpus', 'disk', 'pinned'] = 'ram'
    by: Literal['cell', 'zone', 'aggregate'] = 'cell'
    within: Text = ''
    state: Literal['all', 'up', 'down', 'disabled'] = 'all'
    name: Text = ''
    order: Literal['name', 'fullest'] = 'name'
    form: Literal['map', 'table'] = 'map'
    page: PageNumber = 1


class DecisionsQuery(PageQuery, frozen=True):
    """The newest decisions, or those on an instance or of a request."""

    q: Text = ''
    page: PageNumber = 1


class DecisionQuery(PageQuery, frozen=True):
    """One decision, and the reasons against a host."""

    host: Text = ''


AnyQuery = TypeVar('AnyQuery', bound=PageQuery)


def parse(kind: type[AnyQuery], query: str) -> AnyQuery:
    """Parse a query. A parameter without a value has its default.

    :raises BadQuery: it has a parameter or value that the page does not have.
    """
    if len(query) > MAX_QUERY_LENGTH:
        raise BadQuery('The query is too long.')
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors='strict', max_num_fields=16
        )
        values = {name: text.strip() for name, text in pairs}
        if len(values) < len(pairs) or not all(map(is_plain, values.values())):
            raise ValueError('a name that stands twice, or characters that no name has')
        defaults = msgspec.structs.asdict(kind())
        given = {
            name: text or defaults.get(name, text) for name, text in values.items()
        }
        return msgspec.convert(given, kind, strict=False)
    except ValueError:
        raise BadQuery('This page has no such parameter or value.') from None


def link(wanted: PageQuery, **changes: Any) -> str:
    """The query as part of a link, with changes, from its first page on."""
    if hasattr(wanted, 'page'):
        changes = {'page': 1, **changes}
    values = msgspec.structs.asdict(msgspec.structs.replace(wanted, **changes))
    defaults = msgspec.structs.asdict(type(wanted)())
    return '?' + urlencode(
        {key: each for key, each in values.items() if each != defaults[key]}
    )


def is_plain(text: str) -> bool:
    """True if a text can be a name: short, and without control characters."""
    return len(text) <= MAX_TEXT_LENGTH and text.isprintable()


def is_local(peer: str, host: str) -> bool:
    """True if a request comes from this machine and names it. Without the name, a web
    site could resolve its own name to this machine and read the page by a local browser
    (DNS rebinding).

    :param peer: the address of the client.
    :param host: the Host header, or an empty text.
    """
    try:
        name = urlsplit(f'//{host or "localhost"}').hostname or ''
    except ValueError:
        return False
    return _is_loopback(peer) and (name == 'localhost' or _is_loopback(name))


def _is_loopback(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return (getattr(address, 'ipv4_mapped', None) or address).is_loopback
