# SPDX-License-Identifier: Apache-2.0
"""TLS connections to RabbitMQ, MariaDB, Placement and Neutron with client
certificates."""

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
    """A Neutron whose networks have no subnets."""

    asked: list[str] = []

    def reply(self, method, path, headers, body):
        self.asked.append(path)
        return 200, JSON, b'{"subnets": []}'


@dataclass
class Site:
    """A cloud whose servers have certificates and require client certificates."""

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
        """Restart the servers with a certificate of a kind, and change the database
        user's password."""
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
        """A database URL of the user who needs TLS and a client certificate."""
        url = as_user(base, USER, self.password)
        return f'{url}?{query.format(self.certificates.client)}'

    def rabbit(self):
        """Options for the broker."""
        identity = self.certificates.client
        return {
            'DEFAULT': {'transport_url': self.broker.tls_url},
            'oslo_messaging_rabbit': {
                'ssl': True,
                'ssl_ca_file': identity.authority,
                'ssl_cert_file': identity.certificate,
                'ssl_key_file': identity.key,
            },
        }

    @property
    def rabbit_url(self):
        """The broker's URL with the same options in its query, as openstack-ansible
        writes the URL."""
        identity = self.certificates.client
        query = {
            'ssl': 1,
            'ssl_ca_file': identity.authority,
            'ssl_cert_file': identity.certificate,
            'ssl_key_file': identity.key,
        }
        return f'{self.broker.tls_url}?{urlencode(query)}'

    def http(self, group, front):
        """Options for Placement or Neutron."""
        assert front is not None
        identity = self.certificates.client
        return {
            group: {
                'auth_type': 'admin_token',
                'token': TOKEN,
                'endpoint': front.url,
                'endpoint_override': front.url,
                'cafile': identity.authority,
                'certfile': identity.certificate,
                'keyfile': identity.key,
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
    """A site with a host in each of two cells."""
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
        site = Site(cloud, certificates, broker, database, url)
        stack.callback(site.opened.close)
        yield site


@pytest.fixture(scope='module', params=[RIGHT, *WRONG])
def kind(site, request):
    """The kind of the servers' certificates."""
    name = request.param
    site.show(name)
    return name


@pytest.fixture(autouse=True)
def kept(site, kind):
    """Restore the cell mappings after a test; the computes are up before the test."""
    site.cloud.refresh_services()
    yield
    site.cloud.restore_cells()


right = pytest.mark.parametrize('kind', [RIGHT], indirect=True)
wrong = pytest.mark.parametrize('kind', WRONG, indirect=True)


def lines(daemon, text):
    """The lines of the log with a text. The log has no traceback."""
    log = daemon.text()
    assert 'Traceback' not in log
    return [line for line in log.splitlines() if text in line]


@right
def test_requests_get_hosts_with_tls_connections_to_all_services(site, kind):
    """With TLS connections to all servers, requests are answered with hosts of both
    cells. The URL of a cell is a template."""
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
        warnings = lines(daemon, 'WARNING')
        # On a busy machine, a report to the database may take longer than its interval.
        assert [line for line in warnings if 'outlasted interval' not in line] == []

    findings = checked(site.cloud.config('tls-check', overrides))
    assert {level for level, _ in findings.values()} == {'ok'}
    assert len(findings) == 8


@right
def test_tls_options_in_transport_url_alone_reach_the_broker(site, kind):
    """With the TLS options in ``transport_url`` only, schedulers hear each other, and
    the check reaches the broker."""
    with (
        sharing(site.cloud, 'tls-one', site.rabbit_url) as first,
        sharing(site.cloud, 'tls-two', site.rabbit_url) as second,
    ):

        def hear_each_other():
            return first.peers.position[1] == second.peers.position[1] == 2

        wait_until(hear_each_other, PATIENCE, 'two')

    overrides = {'DEFAULT': {'transport_url': site.rabbit_url}}
    findings = checked(site.cloud.config('tls-check', overrides))
    broker = urlsplit(site.broker.tls_url)
    level, _ = findings[f'{broker.hostname}:{broker.port}']
    assert level == 'ok'


@right
def test_a_connection_without_a_client_certificate_is_refused(site, kind):
    """The servers refuse a connection without a client certificate."""
    bare = site.url(site.cloud.cell0.url, AUTHORITY)
    daemon = Daemon(site.cloud, {'database': {'connection': bare, 'retry_interval': 0}})
    assert daemon.run_to_end() != 0
    assert lines(daemon, 'novasched: [database] connection: (1045, "Access denied')

    options = site.rabbit()
    rabbit = {'ssl': True, 'ssl_ca_file': site.certificates.client.authority}
    run_until_logged(
        site, {**options, 'oslo_messaging_rabbit': rabbit}, 'certificate required'
    )


@right
def test_a_missing_certificate_file_stops_the_start(site, kind):
    """A missing file ends the start; the log names the option and the path."""
    groups = {
        **site.rabbit(),
        **site.http('placement', site.placement),
    }
    url = f'{site.cloud.cell0.url}?ssl_ca={NOWHERE}'
    cases = {'ssl_ca of [database] connection': {'database': {'connection': url}}}
    for group, option in (
        ('placement', 'cafile'),
        ('oslo_messaging_rabbit', 'ssl_cert_file'),
    ):
        with_missing_file = {**groups[group], option: NOWHERE}
        cases[f'[{group}] {option}'] = {**groups, group: with_missing_file}

    for name, overrides in cases.items():
        daemon = Daemon(site.cloud, overrides)
        assert daemon.run_to_end() != 0
        line = f'novasched: {name} = {NOWHERE}: No such file or directory'
        assert lines(daemon, line)


@wrong
def test_a_cell_with_a_wrong_certificate_is_left_out(site, kind):
    """A cell with a wrong certificate is left out with a warning. With ``insecure``,
    Placement's wrong certificate is accepted."""
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
        assert any('WARNING' in line for line in lines(daemon, WRONG[kind]))


@wrong
def test_wrong_certificates_of_placement_and_broker_are_reported(site, kind):
    """The daemon warns of Placement's wrong certificate and goes on, and retries the
    broker. The check names the servers and their errors."""
    overrides = {**site.rabbit(), **site.http('placement', site.placement)}
    reason = WRONG[kind]
    daemon = run_until_logged(site, overrides, f'certificate verify failed: {reason}')
    [line] = lines(daemon, 'Unable to initialize placement client')
    assert reason in line

    overrides['database'] = site.databases()['database']
    findings = checked(site.cloud.config('tls-check', overrides))
    broker = urlsplit(site.broker.tls_url)
    errors = set()
    for subject, (level, text) in findings.items():
        if level == 'error':
            errors.add(subject)
            assert reason in text
    assert errors == {
        '[database] connection',
        '[placement]',
        f'{broker.hostname}:{broker.port}',
    }


def run_until_logged(site, overrides, text):
    """Run a daemon until the broker's driver has logged a text; the daemon after its
    end."""
    daemon = Daemon(site.cloud, overrides)
    process = daemon.launch()

    def is_logged():
        return any('impl_rabbit' in line for line in lines(daemon, text))

    try:
        process.ready(is_logged, PATIENCE, text)
    finally:
        daemon.close()
    return daemon
