# SPDX-License-Identifier: Apache-2.0
"""Servers that are there, with the requests by which nova would evacuate them.

nova keeps the RequestSpec of each instance (``request_specs`` in the API database), up
to date through resizes and moves. For an evacuation it takes that, reloads the server
group, forgets hosts that were forced, ignores the host that is left, and stays in the
cell.
"""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_context.context import RequestContext

from novasched.cells.database import Database
from novasched.cells.instances import NAMES_PER_QUERY
from novasched.cells.mappings import Cell
from novasched.conf.settings import Settings
from novasched.rpc import decode, versions
from novasched.rpc.wire import BadObject, RequestSpec, loads
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import Destination, Request
from novasched.scheduler.requirements.pci_aliases import request_groups

INSTANCE_COLUMNS = (
    'uuid',
    'host',
    'project_id',
    'user_id',
    'vm_state',
    'created_at',
    'hidden',
)
EVACUABLE = frozenset({'active', 'stopped', 'error'})
"""States (``vm_state``) in which nova evacuates an instance."""
GROUP_HINT = 'group'
CYBORG_SPEC = 'accel:device_profile'
BAR_CHARACTERS = 40
Item = TypeVar('Item')
_CHANGES = re.compile(r'"nova_object.changes": \[[^][]*\]')


@dataclass(frozen=True, slots=True)
class Evacuee:
    """An instance on a host. ``request`` is that for its evacuation, but for the hosts
    of its group and those to ignore; or the reason why it is not known."""

    uuid: str
    host: str
    state: str
    request: Request | str


@dataclass(frozen=True, slots=True)
class EvacuationReader:
    """Reads the instances of hosts from their cells, and their requests from the API
    database."""

    api: Database
    cells: Sequence[Cell]
    settings: Settings

    def on(self, hosts: Collection[str] | None) -> list[Evacuee]:
        """All instances on these hosts, or on any; the newest first, as nova's API
        lists them.

        :raises DatabaseUnavailable: a database does not answer.
        """
        rows = [
            (each, cell.uuid) for cell in self.cells for each in _instances(cell, hosts)
        ]
        rows.sort(
            key=lambda pair: (str(pair[0].created_at or ''), pair[0].uuid), reverse=True
        )
        found: list[Evacuee] = []
        known: dict[str, Request | str] = {}
        columns = 'instance_uuid', 'spec'
        for chunk in progress(
            _chunks(rows), f'thousands of {len(rows):,} servers read'
        ):
            uuids = [row.uuid for row, _ in chunk]
            specs = _rows_in(self.api, 'request_specs', columns, 'instance_uuid', uuids)
            texts = {spec.instance_uuid: str(spec.spec) for spec in specs}
            for row, cell in chunk:
                request = _request(row, texts.get(row.uuid), cell, known, self.settings)
                found.append(Evacuee(row.uuid, row.host, row.vm_state or '', request))
        return self._grouped(found)

    def _grouped(self, evacuees: Sequence[Evacuee]) -> list[Evacuee]:
        """The same with the present members of their groups; a group that is gone is
        none."""
        requests = [
            each.request for each in evacuees if isinstance(each.request, Request)
        ]
        groups = {each.instance_group.uuid for each in requests if each.instance_group}
        members = self._members({uuid for uuid in groups if uuid})
        return [
            replace(each, request=_in_group(each.request, members)) for each in evacuees
        ]

    def _members(self, groups: Collection[str]) -> Mapping[str, set[str]]:
        """The UUIDs of the instances in each of these groups that is there."""
        rows = _rows_in(self.api, 'instance_groups', ('id', 'uuid'), 'uuid', groups)
        uuids = {row.id: row.uuid for row in rows}
        members: dict[str, set[str]] = {uuid: set() for uuid in uuids.values()}
        columns = 'group_id', 'instance_uuid'
        for row in _rows_in(
            self.api, 'instance_group_member', columns, 'group_id', uuids
        ):
            members[uuids[row.group_id]].add(row.instance_uuid)
        return members


