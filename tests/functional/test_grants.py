# SPDX-License-Identifier: Apache-2.0
"""The database grants of the documentation are sufficient and necessary."""

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
"""Filters and weighers that read the servers on hosts, and the servers' images."""
STATEMENT = re.compile(r'^    ((?:CREATE USER|GRANT) .*);$', re.M)

PATIENCE = 60
TOOLS = {'flavors', 'flavor_extra_specs'}
"""Tables that only ``novaschedctl`` reads, and the daemon with options that are off by
default."""
BASIC = 0
DISCOVERY = 1
"""The parts of the page: the basic grants, and the grants for host discovery."""


def statements(part):
    """The statements of a part of the page."""
    return STATEMENT.findall(PAGE.read_text().split('and, with host discovery::')[part])


def grant(server, cloud, password, part):
    """Execute the statements of a part of the page, with the names of the cloud's
    databases."""
    urls = {
        'nova_api': [cloud.api.url],
        'nova_cell0': [cloud.cell0.url],
        'nova_cell1': [cell.url for cell in cloud.cells.values()],
    }
    with server.begin() as connection:
        for statement in statements(part):
            for sql in with_real_names(statement, urls):
                sql = sql.replace('...', password).replace('%', '%%')
                connection.exec_driver_sql(sql)


def with_real_names(statement, urls):
    """The statement for every database that has the role of the statement's database.

    :param urls: the name in the documentation to the URLs of the databases.
    """
    for name, databases in urls.items():
        if f' {name}.' in statement:
            real_names = [sa.make_url(url).database for url in databases]
            return [statement.replace(name, real_name) for real_name in real_names]
    return [statement]


@pytest.fixture
def server(mariadb):
    """The database server. The user of the page is removed after the test."""
    engine = sa.create_engine(mariadb.url)
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS novasched@'%%'")
    engine.dispose()


def test_the_grants_of_the_documentation_are_enough(cloud, client, server):
    """With the grants servers are placed in every cell, and the services row is kept up
    to date. New hosts are mapped once the grants for discovery are there; before that,
    discovery logs an error."""
    cloud.reset()
    password = a_secret()
    grant(server, cloud, password, BASIC)
    for cell, database in cloud.cells.items():
        url = f'{TEMPLATE}{sa.make_url(database.url).database}'
        cloud.map_cell(cell, database_connection=url)
        cloud.add_host(f'host-{cell}', cell)
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

    def discovery_levels():
        """The levels of the findings that depend on the grants for discovery."""
        findings = checked(cloud.config('granted', overrides))
        assert findings['[database] connection'][0] == 'ok'
        assert findings['members'][0] == 'ok'
        subjects = ('[api_database] connection', 'cell cell2')
        return {findings[subject][0] for subject in subjects}

    with Daemon(cloud, overrides) as daemon:
        check_placement(cloud, client)
        rows = cloud.service_rows('nova-scheduler')
        [row] = [row for row in rows if row['host'] == daemon.host]
        assert row['last_seen_up']

        denied = 'Unable to discover hosts in cell'
        wait_until(lambda: denied in daemon.text(), PATIENCE, 'refusal')
        assert is_mapped() == (0, False)
        assert discovery_levels() == {'error'}

        grant(server, cloud, password, DISCOVERY)
        wait_until(
            lambda: 'Discovered 1 new hosts' in daemon.text(), PATIENCE, 'discovery'
        )
        assert is_mapped() == (1, True)
        assert discovery_levels() == {'ok'}
        assert daemon.stop() == 0

        for line in daemon.text().splitlines():
            if 'denied' in line:
                assert 'discover' in line
        assert 'Traceback' not in daemon.text()
    cloud.restore_cells()


def check_placement(cloud, client):
    """Place two servers on the hosts of the two cells, with a filter that reads the
    servers on the hosts."""
    options = {'ignore_hosts': ['host-new'], 'image': {'hw_vif_model': 'virtio'}}
    [first, second] = new_uuids(2)

    [[selection]] = client.select_destinations([first], Flavor(), **options)
    first_host = selection['service_host']
    cloud.boot(first, first_host, Flavor())

    hints = {'different_host': [first]}
    [[selection]] = client.select_destinations(
        [second], Flavor(), hints=hints, **options
    )
    assert {first_host, selection['service_host']} == {'host-cell1', 'host-cell2'}


def test_the_grants_of_the_documentation_are_needed(cloud):
    """Every granted table of nova is named by the daemon's readers of databases, and
    the other way round. The page mentions the additional tables of tools and
    options."""
    tables = set()
    for database in (cloud.api, cloud.cell0):
        tables.update(sa.inspect(database.engine).get_table_names())

    named = set()
    for path in Path(novasched.cells.__file__).parent.glob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in tables:
                named.add(node.value)

    text = '\n'.join(statements(BASIC) + statements(DISCOVERY))
    granted = set(re.findall(r' ON nova_\w+\.(\w+) TO ', text))
    assert granted == named - TOOLS
    for name in named & TOOLS - granted:
        assert f'``nova_api.{name}``' in PAGE.read_text()
