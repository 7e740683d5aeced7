# SPDX-License-Identifier: Apache-2.0
"""Hosts read from a real MariaDB. Digests of rows tell the changed rows."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings

from novasched.tools.sandbox import databases as tables
from tests.lab import servers
from tests.lab.builders import a_needs, a_request, a_uuid
from tests.lab.nova_databases import EXAMPLE, HOSTS, STORY, NovaDatabases, Story

READERS = 6
WRITES = 150
INSTANCES = 700  # on every host


@pytest.fixture(scope='module')
def databases(mariadb):
    """nova's tables on the database server."""
    prefix = f'novasched_{secrets.token_hex(4)}'

    def create(name):
        return servers.create_database(mariadb.url, f'{prefix}_{name}')

    with closing(NovaDatabases(create)) as databases:
        yield databases


@given(steps=STORY)
@example(steps=EXAMPLE)
@settings(max_examples=60, deadline=None)
def test_every_change_is_seen_by_the_next_request(databases, steps):
    """A request sees the same as a full read at the same time, after equal timestamps,
    clocks that differ, deletions, moves, restored backups, and equal changes of
    neighbours."""
    story = Story(databases)
    story.tell(steps)
    story.close()


def test_a_request_sees_every_commit_from_before_the_request(databases):
    """While hosts are written and read at once, a request sees at least the value that
    was committed when the request came."""
    story = Story(databases)
    engine = databases.engines['cell1']
    node = tables.compute_nodes
    last_written = 0

    def write():
        nonlocal last_written
        for value in range(1, WRITES + 1):
            with engine.begin() as connection:
                connection.execute(
                    sa.update(node)
                    .where(node.c.host == HOSTS[0])
                    .values(free_ram_mb=value)
                )
            last_written = value

    def ask():
        """The last written value before a request, and the value that the request saw,
        for all requests of a thread."""
        pairs = []
        while last_written < WRITES:
            before = last_written
            hosts = story.reader.read(None, a_request()).hosts
            pairs.append((before, hosts[a_uuid(HOSTS[0])].free_ram_mb))
        return pairs

    with engine.begin() as connection:
        connection.execute(sa.update(node).values(free_ram_mb=0))
    with ThreadPoolExecutor(READERS + 1) as pool:
        futures = [pool.submit(ask) for _ in range(READERS)]
        pool.submit(write).result()
        pairs = []
        for future in futures:
            pairs += future.result()
    story.close()

    assert len(pairs) > READERS
    assert [(before, seen) for before, seen in pairs if seen < before] == []


def test_queries_do_not_grow_with_hosts(databases):
    """A request on an unchanged cloud costs a constant number of queries, however many
    hosts there are, also after a renewal of the cell mappings."""
    story = Story(databases)
    mapping = tables.cell_mappings
    for number in range(300):
        databases.add_host(f'more{number}', ('cell1', 'cell2')[number % 2])
    story.read()

    def renew(disabled):
        """Disable or enable the second cell; the number of hosts afterwards."""
        with databases.api.begin() as connection:
            connection.execute(
                sa.update(mapping)
                .where(mapping.c.name == 'cell2')
                .values(disabled=disabled)
            )
        story.reader.renew()
        with databases.watched() as watched:
            hosts = story.reader.read(None, a_request()).hosts

        queries = 0
        for statement, _ in watched:
            if statement.startswith('SELECT') and 'FROM' in statement:
                queries += 1
        # Three queries for aggregates; nodes and services for every enabled cell;
        # services for the disabled cell.
        assert queries == 3 + (2 - disabled) * 2 + disabled
        return len(hosts)

    assert renew(disabled=False) == 300 + len(HOSTS)
    assert renew(disabled=True) == 150 + len(HOSTS[::2])
    assert renew(disabled=False) == 300 + len(HOSTS)
    story.close()


def test_all_instances_are_read_in_portions(databases):
    """No instance is lost between two portions, and instances with the same image share
    the image's properties."""
    story = Story(databases)
    columns = {'deleted': 0}
    image = {'key': 'image_hw_pmu', 'value': '1', 'deleted': 0}
    for name, cell in story.where.items():
        uuids = [f'{name}-{number}' for number in range(INSTANCES)]
        rows = [{'uuid': uuid, 'host': name, **columns} for uuid in uuids]
        metadata = [{**image, 'instance_uuid': uuid} for uuid in uuids]
        with databases.engines[cell].begin() as connection:
            connection.execute(sa.insert(tables.instances), rows)
            connection.execute(sa.insert(tables.instance_system_metadata), metadata)

    for images in (False, True):
        needs = a_needs(instances=True, images=images)
        hosts = story.reader.read(None, a_request(), needs).hosts

        for host in hosts.values():
            expected = {f'{host.host}-{number}' for number in range(INSTANCES)}
            assert host.instances.keys() == expected

            first, *rest = host.instances.values()
            assert first.image_properties == ({'hw_pmu': True} if images else {})
            for instance in rest:
                assert instance.image_properties is first.image_properties
    story.close()
