# SPDX-License-Identifier: Apache-2.0
"""Prefilters find aggregates by metadata exactly as nova's own prefilters do on the
same database, which compares the texts for nova."""

import secrets
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.conf.settings import Settings
from novasched.scheduler.prefilters import Sources
from novasched.scheduler.prefilters.request_filter import (
    AvailabilityZonePrefilter,
    IsolatedAggregatesPrefilter,
    TenantAggregatePrefilter,
)
from tests.lab.builders import a_flavor, a_request, a_uuid
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, NovaClient
from tests.lab.fixtures import MYSQL_URL
from tests.lab.nova_cloud import PROJECT
from tests.lab.nova_release import write_config
from tests.lab.postgresql import PostgreSQL
from tests.lab.servers import create_database

SCRIPT = Path(__file__).with_name('nova_prefilters.py')
TABLES = ('aggregate_metadata', 'aggregates')


class SearchedDatabase:
    """An API database with nova's tables, searched by nova and by novasched."""

    def __init__(self, nova, directory, url):
        config = write_config(
            directory / f'metadata-{secrets.token_hex(4)}.conf',
            {'api_database': {'connection': url}, 'database': {'connection': url}},
        )
        self.api = Database(sa.create_engine(url), 'API database')
        self.sources = Sources(AggregateReader(self.api))
        self.engine = sa.create_engine(url)
        self.client = NovaClient(nova, config, SCRIPT)
        self.client('migrate', 120)
        metadata = sa.MetaData()
        metadata.reflect(self.engine, only=TABLES)
        self.tables = metadata.tables

    def close(self):
        self.client.close()
        self.api.close()
        self.engine.dispose()

    def replace(self, pairs):
        """Replace all aggregates. Each pair of a metadata key and a value is an
        aggregate of its own."""
        aggregates = []
        metadata = []
        for number, (key, value) in enumerate(pairs, 1):
            uuid = a_uuid(f'{key}={value}-{number}')
            aggregates.append({'id': number, 'uuid': uuid, 'name': f'agg{number}'})
            metadata.append({'aggregate_id': number, 'key': key, 'value': value})

        with self.engine.begin() as connection:
            for name in TABLES:
                connection.execute(sa.delete(self.tables[name]))
            if pairs:
                connection.execute(sa.insert(self.tables['aggregates']), aggregates)
                connection.execute(
                    sa.insert(self.tables['aggregate_metadata']), metadata
                )

    def nova_finds(self, requests):
        """See the command ``search`` of nova_prefilters.py."""
        return self.client('search', 120, requests=requests)

    def novasched_finds(self, requests):
        """The same by novasched's prefilters."""
        return [_found(self.sources, kind, value) for kind, value in requests]


def _found(sources, kind, value):
    if kind == 'project':
        prefilter = TenantAggregatePrefilter
        request = replace(a_request(), project_id=value)
    elif kind == 'zone':
        prefilter = AvailabilityZonePrefilter
        request = a_request(availability_zone=value)
    else:
        prefilter = IsolatedAggregatesPrefilter
        extra_specs = {f'trait:{name}': 'required' for name in value}
        request = a_request(flavor=a_flavor(extra_specs=extra_specs))

    destination = prefilter(Settings(), sources)(request).requested_destination
    if destination is None:
        return []
    if kind == 'traits':
        return sorted(destination.forbidden_aggregates)
    return sorted(destination.aggregates[0])


@pytest.fixture(scope='module')
def postgresql():
    with closing(PostgreSQL()) as server:
        server.start()
        yield server


@pytest.fixture(scope='module', params=['MariaDB', 'PostgreSQL', 'SQLite'])
def database(request, nova, directory):
    """nova's API database on each kind of server, with the collation that nova's
    migrations choose."""
    name = f'nova_{secrets.token_hex(4)}'
    if request.param == 'SQLite':
        url = f'sqlite:///{directory / name}.db'
    elif request.param == 'MariaDB':
        # oslo.db defaults to utf8mb3, in which nova cannot ask for some of the texts.
        url = create_database(request.getfixturevalue('mariadb').url, name)
        url += '?charset=utf8mb4'
    else:
        url = create_database(request.getfixturevalue('postgresql').url, name)
    with closing(SearchedDatabase(nova, directory, url)) as database:
        yield database


