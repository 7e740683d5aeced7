# SPDX-License-Identifier: Apache-2.0
"""Flavors in the API database."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from novasched.cells.database import Database
from novasched.scheduler.model.flavor import Flavor

SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
"""Columns of flavors in which NULL stands for 0."""


def flavors_of(api: Database, ids: Collection[int]) -> Mapping[int, Flavor]:
    """Names and extra specs of flavors by id, without sizes. Deleted flavors are
    missing.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    specs = _extra_specs(api, ids)
    flavors = {}
    for row in api.rows(
        'flavors', ('id', 'name', 'flavorid'), lambda columns: columns.id.in_(ids)
    ):
        flavors[row.id] = Flavor(
            row.name or '',
            row.flavorid or '',
            row.id,
            extra_specs=specs.get(row.id, {}),
        )
    return flavors


def _extra_specs(
    api: Database, flavor_ids: Collection[int]
) -> Mapping[int, Mapping[str, str]]:
    """The extra specs of flavors by id. Flavors without extra specs are missing."""
    specs: dict[int, dict[str, str]] = defaultdict(dict)
    for row in api.rows(
        'flavor_extra_specs',
        ('flavor_id', 'key', 'value'),
        lambda columns: columns.flavor_id.in_(flavor_ids),
    ):
        if row.value is not None:
            specs[row.flavor_id][row.key] = row.value
    return specs


def find_flavor(api: Database, name: str) -> Flavor | None:
    """The flavor by id, or else by name; None if neither exists.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    for column in ('flavorid', 'name'):
        columns = ('id', 'name', 'flavorid', *SIZES)
        for row in api.rows('flavors', columns, **{column: name}):
            return Flavor(
                id=row.id,
                name=row.name,
                flavorid=row.flavorid,
                extra_specs=_extra_specs(api, [row.id]).get(row.id, {}),
                **{size: getattr(row, size) or 0 for size in SIZES},
            )
    return None
