# SPDX-License-Identifier: Apache-2.0
"""The database grants that the documentation asks for are enough, and none is too many."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

import novasched.cells
from tests.lab.client import NovaClient, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, checked, is_reference
from tests.lab.hidden import a_secret
from tests.lab.nova_cloud import NovaCloud
from tests.lab.processes import wait_until
from tests.lab.servers import Server

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
STATEMENT = re.compile(r'^    ((?:CREATE USER|GRANT) .*);$', re.M)

PATIENCE = 60
TOOLS = {'flavors', 'flavor_extra_specs'}
"""The readers that ``novaschedctl`` alone has use for."""
WITHOUT, WITH = (0,), (0, 1)
"""The parts of the page: what everybody needs, and what discovery does."""


def written(parts: Sequence[int]) -> list[str]:
    """The statements of the page."""
    text = PAGE.read_text().split('and, with host discovery::')
    return [each for part in parts for each in STATEMENT.findall(text[part])]


def statements(cloud: NovaCloud, password: str, parts: Sequence[int]) -> list[str]:
    """The same, for this cloud."""
    names = {
        'nova_api': [cloud.api.url],
        'nova_cell0': [cloud.cell0.url],
        'nova_cell1': [cell.url for cell in cloud.cells.values()],
    }
    made = []
    for each in written(parts):
        database = next((name for name in names if f' {name}.' in each), None)
        for url in names[database] if database else ['']:
            name = sa.make_url(url).database if url else ''
            made.append(each.replace(database or ' ', name or ' ').replace('...', password))
    return made


@pytest.fixture(params=[WITHOUT, WITH], ids=['without discovery', 'with discovery'])
def parts(request: pytest.FixtureRequest) -> Sequence[int]:
    """Of the page."""
    found: Sequence[int] = request.param
    return found


@pytest.fixture
def user(cloud: NovaCloud, mariadb: Server, parts: Sequence[int]) -> Iterator[str]:
    """The password of the user that the page makes; the cells' URLs are templates."""
    cloud.reset()
    password = a_secret()
    before = {row['uuid']: row['database_connection'] for row in cloud.api.rows('cell_mappings')}
    engine = sa.create_engine(mariadb.url)
    with engine.begin() as connection:
        for statement in statements(cloud, password, parts):
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
    cloud: NovaCloud, client: NovaClient, user: str, parts: Sequence[int]
) -> None:
    """With them servers are placed in every cell, the services row lives, and new hosts are
    mapped only by who may."""
    for cell in cloud.cells:
        cloud.add_host(f'host-{cell}', cell)
    [first, second] = new_uuids(2)
    overrides = {
        **EVERYTHING,
        'api_database': {'connection': as_user(cloud.api.url, user)},
        'database': {'connection': as_user(cloud.cell0.url, user)},
        'scheduler': {'workers': 1, 'discover_hosts_in_cells_interval': 1},
    }
    cloud.add_host('host-new')
    cloud.api.delete('host_mappings', host='host-new')
    cloud.cells['cell1'].update('compute_nodes', {'mapped': 0}, host='host-new')
    with Daemon(cloud, overrides) as daemon:
        if parts is WITH:
            wait_until(lambda: 'Discovered 1 new hosts' in daemon.text(), PATIENCE, 'discovery')
            [node] = cloud.cells['cell1'].rows('compute_nodes', host='host-new')
            assert node['mapped'] == 1
            assert cloud.api.rows('host_mappings', host='host-new')
        else:
            denied = 'Unable to discover hosts in cell'
            wait_until(lambda: denied in daemon.text(), PATIENCE, 'refusal')
            assert not cloud.api.rows('host_mappings', host='host-new')
        away = {'ignore_hosts': ['host-new'], 'image': {'hw_vif_model': 'virtio'}}
        [[one]] = client.select_destinations([first], Flavor(), **away)
        cloud.boot(first, one['service_host'], Flavor())
        hints = {'different_host': [first]}
        [[two]] = client.select_destinations([second], Flavor(), hints=hints, **away)
        assert {one['service_host'], two['service_host']} == {'host-cell1', 'host-cell2'}
        [row] = [x for x in cloud.service_rows('nova-scheduler') if x['host'] == daemon.host]
        assert row['last_seen_up']
        assert daemon.stop() == 0
        denials = [line for line in daemon.text().splitlines() if 'denied' in line]
        assert all('discover' in line for line in denials)
        assert bool(denials) is (parts is WITHOUT)
    found = checked(cloud.config('granted', overrides))
    assert found['[database] connection'][0] == 'ok'
    mapping = 'ok' if parts is WITH else 'error'
    assert {found[name][0] for name in ('[api_database] connection', 'cell cell2')} == {mapping}


def test_the_grants_of_the_documentation_are_needed(cloud: NovaCloud) -> None:
    """There is one for each of nova's tables that the daemon's readers of databases name, and
    none for another; what the operator's tool reads beside is said in words."""
    known = {
        name
        for base in (cloud.api, cloud.cell0)
        for name in sa.inspect(base.engine).get_table_names()
    }
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for path in Path(novasched.cells.__file__).parent.glob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in known:
                named[node.value in TOOLS].add(node.value)
    granted = set(re.findall(r' ON nova_\w+\.(\w+) TO ', '\n'.join(written(WITH))))
    assert granted == named[False]
    assert all(f'``nova_api.{name}``' in PAGE.read_text() for name in named[True] - granted)
