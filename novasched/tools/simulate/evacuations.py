# SPDX-License-Identifier: Apache-2.0
"""Existing instances, with the requests for their evacuation.

nova keeps the RequestSpec of each instance in ``request_specs`` of the API database, up
to date through resizes and moves. For an evacuation nova takes the RequestSpec, reloads
the server group, drops forced hosts, ignores the lost host, and stays in the cell.
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
from novasched.scheduler.model.flavor import RequestGroup
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
    'node',
    'display_name',
    'task_state',
    'locked',
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
    """An instance on a host.

    :ivar state: the ``vm_state`` of the instance.
    :ivar request: the request for the evacuation, without the hosts of the server group
        and the hosts to ignore; or the reason why the request is unknown.
    :ivar node: the name of the compute node.
    :ivar task: the ``task_state`` of the instance.
    """

    uuid: str
    host: str
    state: str
    request: Request | str
    node: str = ''
    name: str = ''
    task: str | None = None
    is_locked: bool = False


@dataclass(frozen=True, slots=True)
class EvacuationReader:
    """Reads the instances of hosts from their cells, and their requests from the API
    database."""

    api: Database
    cells: Sequence[Cell]
    settings: Settings

    def on(self, hosts: Collection[str] | None) -> list[Evacuee]:
        """The instances on hosts, the newest first, as nova's API lists them.

        :param hosts: names of hosts; None for all hosts.
        :raises DatabaseUnavailable: a database does not answer.
        """
        rows: list[tuple[Any, str]] = []
        for cell in self.cells:
            for row in _instances(cell, hosts):
                rows.append((row, cell.uuid))
        rows.sort(key=_age, reverse=True)

        evacuees: list[Evacuee] = []
        decoded: dict[str, Request | str] = {}
        columns = ('instance_uuid', 'spec')
        title = f'thousands of {len(rows):,} servers read'
        for chunk in progress(_chunks(rows), title):
            uuids = [row.uuid for row, _ in chunk]
            specs = rows_in(self.api, 'request_specs', columns, 'instance_uuid', uuids)
            texts = {spec.instance_uuid: str(spec.spec) for spec in specs}
            for row, cell_uuid in chunk:
                text = texts.get(row.uuid)
                request = _request(row, text, cell_uuid, decoded, self.settings)
                evacuee = Evacuee(
                    row.uuid,
                    row.host,
                    row.vm_state or '',
                    request,
                    node=row.node or '',
                    name=row.display_name or '',
                    task=row.task_state,
                    is_locked=bool(row.locked),
                )
                evacuees.append(evacuee)
        return self._with_present_groups(evacuees)

    def _with_present_groups(self, evacuees: Sequence[Evacuee]) -> list[Evacuee]:
        """The evacuees with the present members of their server groups, and without
        deleted groups."""
        group_uuids: set[str] = set()
        for evacuee in evacuees:
            request = evacuee.request
            if isinstance(request, Request) and request.instance_group:
                group_uuids.add(request.instance_group.uuid or '')

        members = self._members(group_uuids - {''})
        grouped = []
        for evacuee in evacuees:
            request = _with_present_group(evacuee.request, members)
            grouped.append(replace(evacuee, request=request))
        return grouped

    def _members(self, groups: Collection[str]) -> Mapping[str, set[str]]:
        """The UUIDs of the instances in each existing group, by UUID of the group."""
        rows = rows_in(self.api, 'instance_groups', ('id', 'uuid'), 'uuid', groups)
        uuids = {row.id: row.uuid for row in rows}
        members: dict[str, set[str]] = {uuid: set() for uuid in uuids.values()}

        table = 'instance_group_member'
        columns = ('group_id', 'instance_uuid')
        for row in rows_in(self.api, table, columns, 'group_id', uuids):
            members[uuids[row.group_id]].add(row.instance_uuid)
        return members


def _age(row_and_cell: tuple[Any, str]) -> tuple[str, str]:
    """The sort key of nova's API: the time of creation, then the UUID."""
    row, _ = row_and_cell
    return (str(row.created_at or ''), row.uuid)


