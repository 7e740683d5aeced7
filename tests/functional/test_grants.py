# SPDX-License-Identifier: Apache-2.0
"""The database grants that the documentation asks for are enough."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from .client import NovaClient, new_uuids
from .compute_rows import Flavor
from .daemon import Daemon, is_reference
from .nova_cloud import NovaCloud
from .servers import Server

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler writes more')

PAGE = Path(__file__).parents[2] / 'doc' / 'source' / 'install.rst'
TEMPLATE = '{scheme}://{username}:{password}@{hostname}:{port}/'
EVERYTHING = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,DifferentHostFilter',
        'image_props_weight_multiplier': 1,
    }
}
"""Looks at the servers on hosts, and at the images of these."""


def statements(cloud: NovaCloud, password: str) -> list[str]:
    """What the page has for a scheduler that does not discover hosts, for this cloud."""
    text = PAGE.read_text().partition('and, with discovery::')[0]
    found = re.findall(r'^    ((?:CREATE USER|GRANT) .*);$', text, re.M)
    names = {
        'nova_api': [cloud.api.url],
        'nova_cell0': [cloud.cell0.url],
        'nova_cell1': [cell.url for cell in cloud.cells.values()],
    }
    made = []
    for each in found:
        database = next((name for name in names if f' {name}.' in each), None)
        for url in names[database] if database else ['']:
            name = sa.make_url(url).database if url else ''
            made.append(each.replace(database or ' ', name or ' ').replace('...', password))
    return made


@pytest.fixture
def user(cloud: NovaCloud, mariadb: Server) -> Iterator[str]:
    """The password of the user that the page makes; the cells' URLs are templates."""
    cloud.reset()
    password = secrets.token_hex(8)
    before = {row['uuid']: row['database_connection'] for row in cloud.api.rows('cell_mappings')}
    engine = sa.create_engine(mariadb.url)
    with engine.begin() as connection:
        for statement in statements(cloud, password):
            connection.exec_driver_sql(statement.replace('%', '%%'))
    for cell, uuid in cloud.cell_uuids.items():
        if cell in cloud.cells:
            name = sa.make_url(cloud.cells[cell].url).database
            url = f'{TEMPLATE}{name}'
            cloud.api.update('cell_mappings', {'database_connection': url}, uuid=uuid)
    yield password
    for uuid, url in before.items():
        cloud.api.update('cell_mappings', {'database_connection': url}, uuid=uuid)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER novasched@'%%'")
    engine.dispose()


def as_user(url: str, password: str) -> str:
    """A database's URL for that user."""
    own = sa.make_url(url).set(username='novasched', password=password)
    return own.render_as_string(hide_password=False)


def test_the_grants_of_the_documentation_are_enough(
    cloud: NovaCloud, client: NovaClient, user: str
) -> None:
    """With them servers are placed in every cell, and the services row lives."""
    for cell in cloud.cells:
        cloud.add_host(f'host-{cell}', cell)
    [first, second] = new_uuids(2)
    overrides = {
        **EVERYTHING,
        'api_database': {'connection': as_user(cloud.api.url, user)},
        'database': {'connection': as_user(cloud.cell0.url, user)},
    }
    with Daemon(cloud, overrides) as daemon:
        [[one]] = client.select_destinations([first], Flavor(), image={'hw_vif_model': 'virtio'})
        cloud.boot(first, one['service_host'], Flavor())
        hints = {'different_host': [first]}
        [[two]] = client.select_destinations(
            [second], Flavor(), image={'hw_vif_model': 'virtio'}, hints=hints
        )
        assert {one['service_host'], two['service_host']} == {'host-cell1', 'host-cell2'}
        [row] = [x for x in cloud.service_rows('nova-scheduler') if x['host'] == daemon.host]
        assert row['last_seen_up']
        assert daemon.stop() == 0
        assert 'denied' not in daemon.text()
