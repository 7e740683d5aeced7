# SPDX-License-Identifier: Apache-2.0
"""Requests from recorded messages, or from the records of decisions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.observe.records.record import Record
from novasched.observe.records.store import RecordReader
from novasched.scheduler.model.request import Request
from novasched.tools.shadow.messages import Recorded, Unread, read

SQLITE = b'SQLite format 3\0'
NETWORKS = 'requested_networks'


_Content = TypeVar('_Content')


class Unusable(NovaschedError):
    """For the operator: a file, or a part of it, cannot be used."""


def read_json(path: str, kind: type[_Content]) -> _Content:
    """The content of a JSON file.

    :raises Unusable: the file cannot be read, or its content is of another kind.
    """
    try:
        with open(path, 'rb') as file:
            return msgspec.json.decode(file.read(), type=kind)
    except OSError as error:
        raise Unusable(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError) as error:
        raise Unusable(f'{path}: {error}') from None


@dataclass(frozen=True, slots=True)
class Entries:
    """The requests of a file; how many others are left out, by the reason; and what
    could not be read at all."""

    requests: Sequence[Recorded]
    skipped: Counter[str] = field(default_factory=Counter)
    unread: Sequence[str] = ()


def entries(path: str, settings: Settings) -> Entries:
    """All requests of a file of either kind, the oldest first.

    :raises Unusable: there is no such file, or no request that can be used in it.
    :raises UnreadableRecords: it is a file of decisions, and damaged.
    """
    found: list[Recorded] = []
    unread = []
    skipped = Counter[str]()
    if _is_archive(path):
        with closing(RecordReader(path)) as reader:
            records = reader.newest()[::-1]
        if reader.skipped:
            skipped['a damaged record'] = reader.skipped
        for number, record in enumerate(records, 1):
            request = rebuilt(record, settings)
            if isinstance(request, str):
                skipped[request] += 1
            else:
                hosts = None if record.result.failure else record.result.hosts
                found.append(Recorded(number, request, hosts))
    else:
        for each in _lines(path):
            if isinstance(each, Unread):
                unread.append(f'line {each.line}: {each.why}')
            else:
                found.append(each)
    if not found:
        why = [*unread, *(f'{number} {text}' for text, number in skipped.items())]
        raise Unusable(
            f'{path}: no request that can be used:'
            f' {"; ".join(why[:3]) or "it is empty"}'
        )
    return Entries(found, skipped, unread)


def numbered(text: str) -> Request:
    """The request of ``FILE`` or ``FILE:N``: the Nth line, by default the first that
    there is.

    :raises Unusable: there is no such file or line, or no request in it.
    """
    path, _, number = text.rpartition(':')
    if not path or not number.isdigit():
        path = text
        number = ''
    for each in _lines(path):
        if number and each.line != int(number):
            continue
        if isinstance(each, Unread):
            raise Unusable(f'{path}: line {each.line}: {each.why}')
        return each.request
    raise Unusable(
        f'{path}: there is no request in {f"line {number}" if number else "it"}'
    )


def remembered(path: str, name: str, settings: Settings) -> Request:
    """The request of the newest decision on an instance, or of a request, or of that
    id.

    :raises Unusable: there is none, or it is not known in full.
    :raises UnreadableRecords: the file cannot be read.
    """
    with closing(RecordReader(path)) as reader:
        records = reader.of(name)
    if not records:
        why = reader.damage or 'the newest are kept'
        raise Unusable(f'{path} has no decision on {name}; {why}')
    found = rebuilt(records[0], settings)
    if isinstance(found, str):
        raise Unusable(f'{path}: the decision on {name} cannot be repeated: {found}')
    return found


def rebuilt(record: Record, settings: Settings) -> Request | str:
    """The request of a record; or why the request cannot be repeated."""
    missing = list(record.missing_fields)
    if not settings.query_placement_for_routed_network_aggregates:
        missing = [name for name in missing if name != NETWORKS]
    if missing:
        return f'not kept: {", ".join(missing)}'
    return record.request


def _lines(path: str) -> Iterator[Recorded | Unread]:
    try:
        with open(path, encoding='utf-8') as lines:
            yield from read(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(
            f'{path}: {getattr(error, "strerror", None) or "no text"}'
        ) from None


def _is_archive(path: str) -> bool:
    try:
        with open(path, 'rb') as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError as error:
        raise Unusable(f'{path}: {error.strerror}') from None
