# SPDX-License-Identifier: Apache-2.0
"""The WSGI application of the page, read-only, for anybody who reaches the port.

A request is repeated only as escaped text in a page, and an error is one fixed line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2

from novasched.observe.page import hosts
from novasched.observe.page import query as queries
from novasched.observe.page.query import BadQuery, is_local
from novasched.observe.page.watch import Watch
from novasched.observe.records import render
from novasched.observe.records.store import RecordReader, UnreadableRecords

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)
HTML = 'text/html; charset=utf-8'
FILES = {'/page.css': 'text/css; charset=utf-8', '/icon.svg': 'image/svg+xml'}
HEADERS = {
    'Content-Security-Policy': "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Cache-Control': 'no-store',
}
DECISIONS_PER_PAGE = 50
MAX_NODES = 50
"""Nodes of a host that are shown."""
MAX_DECISIONS_OF_HOST = 10
MAX_DECISIONS_SEARCHED = 1000
"""Decisions that chose a host, and newest decisions among which they are searched."""

OK = '200 OK'
UNAVAILABLE = '503 Service Unavailable'
NOT_FOUND = '404 Not Found'
NO_PAGE = 'There is no such page.'
NO_FILE = 'No decision is kept here: [novasched] decisions_file is empty in nova.conf.'
NO_RECORD = 'No decision has been recorded yet.'
UNREADABLE = 'The file of decision records cannot be read; the log says why.'

PageResponse = tuple[str, str, bytes]
"""Status, content type and body."""


class Page:
    """The application.

    :param decisions_file: the file of decision records, if there is one.
    :param zone: the availability zone of hosts that are in none.
    :param remote: serve other machines than this one, too.
    """

    def __init__(
        self,
        watch: Watch,
        decisions_file: str | None,
        zone: str | None,
        remote: bool = False,
    ) -> None:
        self._watch = watch
        self._file = decisions_file
        self._zone = zone
        self._remote = remote
        self._trouble = ''
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader('novasched.observe.page'),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters['segment'] = lambda text: quote(text, safe='')
        self._templates.globals.update(
            link=queries.link,
            all_hosts=queries.HostsQuery(),
            render=render,
            hosts=hosts,
            zone_of=lambda host: host.zone(zone) or hosts.NO_ZONE,
        )
        folder = files('novasched.observe.page') / 'static'
        self._files = {path: (folder / path[1:]).read_bytes() for path in FILES}

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request to read, see :func:`novasched.observe.web.server.routed`."""
        status, kind, body = self._answer(environ)
        length = ('Content-Length', str(len(body)))
        start_response(status, [('Content-Type', kind), length, *HEADERS.items()])
        return [body]

    def _answer(self, environ: WSGIEnvironment) -> PageResponse:
        peer = environ.get('REMOTE_ADDR', '')
        host = environ.get('HTTP_HOST', '')
        try:
            if not (self._remote or is_local(peer, host)):
                raise BadQuery(
                    'This page is shown on its own machine alone.', '403 Forbidden'
                )
            path = _text(environ, 'PATH_INFO')
            query = _text(environ, 'QUERY_STRING')
            if path in FILES:
                return OK, FILES[path], self._files[path]
            match path.split('/', 2):
                case [''] | ['', '']:
                    return self._hosts(query)
                case ['', 'decisions']:
                    return self._decisions(query)
                case ['', 'decisions', name] if name and queries.is_plain(name):
                    return self._decision(name, query)
                case ['', 'hosts', name] if name and queries.is_plain(name):
                    return self._host(name, query)
            raise BadQuery(NO_PAGE, NOT_FOUND)
        except BadQuery as error:
            title = error.status.partition(' ')[2]
            return self._shown('error', '', error.status, title=title, why=str(error))

    def _hosts(self, query: str) -> PageResponse:
        asked = queries.parse(queries.HostsQuery, query)
        view = self._watch.hosts()
        found = hosts.heatmap(view, asked, self._zone)
        if asked.page > found.pages:
            raise BadQuery('There is no page of that number.', NOT_FOUND)
        status = OK if view.known else UNAVAILABLE
        return self._shown('hosts', './', status, view=view, query=asked, heatmap=found)

    def _host(self, name: str, query: str) -> PageResponse:
        queries.parse(queries.PageQuery, query)
        view = self._watch.hosts()
        found = [
            (cell.name, x) for cell in view.cells for x in cell.hosts if x.host == name
        ]
        if not found and view.known:
            raise BadQuery('No host of that name is known.', NOT_FOUND)
        if not found:
            return self._shown('unknown', '../', UNAVAILABLE, view=view)
        records, notice = self._read(
            lambda reader: reader.choosing(
                name, MAX_DECISIONS_OF_HOST, MAX_DECISIONS_SEARCHED
            ),
            [],
        )
        return self._shown(
            'host',
            '../',
            OK,
            view=view,
            cell=found[0][0],
            host=found[0][1],
            nodes=[node for _, node in found[:MAX_NODES]],
            more=len(found) - MAX_NODES,
            records=records,
            notice=notice,
        )

    def _decisions(self, query: str) -> PageResponse:
        asked = queries.parse(queries.DecisionsQuery, query)
        skipped = (asked.page - 1) * DECISIONS_PER_PAGE

        def read(reader: RecordReader) -> tuple[Any, int]:
            most = DECISIONS_PER_PAGE + 1
            if asked.q:
                return reader.of(asked.q, most, skipped), 0
            return reader.newest(most, skipped), reader.count()

        (records, kept), notice = self._read(read, ([], 0))
        if asked.page > 1 and not records:
            raise BadQuery('There is no page of that number.', NOT_FOUND)
        more = len(records) > DECISIONS_PER_PAGE
        records = records[:DECISIONS_PER_PAGE]
        return self._shown(
            'decisions',
            './',
            OK,
            query=asked,
            records=records,
            kept=kept,
            more=more,
            notice=notice,
        )

    def _decision(self, id: str, query: str) -> PageResponse:
        asked = queries.parse(queries.DecisionQuery, query)

        def read(reader: RecordReader) -> tuple[Any, Any]:
            record = reader.by_id(id)
            return record, reader.rejections(record) if record and asked.host else None

        (record, rejections), notice = self._read(read, (None, None))
        if record is None:
            raise BadQuery(
                notice or 'No decision of that id is kept.',
                UNAVAILABLE if notice == UNREADABLE else NOT_FOUND,
            )
        why = render.why_not(record, asked.host, rejections) if asked.host else ()
        return self._shown('decision', '../', OK, query=asked, record=record, why=why)

    def _read(
        self, read: Callable[[RecordReader], Any], nothing: Any
    ) -> tuple[Any, str]:
        """Read the file; the result, or ``nothing`` and the reason."""
        if not self._file:
            return nothing, NO_FILE
        if not Path(self._file).exists():
            return nothing, NO_RECORD
        try:
            with closing(RecordReader(self._file)) as reader:
                return read(reader), ''
        except UnreadableRecords as error:
            if str(error) != self._trouble:  # logged once, not for each request
                self._trouble = str(error)
                LOG.warning('The page cannot show decisions: %s', error)
            return nothing, UNREADABLE

    def _shown(self, name: str, root: str, status: str, **values: Any) -> PageResponse:
        """A page; ``root`` is the relative path from it to the first page."""
        template = self._templates.get_template(f'{name}.html')
        return status, HTML, template.render(root=root, **values).encode()


def _text(environ: WSGIEnvironment, name: str) -> str:
    """A part of the URL, which WSGI passes as latin-1.

    :raises BadQuery: it is no text.
    """
    try:
        return str(environ.get(name, '')).encode('latin-1').decode()
    except UnicodeError:
        raise BadQuery(NO_PAGE, NOT_FOUND) from None
