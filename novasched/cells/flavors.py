# SPDX-License-Identifier: Apache-2.0
"""Flavors, which requests bring along: the API database has them for those who only have a
name."""

from __future__ import annotations

from novasched.cells.schema import Database
from novasched.model.request import Flavor

COLUMNS = ('id', 'name', 'flavorid', 'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
SPECS = ('key', 'value')


def flavor(api: Database, name: str) -> Flavor | None:
    """The flavor of that id, or else of that name; None if there is none.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    table = api.table('flavors')
    for column in (table.c.flavorid, table.c.name):
        for row in api.rows(api.select('flavors', COLUMNS).where(column == name)):
            specs = api.rows(api.select('flavor_extra_specs', SPECS, flavor_id=row.id))
            return Flavor(
                id=row.id,
                name=row.name,
                flavorid=row.flavorid,
                vcpus=row.vcpus,
                memory_mb=row.memory_mb,
                root_gb=row.root_gb or 0,
                ephemeral_gb=row.ephemeral_gb or 0,
                swap=row.swap or 0,
                extra_specs={each.key: each.value for each in specs if each.value is not None},
            )
    return None