def _in_group(request: Request | str, members: Mapping[str, set[str]]) -> Request | str:
    if isinstance(request, str) or (group := request.instance_group) is None:
        return request
    if group.uuid is not None and group.uuid in members:
        present = frozenset(members[group.uuid])
        return replace(request, instance_group=replace(group, members=present))
    hints = {
        name: each
        for name, each in request.scheduler_hints.items()
        if name != GROUP_HINT
    }
    return replace(request, instance_group=None, scheduler_hints=hints)


def _instances(cell: Cell, hosts: Collection[str] | None) -> Iterator[Any]:
    """The rows of instances, but for those that a move to another cell hides."""
    base = cell.database
    columns = INSTANCE_COLUMNS
    if hosts is None:
        rows = base.rows('instances', columns, lambda c: c.host.is_not(None))
    else:
        rows = _rows_in(base, 'instances', columns, 'host', hosts)
    return (row for row in rows if not row.hidden)


def _rows_in(
    base: Database, table: str, columns: Sequence[str], name: str, values: Iterable[Any]
) -> list[Any]:
    """The rows in which a column has one of these values."""
    found: list[Any] = []
    for chunk in _chunks(sorted(values)):
        found += base.rows(table, columns, partial(_has_one_of, name, chunk))
    return found


def _has_one_of(
    name: str, values: Sequence[Any], columns: Any
) -> sa.ColumnElement[bool]:
    return sa.ColumnElement.in_(columns[name], values)


def _chunks(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [
        items[first : first + NAMES_PER_QUERY]
        for first in range(0, len(items), NAMES_PER_QUERY)
    ]


def progress(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, with a bar on standard error that shows how far it is, if that is a
    terminal."""
    width = BAR_CHARACTERS
    is_shown = sys.stderr.isatty()
    for number, item in enumerate(items):
        if is_shown:
            done = width * number // len(items)
            bar = f'{"#" * done}{"." * (width - done)}'
            text = f'\r[{bar}] {number:,} of {len(items):,} {what}'
            print(text, end='', file=sys.stderr, flush=True)
        yield item
    if is_shown:
        print(f'\r{" " * 3 * width}\r', end='', file=sys.stderr, flush=True)


def _request(
    row: Any,
    text: str | None,
    cell: str,
    known: dict[str, Request | str],
    settings: Settings,
) -> Request | str:
    """The request for an evacuation of an instance.

    :param known: requests by the text that is kept of them. Those that differ in the
        instance alone share what was decoded.
    """
    if text is None:
        return 'nova has no request of it (request_specs)'
    key = _CHANGES.sub('', text.replace(row.uuid, ''))
    if key not in known:
        known[key] = _decoded(text)
    saved = known[key]
    if isinstance(saved, str):
        return saved
    pci = request_groups(saved.pci_requests) if settings.pci_in_placement else ()
    return replace(
        saved,
        instance_uuids=(row.uuid,),
        instance_uuid=row.uuid,
        project_id=saved.project_id or row.project_id,
        user_id=saved.user_id or row.user_id,
        requested_destination=Destination(cell_uuid=cell),
        requested_resources=pci,
    )


def _decoded(text: str) -> Request | str:
    """A request as nova keeps it, without what concerns one build or move alone."""
    try:
        spec = loads(text)
        if not isinstance(spec, RequestSpec):
            return 'what nova keeps of its request is no RequestSpec'
        request = decode.request(versions.Call(spec), RequestContext(overwrite=False))
    except (BadObject, BadRequest) as error:
        return f'what nova keeps of its request cannot be read: {error}'
    if request.flavor.extra_specs.get(CYBORG_SPEC):
        return 'only Cyborg knows what its device profile is'
    return replace(
        request,
        force_hosts=(),
        force_nodes=(),
        ignore_hosts=(),
        requested_networks=(),
        retry=None,
        physnets=None,
        request_id=None,
        global_request_id=None,
        tunneled=False,
        origin=None,
    )
