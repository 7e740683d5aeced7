# SPDX-License-Identifier: Apache-2.0
"""The database grants that the documentation asks for are enough, and none is too
many."""

import ast
import re
from pathlib import Path

import pytest
import sqlalchemy as sa

import novasched.cells
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, checked, new_uuids
from tests.lab.known_secrets import a_secret
from tests.lab.processes import wait_until
from tests.lab.servers import as_user

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
BASIC = 0
DISCOVERY = 1
"""The parts of the page: what everybody needs, and what discovery does."""


def written(part):
    """The statements of a part of the page."""
    return STATEMENT.findall(PAGE.read_text().split('and, with host discovery::')[part])


def grant(server, cloud, password, part):
    """Do what a part of the page says, for this cloud."""
    names = {
        'nova_api': [cloud.api.url],
        'nova_cell0': [cloud.cell0.url],
        'nova_cell1': [cell.url for cell in cloud.cells.values()],
    }
    with server.begin() as connection:
        for each in written(part):
            database = next((name for name in names if f' {name}.' in each), None)
            for url in names[database] if database else ['']:
                name = sa.make_url(url).database if url else ''
                made = each.replace(database or ' ', name or ' ').replace(
                    '...', password
                )
                connection.exec_driver_sql(made.replace('%', '%%'))


@pytest.fixture
def server(mariadb):
    """The database server, which forgets the page's user in the end."""
    engine = sa.create_engine(mariadb.url)
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS novasched@'%%'")
    engine.dispose()


def test_the_grants_of_the_documentation_are_enough(cloud, client, server):
    """With them servers are placed in every cell, the services row lives, and new hosts
    are mapped as soon as that is granted; until then it is an error in the log."""
    cloud.reset()
    password = a_secret()
    grant(server, cloud, password, BASIC)
    for cell, database in cloud.cells.items():
        url = f'{TEMPLATE}{sa.make_url(database.url).database}'
        cloud.map_cell(cell, database_connection=url)
        cloud.add_host(f'host-{cell}', cell)
    [first, second] = new_uuids(2)
    overrides = {
        **EVERYTHING,
        'api_database': {'connection': as_user(cloud.api.url, 'novasched', password)},
        'database': {'connection': as_user(cloud.cell0.url, 'novasched', password)},
        'scheduler': {'workers': 1, 'discover_hosts_in_cells_interval': 1},
    }
    cloud.add_host('host-new')
    cloud.api.delete('host_mappings', host='host-new')
    cloud.cells['cell1'].update('compute_nodes', {'mapped': 0}, host='host-new')

    def is_mapped():
        [node] = cloud.cells['cell1'].rows('compute_nodes', host='host-new')
        return node['mapped'], bool(cloud.api.rows('host_mappings', host='host-new'))

    def levels():
        found = checked(cloud.config('granted', overrides))
        assert found['[database] connection'][0] == found['members'][0] == 'ok'
        return {found[name][0] for name in ('[api_database] connection', 'cell cell2')}

    with Daemon(cloud, overrides) as daemon:
        away = {'ignore_hosts': ['host-new'], 'image': {'hw_vif_model': 'virtio'}}
        [[one]] = client.select_destinations([first], Flavor(), **away)
        cloud.boot(first, one['service_host'], Flavor())
        hints = {'different_host': [first]}
        [[two]] = client.select_destinations([second], Flavor(), hints=hints, **away)
        assert {one['service_host'], two['service_host']} == {
            'host-cell1',
            'host-cell2',
        }
        [row] = [
            x for x in cloud.service_rows('nova-scheduler') if x['host'] == daemon.host
        ]
        assert row['last_seen_up']

        denied = 'Unable to discover hosts in cell'
        wait_until(lambda: denied in daemon.text(), PATIENCE, 'refusal')
        assert is_mapped() == (0, False)
        assert levels() == {'error'}
        grant(server, cloud, password, DISCOVERY)
        wait_until(
            lambda: 'Discovered 1 new hosts' in daemon.text(), PATIENCE, 'discovery'
        )
        assert is_mapped() == (1, True)
        assert levels() == {'ok'}
        assert daemon.stop() == 0
        denials = [line for line in daemon.text().splitlines() if 'denied' in line]
        assert all('discover' in line for line in denials)
        assert 'Traceback' not in daemon.text()
    cloud.restore_cells()


def test_the_grants_of_the_documentation_are_needed(cloud):
    """There is one for each of nova's tables that the daemon's readers of databases
    name, and none for another; what the operator's tool reads beside is said in
    words."""
    known = {
        name
        for base in (cloud.api, cloud.cell0)
        for name in sa.inspect(base.engine).get_table_names()
    }
    named = {True: set(), False: set()}
    for path in Path(novasched.cells.__file__).parent.glob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in known:
                named[node.value in TOOLS].add(node.value)
    granted = set(
        re.findall(
            r' ON nova_\w+\.(\w+) TO ', '\n'.join(written(BASIC) + written(DISCOVERY))
        )
    )
    assert granted == named[False]
    assert all(
        f'``nova_api.{name}``' in PAGE.read_text() for name in named[True] - granted
    )