PAIRS = [
    ('filter_tenant_id', 'p1'),
    ('filter_tenant_id_2', 'P1'),
    ('filter_tenant_id3', 'p1 '),
    ('filter_tenant_id3', 'p1\t'),
    ('Filter_Tenant_Id', 'p1'),
    ('other', 'p1'),
    ('filter_tenant_id', 'Straße'),
    ('availability_zone', 'zone-a'),
    ('availability_zone', 'Zone-A'),
    ('Availability_Zone', 'zone-a'),
    ('availability_zone ', 'zone-a  '),
    ('availability_zone', 'Zürich'),
    ('availability_zone', 'zurich'),
    ('availability_zone', '東京'),
    ('zone', 'zone-a'),
    ('trait:CUSTOM_X', 'required'),
    ('trait:custom_x', 'required'),
    ('trait:CUSTOM_X', 'Required'),
    ('Trait:CUSTOM_X', 'required '),
    ('TRAIT:CUSTOM_Y', 'REQUIRED'),
    ('TRAIT:CUSTOM_Z', 'required'),
    ('trait:CUSTOM_Y', 'réquired'),
    ('trait:CUSTOM_Y ', 'required'),
    ('traits:CUSTOM_Y', 'required'),
    ('trait:', 'required'),
    ('trait', 'required'),
    ('trait:CUSTOM_Y', 'forbidden'),
]
REQUESTS = [
    *(('project', text) for text in ('p1', 'P1', 'p1 ', 'p2', 'strasse', 'STRASE')),
    *(('zone', text) for text in ('zone-a', 'ZONE-A', 'zone-a ', 'zürich', 'ZURICH')),
    *(('zone', text) for text in ('Zu\u0308rich', '東京', 'zone', 'zone-a\u00a0', '')),
    ('traits', []),
    ('traits', ['CUSTOM_X']),
    ('traits', ['CUSTOM_Y']),
    ('traits', ['CUSTOM_X', 'CUSTOM_Y']),
]


def test_aggregates_are_found_as_by_nova(database):
    """Each request uses and avoids the aggregates that nova finds for the request on
    the same database."""
    database.replace(PAIRS)
    assert database.novasched_finds(REQUESTS) == database.nova_finds(REQUESTS)


ON_MARIADB = [
    'utf8mb4_general_nopad_ci',
    'utf8mb4_uca1400_ai_ci',
    'utf8mb4_uca1400_nopad_ai_ci',
    'utf8mb4_uca1400_as_cs',
]
"""The default of MariaDB, collations without padding and with several levels."""
ON_MYSQL = [
    'utf8mb4_0900_ai_ci',
    'utf8mb4_0900_as_ci',
    'utf8mb4_0900_as_cs',
    'utf8mb4_0900_bin',
    'utf8mb4_ja_0900_as_cs_ks',
    'utf8mb4_zh_0900_as_cs',
    'utf8mb4_es_trad_0900_ai_ci',
    'utf8mb4_hr_0900_as_cs',
]
"""The default of MySQL 8, and collations with several levels, with many characters and
with contractions. None of these has padding."""
COLLATIONS = [
    'utf8mb3_general_ci',
    'utf8mb3_bin',
    'utf8mb4_general_ci',
    'utf8mb4_unicode_ci',
    'utf8mb4_unicode_520_ci',
    'utf8mb4_spanish2_ci',
    'utf8mb4_bin',
    *(ON_MYSQL if MYSQL_URL else ON_MARIADB),
]
"""The defaults and further collations of the server that the tests use."""
LAST_CHARACTER = {'utf8mb3': '\uffff', 'utf8mb4': '\U0010ffff'}
ALIKE = (
    'aA\u00e0\u00c4\u00aa\u24d0b',
    'sS\u00df\u017f',
    ' \u00a0\t\u3000',
    'cChHlL',
    'iI\u0131\u0130',
    '\u03a3\u03c3\u03c2',
    '\u0301\u0308\u200b\u00ad',
    '\ufb00f',
    '\uac00\u1100\u1161',
    '\U0001f600\U0001d41a?\ufffd',
)
"""Characters that some collations take for equal, ignore or join, in groups."""


