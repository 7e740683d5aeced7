# SPDX-License-Identifier: Apache-2.0
"""The WSGI application of the page, read-only, for every client of the port.

A page repeats the request only as escaped text, and an error is one fixed line.
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

from novasched.observe.page import hosts, room
from novasched.observe.page import query as queries
from novasched.observe.page.query import BadQuery, is_local
from novasched.observe.page.watch import Watch
from novasched.observe.records import render
from novasched.observe.records.store import RecordReader, UnreadableRecords
from novasched.scheduler.weighers.fragmentation import resource_name

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
"""Nodes that the page of a host shows."""

MAX_DECISIONS_OF_HOST = 10
"""Decisions that the page of a host shows."""

MAX_DECISIONS_SEARCHED = 1000
"""Newest decisions that are searched for the page of a host."""

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

    :param decisions_file: the file of decision records (``[novasched]
        decisions_file``), or None.
    :param zone: the availability zone of hosts without a zone.
    :param remote: serve other machines, too (``[novasched] page_remote``).
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
        self._logged_failure = ''
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
                case ['', 'room']:
                    return self._room(query)
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
        hosts_query = queries.parse(queries.HostsQuery, query)
        view = self._watch.hosts()
        heatmap = hosts.heatmap(view, hosts_query, self._zone)
        if hosts_query.page > heatmap.pages:
            raise BadQuery('There is no page of that number.', NOT_FOUND)

        status = UNAVAILABLE
        if view.known:
            status = OK
        return self._shown(
            'hosts', './', status, view=view, query=hosts_query, heatmap=heatmap
        )

    def _room(self, query: str) -> PageResponse:
        queries.parse(queries.PageQuery, query)
        view = self._watch.hosts()
        status = UNAVAILABLE
        if view.known:
            status = OK
        return self._shown(
            'room',
            './',
            status,
            view=view,
            room=room.room(view, self._zone),
            resource_name=resource_name,
        )

    def _host(self, name: str, query: str) -> PageResponse:
        queries.parse(queries.PageQuery, query)
        view = self._watch.hosts()
        nodes = []
        cells = []
        for cell in view.cells:
            for host in cell.hosts:
                if host.host == name:
                    nodes.append(host)
                    cells.append(cell.name)
        if not nodes and view.known:
            raise BadQuery('No host of that name is known.', NOT_FOUND)
        if not nodes:
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
            cell=cells[0],
            host=nodes[0],
            nodes=nodes[:MAX_NODES],
            more=len(nodes) - MAX_NODES,
            records=records,
            notice=notice,
        )

    def _decisions(self, query: str) -> PageResponse:
        list_query = queries.parse(queries.DecisionsQuery, query)
        skipped = (list_query.page - 1) * DECISIONS_PER_PAGE

        def read(reader: RecordReader) -> tuple[Any, int, int]:
            # One record more than a page tells whether another page follows.
            limit = DECISIONS_PER_PAGE + 1
            if list_query.q:
                records = reader.of(list_query.q, limit, skipped)
                return records, 0, len(records) + reader.skipped
            records = reader.newest(limit, skipped)
            return records, reader.count(), len(records) + reader.skipped

        (records, kept, found), notice = self._read(read, ([], 0, 0))
        if list_query.page > 1 and not found:
            raise BadQuery('There is no page of that number.', NOT_FOUND)

        more = found > DECISIONS_PER_PAGE
        records = records[:DECISIONS_PER_PAGE]
        return self._shown(
            'decisions',
            './',
            OK,
            query=list_query,
            records=records,
            kept=kept,
            more=more,
            notice=notice,
        )

    def _decision(self, id: str, query: str) -> PageResponse:
        host_query = queries.parse(queries.DecisionQuery, query)

        def read(reader: RecordReader) -> tuple[Any, Any]:
            record = reader.by_id(id)
            if record is None or not host_query.host:
                return record, None
            return record, reader.rejections(record)

        (record, rejections), notice = self._read(read, (None, None))
        if record is None:
            if notice == UNREADABLE:
                raise BadQuery(notice, UNAVAILABLE)
            raise BadQuery(notice or 'No decision of that id is kept.', NOT_FOUND)

        why: list[str] = []
        if host_query.host:
            why = render.why_not(record, host_query.host, rejections)
        return self._shown(
            'decision', '../', OK, query=host_query, record=record, why=why
        )

    def _read(
        self, read: Callable[[RecordReader], Any], nothing: Any
    ) -> tuple[Any, str]:
        """Read the file of decisions. The answer is the result and a notice of damaged
        records, which is mostly empty, or ``nothing`` and a notice for the reader of
        the page."""
        if not self._file:
            return nothing, NO_FILE
        if not Path(self._file).exists():
            return nothing, NO_RECORD

        try:
            with closing(RecordReader(self._file)) as reader:
                return read(reader), _sentence(reader.damage)
        except UnreadableRecords as error:
            # Clients can repeat the request; the log has a line for each new failure.
            if str(error) != self._logged_failure:
                self._logged_failure = str(error)
                LOG.warning('The page cannot show decisions: %s', error)
            return nothing, UNREADABLE

    def _shown(self, name: str, root: str, status: str, **values: Any) -> PageResponse:
        """Render a page. ``root`` is the relative path from the page to the first
        page."""
        template = self._templates.get_template(f'{name}.html')
        return status, HTML, template.render(root=root, **values).encode()


def _sentence(text: str) -> str:
    """A text without a capital letter and a full stop as a sentence."""
    return text and f'{text[0].upper()}{text[1:]}.'


def _text(environ: WSGIEnvironment, name: str) -> str:
    """A part of the URL. WSGI passes its bytes as latin-1 (PEP 3333).

    :raises BadQuery: the bytes are not UTF-8.
    """
    try:
        return str(environ.get(name, '')).encode('latin-1').decode()
    except UnicodeError:
        raise BadQuery(NO_PAGE, NOT_FOUND) from None
