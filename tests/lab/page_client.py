# SPDX-License-Identifier: Apache-2.0
"""Asks the page as a server would, and looks at what comes back as a strict browser would."""

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote_to_bytes
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

VOID = {'br', 'input', 'link', 'meta', 'rect'}
"""Elements without an end."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


def ask(page: Any, path: str = '/', query: str = '', **environ: Any) -> Answer:
    """Ask for a path, as a person reads it, by the rules of WSGI."""
    return ask_raw(page, quote(path, safe='/'), query, **environ)


def ask_raw(page: Any, path: str, query: str = '', **environ: Any) -> Answer:
    values = {
        'REMOTE_ADDR': '127.0.0.1', 'HTTP_HOST': 'localhost:9100', 'SCRIPT_NAME': '',
        'PATH_INFO': unquote_to_bytes(path).decode('latin-1'), 'QUERY_STRING': query, **environ,
    }  # fmt: skip
    setup_testing_defaults(values)
    got: list[Any] = []
    body = validator(page)(values, lambda status, headers, *_: got.append((status, headers)))
    text = b''.join(body).decode()
    body.close()
    ((status, headers),) = got
    if values['REQUEST_METHOD'] == 'GET':
        assert dict(headers)['Content-Length'] == str(len(text.encode()))
    return Answer(int(status[:3]), dict(headers), text)


class Seen(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f'an attribute of {tag} stands there twice'
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return ' '.join(' '.join(self.texts).split())


def seen(answer: Answer) -> Seen:
    """What a page has in it; every element of it ends where it must."""
    made = Seen()
    made.feed(answer.text)
    made.close()
    assert made.open == []
    ids = [attributes['id'] for _, attributes in made.elements if 'id' in attributes]
    assert len(ids) == len(set(ids))
    return made
