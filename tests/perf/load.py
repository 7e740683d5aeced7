# SPDX-License-Identifier: Apache-2.0
"""Thousands of providers, written where Placement would write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from tests.functional.compute_rows import Compute, now
from tests.functional.nova_cloud import COMPUTE_TRAITS, Database

TABLES = (
    'resource_provider_traits', 'inventories', 'resource_providers', 'resource_classes', 'traits',
)  # fmt: skip
GENERATION = 1


def add_providers(connection: str, computes: Sequence[Compute]) -> None:
    """A provider for each compute, as ``NovaCloud.add_hosts`` makes them one by one."""
    database = Database(connection, TABLES)
    classes = {row['name']: row['id'] for row in database.rows('resource_classes')}
    traits = {row['name']: row['id'] for row in database.rows('traits')}
    made: dict[str, Any] = {'created_at': now(), 'generation': GENERATION}
    database.insert(
        'resource_providers', [{**made, 'uuid': each.uuid, 'name': each.name} for each in computes]
    )
    table = database.table('resource_providers')
    with database.engine.begin() as open_:
        open_.execute(
            sa.update(table)
            .where(table.c.root_provider_id.is_(None))
            .values(root_provider_id=table.c.id)
        )
    numbers = {row['uuid']: row['id'] for row in database.rows('resource_providers')}
    rest = {'reserved': 0, 'min_unit': 1, 'step_size': 1}
    database.insert(
        'inventories',
        [
            {
                **rest, **amounts,
                'resource_provider_id': numbers[each.uuid], 'resource_class_id': classes[name],
            }
            for each in computes
            for name, amounts in each.inventories().items()
        ],
    )  # fmt: skip
    database.insert(
        'resource_provider_traits',
        [
            {'trait_id': traits[name], 'resource_provider_id': numbers[each.uuid]}
            for each in computes
            for name in (*COMPUTE_TRAITS, *each.traits)
        ],
    )
    database.engine.dispose()