def _with_present_group(
    request: Request | str, members: Mapping[str, set[str]]
) -> Request | str:
    if isinstance(request, str) or request.instance_group is None:
        return request

    group = request.instance_group
    if group.uuid is not None and group.uuid in members:
        present = frozenset(members[group.uuid])
        return replace(request, instance_group=replace(group, members=present))
    hints = dict(request.scheduler_hints)
    hints.pop(GROUP_HINT, None)
    return replace(request, instance_group=None, scheduler_hints=hints)


def _instances(cell: Cell, hosts: Collection[str] | None) -> Iterator[Any]:
    """The rows of instances, without instances that a cross-cell move hides."""
    database = cell.database
    columns = INSTANCE_COLUMNS
    if hosts is None:
        rows = database.rows('instances', columns, lambda c: c.host.is_not(None))
    else:
        rows = rows_in(database, 'instances', columns, 'host', hosts)
    return (row for row in rows if not row.hidden)


def rows_in(
    database: Database,
    table: str,
    columns: Sequence[str],
    name: str,
    values: Iterable[Any],
) -> list[Any]:
    """The rows where the column ``name`` has a value of ``values``."""
    rows: list[Any] = []
    for chunk in _chunks(sorted(values)):
        rows += database.rows(table, columns, partial(_has_value_of, name, chunk))
    return rows


def _has_value_of(
    name: str, values: Sequence[Any], columns: Any
) -> sa.ColumnElement[bool]:
    return sa.ColumnElement.in_(columns[name], values)


def _chunks(items: Sequence[Item]) -> list[Sequence[Item]]:
    starts = range(0, len(items), NAMES_PER_QUERY)
    return [items[start : start + NAMES_PER_QUERY] for start in starts]


def progress(items: Sequence[Item], title: str) -> Iterator[Item]:
    """The items. On a terminal, standard error shows a progress bar meanwhile."""
    width = BAR_CHARACTERS
    is_shown = sys.stderr.isatty()
    try:
        for number, item in enumerate(items):
            if is_shown:
                done = width * number // len(items)
                bar = f'{"#" * done}{"." * (width - done)}'
                text = f'\r[{bar}] {number:,} of {len(items):,} {title}'
                print(text, end='', file=sys.stderr, flush=True)
            yield item
    finally:
        # Also if the loop ends early.
        if is_shown:
            print(f'\r{" " * 3 * width}\r', end='', file=sys.stderr, flush=True)


def _request(
    row: Any,
    text: str | None,
    cell_uuid: str,
    decoded: dict[str, Request | str],
    settings: Settings,
) -> Request | str:
    """The request for the evacuation of an instance; or why the request is unknown.

    :param text: the RequestSpec as JSON, if nova has kept one.
    :param decoded: decoded requests by their text without the UUID of the instance,
        since decoding takes long. Instances created together share a request.
    """
    if text is None:
        return 'nova has no request of it (request_specs)'

    key = _CHANGES.sub('', text.replace(row.uuid, ''))
    if key not in decoded:
        decoded[key] = _decoded(text)
    saved = decoded[key]
    if isinstance(saved, str):
        return saved

    groups: tuple[RequestGroup, ...] = ()
    if settings.pci_in_placement:
        groups = request_groups(saved.pci_requests)
    return replace(
        saved,
        instance_uuids=(row.uuid,),
        instance_uuid=row.uuid,
        project_id=saved.project_id or row.project_id,
        user_id=saved.user_id or row.user_id,
        requested_destination=Destination(cell_uuid=cell_uuid),
        requested_resources=groups,
    )


def _decoded(text: str) -> Request | str:
    """A request as kept by nova, without the fields of a single build or move; or why
    the request cannot be read."""
    try:
        spec = loads(text)
        if not isinstance(spec, RequestSpec):
            return 'the saved request (request_specs) is no RequestSpec'
        request = decode.request(versions.Call(spec), RequestContext(overwrite=False))
    except (BadObject, BadRequest) as error:
        return f'the saved request (request_specs) cannot be read: {error}'
    if request.flavor.extra_specs.get(CYBORG_SPEC):
        return 'only Cyborg knows its device profile'

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
