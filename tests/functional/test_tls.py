# SPDX-License-Identifier: Apache-2.0
"""TLS to RabbitMQ, MariaDB, Placement and Neutron, each of which wants a certificate of
us."""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import pytest
import sqlalchemy as sa

from tests.lab.certificates import RIGHT, WRONG, Certificates
from tests.lab.daemon import Daemon, NovaClient, checked, is_reference
from tests.lab.known_secrets import a_secret
from tests.lab.nova_cloud import NovaCloud
from tests.lab.placement_api import TOKEN
from tests.lab.processes import wait_until
from tests.lab.proxy import JSON, HttpStub, Proxy
from tests.lab.servers import MariaDB, RabbitMQ, as_user
from tests.lab.sharing import sharing

pytestmark = pytest.mark.skipif(is_reference(), reason='tells it in other words')

PATIENCE = 60
USER = 'secured'
AUTHORITY = 'ssl_ca={0.authority}'
PAIR = 'ssl_cert={0.certificate}&ssl_key={0.key}'
VERIFIED = f'{AUTHORITY}&{PAIR}&ssl_verify_cert=true&ssl_verify_identity=true'
TEMPLATE = '{scheme}://{username}:{password}@{hostname}:{port}/'
NOWHERE = '/no/such/file.pem'


class Neutron(HttpStub):
    """No network has a subnet."""

    asked: list[str] = []

    def reply(self, method, path, headers, body):
        self.asked.append(path)
        return 200, JSON, b'{"subnets": []}'


@dataclass
class Site:
    """A cloud whose servers show a certificate, and ask for one."""

    cloud: NovaCloud
    certificates: Certificates
    broker: RabbitMQ
    database: MariaDB
    neutron: str
    password: str = ''
    placement: Proxy | None = None
    routed: Proxy | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    def show(self, kind):
        """Start the servers anew with a certificate of that kind."""
        identity = self.certificates.servers[kind]
        for server in (self.broker, self.database):
            server.stop()
            server.identity = identity
            server.start()
        self.cloud.disconnect()  # its connections went with the server
        self.opened.close()
        self.placement = self.opened.enter_context(
            Proxy(self.cloud.placement_url, identity)
        )
        self.routed = self.opened.enter_context(Proxy(self.neutron, identity))
        self.password = a_secret()
        engine = sa.create_engine(self.database.url)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                f"GRANT ALL PRIVILEGES ON *.* TO {USER}@'%%' "
                f"IDENTIFIED BY '{self.password}' REQUIRE X509"
            )
        engine.dispose()

    def url(self, base, query=f'{AUTHORITY}&{PAIR}'):
        """A database's URL for who may only come with TLS and a certificate."""
        own = as_user(base, USER, self.password)
        return f'{own}?{query.format(self.certificates.client)}'

    def rabbit(self):
        """Options for the broker."""
        ours = self.certificates.client
        return {
            'DEFAULT': {'transport_url': self.broker.tls_url},
            'oslo_messaging_rabbit': {
                'ssl': True,
                'ssl_ca_file': ours.authority,
                'ssl_cert_file': ours.certificate,
                'ssl_key_file': ours.key,
            },
        }

    @property
    def rabbit_url(self):
        """The same options in the query of the URL, as openstack-ansible writes
        them."""
        ours = self.certificates.client
        query = {
            'ssl': 1,
            'ssl_ca_file': ours.authority,
            'ssl_cert_file': ours.certificate,
            'ssl_key_file': ours.key,
        }
        return f'{self.broker.tls_url}?{urlencode(query)}'

    def http(self, group, front):
        """Options for Placement or Neutron."""
        assert front is not None
        ours = self.certificates.client
        return {
            group: {
                'auth_type': 'admin_token',
                'token': TOKEN,
                'endpoint': front.url,
                'endpoint_override': front.url,
                'cafile': ours.authority,
                'certfile': ours.certificate,
                'keyfile': ours.key,
            }
        }

    def databases(self):
        """Options for both databases."""
        return {
            'database': {
                'connection': self.url(self.cloud.cell0.url),
                'retry_interval': 0,
            },
            'api_database': {
                'connection': self.url(self.cloud.api.url, VERIFIED),
                'retry_interval': 0,
            },
        }


@pytest.fixture(scope='module')
def site(nova, placement, tmp_path_factory):
    """One, with a host in each cell."""
    directory = tmp_path_factory.mktemp('tls')
    certificates = Certificates.make(directory)
    with ExitStack() as stack:
        broker = stack.enter_context(closing(RabbitMQ()))
        database = stack.enter_context(closing(MariaDB()))
        broker.start()
        database.start()
        cloud = NovaCloud(
            nova,
            directory,
            amqp_url=broker.url,
            database_url=database.url,
            placement_url=placement.url,
        )
        stack.enter_context(closing(cloud))
        neutron = stack.enter_context(Neutron())
        cloud.reset()
        cloud.add_host('host-1', 'cell1')
        cloud.add_host('host-2', 'cell2')
        url = f'http://{neutron.address}'
        made = Site(cloud, certificates, broker, database, url)
        stack.callback(made.opened.close)
        yield made


@pytest.fixture(scope='module', params=[RIGHT, *WRONG])
def kind(site, request):
    """What the servers show."""
    name = request.param
    site.show(name)
    return name


@pytest.fixture(autouse=True)
def kept(site, kind):
    """The cells are mapped as before, and their computes up."""
    site.cloud.refresh_services()
    yield
    site.cloud.restore_cells()


right = pytest.mark.parametrize('kind', [RIGHT], indirect=True)
wrong = pytest.mark.parametrize('kind', WRONG, indirect=True)