KEYS = st.text('abcxABCX19-_:. ', min_size=1, max_size=3)
"""Names in metadata keys, of characters that nova-api allows there."""


def texts_of(charset):
    """Texts of a character set, of which many are equal in some collation."""
    last = LAST_CHARACTER[charset]
    some = [character for character in ''.join(ALIKE) if character <= last]
    characters = st.sampled_from(some) | st.characters(
        min_codepoint=1, max_codepoint=ord(last), exclude_categories=['Cs']
    )
    return st.text(characters, min_size=1, max_size=5)


def is_in(charset, *texts):
    return max(''.join(texts), default='') <= LAST_CHARACTER[charset]


@pytest.fixture
def collated(database, request):
    """The database on MariaDB with a collation."""
    collation = request.param
    charset, _, _ = collation.partition('_')
    database.replace([])
    with database.engine.begin() as connection:
        connection.exec_driver_sql(
            'ALTER TABLE aggregate_metadata CONVERT TO CHARACTER SET'
            f' {charset} COLLATE {collation}'
        )
    return database, charset


@pytest.mark.parametrize('database', ['MariaDB'], indirect=True)
@pytest.mark.parametrize('collated', COLLATIONS, indirect=True)
def test_every_collation_compares_as_in_the_database(collated):
    """The aggregates of each request are the aggregates that nova finds, in each
    collation that an operator may have chosen, and for arbitrary texts."""
    database, charset = collated

    def compare(pairs, requests):
        database.replace(pairs)
        assert database.novasched_finds(requests) == database.nova_finds(requests)

    pairs = [pair for pair in PAIRS if is_in(charset, *pair)]
    compare(pairs, [request for request in REQUESTS if is_in(charset, *request[1])])

    texts = st.lists(texts_of(charset), min_size=1, max_size=30)
    keys = st.lists(KEYS, min_size=1, max_size=30)

    @given(values=texts, zones=texts, keys=keys, traits=keys)
    @settings(max_examples=4, deadline=None)
    def compare_texts(values, zones, keys, traits):
        pairs = [('availability_zone', value) for value in values]
        pairs += [(f'trait:{key}', 'required') for key in keys]
        requests = [('zone', zone) for zone in {*values, *zones}]
        requests += [('traits', [trait]) for trait in traits if trait.isalnum()]
        compare(pairs, requests)

    compare_texts()


def test_instances_follow_aggregate_metadata_in_another_case(cloud, client):
    """On MariaDB, a server stays in the aggregate of its project, off the licensed host
    and in its zone, although the metadata is written in another case."""
    cloud.reset()
    cloud.add_host('licensed', ram_mb=65536, traits=('CUSTOM_X',))
    cloud.add_host('in-zone', ram_mb=32768)
    cloud.add_host('of-others', ram_mb=131072)
    cloud.add_aggregate(
        'windows', ['licensed'], metadata={'trait:custom_x': 'Required'}
    )
    cloud.add_aggregate('rack', ['in-zone', 'licensed'], zone='Zone-A')
    cloud.add_aggregate(
        'tenant',
        ['licensed', 'in-zone'],
        metadata={'filter_tenant_id': f'{PROJECT.upper()} '},
    )
    options = {
        'scheduler': {
            'enable_isolated_aggregate_filtering': True,
            'limit_tenants_to_placement_aggregate': True,
        }
    }
    licensed = replace(Flavor(), extra_specs={'trait:CUSTOM_X': 'required'})

    with Daemon(cloud, options):
        assert client.chosen() == ['in-zone']
        assert client.chosen(zone='zone-a') == ['in-zone']
        assert client.chosen(flavor=licensed) == ['licensed']
        assert client.chosen(flavor=licensed, zone='ZONE-A') == ['licensed']
