# SPDX-License-Identifier: Apache-2.0
"""Hosts read from a real MariaDB, where digests say what has changed."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings

from novasched.scheduler.ports import Needs
from novasched.tools.sandbox import databases as tables
from tests.lab import servers
from tests.lab.builders import a_request, a_uuid
from tests.lab.nova_databases import EXAMPLE, HOSTS, STORY, NovaDatabases, Story

READERS = 6
WRITES = 150
INSTANCES = 700  # on each host


@pytest.fixture(scope='module')
def databases(mariadb):
    """nova's tables on the database server."""
    prefix = f'novasched_{secrets.token_hex(4)}'
    create = lambda name: servers.create_database(mariadb.url, f'{prefix}_{name}')  # noqa: E731
    with closing(NovaDatabases(create)) as made:
        yield made


@given(steps=STORY)
@example(steps=EXAMPLE)
@settings(max_examples=200, deadline=None)
def test_every_change_is_seen_by_the_next_request(databases, steps):
    """Equal seconds, clocks that differ, deletions, moves, restored backups, neighbours
    that change alike: what a request sees is what a full read sees that is made for
    it."""
    story = Story(databases)
    story.tell(steps)
    story.close()


def test_nobody_sees_hosts_from_before_their_arrival(databases):
    """While hosts are written and read at once, each request sees at least what was
    committed when it came."""
    story = Story(databases)
    engine = databases.engines['cell1']
    node = tables.compute_nodes
    written = [0]

    def write():
        for value in range(1, WRITES + 1):
            with engine.begin() as connection:
                connection.execute(
                    sa.update(node)
                    .where(node.c.host == HOSTS[0])
                    .values(free_ram_mb=value)
                )
            written[0] = value

    def ask():
        seen = []
        while written[0] < WRITES:
            least = written[0]
            hosts = story.reader.read(None, a_request()).hosts
            seen.append((least, hosts[a_uuid(HOSTS[0])].free_ram_mb))
        return seen

    written[0] = 0
    with engine.begin() as connection:
        connection.execute(sa.update(node).values(free_ram_mb=0))
    with ThreadPoolExecutor(READERS + 1) as pool:
        asked = [pool.submit(ask) for _ in range(READERS)]
        pool.submit(write).result()
        seen = [pair for each in asked for pair in each.result()]
    story.close()
    assert len(seen) > READERS
    assert [(least, saw) for least, saw in seen if saw < least] == []


def test_queries_do_not_grow_with_hosts(databases):
    """A request on a cloud in which nothing changes costs the same few queries, however
    many hosts there are; so it does after a renewal with which a cell has come."""
    story = Story(databases)
    mapping = tables.cell_mappings
    for number in range(300):
        databases.add_host(f'more{number}', ('cell1', 'cell2')[number % 2])
    story.read()

    def renew(disabled):
        """The number of hosts once the second cell is disabled or not."""
        with databases.api.begin() as connection:
            connection.execute(
                sa.update(mapping)
                .where(mapping.c.name == 'cell2')
                .values(disabled=disabled)
            )
        story.reader.renew()
        with databases.watched() as asked:
            hosts = story.reader.read(None, a_request()).hosts
        queries = [
            each for each, _ in asked if each.startswith('SELECT') and 'FROM' in each
        ]
        # Of aggregates three, and of each cell two: nodes and services; of a disabled
        # one services.
        assert len(queries) == 3 + (2 - disabled) * 2 + disabled
        return len(hosts)

    assert renew(disabled=False) == 300 + len(HOSTS)
    assert renew(disabled=True) == 150 + len(HOSTS[::2])
    assert renew(disabled=False) == 300 + len(HOSTS)
    story.close()


def test_all_instances_are_read_in_portions(databases):
    """Nothing gets lost between them; instances of the same image share its
    properties."""
    story = Story(databases)
    kept = tables.instance_system_metadata
    for name, cell in story.where.items():
        uuids = [f'{name}-{number}' for number in range(INSTANCES)]
        with databases.engines[cell].begin() as connection:
            rows = [{'uuid': uuid, 'host': name, 'deleted': 0} for uuid in uuids]
            connection.execute(sa.insert(tables.instances), rows)
            image = {'key': 'image_hw_pmu', 'value': '1', 'deleted': 0}
            metadata = [{**image, 'instance_uuid': uuid} for uuid in uuids]
            connection.execute(sa.insert(kept), metadata)
    for images in (False, True):
        hosts = story.reader.read(
            None, a_request(), Needs(instances=True, images=images)
        ).hosts
        for host in hosts.values():
            assert host.instances.keys() == {
                f'{host.host}-{i}' for i in range(INSTANCES)
            }
            properties = [each.image_properties for each in host.instances.values()]
            assert properties[0] == ({'hw_pmu': True} if images else {})
            assert all(each is properties[0] for each in properties)
    story.close()
