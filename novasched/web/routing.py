# SPDX-License-Identifier: Apache-2.0
"""Who answers for which path: a small WSGI application around others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

LOG = logging.getLogger(__name__)

Environ: TypeAlias = dict[str, Any]
Start: TypeAlias = Callable[..., Any]
App: TypeAlias = Callable[[Environ, Start], Iterable[bytes]]
"""A WSGI application."""

PLAIN = 'text/plain; charset=utf-8'
READS = ('GET', 'HEAD')
OK, NOT_FOUND, NOT_ALLOWED, BROKEN = (
    '200 OK',
    '404 Not Found',
    '405 Method Not Allowed',
    '500 Internal Server Error',
)


def routed(routes: Mapping[str, App], otherwise: App | None = None) -> App:
    """Each path to its application, and all others to one for the rest, if there is one.
    Whoever does more than to read is refused."""
    rest = otherwise or nothing
    broken: set[tuple[str, type]] = set()

    def route(environ: Environ, start: Start) -> Iterable[bytes]:
        method, path = environ.get('REQUEST_METHOD'), environ.get('PATH_INFO', '')
        if method not in READS:
            return refused(start, NOT_ALLOWED, [('Allow', ', '.join(READS))])
        app = routes.get(path, rest)
        try:
            body = b''.join(app(environ, start))
        except Exception as error:
            # Whoever can break it may do so often: the log has it once.
            key = path if path in routes else '', type(error)
            if key not in broken:
                broken.add(key)
                LOG.exception('What is asked for by HTTP cannot be served')
            return refused(start, BROKEN)
        return [] if method == 'HEAD' else [body]

    return route


def text(read: Callable[[], bytes], kind: str = PLAIN) -> App:
    """An application that says what a function gives."""

    def say(_: Environ, start: Start) -> Iterable[bytes]:
        body = read()
        start(OK, [('Content-Type', kind), ('Content-Length', str(len(body)))])
        return [body]

    return say


def nothing(_: Environ, start: Start) -> Iterable[bytes]:
    """There is no such page."""
    return refused(start, NOT_FOUND)


def refused(start: Start, status: str, headers: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    """A status, and its words as the text."""
    body = f'{status}\n'.encode()
    start(status, [('Content-Type', PLAIN), ('Content-Length', str(len(body))), *headers])
    return [body]
