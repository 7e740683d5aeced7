# SPDX-License-Identifier: Apache-2.0
"""Recorded requests: bodies of AMQP messages, one pair of request and reply in a line.

A line is ``{"request": BODY, "reply": BODY}``; ``reply`` may be left out. A body is what
oslo.messaging put into a message, with its envelope (``oslo.message``) or without. The token
in a request's context is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import oslo_messaging

from novasched.errors import BadRequest
from novasched.model.request import Request
from novasched.rpc import decode, versions
from novasched.rpc.serializer import Serializer

METHOD = 'select_destinations'
NO_VALID_HOST = 'NoValidHost'
CONTEXT = '_context_'

Hosts = tuple[str, ...]
"""The name of the host for each server of a request; none where it was refused."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request, and the hosts that it got; None if that is not known."""

    line: int
    request: Request
    hosts: Hosts | None


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is no recorded request."""

    line: int
    why: str


def read(lines: Iterable[str]) -> Iterator[Recorded | Unread]:
    """The requests in the lines of a file; empty lines and other methods are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            both = json.loads(line)
            body = _opened(both['request'])
            if body.get('method') != METHOD:
                continue
            yield Recorded(number, _request(body), _hosts(both.get('reply')))
        except oslo_messaging.ExpectedException as error:
            yield Unread(number, str(error.exc_info[1]))
        except BadRequest as error:
            yield Unread(number, str(error))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            yield Unread(number, f'no pair of request and reply ({type(error).__name__})')


def _opened(body: Any) -> Mapping[str, Any]:
    """A message without its envelope."""
    opened = json.loads(body['oslo.message']) if 'oslo.message' in body else body
    if not isinstance(opened, Mapping):
        raise TypeError(type(opened).__name__)
    return opened


def _request(body: Mapping[str, Any]) -> Request:
    reader = Serializer()
    names = {key[len(CONTEXT) :]: body[key] for key in body if key.startswith(CONTEXT)}
    context = reader.deserialize_context(names)
    arguments = {
        name: reader.deserialize_entity(context, value) for name, value in body['args'].items()
    }
    return decode.request(versions.read(arguments), context)


def _hosts(reply: Any) -> Hosts | None:
    if reply is None:
        return None
    body = _opened(reply)
    if body.get('failure'):
        failure = json.loads(body['failure'])
        return () if failure['class'] == NO_VALID_HOST else None
    return tuple(_host(each) for each in body['result'])


def _host(chosen: Any) -> str:
    """A list of Selection objects of which the first counts, or a dict before 4.5."""
    if isinstance(chosen, list):
        return str(chosen[0]['nova_object.data']['service_host'])
    return str(chosen['host'])