def lines(daemon, text):
    """Those of the log that have a text; none of it is a traceback."""
    log = daemon.text()
    assert 'Traceback' not in log
    return [line for line in log.splitlines() if text in line]


@right
def test_all_over_tls(site, kind):
    """Requests come in and are answered, from both cells, one of which has a template
    for its URL, with everybody over TLS."""
    overrides = {
        **site.rabbit(),
        **site.databases(),
        **site.http('placement', site.placement),
        **site.http('neutron', site.routed),
        'scheduler': {
            'query_placement_for_routed_network_aggregates': True,
            'workers': 1,
        },
    }
    cell1, cell2 = site.cloud.cells.values()
    site.cloud.map_cell('cell1', database_connection=site.url(cell1.url))
    template = f'{TEMPLATE}{sa.make_url(cell2.url).database}?{{query}}'
    site.cloud.map_cell('cell2', database_connection=template)
    Neutron.asked.clear()
    config = site.cloud.config('tls-client', overrides)
    with (
        closing(NovaClient(site.cloud.nova, config)) as client,
        Daemon(site.cloud, overrides) as daemon,
    ):
        assert client.reached() == {'host-1', 'host-2'}
        assert Neutron.asked
        assert daemon.stop() == 0
        assert lines(daemon, 'WARNING') == []
    found = checked(site.cloud.config('tls-check', overrides))
    assert {level for level, _ in found.values()} == {'ok'}
    assert len(found) == 8


@right
def test_all_options_in_the_url(site, kind):
    """Schedulers hear each other where TLS stands in ``transport_url`` alone, and the
    check reaches the broker."""
    with (
        sharing(site.cloud, 'tls-one', site.rabbit_url) as one,
        sharing(site.cloud, 'tls-two', site.rabbit_url) as two,
    ):
        wait_until(
            lambda: one.peers.position[1] == two.peers.position[1] == 2, PATIENCE, 'two'
        )
    overrides = {'DEFAULT': {'transport_url': site.rabbit_url}}
    found = checked(site.cloud.config('tls-check', overrides))
    at = urlsplit(site.broker.tls_url)
    level, _ = found[f'{at.hostname}:{at.port}']
    assert level == 'ok'


@right
def test_without_a_certificate_of_ours(site, kind):
    """The servers say that they want one."""
    bare = site.url(site.cloud.cell0.url, AUTHORITY)
    daemon = Daemon(site.cloud, {'database': {'connection': bare, 'retry_interval': 0}})
    assert daemon.run_to_end() != 0
    assert lines(daemon, 'novasched: [database] connection: (1045, "Access denied')
    options = site.rabbit()
    rabbit = {'ssl': True, 'ssl_ca_file': site.certificates.client.authority}
    told(site, {**options, 'oslo_messaging_rabbit': rabbit}, 'certificate required')


@right
def test_a_file_that_is_not_there(site, kind):
    """The start ends with the option and the path."""
    groups = {
        **site.rabbit(),
        **site.http('placement', site.placement),
        **site.http('neutron', site.routed),
    }
    url = f'{site.cloud.cell0.url}?ssl_ca={NOWHERE}'
    cases = {'ssl_ca of [database] connection': {'database': {'connection': url}}}
    for group, option in (
        ('placement', 'cafile'),
        ('neutron', 'keyfile'),
        ('oslo_messaging_rabbit', 'ssl_cert_file'),
    ):
        cases[f'[{group}] {option}'] = {
            **groups,
            group: {**groups[group], option: NOWHERE},
        }
    for name, overrides in cases.items():
        daemon = Daemon(site.cloud, overrides)
        assert daemon.run_to_end() != 0
        assert lines(
            daemon, f'novasched: {name} = {NOWHERE}: No such file or directory'
        )


@wrong
def test_a_cell(site, kind):
    """It is left out with a warning; who does not care about Placement's certificate
    can say so."""
    cell2 = site.url(site.cloud.cells['cell2'].url)
    site.cloud.map_cell('cell2', database_connection=cell2)
    placement = site.http('placement', site.placement)['placement']
    overrides = {'placement': {**placement, 'insecure': True}}
    config = site.cloud.config('tls-client')
    with (
        closing(NovaClient(site.cloud.nova, config)) as client,
        Daemon(site.cloud, overrides) as daemon,
    ):
        assert client.reached() == {'host-1'}
        assert [line for line in lines(daemon, WRONG[kind]) if 'WARNING' in line]


@wrong
def test_all_others(site, kind):
    """Placement may be mended later: a warning; the broker is tried again and again.
    The check names each server with what is wrong with it."""
    overrides = {**site.rabbit(), **site.http('placement', site.placement)}
    daemon = told(site, overrides, f'certificate verify failed: {WRONG[kind]}')
    [placement] = lines(daemon, 'Unable to initialize placement client')
    assert WRONG[kind] in placement
    overrides['database'] = site.databases()['database']
    found = checked(site.cloud.config('tls-check', overrides))
    errors = {
        subject: text for subject, (level, text) in found.items() if level == 'error'
    }
    at = urlsplit(site.broker.tls_url)
    assert set(errors) == {
        '[database] connection',
        '[placement]',
        f'{at.hostname}:{at.port}',
    }
    assert all(WRONG[kind] in text for text in errors.values())


def told(site, overrides, text):
    """A daemon, ended, whose broker's driver has said that."""
    daemon = Daemon(site.cloud, overrides)
    process = daemon.launch()

    def said():
        return any('impl_rabbit' in line for line in lines(daemon, text))

    try:
        process.ready(said, PATIENCE, text)
    finally:
        daemon.close()
    return daemon
