# SPDX-License-Identifier: Apache-2.0
"""Parsing of query strings, which are untrusted text, and the check of access."""

from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

MAX_QUERY_LENGTH = 2000
"""Characters of a query string."""

MAX_TEXT_LENGTH = 255
"""Characters of a parameter."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
PageNumber = Annotated[int, msgspec.Meta(ge=1, le=9999)]


class BadQuery(ValueError):
    """The page does not exist. The text is fixed and repeats nothing of the query."""

    def __init__(self, text: str, status: str = '400 Bad Request') -> None:
        super().__init__(text)
        self.status = status


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a page. Every parameter is optional."""


class HostsQuery(PageQuery, frozen=True):
    """The parameters of the page of hosts."""

    show: Literal['ram', 'vcpus', 'disk', 'pinned'] = 'ram'
    by: Literal['cell', 'zone', 'aggregate'] = 'cell'
    within: Text = ''
    state: Literal['all', 'up', 'down', 'disabled'] = 'all'
    name: Text = ''
    order: Literal['name', 'fullest'] = 'name'
    form: Literal['map', 'table'] = 'map'
    page: PageNumber = 1


class DecisionsQuery(PageQuery, frozen=True):
    """The parameters of the list of decisions. ``q`` is the UUID of an instance or the
    id of a request."""

    q: Text = ''
    page: PageNumber = 1


class DecisionQuery(PageQuery, frozen=True):
    """The parameters of the page of a decision. ``host`` asks for the reasons against
    that host."""

    host: Text = ''


AnyQuery = TypeVar('AnyQuery', bound=PageQuery)


def parse(kind: type[AnyQuery], query: str) -> AnyQuery:
    """Parse a query string. A parameter without a value gets its default.

    :raises BadQuery: the page does not have the parameter or the value.
    """
    if len(query) > MAX_QUERY_LENGTH:
        raise BadQuery('The query is too long.')

    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors='strict', max_num_fields=16
        )
        values = {name: text.strip() for name, text in pairs}
        if len(values) < len(pairs) or not all(map(is_plain, values.values())):
            raise ValueError('repeated parameter, or unprintable characters')

        parameters = msgspec.structs.asdict(kind())
        for name, text in values.items():
            if text or name not in parameters:
                parameters[name] = text
        # convert() refuses unknown names, values outside of a Literal, and long texts.
        return msgspec.convert(parameters, kind, strict=False)
    except ValueError:
        raise BadQuery('This page has no such parameter or value.') from None


def link(query: PageQuery, **changes: Any) -> str:
    """A link to the same page with some parameters changed. The link leads to the first
    page of a list unless ``page`` is among the changes."""
    if hasattr(query, 'page'):
        changes = {'page': 1, **changes}
    values = msgspec.structs.asdict(msgspec.structs.replace(query, **changes))
    defaults = msgspec.structs.asdict(type(query)())
    changed = {key: value for key, value in values.items() if value != defaults[key]}
    return '?' + urlencode(changed)


def is_plain(text: str) -> bool:
    """True if a text can be a name: short, and without control characters."""
    return len(text) <= MAX_TEXT_LENGTH and text.isprintable()


def is_local(peer: str, host: str) -> bool:
    """True if a request comes from this machine and addresses this machine.

    The Host header is checked because of DNS rebinding: a web site can resolve its own
    name to the loopback address and read the page through a local browser.

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
    # ::ffff:127.0.0.1 is how a dual-stack socket shows an IPv4 client.
    return (getattr(address, 'ipv4_mapped', None) or address).is_loopback
