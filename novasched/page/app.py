# SPDX-License-Identifier: Apache-2.0
"""The WSGI application: requests from anybody who reaches the port, answered from values.

It reads alone. What was asked is never repeated but as text in a page, and an error is one
line that is known beforehand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2

from novasched.page import heat, machine, sight, told, wanted
from novasched.page.guard import is_local
from novasched.page.resources import RESOURCES
from novasched.page.wanted import Unwanted
from novasched.page.watch import Watch
from novasched.recorder.store import Archive, Unreadable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)
HTML = 'text/html; charset=utf-8'
FILES = {'/page.css': 'text/css; charset=utf-8', '/icon.svg': 'image/svg+xml'}
HEADERS = [
    (
        'Content-Security-Policy',
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'",
    ),
    ('X-Content-Type-Options', 'nosniff'),
    ('Referrer-Policy', 'no-referrer'),
    ('Cross-Origin-Opener-Policy', 'same-origin'),
    ('Cross-Origin-Resource-Policy', 'same-origin'),
    ('Cache-Control', 'no-store'),
]
METHODS = ('GET', 'HEAD')
LONGEST_PATH = 1000
DECISIONS, CHOSEN, AMONG = 50, 10, 1000
"""So many decisions are on a page, and of those that chose a host, which are looked for among
so many of the newest."""

OK, UNAVAILABLE = '200 OK', '503 Service Unavailable'
NOT_FOUND = '404 Not Found'
NO_FILE = 'No decision is kept here. Set [novasched] decisions_file in nova.conf.'
NO_RECORD = 'No decision has been recorded yet.'
UNREADABLE = 'The file of decision records cannot be read; the log says why.'


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: str
    body: bytes
    kind: str = HTML
    allow: bool = False


class Page:
    """The application.

    :param decisions_file: where decision records are, if anywhere.
    :param zone: the availability zone of hosts that are in none.
    :param remote: whether it is shown to others than this machine.
    """

    def __init__(
        self, watch: Watch, decisions_file: str | None, zone: str | None, remote: bool = False
    ) -> None:
        self._watch, self._file, self._zone = watch, decisions_file, zone
        self._remote, self._trouble = remote, ''
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader('novasched.page'),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters['segment'] = lambda text: quote(text, safe='')
        self._templates.globals.update(
            link=wanted.link,
            every=wanted.Hosts(),
            bars=heat.bars,
            resources=RESOURCES,
            states=sight.STATES,
        )
        folder = files('novasched.page') / 'static'
        self._files = {path: (folder / path[1:]).read_bytes() for path in FILES}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        answer = self._answer(environ)
        headers = [
            ('Content-Type', answer.kind),
            ('Content-Length', str(len(answer.body))),
            *([('Allow', ', '.join(METHODS))] if answer.allow else []),
            *HEADERS,
        ]
        start_response(answer.status, headers)
        return [b'' if environ['REQUEST_METHOD'] == 'HEAD' else answer.body]

    def renew(self) -> None:
        """Look anew which cells there are."""
        self._watch.renew()

    def _answer(self, environ: WSGIEnvironment) -> Answer:
        if environ['REQUEST_METHOD'] not in METHODS:
            return self._error(Unwanted('This page can be read alone.', '405 Method Not Allowed'))
        peer, host = environ.get('REMOTE_ADDR', ''), environ.get('HTTP_HOST', '')
        if not (self._remote or is_local(peer, host)):
            why = 'This page is shown on its own machine alone.'
            return self._error(Unwanted(why, '403 Forbidden'))
        try:
            path, query = _text(environ, 'PATH_INFO'), _text(environ, 'QUERY_STRING')
            if path in FILES:
                return Answer(OK, self._files[path], FILES[path])
            show, name = self._found(path)
            return show(name, query)
        except Unwanted as error:
            return self._error(error)

    def _found(self, path: str) -> tuple[Callable[[str, str], Answer], str]:
        """Who shows a path, and the name in it."""
        exact = {'': self._hosts, '/': self._hosts, '/decisions': self._decisions}
        if path in exact:
            return exact[path], ''
        for start, show in (('/decisions/', self._decision), ('/hosts/', self._host)):
            name = path.removeprefix(start)
            if name and name != path and wanted.is_plain(name):
                return show, name
        raise Unwanted('There is no such page.', NOT_FOUND)

    def _hosts(self, _: str, query: str) -> Answer:
        asked = wanted.read(wanted.Hosts, query)
        seen = self._watch.look()
        found = heat.view(seen, asked, self._zone)
        if asked.page > found.pages:
            raise Unwanted('There is no page of that number.', NOT_FOUND)
        status = OK if seen.known else UNAVAILABLE
        return self._shown('hosts', './', status, sight=seen, asked=asked, heat=found)

    def _host(self, name: str, query: str) -> Answer:
        wanted.read(wanted.Nothing, query)
        seen = self._watch.look()
        found = machine.view(seen, name, self._zone)
        if found is None and seen.known:
            raise Unwanted('No host of that name is known.', NOT_FOUND)
        if found is None:
            return self._shown('unknown', '../', UNAVAILABLE, sight=seen)
        lines, notice = self._read(lambda archive: archive.choosing(name, CHOSEN, AMONG), [])
        lines = [told.line(record) for record in lines]
        return self._shown('host', '../', OK, sight=seen, host=found, lines=lines, notice=notice)

    def _decisions(self, _: str, query: str) -> Answer:
        asked = wanted.read(wanted.Decisions, query)
        skipped = (asked.page - 1) * DECISIONS

        def read(archive: Archive) -> tuple[Any, int]:
            most = DECISIONS + 1
            if asked.q:
                return archive.of(asked.q, most, skipped), 0
            return archive.newest(most, skipped), archive.count()

        (records, kept), notice = self._read(read, ([], 0))
        if asked.page > 1 and not records:
            raise Unwanted('There is no page of that number.', NOT_FOUND)
        lines = [told.line(record) for record in records[:DECISIONS]]
        more = len(records) > DECISIONS
        return self._shown(
            'decisions', './', OK, asked=asked, lines=lines, kept=kept, more=more, notice=notice
        )

    def _decision(self, id: str, query: str) -> Answer:
        asked = wanted.read(wanted.Decision, query)

        def read(archive: Archive) -> tuple[Any, Any]:
            record = archive.by_id(id)
            return record, archive.causes(record) if record and asked.host else None

        (record, causes), notice = self._read(read, (None, None))
        if record is None:
            raise Unwanted(
                notice or 'No decision of that id is kept.',
                UNAVAILABLE if notice == UNREADABLE else NOT_FOUND,
            )
        why = told.why_not(record, asked.host, causes) if asked.host else ()
        return self._shown('decision', '../', OK, asked=asked, told=told.told(record), why=why)

    def _read(self, read: Callable[[Archive], Any], nothing: Any) -> tuple[Any, str]:
        """What is read from the file, or nothing and why."""
        if not self._file:
            return nothing, NO_FILE
        if not Path(self._file).exists():
            return nothing, NO_RECORD
        try:
            with closing(Archive(self._file)) as archive:
                return read(archive), ''
        except Unreadable as error:
            if str(error) != self._trouble:  # told once, not to each who looks
                self._trouble = str(error)
                LOG.warning('The page cannot show decisions: %s', error)
            return nothing, UNREADABLE

    def _shown(self, name: str, root: str, status: str, **values: Any) -> Answer:
        """A page; ``root`` is the way from it to the first one."""
        template = self._templates.get_template(f'{name}.html')
        return Answer(status, template.render(root=root, **values).encode())

    def _error(self, error: Unwanted) -> Answer:
        shown = self._templates.get_template('error.html').render(
            root=None, status=error.status.partition(' ')[2], why=str(error)
        )
        return Answer(error.status, shown.encode(), allow=error.status.startswith('405'))


def _text(environ: WSGIEnvironment, name: str) -> str:
    """A part of the URL, which WSGI has as bytes in disguise.

    :raises Unwanted: it is no text, or too long.
    """
    value: str = environ.get(name, '')
    if len(value) > LONGEST_PATH and name == 'PATH_INFO':
        raise Unwanted('There is no such page.', NOT_FOUND)
    try:
        return value.encode('latin-1').decode()
    except UnicodeError:
        raise Unwanted('There is no such page.', NOT_FOUND) from None
