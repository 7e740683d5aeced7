# SPDX-License-Identifier: Apache-2.0
"""The servers of a cell, read for the few requests for which somebody looks at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from novasched.cells import rows
from novasched.cells.schema import Database
from novasched.model.host import Instance
from novasched.model.image_properties import from_system_metadata

FEW = 1000
"""Up to so many hosts are asked for by name; beyond, reading all is cheaper."""


def servers(
    base: Database, hosts: Collection[str], images: bool
) -> Mapping[str, Mapping[str, Instance]]:
    """The servers on each host by UUID, if wanted with what is kept of their images.

    :raises DatabaseUnavailable: the cell does not answer.
    """
    table = base.table('instances')
    on_them = table.c.host.in_(hosts) if len(hosts) <= FEW else table.c.host.is_not(None)
    stored: dict[str, dict[str, str]] = defaultdict(dict)
    if images:
        kept = base.table('instance_system_metadata')
        select = base.select('instance_system_metadata', rows.SYSTEM_METADATA)
        select = select.join(table, table.c.uuid == kept.c.instance_uuid).where(
            table.c.deleted == 0, on_them, kept.c.key.startswith('image_', autoescape=True)
        )
        for row in base.rows(select):
            stored[row.instance_uuid][row.key] = row.value
    placed: dict[str, dict[str, Instance]] = defaultdict(dict)
    for row in base.rows(base.select('instances', rows.INSTANCE).where(on_them)):
        properties = from_system_metadata(stored[row.uuid]) if row.uuid in stored else {}
        placed[row.host][row.uuid] = Instance(
            row.uuid, row.project_id, row.instance_type_id, properties
        )
    return placed
